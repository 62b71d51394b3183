"""Read device files that were reduced to the minimum and maximum of each tensor, and infer from the
values the narrower type that they had.

    {the file's name}_min_max.npz    arrays `inputs` and `outputs`, a row [least, greatest] a tensor

NumPy has one type for all rows of an array, and none for bf16: the type that the device computed
in is lost where float16 lies beside integers, and always for bf16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from syncpoint.dumps.npz import NpzFile
from syncpoint.errors import FormatError
from syncpoint.run.model import Role, TensorKey

_MAX_TENSORS = 1 << 16
"""Tensors that one file of reduced ones may tell of."""
_MIN_TENSORS = 3
"""Tensors that are too few to tell a type by."""
_MIN_FITTING_SHARE = 0.9
"""Share of the tensors that must have come from a narrower type."""
_NARROWER = (("bfloat16", np.dtype(ml_dtypes.bfloat16)), ("float16", np.dtype(np.float16)))
"""The one with fewer digits first: most numbers of it are in the other too."""


def narrowed(
    extrema: Mapping[TensorKey, NDArray[Any]],
) -> tuple[dict[TensorKey, NDArray[Any]], str]:
    """The values in the type they were computed in, where nearly all of them are numbers that a
    narrower type has: by chance one float32 in thousands is. In words, what was found."""
    informative = {key: ends for key, ends in extrema.items() if _shows_precision(ends)}
    for name, dtype in _NARROWER:
        fit = [key for key, ends in informative.items() if _fits(ends, dtype)]
        if len(fit) >= _MIN_TENSORS and len(fit) >= _MIN_FITTING_SHARE * len(informative):
            narrowed_extrema = dict(extrema) | {
                key: _make_readonly(extrema[key].astype(dtype)) for key in fit
            }
            return narrowed_extrema, f"reduced values are taken as {name}: they have no more digits"
    return dict(extrema), ""


def _shows_precision(ends: NDArray[Any]) -> bool:
    """Whether these may show how many digits a type has; 0, 1 and infinities are in every type."""
    if ends.dtype.type not in (np.float32, np.float64):
        return False
    finite = ends[np.isfinite(ends)]
    return bool((finite != np.round(finite)).any())


def _fits(ends: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    with np.errstate(all="ignore"):
        return np.array_equal(ends.astype(dtype).astype(ends.dtype), ends, equal_nan=True)


def _make_readonly(values: NDArray[Any]) -> NDArray[Any]:
    values.flags.writeable = False
    return values


def read_ends(path: Path) -> Iterator[tuple[Role, int, NDArray[Any]]]:
    """The pairs of a reduced file; another structure is a FormatError."""
    run = NpzFile().open(path)
    arrays = {tensor.key.op.op: tensor for tensor in run.tensors}
    if set(arrays) != {"inputs", "outputs"}:
        names = ", ".join(sorted(arrays))[:80] or "none"
        raise FormatError(
            f"{path.name} must contain the arrays inputs and outputs, but contains {names}",
            cure="reduce the dump again",
        )
    for name, role in (("inputs", Role.INPUT), ("outputs", Role.OUTPUT)):
        tensor = arrays[name]
        if tensor.shape == (0,):
            continue
        if len(tensor.shape) != 2 or tensor.shape[1] != 2 or tensor.shape[0] > _MAX_TENSORS:
            raise FormatError(
                f"{name} in {path.name} must contain pairs of minimum and maximum, but has"
                f" the shape {tensor.shape}",
                cure="reduce the dump again",
            )
        values = _make_readonly(np.array(run.values(tensor)))
        for index in range(values.shape[0]):
            yield role, index, values[index]
