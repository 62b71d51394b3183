"""Precision of each tensor, by which preset `auto` chooses limits: coarsest type of op, parameters,
constants (also rounded ones) and ops upstream.

It is the coarsest precision of the op's output, its parameters and all ops upstream. Integers that
are not quantized values have no precision.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from syncpoint.metrics.limits import PRESETS, coarsest, preset_of
from syncpoint.run.model import Op, OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

JUDGED_AS = "judged_as"
"""Attribute of an op whose outputs are coarser than their dtype: integers of unknown scale, or
numbers decoded from a vendor's own type. Its value is the name of a preset."""
_MAX_VISITED_OPS = 256
"""Maximum number of ops to visit between a sync point and the sync points before it."""


@dataclass(frozen=True)
class PrecisionBetween:
    """The coarsest precisions between an op and the sync points before it."""

    results: str
    """Of the intermediate tensors, which are not compared."""
    parameters: str
    """Of the parameters of the op and of the ops that compute these tensors."""


_MIN_ROUNDED_INTEGER = 64
"""Minimum odd part of a rounded constant. People write numbers with a smaller one: 0.5, 1.25."""


def _literal_precision(op: Op, upstream: str) -> list[str]:
    """The precision of the constants among the attributes of an op, if they were rounded.

    A fusion may turn a constant of a 16-bit model into an attribute. Such a number fits the 16-bit
    type exactly, whatever type the op computes in. A divisor may have become a factor, so that the
    reciprocal is checked too.
    """
    bits = {"f16": 10, "bf16": 7}.get(upstream)
    constants = [v for v in op.attributes.values() if isinstance(v, float) and v and np.isfinite(v)]
    candidates = [number for v in constants for number in (abs(v), 1 / abs(v))] if bits else []
    for number in candidates:
        scaled = float(np.frexp(number)[0]) * 2.0 ** (bits + 1) if bits else 0.0
        if abs(scaled - round(scaled)) <= 2.0**-22 * scaled and _is_rounded(round(scaled), number):
            return [upstream]
    return []


def _is_rounded(integer: int, number: float) -> bool:
    """Whether a number that fits a 16-bit type was probably rounded to it.

    Seven of eight rounded numbers use the last three bits of the type. Of the rest, those count
    that people do not write by hand.
    """
    odd_part = integer // (integer & -integer)
    return bool(integer % 8) or (odd_part >= _MIN_ROUNDED_INTEGER and bool((2 * number) % 1))


class Precisions:
    """The precision of every op of a run, computed in execution order."""

    def __init__(self, run: Run, other: Run) -> None:
        """`other` is the run it is compared with.

        Inputs, parameters and states with the same type on both sides have no rounding error.
        """
        given_roles = (Role.MODEL_INPUT, Role.PARAMETER, Role.STATE)
        other_types = {(t.key, t.dtype) for t in other.tensors if t.key.role in given_roles}
        equal_type_keys = {t.key for t in run.tensors if (t.key, t.dtype) in other_types}
        self._own: dict[tuple[OpKey, Role], list[str]] = {}
        for tensor in run.tensors:
            if tensor.key in equal_type_keys:
                continue
            own_preset = preset_of(tensor.dtype, tensor.quantization is not None)
            presets = self._own.setdefault((tensor.key.op, tensor.key.role), [])
            if own_preset not in presets:
                presets.append(own_preset)
        self._ops = {op.key: op for op in run.ops}
        self._through: dict[OpKey, str] = {}
        self._parameters: dict[OpKey, str] = {}
        self._upstream: dict[OpKey, str] = {}
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
            judged_as = op.attributes.get(JUDGED_AS)
            if judged_as in PRESETS:
                own_outputs = [*own_outputs, str(judged_as)]
            self._upstream[op.key] = coarsest(upstream)
            self._through[op.key] = coarsest([*own_outputs, *upstream])

    def of(self, tensor: Tensor) -> str:
        """The preset of a tensor; `exact` for plain integers and bools."""
        own = preset_of(tensor.dtype, tensor.quantization is not None)
        if own == "exact":
            return own
        if tensor.key.role in (Role.OUTPUT, Role.MODEL_OUTPUT):
            return coarsest([own, self._through.get(tensor.key.op, "exact")])
        if tensor.key.role is Role.INPUT:
            return coarsest([own, self._upstream.get(tensor.key.op, "exact")])
        return own

    def local(self, key: TensorKey, dtype: str, quantized: bool) -> str:
        """The precision of one op alone: its output and its parameters."""
        own = preset_of(dtype, quantized)
        return coarsest([own, self._parameters.get(key.op, "exact")])

    def between(self, key: TensorKey, paired: Container[TensorKey]) -> PrecisionBetween:
        """The precision between an op and the sync points before it.

        A target may cast values or parameters there, where nothing is compared.
        """
        results: list[str] = []
        parameters: list[str] = []
        waiting = [key.op]
        visited = {key.op}
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
                if edge.op not in visited and len(visited) < _MAX_VISITED_OPS:
                    visited.add(edge.op)
                    waiting.append(edge.op)
        return PrecisionBetween(coarsest(results), coarsest(parameters))

    def through(self, op: OpKey) -> str:
        """The coarsest precision upstream of an op, its own output included."""
        return self._through.get(op, "exact")

    def parameters(self, op: OpKey) -> str:
        """The coarsest precision of the parameters of an op; `exact` if it has none."""
        return self._parameters.get(op, "exact")
