"""Pieces of a program on given values, with all floating-point arithmetic in one type."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from syncpoint.errors import InputError, SyncpointError, Unsupported
from syncpoint.run.model import Edge, OpKey, Role
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.protocol import Array, Region, Tree
from syncpoint.runtimes.torch.arrays import (
    describe_dtype,
    describe_value,
    is_float_name,
    to_numpy,
    to_torch,
    torch_dtype,
)
from syncpoint.runtimes.torch.ledger import CaptureLedger
from syncpoint.runtimes.torch.node_metadata import op_type
from syncpoint.runtimes.torch.op_in_dtype import call_in_dtype, cast_floats, check_can_change_dtype
from syncpoint.runtimes.torch.program import AMBIGUOUS, TorchProgram

_MAX_CACHE_BYTES = 512 << 20
"""Cast parameters are kept up to here; ops of one region share them, and so do neighbours."""


class TorchEvaluator:
    """Runs regions; holds parameters in the types they were last asked for."""

    def __init__(self) -> None:
        self._cache: OrderedDict[Any, torch.Tensor] = OrderedDict()
        self._cached_bytes = 0

    def parameters_of(self, program: TorchProgram, region: Region) -> list[OpKey]:
        """The parameters that the region's ops read, each once."""
        found: dict[OpKey, None] = {}
        for key in region.ops:
            for edge in program.edges.inputs_of(program.nodes[key.op]):
                if edge.role is Role.PARAMETER:
                    found[edge.op] = None
        return list(found)

    def evaluate(
        self,
        program: TorchProgram,
        region: Region,
        inputs: Mapping[Edge, Array],
        dtype: str,
        parameter_dtype: str | None,
    ) -> list[Array | None]:
        """The region's outputs in their order."""
        if not is_float_name(dtype):
            raise InputError("a floating-point type to evaluate in", repr(dtype))
        wide = torch_dtype(dtype)
        default = torch.get_default_dtype()
        # Factories and divisions of integers give the default type.
        torch.set_default_dtype(wide)
        try:
            pieces = _Evaluation(self, program, wide, parameter_dtype)
            return pieces.run(region, inputs)
        finally:
            torch.set_default_dtype(default)

    def evaluate_all(
        self, program: TorchProgram, given: Mapping[Edge, torch.Tensor], ledger: CaptureLedger
    ) -> list[tuple[Edge | None, torch.Tensor | None]]:
        """Run a whole program in float64 and record every op; gives its results."""
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return _Evaluation(self, program, torch.float64, None).run_all(given, ledger)
        finally:
            torch.set_default_dtype(default)

    def parameter(
        self, program: TorchProgram, edge: Edge, dtype: torch.dtype, rounded_to: str | None
    ) -> torch.Tensor:
        """The model's own parameter in `dtype`, rounded to another type before if asked."""
        value = program.parameter(edge)
        if not value.is_floating_point() and not value.is_complex():
            return value
        if rounded_to is None and cast_floats(value, dtype) is value:
            return value
        key = (id(value), value._version, dtype, rounded_to)
        found = self._cache.get(key)
        if found is not None:
            self._cache.move_to_end(key)
            return found
        narrow = value if rounded_to is None else cast_floats(value, torch_dtype(rounded_to))
        made = cast_floats(narrow.detach(), dtype)
        if made.nbytes <= _MAX_CACHE_BYTES:
            self._cache[key] = made
            self._cached_bytes += made.nbytes
            while self._cached_bytes > _MAX_CACHE_BYTES:
                _, dropped = self._cache.popitem(last=False)
                self._cached_bytes -= dropped.nbytes
        return made


class _Evaluation:
    """One evaluation."""

    def __init__(
        self,
        evaluator: TorchEvaluator,
        program: TorchProgram,
        dtype: torch.dtype,
        rounded_to: str | None,
    ) -> None:
        self._evaluator = evaluator
        self._program = program
        self._dtype = dtype
        self._rounded_to = rounded_to
        self._values: dict[Edge, Any] = {}
        self._replaced_parameters: dict[Edge, torch.Tensor] = {}

    def run(self, region: Region, inputs: Mapping[Edge, Array]) -> list[Array | None]:
        program = self._program
        nodes = [(key, program.nodes[key.op]) for key in region.ops]
        for _, node in nodes:
            check_can_change_dtype(node)
        self._replaced_parameters = {
            edge: self._convert_parameter(to_torch(value))
            for edge, value in inputs.items()
            if edge.role is Role.PARAMETER
        }
        given = {
            edge: self._convert_input(edge, value)
            for edge, value in inputs.items()
            if edge.role is not Role.PARAMETER
        }
        self._values.update(given)
        reads = Counter(e for _, node in nodes for e in program.edges.inputs_of(node))
        reads.update(region.outputs)
        rounded = torch_dtype(self._rounded_to) if self._rounded_to is not None else None
        for key, node in nodes:
            try:
                result = call_in_dtype(node, self._fetch_value, self._dtype, rounded)
            except SyncpointError:
                raise
            except Exception as error:
                raise Unsupported(
                    f"{key} ({op_type(node)}) to run on its own in {describe_dtype(self._dtype)}",
                    one_line(error),
                ) from error
            for index, value in enumerate(pytree.tree_leaves(result)):
                self._values.setdefault(Edge(key, index), value)
            for edge in program.edges.inputs_of(node):
                reads[edge] -= 1
                if not reads[edge]:
                    self._values.pop(edge, None)
        lent = {v.untyped_storage().data_ptr() for v in given.values()}
        return [self._collect_output(edge, lent) for edge in region.outputs]

    def run_all(
        self, given: Mapping[Edge, torch.Tensor], ledger: CaptureLedger
    ) -> list[tuple[Edge | None, torch.Tensor | None]]:
        program = self._program
        self._values = {edge: self._convert_input(edge, value) for edge, value in given.items()}
        results = _result_edges(program)
        reads = Counter(e for n in program.nodes.values() for e in program.edges.inputs_of(n))
        reads.update(edge for edge in results if edge is not None)
        for name, node in program.nodes.items():
            check_can_change_dtype(node)
            inputs = program.edges.inputs_of(node)
            key = ledger.record_op(program.plan_of(node).op)
            try:
                result = call_in_dtype(node, self._fetch_value, self._dtype)
            except SyncpointError:
                raise
            except Exception as error:
                raise Unsupported(f"{name} to run in float64", one_line(error)) from error
            leaves = pytree.tree_leaves(result)
            for index, value in enumerate(leaves):
                self._values.setdefault(Edge(program.edges.op_key(name), index), value)
            ledger.record_outputs(key, leaves, ())
            for edge in inputs:
                reads[edge] -= 1
                if not reads[edge]:
                    self._values.pop(edge, None)
        return [(edge, self._values.get(edge) if edge else None) for edge in results]

    def _convert_input(self, edge: Edge, array: Array | torch.Tensor) -> torch.Tensor:
        """A value from outside, in the kind of type and the memory layout the op is used to."""
        value = array if isinstance(array, torch.Tensor) else to_torch(array)
        seen = self._program.expected_tensor(edge)
        if seen is None:
            return cast_floats(value, self._dtype)
        if seen.is_floating_point() or seen.is_complex():
            value = cast_floats(
                value if _is_floating(value) else value.to(self._dtype), self._dtype
            )
        elif seen.dtype == torch.bool:
            value = value != 0 if value.dtype != torch.bool else value
        elif value.dtype != seen.dtype:
            value = (value.round() if value.is_floating_point() else value).to(seen.dtype)
        value = _copy_to_strides(value, seen)
        # Even without gradients matmul chooses its kernel by this flag.
        learns = edge in self._program.observed.requires_grad or seen.requires_grad
        return value.requires_grad_() if learns and _is_floating(value) else value

    def _convert_parameter(self, value: torch.Tensor) -> torch.Tensor:
        """A given parameter in the type of this evaluation, rounded before if asked."""
        if not _is_floating(value):
            return value
        if self._rounded_to is not None:
            value = cast_floats(value, torch_dtype(self._rounded_to))
        return cast_floats(value, self._dtype)

    def _find_parameter(self, edge: Edge) -> torch.Tensor:
        if edge in self._replaced_parameters:
            return self._replaced_parameters[edge]
        return self._evaluator.parameter(self._program, edge, self._dtype, self._rounded_to)

    def _fetch_value(self, node: Node) -> Tree:
        edge = self._program.edges.edge_of(node)
        if edge is not None and edge.role is Role.PARAMETER:
            return self._find_parameter(edge)
        if edge is not None and edge in self._values:
            return self._values[edge]
        seen = node.meta.get("val")
        if isinstance(seen, (list, tuple)):
            key = self._program.edges.op_key(node.name)
            return [self._values[Edge(key, i)] for i in range(len(seen))]
        if node.name in self._program.observed.scalars:
            number = self._program.observed.scalars[node.name]
            if number is AMBIGUOUS:
                raise Unsupported(
                    "numbers that are the same in every run", f"{node.name}, which depends on data"
                )
            return number
        raise InputError(
            f"values for {edge.op if edge else node.name}, which the region reads", "none"
        )

    def _collect_output(self, edge: Edge, lent: set[int]) -> Array | None:
        if edge.role is Role.PARAMETER:
            value: Any = self._find_parameter(edge)
        elif edge in self._values:
            value = self._values[edge]
        else:
            raise InputError(f"{edge.op} output {edge.index} to be of the region", "it is not")
        if not isinstance(value, torch.Tensor):
            return None
        # The caller's memory may go away; what is a view of it gets memory of its own.
        shared = edge.role is Role.PARAMETER or value.untyped_storage().data_ptr() in lent
        return to_numpy(value.clone() if shared else value)


def _result_edges(program: TorchProgram) -> list[Edge | None]:
    last = next(iter(reversed(program.graph.nodes)))
    leaves = pytree.tree_leaves(last.args[0], is_leaf=lambda v: isinstance(v, Node))
    return [program.edges.edge_of(v) if isinstance(v, Node) else None for v in leaves]


def choose_program(
    programs: Sequence[TorchProgram],
    region: Region,
    inputs: Mapping[Edge, Array],
    wanted: TorchProgram | None,
) -> TorchProgram:
    """The program that has these ops and these shapes; `wanted` where it does."""
    if not programs:
        raise InputError("a session that has seen inputs", "none yet", "call run or prepare before")
    last = wanted or programs[-1]
    for key in region.ops:
        if not any(_find_node(program, key) for program in programs):
            what = "inside a sub-graph" if key.path else "which the model does not have"
            raise Unsupported("an op that can be run on its own", f"{key}, {what}")
    fitting = [
        program
        for program in programs
        if all(_find_node(program, key) for key in region.ops)
        and not any(_describe_misfit(program, edge, value) for edge, value in inputs.items())
    ]
    if not fitting:
        misfits = (_describe_misfit(last, edge, value) for edge, value in inputs.items())
        expected, found = next((m for m in misfits if m), ("ops of one graph", "ops of several"))
        raise InputError(expected, found)
    if wanted in fitting:
        return wanted
    for key in region.ops:
        # Sizes are written into the ops, so an op without inputs fits several graphs.
        if len({_arguments_text(program, key) for program in fitting}) > 1:
            raise Unsupported(
                f"{key} to mean the same in all samples",
                f"{len(fitting)} samples of different shapes",
                "name the part of the run",
            )
    return fitting[-1]


def _arguments_text(program: TorchProgram, key: OpKey) -> str:
    node = program.nodes[key.op]
    return f"{node.args} {node.kwargs}"


def _is_floating(value: torch.Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def _find_node(program: TorchProgram, key: OpKey) -> Node | None:
    here = not key.path and key.graph == program.edges.graph
    return program.nodes.get(key.op) if here else None


def _describe_misfit(program: TorchProgram, edge: Edge, array: Array) -> tuple[str, str] | None:
    """What is wrong with the shape of a value for an edge, as expected and found."""
    seen = program.expected_tensor(edge)
    if seen is None or any(type(n) is not int for n in seen.shape):
        return None
    if tuple(seen.shape) == tuple(array.shape):
        return None
    return f"{edge.op} {edge.role} as {describe_value(seen)}", f"shape {list(array.shape)}"


def _copy_to_strides(value: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """The same values with the strides the op saw: kernels may round by layout.

    Where a value was expanded the given one may differ along that axis, and stays dense.
    """
    strides = seen.stride()
    # A size that depends on data is no int.
    if any(type(n) is not int for n in (*seen.shape, *strides)) or value.shape != seen.shape:
        return value
    if not all(s > 0 for s in strides):
        return value
    if value.stride() == strides or not value.numel():
        return value
    order = sorted(range(value.dim()), key=lambda i: strides[i])
    reach = 1
    for axis in order:
        if value.shape[axis] > 1:
            if strides[axis] < reach:
                return value
            reach = strides[axis] * (value.shape[axis] - 1) + reach
    placed = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
    return placed.copy_(value)
