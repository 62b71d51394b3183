"""Find quantized values and parameters between sync points: range and step of their integer grids,
values rounded to them.

A quantized target that is executed op by op computes in floats. It lost precision before, in values
and parameters that it quantized and dequantized between two sync points.
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

_MAX_OPS = 256
"""Maximum number of ops to follow between a sync point and those before it."""


@dataclass
class IntegerGrids:
    """The integer tensors between a target op and the sync points before it."""

    inputs: dict[TensorKey, Tensor] = field(default_factory=dict)
    """Sync points with the integer tensors they were quantized to."""
    between: list[Tensor] = field(default_factory=list)
    """Integer tensors in between that are not compared."""
    parameters: list[Tensor] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.inputs or self.between or self.parameters)

    def passed_on_rms(self, count: int) -> float:
        """Root mean square of rounding in between, if the op passes it on unchanged: step²/12 for
        each tensor with as many elements as the output."""
        steps = [
            t.quantization.scale[0]
            for t in self.between
            if t.quantization is not None and int(np.prod(t.shape)) == count
        ]
        return float(np.sqrt(sum(s * s for s in steps) / 12))

    def round_inputs(
        self, inputs: Mapping[Edge, NDArray[Any]], paired: Mapping[Edge, TensorKey]
    ) -> dict[Edge, NDArray[Any]]:
        """Round the inputs of an op to the grids of the target."""
        rounded = dict(inputs)
        for edge, value in inputs.items():
            grid = self.inputs.get(paired[edge]) if edge in paired else None
            if grid is not None and value.dtype.kind == "f":
                rounded[edge] = _round_to_grid(value, grid)
        return rounded

    def round_parameters(
        self, run: Run, inputs: Mapping[Edge, NDArray[Any]]
    ) -> dict[Edge, NDArray[Any]]:
        """Round the reference's parameters to as many levels as the target's have. The number of
        levels is used and not the scale, since a folded batch norm changes the scale."""
        rounded = dict(inputs)
        levels: dict[int, tuple[float, int]] = {}
        for tensor in self.parameters:
            step = _relative_step(run, tensor)
            if step is not None:
                count = int(np.prod(tensor.shape))
                levels[count] = max(step, levels.get(count, step))
        for edge, value in inputs.items():
            if edge.role is Role.PARAMETER and value.dtype.kind == "f" and value.size in levels:
                rounded[edge] = _round_to_levels(value, *levels[value.size])
        return rounded


def find_grids_behind(run: Run, key: TensorKey, paired: Container[TensorKey]) -> IntegerGrids:
    """Find the integer tensors between an op and the sync points before it."""
    search = _GridSearch(run, key, paired)
    while search.waiting:
        op = run.op(search.waiting.pop())
        if op is not None:
            search.visit(op)
    return search.grids


class _GridSearch:
    """Follows the inputs of an op back to the sync points before it."""

    def __init__(self, run: Run, key: TensorKey, paired: Container[TensorKey]) -> None:
        self.grids = IntegerGrids()
        self.waiting = [key.op]
        self._visited = {key.op}
        self._run = run
        self._key = key
        self._paired = paired

    def visit(self, op: Op) -> None:
        """Add the grids at one op, and queue the ops before it."""
        own_grid = self._own_grid(op)
        part_of = op.attributes.get("part_of")
        quantizes = op_class(part_of or op.type) == "quantize"
        is_input = False
        is_last_step = bool(part_of) and own_grid is not None
        for edge in _inputs_of_steps(self._run, op) if is_last_step else op.inputs:
            source = TensorKey(edge.op, edge.role, edge.index, self._key.part)
            if edge.role is Role.PARAMETER:
                self._add_parameter(edge)
            elif source in self._paired:
                if quantizes and own_grid is not None:
                    self.grids.inputs[source] = own_grid
                    is_input = True
            elif edge.role is Role.OUTPUT:
                self._wait_for(edge.op)
        if own_grid is not None and own_grid.key not in self._paired and not is_input:
            self.grids.between.append(own_grid)

    def _own_grid(self, op: Op) -> Tensor | None:
        """The output of an op if it is integers of one scale."""
        output = self._run.tensor(TensorKey(op.key, Role.OUTPUT, 0, self._key.part))
        if output is None or output.key == self._key:
            return None
        return output if _has_one_scale(output) else None

    def _add_parameter(self, edge: Edge) -> None:
        parameter = self._run.tensor(TensorKey(edge.op, edge.role, edge.index))
        if parameter is not None and parameter.quantization is not None:
            self.grids.parameters.append(parameter)

    def _wait_for(self, op: OpKey) -> None:
        if op not in self._visited and len(self._visited) < _MAX_OPS:
            self._visited.add(op)
            self.waiting.append(op)


def grid_range(tensor: Tensor, shape: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The smallest and largest number that a grid can represent, for values of this shape; None if
    unknown."""
    quantization = tensor.quantization
    if quantization is None or quantization.table:
        return None
    if len(quantization.scale) > 1 and tensor.shape != shape:
        return None
    range_shape = shape if len(quantization.scale) > 1 else (1,)
    bits = DTYPES[tensor.dtype].bits
    if bits > 16:
        return None
    lowest = 0 if tensor.dtype.startswith("u") else -(2 ** (bits - 1))
    limits = [
        dequantize(Operand(np.full(range_shape, float(integer)), "f64", quantization))
        for integer in (lowest, lowest + 2**bits - 1)
    ]
    return np.minimum(*limits), np.maximum(*limits)


def _inputs_of_steps(run: Run, op: Op) -> list[Edge]:
    """The inputs of a decomposed op, found from the last of its steps."""
    edges: list[Edge] = []
    waiting, visited = [op], {op.key}
    while waiting:
        for edge in waiting.pop().inputs:
            step = run.op(edge.op) if edge.role is Role.OUTPUT else None
            if step is None or step.origins != op.origins or "part_of" not in step.attributes:
                edges.append(edge)
            elif step.key not in visited:
                visited.add(step.key)
                waiting.append(step)
    return edges


def _has_one_scale(tensor: Tensor) -> bool:
    quantization = tensor.quantization
    return quantization is not None and not quantization.table and len(quantization.scale) == 1


def _round_to_grid(value: NDArray[Any], grid: Tensor) -> NDArray[Any]:
    quantization = grid.quantization
    if quantization is None:
        return value
    bits = DTYPES[grid.dtype].bits
    low = 0 if grid.dtype.startswith("u") else -(2 ** (bits - 1))
    wide = value.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        stored = np.clip(
            np.round(wide / quantization.scale[0]) + quantization.zero_point[0],
            low,
            low + 2**bits - 1,
        )
        rounded = (stored - quantization.zero_point[0]) * quantization.scale[0]
    return np.where(np.isfinite(wide), rounded, wide).astype(value.dtype)


def _relative_step(run: Run, tensor: Tensor) -> tuple[float, int] | None:
    """The step of a quantized parameter relative to its largest value, and its number of scales."""
    quantization = tensor.quantization
    if quantization is not None and len(quantization.table) > 1:
        # As many levels at even distances: a good table has no larger error, and the error of a
        # wrong table must not count as expected.
        entries = len(quantization.table) // len(set(quantization.zero_point))
        return 2 / max(entries - 1, 1), 1
    if (
        quantization is None
        or quantization.table
        or not tensor.shape
        or tensor.kept is not Kept.VALUES
    ):
        return None
    try:
        magnitudes = np.abs(dequantize(operand_of(run, tensor)))
    except SyncpointError:
        return None
    if quantization.axis is None or len(quantization.scale) == 1 or quantization.block:
        largest = float(magnitudes.max(initial=0.0))
        return (max(quantization.scale) / largest, 1) if largest else None
    largest_by_channel = (
        np.moveaxis(magnitudes, quantization.axis, 0).reshape(len(quantization.scale), -1).max(1)
    )
    is_nonzero = largest_by_channel > 0
    if not is_nonzero.any():
        return None
    return float(
        np.median(np.asarray(quantization.scale)[is_nonzero] / largest_by_channel[is_nonzero])
    ), len(quantization.scale)


def _round_to_levels(value: NDArray[Any], step: float, channels: int) -> NDArray[Any]:
    wide = value.astype(np.float64)
    axes = [axis for axis, length in enumerate(value.shape) if length == channels]
    if channels > 1 and axes:
        others = tuple(a for a in range(value.ndim) if a != axes[0])
        largest = np.abs(wide).max(axis=others, keepdims=True)
    elif channels > 1 and value.size % channels == 0:
        # Scales along two axes: neighbors share one.
        rows = np.abs(wide).reshape(channels, -1)
        largest = np.broadcast_to(rows.max(1, keepdims=True), rows.shape).reshape(value.shape)
    else:
        largest = np.abs(wide).max(initial=0.0, keepdims=True)
    steps = np.where(largest > 0, largest * step, 1.0)
    return (np.round(wide / steps) * steps).astype(value.dtype)
