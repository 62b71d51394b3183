"""Capture a program node by node (autocast, attributes, write-backs, sub-graphs); the ledger in
which all torch captures record ops, tensors, states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from syncpoint.errors import Unsupported
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import WHOLE, Edge, Op, OpKey, Part, Role, TensorKey
from syncpoint.run.non_tensor_outputs import OtherOutput
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.arrays import dtype_name, to_meta_tensor, to_numpy
from syncpoint.runtimes.torch.inputs import Args, Kwargs
from syncpoint.runtimes.torch.load_model import LoadedModel
from syncpoint.runtimes.torch.model_errors import OpFailure, describe_op_location, make_model_error
from syncpoint.runtimes.torch.node_metadata import AUTOCAST, collect_attributes
from syncpoint.runtimes.torch.program import (
    AMBIGUOUS,
    Edges,
    NodePlan,
    Observations,
    TorchProgram,
    model_input_edge,
    state_edge_before,
)
from syncpoint.runtimes.torch.states_and_steps import StepLoop
from syncpoint.runtimes.torch.tree_paths import named_leaves

_RECORDED_PARAMETERS: WeakKeyDictionary[RunWriter, set[Edge]] = WeakKeyDictionary()
"""The parameters that each run being written already holds."""

_MAX_TEXT_CHARS = 200
"""Maximum length of the text of an output."""


class CaptureLedger:
    """What one capture has recorded so far; shared by a graph and its sub-graphs."""

    def __init__(
        self, observed: Observations, recorder: Recorder | None, tracks_subgraphs: bool = False
    ) -> None:
        """Without a recorder only observations are kept.

        `tracks_subgraphs` is whether tensors are followed into sub-graphs.
        """
        self.observed = observed
        self.recorder = recorder
        self.computed: Counter[str] = Counter()
        """Number of elements computed by floating-point dtype: the effective precision."""
        self.edge_by_tensor: WeakIdKeyDictionary = WeakIdKeyDictionary()
        """Live tensor -> its edge; for tensors that pass through sub-graphs."""
        self._tracks_subgraphs = tracks_subgraphs
        self.call_counts: Counter[str] = Counter()
        self._recorded: dict[Edge, tuple[TensorKey, int]] = {}
        """Edge -> the key it was recorded under, and the address of its memory."""
        self._storages: set[int] = set()
        """Addresses of all memory that held a recorded tensor."""

    def record_tensor(
        self, edge: Edge, value: torch.Tensor, reads: tuple[Edge, ...] = (), name: str = ""
    ) -> None:
        """Record a tensor under its edge; `reads` are the tensors whose memory it may share."""
        storage = _storage_address(value)
        key = self._write(edge, value, name, self._find_alias(reads, storage))
        if key is not None:
            self._recorded[edge] = (key, storage)
            self._storages.add(storage)
        if self._tracks_subgraphs:
            self.edge_by_tensor[value] = edge
        if value.requires_grad:
            self.observed.requires_grad.add(edge)
        if self.observed.keeps_meta_tensors:
            self.observed.meta_tensors[edge] = to_meta_tensor(value)

    def record_op(self, op: Op) -> OpKey:
        """Record an op and return its key."""
        return op.key if self.recorder is None else self.recorder.op(op)

    def record_outputs(self, key: OpKey, values: Sequence[Any], reads: tuple[Edge, ...]) -> None:
        """Record the flattened outputs of an op; only tensors are kept."""
        for index, value in enumerate(values):
            if not isinstance(value, torch.Tensor):
                continue
            self.record_tensor(Edge(key, index), value, reads)
            if value.is_floating_point():
                self.computed[dtype_name(value.dtype)] += value.numel()

    def note(self, text: str) -> None:
        """Add a note for the reader of the results."""
        if self.recorder is not None:
            self.recorder.note(text)

    def record_parameter(self, edge: Edge, value: torch.Tensor) -> None:
        """Record a parameter once per run, whatever the number of its parts."""
        if self.recorder is not None:
            recorded = _RECORDED_PARAMETERS.setdefault(self.recorder.writer, set())
            if edge not in recorded:
                recorded.add(edge)
                whole = self.recorder.for_part(WHOLE)
                self._write(edge, value, "", "", whole)
        storage = _storage_address(value)
        self._recorded[edge] = (TensorKey(edge.op, edge.role, edge.index, WHOLE), storage)
        self._storages.add(storage)
        if self._tracks_subgraphs:
            self.edge_by_tensor[value] = edge

    def record_model_output(
        self, edge: Edge, position: int, value: torch.Tensor, name: str
    ) -> None:
        """Record a final output, which has the values of the tensor at `edge`."""
        recorded = self._recorded.get(edge)
        alias = str(recorded[0]) if recorded is not None else ""
        self._write(Edge(edge.op, position, Role.MODEL_OUTPUT), value, name, alias)

    def record_state(self, name: str, made_by: Edge | None, value: torch.Tensor) -> None:
        """Record the new value of a buffer, which has the values of the tensor at `made_by`."""
        recorded = self._recorded.get(made_by) if made_by is not None else None
        alias = str(recorded[0]) if recorded is not None else ""
        self._write(Edge(OpKey(name), role=Role.STATE), value, "", alias)

    def _find_alias(self, reads: tuple[Edge, ...], storage: int) -> str:
        """The key of the read tensor that has this memory; "" where none has."""
        if storage in self._storages and storage:
            for read in reads:
                recorded = self._recorded.get(read)
                if recorded is not None and recorded[1] == storage:
                    return str(recorded[0])
        return ""

    def _write(
        self,
        edge: Edge,
        value: torch.Tensor,
        name: str,
        alias: str,
        recorder: Recorder | None = None,
    ) -> TensorKey | None:
        recorder = recorder or self.recorder
        if recorder is None:
            return None
        try:
            array = to_numpy(value)
        except Unsupported as error:
            self.note(f"{edge.op} {edge.role} {edge.index} was not recorded: {error}")
            return None
        dtype = dtype_name(value.dtype)
        return recorder.tensor(
            edge.op,
            array,
            role=edge.role,
            index=edge.index,
            dtype=dtype if dtype in DTYPES else None,
            name=name,
            strides=tuple(value.stride()) if value.layout is torch.strided else None,
            device=str(value.device),
            requires_grad=value.requires_grad,
            alias_of=alias,
        )


def _storage_address(value: torch.Tensor) -> int:
    try:
        return value.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return 0


class NodeCapture(Interpreter):
    """Executes one graph; a value is freed after its last reader."""

    def __init__(
        self,
        ledger: CaptureLedger,
        program: TorchProgram,
        module: GraphModule,
        edges: Edges,
        path: str = "",
        iteration: int = 0,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """`attributes` replace the values that the get_attr nodes of the program fetch."""
        super().__init__(module)
        self.extra_traceback = False
        self._ledger = ledger
        self._program = program
        self._edges = edges
        self._path = path
        self._iteration = iteration
        self._outer_edges: dict[Node, Edge | None] = {}
        """Placeholders of a sub-graph -> edges of the graph around it."""
        self._op_keys: dict[str, OpKey] = {}
        """Ops of this graph so far; in a sub-graph a key has a path and an iteration."""
        self._as_planned = not path
        """Whether every op so far has the key of its plan, so that edges need no lookup."""
        self._attribute_values = program.attributes if attributes is None else attributes
        self.written_buffers: dict[str, torch.Tensor] = {}
        """New values of the buffers that the graph writes to, by name."""
        self.result_edges: tuple[Edge | None, ...] = ()
        """Edges of the flattened outputs, after the graph has run."""

    def bind_placeholders(self, operands: tuple[Any, ...]) -> None:
        """Bind the placeholders of a sub-graph to the edges of its operands."""
        placeholders = [n for n in self.module.graph.nodes if n.op == "placeholder"]  # type: ignore[union-attr]
        for node, value in zip(placeholders, operands, strict=False):
            is_known = isinstance(value, torch.Tensor) and value in self._ledger.edge_by_tensor
            self._outer_edges[node] = self._ledger.edge_by_tensor[value] if is_known else None

    def run_node(self, n: Node) -> Tree:
        """Execute a node; an op is recorded before it runs, its outputs right after."""
        if n.op == "output":
            self.result_edges = tuple(
                self._find_edge(leaf) if isinstance(leaf, Node) else None
                for leaf in _leaves(n.args[0])
            )
            return super().run_node(n)
        if n.op == "get_attr" and not self._path:
            return self._attribute_values[str(n.target)]
        if n.op != "call_function":
            return super().run_node(n)
        plan = self._program.plan_of(n)
        if not plan.is_op:
            is_check = isinstance(n.target, torch._ops.OpOverload)
            return None if is_check else self._call_node(n)
        if n.target is torch.ops.aten.copy_.default and self._record_write_back(n):
            return None
        if plan.may_have_subgraphs and any(
            isinstance(self.env.get(f), GraphModule) for f in plan.attribute_nodes
        ):
            self._as_planned = False
            return self._run_with_subgraphs(n, plan)
        inputs = self._find_inputs(plan)
        key = self._ledger.record_op(self._describe_op(n, plan, inputs))
        self._op_keys[n.name] = key
        self._as_planned = self._as_planned and key is plan.op.key
        try:
            context = n.meta.get(AUTOCAST)
            if context is None:
                output = self._call_node(n)
            else:
                with torch.autocast(
                    context[0], dtype=context[1], enabled=context[2], cache_enabled=False
                ):
                    output = self._call_node(n)
        except Exception as error:
            raise OpFailure(replace(plan.op, key=key)) from error
        self._record_output(n, key, output, inputs)
        return self._replace_output(key, output)

    def _replace_output(self, key: OpKey, output: Tree) -> Tree:
        """The value that later ops read; a subclass may replace it."""
        return output

    def _call_node(self, node: Node) -> Tree:
        # The interpreter's own call costs as much as a small op, because of its tracebacks.
        args = map_arg(node.args, self.env.__getitem__)
        kwargs = map_arg(node.kwargs, self.env.__getitem__) if node.kwargs else {}
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def _find_edge(self, node: Node) -> Edge | None:
        if node in self._outer_edges:
            return self._outer_edges[node]
        edge = self._edges.edge_of(node)
        if edge is None or edge.role is not Role.OUTPUT:
            return edge
        if edge.op.op in self._op_keys:
            return Edge(self._op_keys[edge.op.op], edge.index)
        # The output of an op with sub-graphs has the edge of the inner op that computed it.
        value = self.env.get(node)
        is_known = isinstance(value, torch.Tensor) and value in self._ledger.edge_by_tensor
        return self._ledger.edge_by_tensor[value] if is_known else None

    def _record_output(
        self, node: Node, key: OpKey, output: Tree, inputs: tuple[Edge, ...]
    ) -> None:
        if isinstance(output, torch.Tensor):
            self._ledger.record_outputs(key, (output,), inputs)
            return
        leaves = pytree.tree_leaves(output)
        self._ledger.record_outputs(key, leaves, inputs)
        if not any(isinstance(value, torch.Tensor) for value in leaves):
            scalars = self._ledger.observed.scalars
            is_same = node.name not in scalars or scalars[node.name] == output
            scalars[node.name] = output if is_same else AMBIGUOUS

    def _find_inputs(self, plan: NodePlan) -> tuple[Edge, ...]:
        if self._as_planned:
            return plan.op.inputs
        return tuple(
            e for e in (self._find_edge(node) for node in plan.tensor_nodes) if e is not None
        )

    def _describe_op(self, node: Node, plan: NodePlan, inputs: tuple[Edge, ...]) -> Op:
        if (
            plan.has_fixed_attributes
            and not self._path
            and (inputs is plan.op.inputs or inputs == plan.op.inputs)
        ):
            return plan.op
        # Numbers such as sizes differ from run to run.
        attributes = collect_attributes(node, lambda n: self.env.get(n, n))
        key = replace(self._edges.op_key(node.name), path=self._path, iteration=self._iteration)
        return replace(plan.op, key=key, inputs=inputs, attributes=attributes)

    def _record_write_back(self, node: Node) -> bool:
        """Record a write to a buffer or an input at the end of a functional graph.

        The new state is recorded, but not written: a capture leaves the model as it is.
        """
        target = node.args[0]
        assert isinstance(target, Node)
        if target.op not in ("get_attr", "placeholder"):
            return False
        edge = self._find_edge(target)
        value = self.env.get(node.args[1])  # type: ignore[arg-type]
        if edge is not None and isinstance(value, torch.Tensor):
            made_by = self._find_edge(node.args[1])  # type: ignore[arg-type]
            if edge.role is Role.STATE:
                value = self.written_buffers[edge.op.op] = _convert_to_buffer(
                    value, self.env[target]
                )
            self._ledger.record_state(edge.op.op, made_by, value)
        return True

    def _run_with_subgraphs(self, node: Node, plan: NodePlan) -> Tree:
        """Run an op with sub-graphs (cond, while_loop) and record the ops inside."""

        def recording_call(name: str, module: GraphModule) -> Callable[..., Any]:
            def call(*operands: Tree) -> Tree:
                path = "/".join(p for p in (self._path, f"{node.name}.{name}") if p)
                iteration = self._ledger.call_counts[path]
                self._ledger.call_counts[path] += 1
                edges = Edges({}, self._edges.graph)
                inner = NodeCapture(self._ledger, self._program, module, edges, path, iteration)
                inner.bind_placeholders(operands)
                return inner.run(*operands, enable_io_processing=False)

            return call

        def replace_graph(value: Tree) -> Tree:
            if not isinstance(value, Node):
                return value
            graph = self.env[value]
            return recording_call(value.name, graph) if isinstance(graph, GraphModule) else graph

        args = pytree.tree_map(replace_graph, node.args)
        kwargs = pytree.tree_map(replace_graph, node.kwargs)
        output = node.target(*args, **kwargs)  # type: ignore[operator]
        new_tensors = [
            v
            for v in pytree.tree_leaves(output)
            if isinstance(v, torch.Tensor) and v not in self._ledger.edge_by_tensor
        ]
        if new_tensors:
            inputs = self._find_inputs(plan)
            key = self._ledger.record_op(self._describe_op(node, plan, inputs))
            self._op_keys[node.name] = key
            self._record_output(node, key, output, inputs)
        return output


def record_program(
    program: TorchProgram,
    ledger: CaptureLedger,
    leaves: Sequence[Any],
    states: Mapping[str, torch.Tensor],
    kind: Callable[..., NodeCapture] = NodeCapture,
) -> tuple[list[Any], Mapping[str, torch.Tensor]]:
    """Record one execution of a program: its inputs, its ops and its outputs.

    `leaves` are the flattened inputs, `states` the buffers after the step before. Returns the
    flattened outputs, and the buffers that the program wrote to, by name.
    """
    for (name, path), value in zip(program.placeholders, leaves, strict=True):
        if isinstance(value, torch.Tensor):
            ledger.record_tensor(model_input_edge(name), value, name=path)
    for edge, value in program.parameters():
        ledger.record_parameter(edge, value)
    attributes = program.attributes_at_start(states)
    for target, value in attributes.items():
        name = program.edges.parameter_name(target)
        if name in program.states:
            ledger.record_tensor(state_edge_before(name), value)
    assert program.module is not None
    capture = kind(ledger, program, program.module, program.edges, attributes=attributes)
    outputs = pytree.tree_leaves(capture.run(*leaves, enable_io_processing=False))
    for position, value in enumerate(outputs):
        made_by = capture.result_edges[position]
        if isinstance(value, torch.Tensor) and made_by is not None:
            ledger.record_model_output(made_by, position, value, program.outputs[position])
    return outputs, capture.written_buffers


def record_by_nodes(
    program: TorchProgram,
    ledger: CaptureLedger,
    loaded_model: LoadedModel,
    loop: StepLoop | None,
    inputs: tuple[Args, Kwargs],
    seed: int,
    kind: Callable[..., NodeCapture] = NodeCapture,
) -> list[Any]:
    """Record a program, or its next step in a loop, node by node.

    Returns the flattened outputs. An op that raises becomes an error of the model.
    """
    torch.manual_seed(seed)
    states = {} if loop is None else loop.states
    try:
        outputs, written = record_program(program, ledger, pytree.tree_leaves(inputs), states, kind)
    except OpFailure as failed:
        cause = failed.__cause__
        assert isinstance(cause, Exception)
        raise make_model_error(
            loaded_model, cause, *inputs, describe_op_location(failed.op)
        ) from cause
    if loop is not None:
        loop.states.update(written)
    return outputs


def _convert_to_buffer(value: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    """A value in the dtype and layout of the buffer it is written to."""
    return torch.empty_like(buffer).copy_(value)


def _leaves(value: Tree) -> list[Any]:
    return [value] if isinstance(value, Node) else pytree.tree_leaves(value)


def describe_other_outputs(
    names: Sequence[str], values: Sequence[Any], part: Part
) -> dict[str, OtherOutput]:
    """The outputs that are not tensors, as text."""
    part_suffix = "".join(
        f"@{name}={number}"
        for name, number in (("sample", part.sample), ("step", part.step))
        if number >= 0
    )
    return {
        f"{name}{part_suffix}": _describe_other_output(value)
        for name, value in zip(names, values, strict=False)
        if value is not None and not isinstance(value, torch.Tensor)
    }


def _describe_other_output(value: object) -> OtherOutput:
    if isinstance(value, bool | int | float | complex | str):
        return OtherOutput(repr(value)[:_MAX_TEXT_CHARS])
    return OtherOutput(type(value).__name__, is_opaque=True)


def is_number(value: object) -> bool:
    """Whether an input is a number or a bool."""
    return isinstance(value, bool | int | float)


def note_other_inputs(
    inputs: Tree, names: tuple[str, ...], ledger: CaptureLedger, with_numbers: bool = True
) -> None:
    """Note each input in (args, kwargs) that is not a tensor: it is not recorded. `with_numbers` is
    whether that holds for numbers too."""
    for path, value in named_leaves(inputs, names):
        is_recorded = isinstance(value, torch.Tensor) or (is_number(value) and not with_numbers)
        if value is not None and not is_recorded:
            ledger.note(f"the input {path} is not a tensor and was not recorded: {value!r}")
