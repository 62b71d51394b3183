"""Device files of which only the least and the greatest value of each tensor were kept.

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

_MAX_REDUCED = 1 << 16
"""Tensors that one file of reduced ones may tell of."""
_FEW = 3
"""Tensors that are too few to tell a type by."""
_MOST = 0.9
"""Share of the tensors that must have come from a narrower type."""
_NARROWER = (("bfloat16", np.dtype(ml_dtypes.bfloat16)), ("float16", np.dtype(np.float16)))
"""The one with fewer digits first: most numbers of it are in the other too."""


def narrowed(
    held: Mapping[TensorKey, NDArray[Any]],
) -> tuple[dict[TensorKey, NDArray[Any]], str]:
    """The values in the type they were computed in, where nearly all of them are numbers that a
    narrower type has: by chance one float32 in thousands is. In words, what was found."""
    telling = {key: ends for key, ends in held.items() if _telling(ends)}
    for name, dtype in _NARROWER:
        fit = [key for key, ends in telling.items() if _fits(ends, dtype)]
        if len(fit) >= _FEW and len(fit) >= _MOST * len(telling):
            made = dict(held) | {key: _locked(held[key].astype(dtype)) for key in fit}
            return made, f"reduced values are taken for {name}: they have no more digits"
    return dict(held), ""


def _telling(ends: NDArray[Any]) -> bool:
    """Whether these may show how many digits a type has; 0, 1 and infinities are in every type."""
    if ends.dtype.type not in (np.float32, np.float64):
        return False
    finite = ends[np.isfinite(ends)]
    return bool((finite != np.round(finite)).any())


def _fits(ends: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    with np.errstate(all="ignore"):
        return np.array_equal(ends.astype(dtype).astype(ends.dtype), ends, equal_nan=True)


def _locked(values: NDArray[Any]) -> NDArray[Any]:
    values.flags.writeable = False
    return values


def read_ends(path: Path) -> Iterator[tuple[Role, int, NDArray[Any]]]:
    """The pairs of a reduced file; another structure is a FormatError."""
    run = NpzFile().open(path)
    found = {tensor.key.op.op: tensor for tensor in run.tensors}
    if set(found) != {"inputs", "outputs"}:
        raise FormatError(
            f"the arrays inputs and outputs in {path.name}", ", ".join(sorted(found))[:80] or "none"
        )
    for name, role in (("inputs", Role.INPUT), ("outputs", Role.OUTPUT)):
        tensor = found[name]
        if tensor.shape == (0,):
            continue
        if len(tensor.shape) != 2 or tensor.shape[1] != 2 or tensor.shape[0] > _MAX_REDUCED:
            raise FormatError(
                f"pairs of least and greatest in {name} of {path.name}", f"{tensor.shape}"
            )
        values = _locked(np.array(run.values(tensor)))
        for index in range(values.shape[0]):
            yield role, index, values[index]
