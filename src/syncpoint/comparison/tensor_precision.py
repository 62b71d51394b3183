"""The precision each tensor of a run went through: what the `auto` preset assumes.

The coarsest of the op's own output, its parameters and everything upstream. Integers that are
not quantized values carry no precision of their own and pass on none.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from syncpoint.metrics.limits import PRESETS, coarsest, preset_of
from syncpoint.run.model import Op, OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

JUDGED_AS = "judged_as"
"""Attribute of an op whose results are coarser than their type: integers of unknown scale, or
numbers decoded from a type that nothing else knows. The value is the name of a preset."""
_MAX_VISITED_OPS = 256
"""Ops that are looked at between one sync point and those before it."""


@dataclass(frozen=True)
class PrecisionBetween:
    """The coarsest precisions between an op and the sync points before it."""

    results: str
    """Of the tensors that are not compared."""
    parameters: str
    """Of the parameters of the op and of the ops that made those tensors."""


_MIN_ROUNDED_INTEGER = 64
"""Numbers with fewer bits are written by people: 0.5, 0.75, 1.25."""


def _literal_precision(op: Op, upstream: str) -> list[str]:
    """The precision of the numbers written into an op, where they were rounded on the way: a
    constant of a 16-bit model that a fusion made an attribute has all the bits of that type and
    none beyond, whatever the type that the op itself computes in. A divisor becomes a factor."""
    bits = {"f16": 10, "bf16": 7}.get(upstream)
    said = [v for v in op.attributes.values() if isinstance(v, float) and v and np.isfinite(v)]
    numbers = [number for v in said for number in (abs(v), 1 / abs(v))] if bits else []
    for number in numbers:
        whole = float(np.frexp(number)[0]) * 2.0 ** (bits + 1) if bits else 0.0
        if abs(whole - round(whole)) <= 2.0**-22 * whole and _is_rounded(round(whole), number):
            return [upstream]
    return []


def _is_rounded(whole: int, number: float) -> bool:
    """Whether a number that a 16-bit type holds is likely to have been rounded to it. Seven in
    eight need the last three bits of the type; of the others those that people do not write."""
    odd = whole // (whole & -whole)
    return bool(whole % 8) or (odd >= _MIN_ROUNDED_INTEGER and bool((2 * number) % 1))


class Precisions:
    """Precision by op of one run, found in one walk along the execution order."""

    def __init__(self, run: Run, other: Run) -> None:
        """`other` is the run it is compared with: what both were given in the same type
        carries no rounding of either."""
        given = (Role.MODEL_INPUT, Role.PARAMETER, Role.STATE)
        types = {(t.key, t.dtype) for t in other.tensors if t.key.role in given}
        same = {t.key for t in run.tensors if (t.key, t.dtype) in types}
        self._own: dict[tuple[OpKey, Role], list[str]] = {}
        for tensor in run.tensors:
            if tensor.key in same:
                continue
            own = preset_of(tensor.dtype, tensor.quantization is not None)
            known = self._own.setdefault((tensor.key.op, tensor.key.role), [])
            if own not in known:
                known.append(own)
        self._ops = {op.key: op for op in run.ops}
        self._through: dict[OpKey, str] = {}
        self._parameters: dict[OpKey, str] = {}
        self._given: dict[OpKey, str] = {}
        for op in run.ops:
            parameters: list[str] = []
            upstream: list[str] = []
            for edge in op.inputs:
                if edge.role is Role.OUTPUT:
                    upstream.append(self._through.get(edge.op, "exact"))
                else:
                    own_presets = self._own.get((edge.op, edge.role), [])
                    upstream += own_presets
                    if edge.role is Role.PARAMETER:
                        parameters += own_presets
            parameters += _literal_precision(op, coarsest(upstream))
            self._parameters[op.key] = coarsest(parameters)
            own_outputs = self._own.get((op.key, Role.OUTPUT), [])
            said = op.attributes.get(JUDGED_AS)
            if said in PRESETS:
                own_outputs = [*own_outputs, str(said)]
            self._given[op.key] = coarsest(upstream)
            self._through[op.key] = coarsest([*own_outputs, *upstream])

    def of(self, tensor: Tensor) -> str:
        """The preset for a tensor of this run; `exact` for plain integers and bools."""
        own = preset_of(tensor.dtype, tensor.quantization is not None)
        if own == "exact":
            return own
        if tensor.key.role in (Role.OUTPUT, Role.MODEL_OUTPUT):
            return coarsest([own, self._through.get(tensor.key.op, "exact")])
        if tensor.key.role is Role.INPUT:
            return coarsest([own, self._given.get(tensor.key.op, "exact")])
        return own

    def local(self, key: TensorKey, dtype: str, quantized: bool) -> str:
        """The precision of one op by itself: its output and its parameters."""
        own = preset_of(dtype, quantized)
        return coarsest([own, self._parameters.get(key.op, "exact")])

    def between(self, key: TensorKey, paired: Container[TensorKey]) -> PrecisionBetween:
        """What lies between an op and the sync points before it: a target may cast, its
        parameters too, where nobody compares."""
        results: list[str] = []
        parameters: list[str] = []
        waiting = [key.op]
        seen = {key.op}
        while waiting:
            op = self._ops.get(waiting.pop())
            if op is None:
                continue
            parameters.append(self._parameters.get(op.key, "exact"))
            for edge in op.inputs:
                if edge.role is not Role.OUTPUT:
                    continue
                if TensorKey(edge.op, edge.role, edge.index, key.part) in paired:
                    continue
                results += self._own.get((edge.op, Role.OUTPUT), [])
                if edge.op not in seen and len(seen) < _MAX_VISITED_OPS:
                    seen.add(edge.op)
                    waiting.append(edge.op)
        return PrecisionBetween(coarsest(results), coarsest(parameters))

    def through(self, op: OpKey) -> str:
        """The coarsest precision on the way to an op, whatever the type of its own output."""
        return self._through.get(op, "exact")

    def parameters(self, op: OpKey) -> str:
        """The coarsest precision among an op's parameters; `exact` if it has none."""
        return self._parameters.get(op, "exact")
