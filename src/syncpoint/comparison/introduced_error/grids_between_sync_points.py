"""What rounding to integers that a target does between sync points may cost.

A quantized target that is executed op by op computes in floats: what it lost was lost before, by
the values and parameters that it quantized and dequantized again where nobody compares.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.operands import dequantize, operand_of
from syncpoint.errors import SyncpointError
from syncpoint.matching.op_kinds import op_class
from syncpoint.metrics import Operand
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Edge, Kept, Op, OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

_FAR = 256
"""Ops that are looked at between one sync point and those before it."""


@dataclass
class Grids:
    """The integer tensors between an op of the target and the sync points before it."""

    inputs: dict[TensorKey, Tensor] = field(default_factory=dict)
    """Sync points with what they were quantized to."""
    between: list[Tensor] = field(default_factory=list)
    """Results on the way that are not compared."""
    parameters: list[Tensor] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.inputs or self.between or self.parameters)

    def passed_on(self, count: int) -> float:
        """Root mean square of the rounding of results in between that are as large as the
        op's own, if it is passed on as it is: step²/12 each."""
        steps = [
            t.quantization.scale[0]
            for t in self.between
            if t.quantization is not None and int(np.prod(t.shape)) == count
        ]
        return float(np.sqrt(sum(s * s for s in steps) / 12))

    def rounded_inputs(
        self, inputs: Mapping[Edge, NDArray[Any]], paired: Mapping[Edge, TensorKey]
    ) -> dict[Edge, NDArray[Any]]:
        """What an op is fed, rounded to the grids of the target."""
        found = dict(inputs)
        for edge, value in inputs.items():
            grid = self.inputs.get(paired[edge]) if edge in paired else None
            if grid is not None and value.dtype.kind == "f":
                found[edge] = _on_grid(value, grid)
        return found

    def rounded_parameters(
        self, run: Run, inputs: Mapping[Edge, NDArray[Any]]
    ) -> dict[Edge, NDArray[Any]]:
        """The reference's parameters rounded to as many levels as the target's have. By levels
        and not by the scale: a batch norm that was folded in changes the scale."""
        found = dict(inputs)
        levels: dict[int, tuple[float, int]] = {}
        for tensor in self.parameters:
            known = _levels(run, tensor)
            if known is not None:
                count = int(np.prod(tensor.shape))
                levels[count] = max(known, levels.get(count, known))
        for edge, value in inputs.items():
            if edge.role is Role.PARAMETER and value.dtype.kind == "f" and value.size in levels:
                found[edge] = _to_levels(value, *levels[value.size])
        return found


def grids_behind(run: Run, key: TensorKey, paired: Container[TensorKey]) -> Grids:
    """The integer tensors between an op and the sync points before it."""
    search = _GridSearch(run, key, paired)
    while search.waiting:
        op = run.op(search.waiting.pop())
        if op is not None:
            search.visit(op)
    return search.grids


class _GridSearch:
    """Goes back from an op over what it reads, up to the sync points before it."""

    def __init__(self, run: Run, key: TensorKey, paired: Container[TensorKey]) -> None:
        self.grids = Grids()
        self.waiting = [key.op]
        self._seen = {key.op}
        self._run = run
        self._key = key
        self._paired = paired

    def visit(self, op: Op) -> None:
        """Note the grids at one op, and which ops to visit before it."""
        own = self._own_grid(op)
        whole = op.attributes.get("part_of")
        quantizes = op_class(whole or op.type) == "quantize"
        entered = False
        for edge in _read_by(self._run, op) if whole and own is not None else op.inputs:
            source = TensorKey(edge.op, edge.role, edge.index, self._key.part)
            if edge.role is Role.PARAMETER:
                self._add_parameter(edge)
            elif source in self._paired:
                if quantizes and own is not None:
                    self.grids.inputs[source] = own
                    entered = True
            elif edge.role is Role.OUTPUT:
                self._wait_for(edge.op)
        if own is not None and own.key not in self._paired and not entered:
            self.grids.between.append(own)

    def _own_grid(self, op: Op) -> Tensor | None:
        """What an op on the way gave, if it is integers of one scale."""
        own = self._run.tensor(TensorKey(op.key, Role.OUTPUT, 0, self._key.part))
        return own if own is not None and _has_one_scale(own) and own.key != self._key else None

    def _add_parameter(self, edge: Edge) -> None:
        parameter = self._run.tensor(TensorKey(edge.op, edge.role, edge.index))
        if parameter is not None and parameter.quantization is not None:
            self.grids.parameters.append(parameter)

    def _wait_for(self, op: OpKey) -> None:
        if op not in self._seen and len(self._seen) < _FAR:
            self._seen.add(op)
            self.waiting.append(op)


def ends_of(tensor: Tensor, shape: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The least and the greatest number that a grid can hold, for values of this shape."""
    known = tensor.quantization
    if known is None or known.table:
        return None
    if len(known.scale) > 1 and tensor.shape != shape:
        return None
    over = shape if len(known.scale) > 1 else (1,)
    bits = DTYPES[tensor.dtype].bits
    if bits > 16:
        return None
    first = 0 if tensor.dtype.startswith("u") else -(2 ** (bits - 1))
    both = [
        dequantize(Operand(np.full(over, float(end)), "f64", known))
        for end in (first, first + 2**bits - 1)
    ]
    return np.minimum(*both), np.maximum(*both)


def _read_by(run: Run, op: Op) -> list[Edge]:
    """What an op that was taken apart reads, by the last of its steps."""
    found: list[Edge] = []
    waiting, seen = [op], {op.key}
    while waiting:
        for edge in waiting.pop().inputs:
            step = run.op(edge.op) if edge.role is Role.OUTPUT else None
            if step is None or step.origins != op.origins or "part_of" not in step.attributes:
                found.append(edge)
            elif step.key not in seen:
                seen.add(step.key)
                waiting.append(step)
    return found


def _has_one_scale(tensor: Tensor) -> bool:
    known = tensor.quantization
    return known is not None and not known.table and len(known.scale) == 1


def _on_grid(value: NDArray[Any], grid: Tensor) -> NDArray[Any]:
    known = grid.quantization
    if known is None:
        return value
    bits = DTYPES[grid.dtype].bits
    low = 0 if grid.dtype.startswith("u") else -(2 ** (bits - 1))
    wide = value.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        stored = np.clip(
            np.round(wide / known.scale[0]) + known.zero_point[0], low, low + 2**bits - 1
        )
        back = (stored - known.zero_point[0]) * known.scale[0]
    return np.where(np.isfinite(wide), back, wide).astype(value.dtype)


def _levels(run: Run, tensor: Tensor) -> tuple[float, int] | None:
    """The step of a quantized parameter by its greatest value, and its number of scales."""
    known = tensor.quantization
    if known is not None and len(known.table) > 1:
        # As many levels at even distances: a table that was chosen well costs no more, and one
        # that is wrong must not excuse itself.
        entries = len(known.table) // len(set(known.zero_point))
        return 2 / max(entries - 1, 1), 1
    if known is None or known.table or not tensor.shape or tensor.kept is not Kept.VALUES:
        return None
    try:
        real = np.abs(dequantize(operand_of(run, tensor)))
    except SyncpointError:
        return None
    if known.axis is None or len(known.scale) == 1 or known.block:
        top = float(real.max(initial=0.0))
        return (max(known.scale) / top, 1) if top else None
    tops = np.moveaxis(real, known.axis, 0).reshape(len(known.scale), -1).max(1)
    full = tops > 0
    if not full.any():
        return None
    return float(np.median(np.asarray(known.scale)[full] / tops[full])), len(known.scale)


def _to_levels(value: NDArray[Any], step: float, channels: int) -> NDArray[Any]:
    wide = value.astype(np.float64)
    axes = [axis for axis, length in enumerate(value.shape) if length == channels]
    if channels > 1 and axes:
        others = tuple(a for a in range(value.ndim) if a != axes[0])
        top = np.abs(wide).max(axis=others, keepdims=True)
    elif channels > 1 and value.size % channels == 0:
        # Scales along two axes: neighbours share one.
        rows = np.abs(wide).reshape(channels, -1)
        top = np.broadcast_to(rows.max(1, keepdims=True), rows.shape).reshape(value.shape)
    else:
        top = np.abs(wide).max(initial=0.0, keepdims=True)
    steps = np.where(top > 0, top * step, 1.0)
    return (np.round(wide / steps) * steps).astype(value.dtype)
