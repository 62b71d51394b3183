"""Capture a model that torch.export rejects, while it runs: each op that reaches the dispatcher,
its outputs, origins and states written.

This works for models that torch.export rejects: branches on values, calls of other libraries,
TorchScript. The ops are those below autograd, so a linear layer appears as `t` and `addmm`. They
become an FX graph with one node per op, whose regions can be evaluated like those of an export.
"""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Container
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from syncpoint.run.model import Edge, Frame, Op, OpKey, Role
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.arrays import clone_tensor, to_meta_tensor
from syncpoint.runtimes.torch.capture import CaptureLedger, is_number
from syncpoint.runtimes.torch.in_place_writes import (
    REREAD,
    MemoryTracker,
    StorageRegion,
    Write,
    find_written_tensors,
    storage_id,
)
from syncpoint.runtimes.torch.inputs import Args, Kwargs
from syncpoint.runtimes.torch.load_model import LoadedModel
from syncpoint.runtimes.torch.model_errors import describe_op_location, make_model_error
from syncpoint.runtimes.torch.node_metadata import (
    FRAMES,
    ModuleStack,
    StackReader,
    class_name,
    collect_attributes,
    describe_op,
    op_type,
    read_python_stack,
)
from syncpoint.runtimes.torch.program import Edges, TorchProgram
from syncpoint.runtimes.torch.script_attributes import find_attribute_tensors
from syncpoint.runtimes.torch.states_and_steps import (
    StepLoop,
    find_own_tensors,
    preserve_state,
    tensor_identity,
)
from syncpoint.runtimes.torch.torchscript import without_optimisation
from syncpoint.runtimes.torch.tree_paths import named_leaves, path_text

aten = torch.ops.aten

_IDENTITY_OPS = {aten.detach.default, aten.alias.default}
"""Ops that return their input tensor; torch calls them itself under a dispatch mode."""
_LIFT_OPS = {aten.lift_fresh.default, aten.lift.default}
"""Ops that torch applies to a tensor made from Python values."""

_LEVEL_NOTE = "ops are those below autograd, a linear layer is t and addmm"

OpSignature = tuple[Any, ...]
_OP_SIGNATURES: WeakKeyDictionary[RunWriter, dict[str, OpSignature]] = WeakKeyDictionary()
"""For each run being written: op name -> signature of the op that has it."""


class DispatchTracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the ops of one execution of a model."""

    supports_higher_order_operators = True

    def __init__(
        self,
        model: nn.Module,
        ledger: CaptureLedger,
        stack: StackReader = read_python_stack,
        states: Container[str] | None = None,
    ) -> None:
        """`states` are the tensors of the model that go from step to step; None without steps."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._step_states = states
        self.graph = Graph()
        self._last_failure: tuple[Exception, Op] | None = None
        """The last exception, and the op that raised it."""
        self.numbers_read = 0
        """Count of numbers, without bools, that the model read from tensors into Python."""
        self._ledger = ledger
        self._stack = stack
        self._running = False
        self._call_site: tuple[tuple[Frame, ...], tuple[str, str]] = ((), ("", ""))
        """Source and module of the last op; tensors re-read at the end get them too."""
        self.ops = 0
        self.ops_without_module = 0
        """Count of ops whose module the stack does not show."""
        self._modules = ModuleStack(model)
        self._memory = MemoryTracker()
        self._parameters: dict[str, torch.Tensor] = {}
        self._parameter_names: dict[str, str] = {}
        self._edges = Edges(self._parameter_names, states=states or ())
        self._model = model
        self._own_tensors_by_name = find_own_tensors(model)
        self._name_by_identity = {
            tensor_identity(tensor): name for name, tensor in self._own_tensors_by_name.items()
        }
        recorder = ledger.recorder
        self._op_signatures = (
            {} if recorder is None else _OP_SIGNATURES.setdefault(recorder.writer, {})
        )

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], input_paths: list[str]) -> Tree:
        """Run the model; `input_paths` are the paths of the flattened inputs."""
        self._record_inputs(pytree.tree_leaves((args, kwargs)), input_paths)
        self._running = True
        try:
            with self._modules, self:
                return self._model(*args, **kwargs)
        finally:
            self._running = False

    def make_program(self, outputs: Tree, notes: tuple[str, ...]) -> tuple[TorchProgram, list[Any]]:
        """The recorded program, and the flattened outputs, which are recorded here."""
        self._call_site = (self._call_site[0], ("", class_name(self._model)))
        leaves_with_paths, _ = pytree.tree_flatten_with_path(outputs)
        names = tuple(path_text("out", path) for path, _ in leaves_with_paths)
        leaves = [value for _, value in leaves_with_paths]
        nodes = [self._find_node(v) if isinstance(v, torch.Tensor) else None for v in leaves]
        for position, (value, node) in enumerate(zip(leaves, nodes, strict=True)):
            edge = self._edges.edge_of(node) if node is not None else None
            if edge is not None:
                self._ledger.record_model_output(edge, position, value, names[position])
        self._record_states()
        self.graph.output(tuple(nodes))
        if self.numbers_read:
            notes += (
                f"the model read {self.numbers_read} numbers from tensors into Python: the ops that"
                " use them have them as constants",
            )
        return (
            TorchProgram(
                graph=self.graph,
                edges=Edges(dict(self._parameter_names), states=self._step_states or ()),
                attributes=self._parameters,
                placeholders=self._placeholder_paths,
                outputs=names,
                notes=notes,
                observed=self._ledger.observed,
            ),
            leaves,
        )

    def find_cause(self, error: Exception) -> tuple[Exception, str]:
        """The exception that ended the run, and its op; TorchScript wraps exceptions."""
        if self._last_failure is None:
            return error, ""
        cause, op = self._last_failure
        if cause is error or self._stack is not read_python_stack:
            return cause, describe_op_location(op)
        return error, ""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Tree:
        """Record one op: its inputs before it runs, its outputs right after."""
        kwargs = kwargs or {}
        if func in _IDENTITY_OPS or func in _LIFT_OPS:
            output = func(*args, **kwargs)
            self._memory.track(output, self._find_node(args[0]), fresh=False)
            return output
        arguments = (args, kwargs)
        input_storages = {
            storage_id(value) for value in pytree.tree_leaves(arguments) if _is_tensor(value)
        }
        nodes = pytree.tree_map(lambda v: self._find_node(v) if _is_tensor(v) else v, arguments)
        node, op, inputs = self._record_op(func, *nodes)
        try:
            output = func(*args, **kwargs)
        except Exception as error:
            # The model may catch the exception, so it is raised unchanged.
            self._last_failure = (error, op)
            raise
        self._record_outputs(
            node, op, inputs, output, find_written_tensors(func, args, kwargs), input_storages
        )
        return output

    def _record_outputs(
        self,
        node: Node,
        op: Op,
        inputs: tuple[Edge, ...],
        output: Tree,
        written: list[torch.Tensor],
        input_storages: set[int],
    ) -> None:
        leaves = [] if output is None else pytree.tree_leaves(output)
        # A tensor that is written but not returned, such as running statistics, is an output too.
        returned_ids = {id(value) for value in leaves}
        leaves += [value for value in written if id(value) not in returned_ids]
        written_ids = {id(value) for value in written}
        if not any(_is_tensor(value) for value in leaves):
            read_bool = all(isinstance(value, bool) for value in leaves)
            self.numbers_read += bool(leaves) and not read_bool
        is_single = len(leaves) == 1 and _is_tensor(leaves[0])
        meta_tensors = [to_meta_tensor(v) if _is_tensor(v) else v for v in leaves]
        node.meta["val"] = meta_tensors[0] if is_single else tuple(meta_tensors)
        self._ledger.record_outputs(op.key, leaves, () if written_ids else inputs)
        for index, value in enumerate(leaves):
            if not _is_tensor(value):
                continue
            output_node = node if is_single else self._pick_output(node, index, meta_tensors[index])
            if id(value) in written_ids:
                self._memory.record_write(value, output_node)
            else:
                self._memory.track(
                    value, output_node, fresh=storage_id(value) not in input_storages
                )

    def _pick_output(self, node: Node, index: int, meta_tensor: torch.Tensor | None) -> Node:
        output_node = self.graph.call_function(operator.getitem, (node, index))
        output_node.meta["val"] = meta_tensor
        return output_node

    def _record_op(self, func: Any, args: Tree, kwargs: Tree) -> tuple[Node, Op, tuple[Edge, ...]]:
        """Record an op; returns its node, the op and its inputs."""
        if self._running:
            source, module = self._stack(DispatchTracer.run.__code__)
            self._call_site = (source, module or self._modules.current)
            self.ops_without_module += module is None
            self.ops += 1
        source, (path, module_type) = self._call_site
        packet = getattr(func, "overloadpacket", func)
        name = getattr(packet, "__name__", str(packet))
        node = self.graph.create_node("call_function", func, args, kwargs, name=name)
        node.meta[FRAMES] = source
        node.meta["nn_module_stack"] = {path: (path, module_type)}
        inputs = self._edges.inputs_of(node)
        signature = (op_type(node), path, source[-1:], inputs)
        # Samples may take different branches: different ops must not share a name.
        while self._op_signatures.get(node.name, signature) != signature:
            node.name = self.graph._graph_namespace.create_name(name, None)
        self._op_signatures[node.name] = signature
        described = describe_op(node)
        op = replace(described, inputs=inputs, attributes=collect_attributes(node, lambda n: n))
        return node, replace(op, key=self._ledger.record_op(op)), inputs

    def _find_node(self, tensor: torch.Tensor) -> Node:
        """The node that has the present value of a tensor."""
        if not self._memory.is_tracked(tensor):
            self._record_origin(tensor)
        node, writes = self._memory.find_value(tensor)
        if writes:
            node = self._record_reread(tensor, node, writes)
        return node

    def _record_reread(self, tensor: torch.Tensor, node: Node, writes: list[Write]) -> Node:
        region = StorageRegion.of(tensor)
        target: Any = REREAD
        if any(write.region.dtype != region.dtype for write in writes):
            target = reread_as_other_type
        layout_numbers = [n for p in (region, *(w.region for w in writes)) for n in p.as_numbers()]
        reread_node, op, inputs = self._record_op(
            target, (node, [w.node for w in writes], layout_numbers), {}
        )
        reread_node.meta["val"] = to_meta_tensor(tensor)
        self._ledger.record_outputs(op.key, [tensor], inputs)
        self._memory.track(tensor, reread_node, fresh=False)
        return reread_node

    def _record_origin(self, tensor: torch.Tensor) -> None:
        """Record a tensor that no op computed: one of the model, or made from Python values."""
        name = self._name_by_identity.get(tensor_identity(tensor))
        if name is not None and name not in self._parameters:
            tensor_of_model = self._own_tensors_by_name[name]
            node = self.graph.create_node("get_attr", name)
            node.meta["val"] = to_meta_tensor(tensor_of_model)
            self._parameters[name] = tensor_of_model
            self._parameter_names[name] = name
            edge = self._edges.edge_of(node)
            assert edge is not None
            if edge.role is Role.STATE:
                self._ledger.record_tensor(edge, tensor_of_model)
            else:
                self._ledger.record_parameter(edge, tensor_of_model)
            self._memory.track(tensor_of_model, node, fresh=False)
        alias = self._memory.find_alias(tensor) if name is None else self._own_tensors_by_name[name]
        if alias is not None:
            self._memory.track(tensor, self._find_node(alias), fresh=False)
            return
        node, op, _ = self._record_op(aten.lift_fresh_copy.default, (tensor.detach().clone(),), {})
        node.meta["val"] = to_meta_tensor(tensor)
        self._ledger.record_outputs(op.key, [tensor], ())
        self._memory.track(tensor, node, fresh=True)

    def _record_inputs(self, leaves: list[Any], paths: list[str]) -> None:
        placeholder_paths = []
        for value, path in zip(leaves, paths, strict=True):
            node = self.graph.placeholder(re.sub(r"\W+", "_", path).strip("_"))
            placeholder_paths.append((node.name, path))
            if _is_tensor(value):
                node.meta["val"] = to_meta_tensor(value)
                self._memory.track(value, node, fresh=False)
                self._ledger.record_tensor(
                    Edge(OpKey(node.name), role=Role.MODEL_INPUT), value, name=path
                )
            else:
                node.meta["val"] = value
                if isinstance(self._model, torch.jit.ScriptModule) and is_number(value):
                    # TorchScript declares its numbers, so they can be passed as arrays again.
                    self._ledger.record_tensor(
                        Edge(OpKey(node.name), role=Role.MODEL_INPUT),
                        torch.tensor(value),
                        name=path,
                    )
        self._placeholder_paths = tuple(placeholder_paths)

    def _record_states(self) -> None:
        """Record the new values of parameters and buffers that were written to."""
        if self._step_states is not None:
            # The model may have replaced the tensor by another one.
            for name, tensor in find_own_tensors(self._model).items():
                if name in self._step_states and self._memory.is_tracked(tensor):
                    self._ledger.record_state(
                        name, self._edges.edge_of(self._find_node(tensor)), tensor
                    )
            return
        for name, tensor in self._own_tensors_by_name.items():
            if name not in self._parameters or not self._memory.is_tracked(tensor):
                continue
            node, writes = self._memory.find_value(tensor)
            if writes or node.op != "get_attr":
                edge = Edge(OpKey(name), role=Role.STATE)
                self._ledger.record_tensor(edge, tensor)
        for name, tensor in find_attribute_tensors(self._model).items():
            if name not in self._own_tensors_by_name and self._memory.is_tracked(tensor):
                node, _ = self._memory.find_value(tensor)
                self._ledger.record_state(name, self._edges.edge_of(node), tensor)


def reread_as_other_type(before: Tree, written: Tree, places: Tree) -> Tree:
    """Marks a node that cannot be evaluated: memory read and written as different dtypes."""
    raise NotImplementedError


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def record_by_dispatch(
    loaded_model: LoadedModel,
    loop: StepLoop | None,
    inputs: tuple[Args, Kwargs],
    ledger: CaptureLedger,
    seed: int,
    reason: str,
) -> tuple[TorchProgram, list[Any]]:
    """Record a model, or the next step of a loop, while it runs; `reason` is why not exported.

    Returns the recorded program and the flattened outputs.
    """
    args, kwargs = inputs
    model = loaded_model.module if loop is None else loop.traced
    stack = read_python_stack if loaded_model.script is None else loaded_model.script.read_call_site
    tracer = DispatchTracer(model, ledger, stack, None if loop is None else loop.written_names)
    paths = [path for path, _ in named_leaves((args, kwargs), loaded_model.positional)]
    state_context = preserve_state(model) if loop is None else contextlib.nullcontext()
    with state_context, without_optimisation() if loaded_model.script else contextlib.nullcontext():
        torch.manual_seed(seed)
        try:
            outputs_tree = tracer.run(
                pytree.tree_map(clone_tensor, args), pytree.tree_map(clone_tensor, kwargs), paths
            )
        except Exception as error:
            cause, place = tracer.find_cause(error)
            raise make_model_error(loaded_model, cause, args, kwargs, place) from error
        notes: tuple[str, ...] = (f"{reason}: {_LEVEL_NOTE}",)
        if loaded_model.script is not None and tracer.ops_without_module:
            notes += (
                f"the module of {tracer.ops_without_module} of {tracer.ops} ops is unknown: a line"
                " of the script calls several modules of one class",
            )
        program, outputs = tracer.make_program(outputs_tree, notes)
        # The outputs may share memory with the model, which is restored.
        return program, pytree.tree_map(clone_tensor, outputs)
