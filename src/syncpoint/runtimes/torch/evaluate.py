"""Compute a region of a program on chosen values in one float dtype: inputs, parameters, strides
converted; record a whole program in float64."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from syncpoint.errors import InputError, SyncpointError, Unsupported
from syncpoint.run.model import Edge, OpKey, Role
from syncpoint.run.recorder import Recorder
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
from syncpoint.runtimes.torch.capture import CaptureLedger
from syncpoint.runtimes.torch.node_metadata import op_type
from syncpoint.runtimes.torch.op_in_dtype import call_in_dtype, cast_floats, check_can_change_dtype
from syncpoint.runtimes.torch.program import AMBIGUOUS, Observations, TorchProgram, model_input_edge

_MAX_CACHE_BYTES = 512 << 20
"""Cast parameters are cached up to this size; the ops of neighbouring regions share them."""


class TorchEvaluator:
    """Evaluates regions; caches parameters in the dtypes they were last used in."""

    def __init__(self) -> None:
        self._cache: OrderedDict[Any, torch.Tensor] = OrderedDict()
        self._cached_bytes = 0

    def parameters_of(self, program: TorchProgram, region: Region) -> list[OpKey]:
        """The parameters that the region's ops read, each once."""
        parameters: dict[OpKey, None] = {}
        for key in region.ops:
            for edge in program.edges.inputs_of(program.nodes[key.op]):
                if edge.role is Role.PARAMETER:
                    parameters[edge.op] = None
        return list(parameters)

    def evaluate(
        self,
        program: TorchProgram,
        region: Region,
        inputs: Mapping[Edge, Array],
        dtype: str,
        parameter_dtype: str | None,
    ) -> list[Array | None]:
        """The outputs of the region, in order."""
        if not is_float_name(dtype):
            raise InputError(
                f"cannot evaluate in {dtype!r}, which is not a floating-point type",
                cure="use f64 or f32",
            )
        torch_type = torch_dtype(dtype)
        default_dtype = torch.get_default_dtype()
        # Factories and integer divisions compute in the default dtype.
        torch.set_default_dtype(torch_type)
        try:
            evaluation = _Evaluation(self, program, torch_type, parameter_dtype)
            return evaluation.run(region, inputs)
        finally:
            torch.set_default_dtype(default_dtype)

    def evaluate_all(
        self,
        program: TorchProgram,
        input_values: Mapping[Edge, torch.Tensor],
        ledger: CaptureLedger,
    ) -> list[tuple[Edge | None, torch.Tensor | None]]:
        """Run a whole program in float64 and record every op; returns its outputs."""
        default_dtype = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return _Evaluation(self, program, torch.float64, None).run_program(input_values, ledger)
        finally:
            torch.set_default_dtype(default_dtype)

    def parameter(
        self, program: TorchProgram, edge: Edge, dtype: torch.dtype, rounded_to: str | None
    ) -> torch.Tensor:
        """A parameter of the model in `dtype`, first rounded to `rounded_to` if given."""
        value = program.parameter(edge)
        if not value.is_floating_point() and not value.is_complex():
            return value
        if rounded_to is None and cast_floats(value, dtype) is value:
            return value
        key = (id(value), value._version, dtype, rounded_to)
        cached = self._cache.get(key)
        if cached is not None:
            self._cache.move_to_end(key)
            return cached
        rounded = value if rounded_to is None else cast_floats(value, torch_dtype(rounded_to))
        converted = cast_floats(rounded.detach(), dtype)
        if converted.nbytes <= _MAX_CACHE_BYTES:
            self._cache[key] = converted
            self._cached_bytes += converted.nbytes
            while self._cached_bytes > _MAX_CACHE_BYTES:
                _, dropped = self._cache.popitem(last=False)
                self._cached_bytes -= dropped.nbytes
        return converted


class _Evaluation:
    """One evaluation of a region or a program."""

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
        input_values = {
            edge: self._convert_input(edge, value)
            for edge, value in inputs.items()
            if edge.role is not Role.PARAMETER
        }
        self._values.update(input_values)
        reads = Counter(e for _, node in nodes for e in program.edges.inputs_of(node))
        reads.update(region.outputs)
        literal_dtype = torch_dtype(self._rounded_to) if self._rounded_to is not None else None
        for key, node in nodes:
            try:
                output = call_in_dtype(node, self._fetch_value, self._dtype, literal_dtype)
            except SyncpointError:
                raise
            except Exception as error:
                raise Unsupported(
                    f"{key} ({op_type(node)}) cannot run on its own in"
                    f" {describe_dtype(self._dtype)}: {one_line(error)}",
                ) from error
            for index, value in enumerate(pytree.tree_leaves(output)):
                self._values.setdefault(Edge(key, index), value)
            for edge in program.edges.inputs_of(node):
                reads[edge] -= 1
                if not reads[edge]:
                    self._values.pop(edge, None)
        caller_storages = {v.untyped_storage().data_ptr() for v in input_values.values()}
        return [self._collect_output(edge, caller_storages) for edge in region.outputs]

    def run_program(
        self, input_values: Mapping[Edge, torch.Tensor], ledger: CaptureLedger
    ) -> list[tuple[Edge | None, torch.Tensor | None]]:
        program = self._program
        self._values = {
            edge: self._convert_input(edge, value) for edge, value in input_values.items()
        }
        results = _result_edges(program)
        reads = Counter(e for n in program.nodes.values() for e in program.edges.inputs_of(n))
        reads.update(edge for edge in results if edge is not None)
        for name, node in program.nodes.items():
            check_can_change_dtype(node)
            inputs = program.edges.inputs_of(node)
            key = ledger.record_op(program.plan_of(node).op)
            try:
                output = call_in_dtype(node, self._fetch_value, self._dtype)
            except SyncpointError:
                raise
            except Exception as error:
                raise Unsupported(
                    f"{name} cannot run in float64: {one_line(error)}",
                    cure="leave the float64 run out",
                ) from error
            leaves = pytree.tree_leaves(output)
            for index, value in enumerate(leaves):
                self._values.setdefault(Edge(program.edges.op_key(name), index), value)
            ledger.record_outputs(key, leaves, ())
            for edge in inputs:
                reads[edge] -= 1
                if not reads[edge]:
                    self._values.pop(edge, None)
        return [(edge, self._values.get(edge) if edge else None) for edge in results]

    def _convert_input(self, edge: Edge, array: Array | torch.Tensor) -> torch.Tensor:
        """A value from outside, in the kind of dtype and the memory layout that the op expects."""
        value = array if isinstance(array, torch.Tensor) else to_torch(array)
        expected = self._program.expected_tensor(edge)
        if expected is None:
            return cast_floats(value, self._dtype)
        if expected.is_floating_point() or expected.is_complex():
            value = cast_floats(
                value if _is_floating(value) else value.to(self._dtype), self._dtype
            )
        elif expected.dtype == torch.bool:
            value = value != 0 if value.dtype != torch.bool else value
        elif value.dtype != expected.dtype:
            value = (value.round() if value.is_floating_point() else value).to(expected.dtype)
        value = _copy_to_strides(value, expected)
        # matmul chooses its kernel by this flag, even without gradients.
        requires_grad = edge in self._program.observed.requires_grad or expected.requires_grad
        return value.requires_grad_() if requires_grad and _is_floating(value) else value

    def _convert_parameter(self, value: torch.Tensor) -> torch.Tensor:
        """A replaced parameter in the dtype of this evaluation, first rounded if required."""
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
        meta_value = node.meta.get("val")
        if isinstance(meta_value, (list, tuple)):
            key = self._program.edges.op_key(node.name)
            return [self._values[Edge(key, i)] for i in range(len(meta_value))]
        if node.name in self._program.observed.scalars:
            number = self._program.observed.scalars[node.name]
            if number is AMBIGUOUS:
                raise Unsupported(
                    f"'{node.name}' is a number that depends on the data and differs from run to"
                    " run",
                )
            return number
        raise InputError(
            f"no values for {edge.op if edge else node.name}, which the region reads",
            cure="give them in the inputs of the region",
        )

    def _collect_output(self, edge: Edge, caller_storages: set[int]) -> Array | None:
        if edge.role is Role.PARAMETER:
            value: Any = self._find_parameter(edge)
        elif edge in self._values:
            value = self._values[edge]
        else:
            raise InputError(
                f"output {edge.index} of {edge.op} is not computed in the region",
                cure="add its op to the region",
            )
        if not isinstance(value, torch.Tensor):
            return None
        # The memory of the caller may be freed: a view of it is copied.
        shares_memory = (
            edge.role is Role.PARAMETER or value.untyped_storage().data_ptr() in caller_storages
        )
        return to_numpy(value.clone() if shares_memory else value)


def _result_edges(program: TorchProgram) -> list[Edge | None]:
    last = next(iter(reversed(program.graph.nodes)))
    leaves = pytree.tree_leaves(last.args[0], is_leaf=lambda v: isinstance(v, Node))
    return [program.edges.edge_of(v) if isinstance(v, Node) else None for v in leaves]


def choose_program(
    programs: Sequence[TorchProgram],
    region: Region,
    inputs: Mapping[Edge, Array],
    preferred: TorchProgram | None,
) -> TorchProgram:
    """The program that has these ops and these shapes; `preferred` where it fits."""
    if not programs:
        raise InputError(
            "the session has not run any inputs yet",
            cure="call run or prepare first",
        )
    last = preferred or programs[-1]
    for key in region.ops:
        if not any(_find_node(program, key) for program in programs):
            reason = "inside a sub-graph" if key.path else "not in the model"
            raise Unsupported(
                f"{key} cannot be run on its own: it is {reason}",
            )
    fitting_programs = [
        program
        for program in programs
        if all(_find_node(program, key) for key in region.ops)
        and not any(_describe_misfit(program, edge, value) for edge, value in inputs.items())
    ]
    if not fitting_programs:
        misfits = (_describe_misfit(last, edge, value) for edge, value in inputs.items())
        problem = next((m for m in misfits if m), "the ops of the region are in several graphs")
        raise InputError(
            problem,
            cure="record both sides again with inputs of the same shapes",
        )
    if preferred in fitting_programs:
        return preferred
    for key in region.ops:
        # Sizes are constants in the ops, so an op without inputs fits several graphs.
        if len({_arguments_text(program, key) for program in fitting_programs}) > 1:
            raise Unsupported(
                f"{key} differs between {len(fitting_programs)} samples of different shapes",
                cure="choose one part of the run (a sample, step or rank)",
            )
    return fitting_programs[-1]


def _arguments_text(program: TorchProgram, key: OpKey) -> str:
    node = program.nodes[key.op]
    return f"{node.args} {node.kwargs}"


def _is_floating(value: torch.Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def _find_node(program: TorchProgram, key: OpKey) -> Node | None:
    is_in_graph = not key.path and key.graph == program.edges.graph
    return program.nodes.get(key.op) if is_in_graph else None


def _describe_misfit(program: TorchProgram, edge: Edge, array: Array) -> str:
    """The shape mismatch between a value and an edge, as a sentence; "" where there is none."""
    expected = program.expected_tensor(edge)
    if expected is None or any(type(n) is not int for n in expected.shape):
        return ""
    if tuple(expected.shape) == tuple(array.shape):
        return ""
    return (
        f"shape mismatch: '{edge.op}' is {describe_value(expected)} in this model, but the other"
        f" side's value has shape {list(array.shape)}"
    )


def _copy_to_strides(value: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Copy a value to the strides that the op saw: kernels may round by layout.

    Where the op saw an expanded value, the given one may differ along that axis and stays dense.
    """
    strides = expected.stride()
    # A size that depends on data is not an int.
    if (
        any(type(n) is not int for n in (*expected.shape, *strides))
        or value.shape != expected.shape
    ):
        return value
    if not all(s > 0 for s in strides):
        return value
    if value.stride() == strides or not value.numel():
        return value
    order = sorted(range(value.dim()), key=lambda i: strides[i])
    min_stride = 1
    for axis in order:
        if value.shape[axis] > 1:
            if strides[axis] < min_stride:
                return value
            min_stride = strides[axis] * (value.shape[axis] - 1) + min_stride
    copied = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
    return copied.copy_(value)


def record_in_float64(
    program: TorchProgram, evaluator: TorchEvaluator, leaves: Sequence[Any], recorder: Recorder
) -> None:
    """Record one execution of a program with all floating-point arithmetic in float64."""
    ledger = CaptureLedger(Observations(), recorder)
    input_values = {}
    for (name, path), value in zip(program.placeholders, leaves, strict=True):
        if isinstance(value, torch.Tensor):
            ledger.record_tensor(model_input_edge(name), value, name=path)
            input_values[model_input_edge(name)] = value
    outputs = evaluator.evaluate_all(program, input_values, ledger)
    for position, (edge, value) in enumerate(outputs):
        if edge is not None and isinstance(value, torch.Tensor):
            ledger.record_model_output(edge, position, value, program.outputs[position])
