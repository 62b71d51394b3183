"""Records a model while it runs: every op that reaches the dispatcher, with all its outputs.

This takes what torch.export does not: branches on values, calls of other libraries, TorchScript.
Ops are those below autograd, so a linear layer appears as `t` and `addmm`. They are kept as
an FX graph, one node an op, so that pieces of it can be evaluated like those of an export.
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
from syncpoint.runtimes.torch.arrays import cloned, form_of
from syncpoint.runtimes.torch.edges import Edges
from syncpoint.runtimes.torch.in_place_writes import (
    REREAD,
    Memory,
    Place,
    Write,
    storage_of,
    written,
)
from syncpoint.runtimes.torch.inputs import Args, Kwargs
from syncpoint.runtimes.torch.ledger import Ledger
from syncpoint.runtimes.torch.live_stack import ModuleStack, Stack, class_name, python_stack
from syncpoint.runtimes.torch.load_model import Subject
from syncpoint.runtimes.torch.model_errors import place_of, raised
from syncpoint.runtimes.torch.model_tensors import identity, own_tensors, unchanged
from syncpoint.runtimes.torch.node_metadata import FRAMES, attributes, describe, type_of
from syncpoint.runtimes.torch.program import Program
from syncpoint.runtimes.torch.steps import Loop
from syncpoint.runtimes.torch.torchscript import unoptimised
from syncpoint.runtimes.torch.tree_paths import named_leaves, path_text

aten = torch.ops.aten

_SAME = {aten.detach.default, aten.alias.default}
"""What gives the very tensor it is given; torch calls them on its own where a mode looks on."""
_LIFTS = {aten.lift_fresh.default, aten.lift.default}
"""What torch does to a tensor that was made out of Python values."""

_BELOW = "ops are those below autograd, a linear layer is t and addmm"

Signature = tuple[Any, ...]
_OPS: WeakKeyDictionary[RunWriter, dict[str, Signature]] = WeakKeyDictionary()
"""The names of each run that is being written, and the op that each belongs to."""


class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the ops of one execution of a model."""

    supports_higher_order_operators = True

    def __init__(
        self,
        model: nn.Module,
        ledger: Ledger,
        stack: Stack = python_stack,
        states: Container[str] | None = None,
    ) -> None:
        """`states` are the tensors of the model that go from step to step; None without steps."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._kept = states
        self.graph = Graph()
        self._failed: tuple[Exception, Op] | None = None
        """What was raised last, and by which op."""
        self.numbers_read = 0
        """How many numbers that are no truth values went from tensors into Python."""
        self._ledger = ledger
        self._stack = stack
        self._running = False
        self._place: tuple[tuple[Frame, ...], tuple[str, str]] = ((), ("", ""))
        """Of the last op; what is read once more at the end has the place of that."""
        self.ops = 0
        self.unplaced = 0
        """Ops whose module the stack did not tell."""
        self._modules = ModuleStack(model)
        self._memory = Memory()
        self._parameters: dict[str, torch.Tensor] = {}
        self._names: dict[str, str] = {}
        self._edges = Edges(self._names, states=states or ())
        self._model = model
        self._own = own_tensors(model)
        self._by_identity = {identity(tensor): name for name, tensor in self._own.items()}
        recorder = ledger.recorder
        self._taken = {} if recorder is None else _OPS.setdefault(recorder.writer, {})

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], paths: list[str]) -> Tree:
        """Run the model; `paths` name the flattened inputs as the user knows them."""
        self._placeholders(pytree.tree_leaves((args, kwargs)), paths)
        self._running = True
        try:
            with self._modules, self:
                return self._model(*args, **kwargs)
        finally:
            self._running = False

    def program(self, result: Tree, notes: tuple[str, ...]) -> tuple[Program, list[Any]]:
        """What was recorded, and the flattened outputs, which are recorded as such here."""
        self._place = (self._place[0], ("", class_name(self._model)))
        found, _ = pytree.tree_flatten_with_path(result)
        names = tuple(path_text("out", path) for path, _ in found)
        leaves = [value for _, value in found]
        made_by = [self._read(v) if isinstance(v, torch.Tensor) else None for v in leaves]
        for position, (value, node) in enumerate(zip(leaves, made_by, strict=True)):
            edge = self._edges.of(node) if node is not None else None
            if edge is not None:
                self._ledger.model_output(edge, position, value, names[position])
        self._states()
        self.graph.output(tuple(made_by))
        if self.numbers_read:
            notes += (
                f"{self.numbers_read} numbers went from tensors into Python: the ops that use them"
                " have them as constants",
            )
        return (
            Program(
                graph=self.graph,
                edges=Edges(dict(self._names), states=self._kept or ()),
                attributes=self._parameters,
                placeholders=self._placeholder_paths,
                outputs=names,
                notes=notes,
                observed=self._ledger.observed,
            ),
            leaves,
        )

    def cause_of(self, error: Exception) -> tuple[Exception, str]:
        """What really ended the run, and in which op; scripts catch nothing, but they wrap it."""
        if self._failed is None:
            return error, ""
        cause, op = self._failed
        if cause is error or self._stack is not python_stack:
            return cause, place_of(op)
        return error, ""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Tree:
        """Record one op: what it reads before it runs, what it gives right after."""
        kwargs = kwargs or {}
        if func in _SAME or func in _LIFTS:
            result = func(*args, **kwargs)
            self._memory.hold(result, self._read(args[0]), fresh=False)
            return result
        given = (args, kwargs)
        before = {storage_of(value) for value in pytree.tree_leaves(given) if _is_tensor(value)}
        nodes = pytree.tree_map(lambda v: self._read(v) if _is_tensor(v) else v, given)
        node, op, reads = self._op(func, *nodes)
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            # The model may catch it, so it must stay what it is.
            self._failed = (error, op)
            raise
        self._results(node, op, reads, result, written(func, args, kwargs), before)
        return result

    def _results(
        self,
        node: Node,
        op: Op,
        reads: tuple[Edge, ...],
        result: Tree,
        written: list[torch.Tensor],
        before: set[int],
    ) -> None:
        leaves = [] if result is None else pytree.tree_leaves(result)
        # What is written but not returned, such as running statistics, is an output all the same.
        returned = {id(value) for value in leaves}
        leaves += [value for value in written if id(value) not in returned]
        changed = {id(value) for value in written}
        if not any(_is_tensor(value) for value in leaves):
            read_bool = all(isinstance(value, bool) for value in leaves)
            self.numbers_read += bool(leaves) and not read_bool
        single = len(leaves) == 1 and _is_tensor(leaves[0])
        forms = [form_of(v) if _is_tensor(v) else v for v in leaves]
        node.meta["val"] = forms[0] if single else tuple(forms)
        self._ledger.results(op.key, leaves, () if changed else reads)
        for index, value in enumerate(leaves):
            if not _is_tensor(value):
                continue
            part = node if single else self._part(node, index, forms[index])
            if id(value) in changed:
                self._memory.wrote(value, part)
            else:
                self._memory.hold(value, part, fresh=storage_of(value) not in before)

    def _part(self, node: Node, index: int, form: torch.Tensor | None) -> Node:
        part = self.graph.call_function(operator.getitem, (node, index))
        part.meta["val"] = form
        return part

    def _op(self, func: Any, args: Tree, kwargs: Tree) -> tuple[Node, Op, tuple[Edge, ...]]:
        """The node of an op, which is recorded as well."""
        if self._running:
            source, module = self._stack(Tracer.run.__code__)
            self._place = (source, module or self._modules.current)
            self.unplaced += module is None
            self.ops += 1
        source, (path, kind) = self._place
        packet = getattr(func, "overloadpacket", func)
        name = getattr(packet, "__name__", str(packet))
        node = self.graph.create_node("call_function", func, args, kwargs, name=name)
        node.meta[FRAMES] = source
        node.meta["nn_module_stack"] = {path: (path, kind)}
        reads = self._edges.inputs(node)
        signature = (type_of(node), path, source[-1:], reads)
        # Samples may take other branches: an op of another sample keeps its name to itself.
        while self._taken.get(node.name, signature) != signature:
            node.name = self.graph._graph_namespace.create_name(name, None)
        self._taken[node.name] = signature
        described = describe(node)
        op = replace(described, inputs=reads, attributes=attributes(node, lambda n: n))
        return node, replace(op, key=self._ledger.op(op)), reads

    def _read(self, tensor: torch.Tensor) -> Node:
        """The node that has the value which the tensor has now."""
        if not self._memory.known(tensor):
            self._adopt(tensor)
        node, writes = self._memory.read(tensor)
        if writes:
            node = self._reread(tensor, node, writes)
        return node

    def _reread(self, tensor: torch.Tensor, node: Node, writes: list[Write]) -> Node:
        place = Place.of(tensor)
        target: Any = REREAD
        if any(write.place.dtype != place.dtype for write in writes):
            target = reread_as_other_type
        places = [n for p in (place, *(w.place for w in writes)) for n in p.numbers()]
        made, op, reads = self._op(target, (node, [w.node for w in writes], places), {})
        made.meta["val"] = form_of(tensor)
        self._ledger.results(op.key, [tensor], reads)
        self._memory.hold(tensor, made, fresh=False)
        return made

    def _adopt(self, tensor: torch.Tensor) -> None:
        """A tensor that no op gave: the model's own, or made out of Python values."""
        name = self._by_identity.get(identity(tensor))
        if name is not None and name not in self._parameters:
            own = self._own[name]
            node = self.graph.create_node("get_attr", name)
            node.meta["val"] = form_of(own)
            self._parameters[name] = own
            self._names[name] = name
            edge = self._edges.of(node)
            assert edge is not None
            if edge.role is Role.STATE:
                self._ledger.tensor(edge, own)
            else:
                self._ledger.parameter(edge, own)
            self._memory.hold(own, node, fresh=False)
        twin = self._memory.twin(tensor) if name is None else self._own[name]
        if twin is not None:
            self._memory.hold(tensor, self._read(twin), fresh=False)
            return
        node, op, _ = self._op(aten.lift_fresh_copy.default, (tensor.detach().clone(),), {})
        node.meta["val"] = form_of(tensor)
        self._ledger.results(op.key, [tensor], ())
        self._memory.hold(tensor, node, fresh=True)

    def _placeholders(self, leaves: list[Any], paths: list[str]) -> None:
        found = []
        for value, path in zip(leaves, paths, strict=True):
            node = self.graph.placeholder(re.sub(r"\W+", "_", path).strip("_"))
            found.append((node.name, path))
            if _is_tensor(value):
                node.meta["val"] = form_of(value)
                self._memory.hold(value, node, fresh=False)
                self._ledger.tensor(Edge(OpKey(node.name), role=Role.MODEL_INPUT), value, name=path)
            else:
                node.meta["val"] = value
        self._placeholder_paths = tuple(found)

    def _states(self) -> None:
        """The new values of parameters and buffers that were written to."""
        if self._kept is not None:
            # By now another tensor may stand in the place of the one there was.
            for name, tensor in own_tensors(self._model).items():
                if name in self._kept and self._memory.known(tensor):
                    self._ledger.state(name, self._edges.of(self._read(tensor)), tensor)
            return
        for name, tensor in self._own.items():
            if name not in self._parameters or not self._memory.known(tensor):
                continue
            node, writes = self._memory.read(tensor)
            if writes or node.op != "get_attr":
                edge = Edge(OpKey(name), role=Role.STATE)
                self._ledger.tensor(edge, tensor)


def reread_as_other_type(before: Tree, written: Tree, places: Tree) -> Tree:
    """Stands in the graph for what cannot be evaluated: memory seen as two types of number."""
    raise NotImplementedError


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def record_by_dispatch(
    subject: Subject,
    loop: Loop | None,
    inputs: tuple[Args, Kwargs],
    ledger: Ledger,
    seed: int,
    why: str,
) -> tuple[Program, list[Any]]:
    """Record a model, or the next step of a loop, while it runs; `why` says why it is not exported.

    Gives the program that was recorded, and the flattened outputs.
    """
    args, kwargs = inputs
    model = subject.module if loop is None else loop.traced
    stack = python_stack if subject.script is None else subject.script.here
    tracer = Tracer(model, ledger, stack, None if loop is None else loop.written)
    paths = [path for path, _ in named_leaves((args, kwargs), subject.positional)]
    kept = unchanged(model) if loop is None else contextlib.nullcontext()
    with kept, unoptimised() if subject.script else contextlib.nullcontext():
        torch.manual_seed(seed)
        try:
            result = tracer.run(
                pytree.tree_map(cloned, args), pytree.tree_map(cloned, kwargs), paths
            )
        except Exception as error:
            cause, place = tracer.cause_of(error)
            raise raised(subject, cause, args, kwargs, place) from error
        notes: tuple[str, ...] = (f"{why}: {_BELOW}",)
        if subject.script is not None and tracer.unplaced:
            notes += (
                f"the module of {tracer.unplaced} of {tracer.ops} ops is not known: a line of"
                " the script calls several modules of one class",
            )
        program, outputs = tracer.program(result, notes)
        # The outputs may be memory of the model, which is put back.
        return program, pytree.tree_map(cloned, outputs)
