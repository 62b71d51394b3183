"""Add computed tensors to a run of a TorchAir comparison: casts of inputs, and minima and maxima
(NaN wins) to compare with reduced tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.ascend.matching.torchair.planner import DerivedTensor, GraphPlan
from syncpoint.ascend.mode.array_pieces import iterate_pieces
from syncpoint.errors import FormatError
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Op, Tensor, TensorKey
from syncpoint.run.reader import Run

_PIECE_ELEMENTS = 1 << 22


def add_derived(reference: Run, target: Run, plan: GraphPlan) -> Run:
    """Add the derived tensors of the plan to the reference: inputs of casts of the target, and
    extrema of tensors for which the target has no more."""
    derived = {d.tensor.key: d for d in plan.derived}
    if not derived:
        return reference
    op_keys = {op.key for op in reference.ops}
    ops: list[Op] = list(reference.ops)
    for key, tensor in derived.items():
        if key.op not in op_keys:
            op_keys.add(key.op)
            source = (target if tensor.from_target else reference).op(tensor.source.key.op)
            ops.append(Op(key.op, source.type if source is not None else ""))
    tensors = [*reference.tensors, *(d.tensor for d in derived.values())]
    store = _DerivedStore(reference, {k: (target, d) for k, d in derived.items()})
    return Run(reference.info, ops, tensors, store, path=reference.path)


def reduce_to_min_max(target: Run, keys: frozenset[TensorKey]) -> Run:
    """The target with only the extrema of the tensors for which the reference has no more."""
    if not keys:
        return target
    derived = {
        tensor.key: DerivedTensor(
            replace(tensor, shape=(2,), layout=""), tensor, from_target=True, is_min_max=True
        )
        for tensor in target.tensors
        if tensor.key in keys
    }
    tensors = [
        derived[tensor.key].tensor if tensor.key in derived else tensor for tensor in target.tensors
    ]
    store = _DerivedStore(target, {k: (target, d) for k, d in derived.items()})
    return Run(target.info, target.ops, tensors, store, path=target.path)


class _DerivedStore:
    """The values of a run, and of tensors derived from others."""

    def __init__(self, run: Run, derived: Mapping[TensorKey, tuple[Run, DerivedTensor]]) -> None:
        self._run = run
        self._derived = derived

    def has_checksum(self, tensor: Tensor) -> bool:
        """Whether the source of the values has a checksum."""
        run, source = self._source(tensor)
        return run.has_checksum(source)

    def verify(self, tensor: Tensor, content: object = None) -> None:
        """Check the source of the values."""
        run, source = self._source(tensor)
        run.verify(source)

    def _source(self, tensor: Tensor) -> tuple[Run, Tensor]:
        entry = self._derived.get(tensor.key)
        if entry is None:
            return self._run, _stored(self._run, tensor)
        target, derived = entry
        return (target if derived.from_target else self._run), derived.source

    def read(self, tensor: Tensor) -> NDArray[Any]:
        """All elements."""
        entry = self._derived.get(tensor.key)
        if entry is None:
            return self._run.values(_stored(self._run, tensor))
        target, derived = entry
        run = target if derived.from_target else self._run
        if derived.is_cast:
            return _cast(run.values(derived.source), tensor)
        if derived.is_min_max:
            return _min_max(run, derived.source)
        return run.values(derived.source)

    def window(self, tensor: Tensor, start: int, stop: int) -> NDArray[Any]:
        """Some elements, in row-major order."""
        if tensor.key not in self._derived:
            return self._run.window(_stored(self._run, tensor), start, stop)
        return self.read(tensor).reshape(-1)[start:stop]


def _stored(run: Run, tensor: Tensor) -> Tensor:
    stored = run.tensor(tensor.key)
    assert stored is not None
    return stored


def _cast(values: NDArray[Any], tensor: Tensor) -> NDArray[Any]:
    """The values after a cast to integers or booleans."""
    with np.errstate(all="ignore"):
        cast = values.astype(DTYPES[tensor.dtype].numpy)
    cast.flags.writeable = False
    return cast


def _min_max(run: Run, tensor: Tensor) -> NDArray[Any]:
    """The least and the greatest value; NaN if one of the values is NaN, as in NumPy."""
    values = run.values(tensor)
    least = [piece.min() for piece in iterate_pieces(values, _PIECE_ELEMENTS)]
    greatest = [piece.max() for piece in iterate_pieces(values, _PIECE_ELEMENTS)]
    if not least:
        raise FormatError(f"{tensor.key} has no elements, so it has no min and max")
    extrema = np.array([np.min(np.array(least)), np.max(np.array(greatest))], values.dtype)
    extrema.flags.writeable = False
    return extrema
