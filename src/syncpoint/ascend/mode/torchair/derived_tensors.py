"""Both dumps as the plan compares them: with values that lie in no file as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.ascend.matching.torchair.graph_plan import Derived, GraphPlan
from syncpoint.errors import FormatError
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Op, Tensor, TensorKey
from syncpoint.run.reader import Run

_STRETCH = 1 << 22


def with_derived(reference: Run, target: Run, plan: GraphPlan) -> Run:
    """The reference with the target's own inputs, where a cast is compared with what it was
    given, and with the ends of tensors of which the target kept no more."""
    derived = {d.tensor.key: d for d in plan.derived}
    if not derived:
        return reference
    known = {op.key for op in reference.ops}
    ops: list[Op] = list(reference.ops)
    for key, made in derived.items():
        if key.op not in known:
            known.add(key.op)
            source = (target if made.own else reference).op(made.source.key.op)
            ops.append(Op(key.op, source.type if source is not None else ""))
    tensors = [*reference.tensors, *(d.tensor for d in derived.values())]
    store = _Store(reference, {k: (target, d) for k, d in derived.items()})
    return Run(reference.info, ops, tensors, store, path=reference.path)


def shrunk(target: Run, keys: frozenset[TensorKey]) -> Run:
    """The target with only the ends of tensors of which the reference kept no more."""
    if not keys:
        return target
    small = {
        t.key: Derived(replace(t, shape=(2,), layout=""), t, own=True, shrunk=True)
        for t in target.tensors
        if t.key in keys
    }
    tensors = [small[t.key].tensor if t.key in small else t for t in target.tensors]
    store = _Store(target, {k: (target, d) for k, d in small.items()})
    return Run(target.info, target.ops, tensors, store, path=target.path)


class _Store:
    """Values of a run, and of tensors derived from another."""

    def __init__(self, run: Run, derived: Mapping[TensorKey, tuple[Run, Derived]]) -> None:
        self._run = run
        self._derived = derived

    def has_checksum(self, tensor: Tensor) -> bool:
        """Whether what the values are made of has one."""
        run, source = self._source(tensor)
        return run.has_checksum(source)

    def verify(self, tensor: Tensor, content: object = None) -> None:
        """Check what the values are made of."""
        run, source = self._source(tensor)
        run.verify(source)

    def _source(self, tensor: Tensor) -> tuple[Run, Tensor]:
        found = self._derived.get(tensor.key)
        if found is None:
            return self._run, _stored(self._run, tensor)
        target, derived = found
        return (target if derived.own else self._run), derived.source

    def read(self, tensor: Tensor) -> NDArray[Any]:
        """All elements."""
        found = self._derived.get(tensor.key)
        if found is None:
            return self._run.values(_stored(self._run, tensor))
        target, derived = found
        run = target if derived.own else self._run
        if derived.cast:
            return _cut(run.values(derived.source), tensor)
        return _ends(run, derived.source) if derived.shrunk else run.values(derived.source)

    def window(self, tensor: Tensor, start: int, stop: int) -> NDArray[Any]:
        """Some elements of the row-major order."""
        if tensor.key not in self._derived:
            return self._run.window(_stored(self._run, tensor), start, stop)
        return self.read(tensor).reshape(-1)[start:stop]


def _stored(run: Run, tensor: Tensor) -> Tensor:
    found = run.tensor(tensor.key)
    assert found is not None
    return found


def _cut(values: NDArray[Any], tensor: Tensor) -> NDArray[Any]:
    """Values as a cast to integers, or to yes and no, leaves them."""
    with np.errstate(all="ignore"):
        cut = values.astype(DTYPES[tensor.dtype].numpy)
    cut.flags.writeable = False
    return cut


def _ends(run: Run, tensor: Tensor) -> NDArray[Any]:
    """The least and the greatest value; NaN where one is NaN, as NumPy has it."""
    values = run.values(tensor).reshape(-1)
    least = [piece.min() for piece in _pieces(values)]
    greatest = [piece.max() for piece in _pieces(values)]
    if not least:
        raise FormatError(f"a least and a greatest value of {tensor.key}", "no elements")
    ends = np.array([np.min(np.array(least)), np.max(np.array(greatest))], values.dtype)
    ends.flags.writeable = False
    return ends


def _pieces(values: NDArray[Any]) -> list[NDArray[Any]]:
    return [values[at : at + _STRETCH] for at in range(0, values.size, _STRETCH)]
