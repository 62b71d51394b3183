"""Runs a program node by node and tells the recorder of every op and tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from syncpoint.run.model import Edge, Op, OpKey, Role
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.edges import Edges, model_input, state_before
from syncpoint.runtimes.torch.evaluate import Evaluator
from syncpoint.runtimes.torch.inputs import Args, Kwargs
from syncpoint.runtimes.torch.ledger import Ledger
from syncpoint.runtimes.torch.load_model import Subject
from syncpoint.runtimes.torch.model_errors import OpFailed, place_of, raised
from syncpoint.runtimes.torch.node_metadata import AUTOCAST, attributes
from syncpoint.runtimes.torch.program import AMBIGUOUS, Observed, Plan, Program
from syncpoint.runtimes.torch.steps import Loop


class Capture(Interpreter):
    """Executes one graph; values are let go as soon as nobody reads them any more."""

    def __init__(
        self,
        ledger: Ledger,
        program: Program,
        module: GraphModule,
        edges: Edges,
        path: str = "",
        iteration: int = 0,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """`attributes` are what the get_attr nodes fetch where it is not what the program says."""
        super().__init__(module)
        self.extra_traceback = False
        self._ledger = ledger
        self._program = program
        self._edges = edges
        self._path = path
        self._iteration = iteration
        self._outer: dict[Node, Edge | None] = {}
        """Placeholders of a sub-graph -> the tensors of the graph around it."""
        self._keys: dict[str, OpKey] = {}
        """Ops of this graph so far; in a sub-graph a key has a path and a round."""
        self._as_planned = not path
        """Whether every op so far has the key that its plan says, so that edges need no look."""
        self._attributes = program.attributes if attributes is None else attributes
        self.written: dict[str, torch.Tensor] = {}
        """By name: what the buffers hold that the graph writes to."""
        self.results: tuple[Edge | None, ...] = ()
        """What the flattened outputs are known by, once the graph has run."""

    def bind(self, operands: tuple[Any, ...]) -> None:
        """Say which tensors the placeholders of a sub-graph stand for."""
        formal = [n for n in self.module.graph.nodes if n.op == "placeholder"]  # type: ignore[union-attr]
        for node, value in zip(formal, operands, strict=False):
            known = isinstance(value, torch.Tensor) and value in self._ledger.made
            self._outer[node] = self._ledger.made[value] if known else None

    def run_node(self, n: Node) -> Tree:
        """Execute a node; an op is recorded before it runs, its outputs right after."""
        if n.op == "output":
            self.results = tuple(
                self._edge(leaf) if isinstance(leaf, Node) else None for leaf in _leaves(n.args[0])
            )
            return super().run_node(n)
        if n.op == "get_attr" and not self._path:
            return self._attributes[str(n.target)]
        if n.op != "call_function":
            return super().run_node(n)
        plan = self._program.plan(n)
        if not plan.computes:
            is_check = isinstance(n.target, torch._ops.OpOverload)
            return None if is_check else self._call(n)
        if n.target is torch.ops.aten.copy_.default and self._writes_back(n):
            return None
        if plan.may_nest and any(isinstance(self.env.get(f), GraphModule) for f in plan.fetched):
            self._as_planned = False
            return self._sub_graphs(n, plan)
        reads = self._reads(plan)
        key = self._ledger.op(self._describe(n, plan, reads))
        self._keys[n.name] = key
        self._as_planned = self._as_planned and key is plan.op.key
        try:
            context = n.meta.get(AUTOCAST)
            if context is None:
                result = self._call(n)
            else:
                with torch.autocast(
                    context[0], dtype=context[1], enabled=context[2], cache_enabled=False
                ):
                    result = self._call(n)
        except Exception as error:
            raise OpFailed(replace(plan.op, key=key)) from error
        self._record(n, key, result, reads)
        return self._handed_on(key, result)

    def _handed_on(self, key: OpKey, result: Tree) -> Tree:
        """What those that read the op's result are given."""
        return result

    def _call(self, node: Node) -> Tree:
        # What the interpreter does around a call, for tracebacks, costs as much as a small op.
        args = map_arg(node.args, self.env.__getitem__)
        kwargs = map_arg(node.kwargs, self.env.__getitem__) if node.kwargs else {}
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def _edge(self, node: Node) -> Edge | None:
        if node in self._outer:
            return self._outer[node]
        edge = self._edges.of(node)
        if edge is None or edge.role is not Role.OUTPUT:
            return edge
        if edge.op.op in self._keys:
            return Edge(self._keys[edge.op.op], edge.index)
        # What an op with sub-graphs gives back is known by the op inside that made it.
        value = self.env.get(node)
        known = isinstance(value, torch.Tensor) and value in self._ledger.made
        return self._ledger.made[value] if known else None

    def _record(self, node: Node, key: OpKey, result: Tree, reads: tuple[Edge, ...]) -> None:
        if isinstance(result, torch.Tensor):
            self._ledger.results(key, (result,), reads)
            return
        leaves = pytree.tree_leaves(result)
        self._ledger.results(key, leaves, reads)
        if not any(isinstance(value, torch.Tensor) for value in leaves):
            known = self._ledger.observed.scalars
            agreed = node.name not in known or known[node.name] == result
            known[node.name] = result if agreed else AMBIGUOUS

    def _reads(self, plan: Plan) -> tuple[Edge, ...]:
        if self._as_planned:
            return plan.op.inputs
        return tuple(e for e in (self._edge(node) for node in plan.tensors) if e is not None)

    def _describe(self, node: Node, plan: Plan, reads: tuple[Edge, ...]) -> Op:
        if plan.fixed and not self._path and (reads is plan.op.inputs or reads == plan.op.inputs):
            return plan.op
        # Sizes and the like are other numbers in every run.
        found = attributes(node, lambda n: self.env.get(n, n))
        key = replace(self._edges.key(node.name), path=self._path, iteration=self._iteration)
        return replace(plan.op, key=key, inputs=reads, attributes=found)

    def _writes_back(self, node: Node) -> bool:
        """A write to a buffer or an input at the end of a functional graph.

        The new state is recorded; the write is not done, since capture leaves the model as is.
        """
        target = node.args[0]
        assert isinstance(target, Node)
        if target.op not in ("get_attr", "placeholder"):
            return False
        edge = self._edge(target)
        value = self.env.get(node.args[1])  # type: ignore[arg-type]
        if edge is not None and isinstance(value, torch.Tensor):
            made_by = self._edge(node.args[1])  # type: ignore[arg-type]
            if edge.role is Role.STATE:
                value = self.written[edge.op.op] = _as_held(value, self.env[target])
            self._ledger.state(edge.op.op, made_by, value)
        return True

    def _sub_graphs(self, node: Node, plan: Plan) -> Tree:
        """Run an op that has graphs as arguments (cond, while_loop), recording what is inside."""

        def recorded(name: str, module: GraphModule) -> Callable[..., Any]:
            def call(*operands: Tree) -> Tree:
                path = "/".join(p for p in (self._path, f"{node.name}.{name}") if p)
                round_ = self._ledger.rounds[path]
                self._ledger.rounds[path] += 1
                edges = Edges({}, self._edges.graph)
                inner = Capture(self._ledger, self._program, module, edges, path, round_)
                inner.bind(operands)
                return inner.run(*operands, enable_io_processing=False)

            return call

        def swapped(value: Tree) -> Tree:
            if not isinstance(value, Node):
                return value
            found = self.env[value]
            return recorded(value.name, found) if isinstance(found, GraphModule) else found

        args = pytree.tree_map(swapped, node.args)
        kwargs = pytree.tree_map(swapped, node.kwargs)
        result = node.target(*args, **kwargs)  # type: ignore[operator]
        fresh = [
            v
            for v in pytree.tree_leaves(result)
            if isinstance(v, torch.Tensor) and v not in self._ledger.made
        ]
        if fresh:
            reads = self._reads(plan)
            key = self._ledger.op(self._describe(node, plan, reads))
            self._keys[node.name] = key
            self._record(node, key, result, reads)
        return result


def record_program(
    program: Program,
    ledger: Ledger,
    leaves: Sequence[Any],
    states: Mapping[str, torch.Tensor],
    kind: Callable[..., Capture] = Capture,
) -> tuple[list[Any], Mapping[str, torch.Tensor]]:
    """Record one execution of a program: what it is given, node by node, and its outputs.

    `leaves` are the flattened inputs, `states` what the buffers hold after the step before. Gives
    the flattened outputs, and by name what the buffers hold that the program wrote to.
    """
    for (name, path), value in zip(program.placeholders, leaves, strict=True):
        if isinstance(value, torch.Tensor):
            ledger.tensor(model_input(name), value, name=path)
    for edge, value in program.parameters():
        ledger.parameter(edge, value)
    held = program.started(states)
    for target, value in held.items():
        name = program.edges.name(target)
        if name in program.states:
            ledger.tensor(state_before(name), value)
    assert program.module is not None
    capture = kind(ledger, program, program.module, program.edges, attributes=held)
    outputs = pytree.tree_leaves(capture.run(*leaves, enable_io_processing=False))
    for position, value in enumerate(outputs):
        made_by = capture.results[position]
        if isinstance(value, torch.Tensor) and made_by is not None:
            ledger.model_output(made_by, position, value, program.outputs[position])
    return outputs, capture.written


def record_by_nodes(
    program: Program,
    ledger: Ledger,
    subject: Subject,
    loop: Loop | None,
    inputs: tuple[Args, Kwargs],
    seed: int,
    kind: Callable[..., Capture] = Capture,
) -> list[Any]:
    """Record a program, or its next step in a loop, node by node.

    Gives the flattened outputs. An op that raises becomes the error of the model.
    """
    torch.manual_seed(seed)
    states = {} if loop is None else loop.states
    try:
        outputs, written = record_program(program, ledger, pytree.tree_leaves(inputs), states, kind)
    except OpFailed as failed:
        cause = failed.__cause__
        assert isinstance(cause, Exception)
        raise raised(subject, cause, *inputs, place_of(failed.op)) from cause
    if loop is not None:
        loop.states.update(written)
    return outputs


def record_in_float64(
    program: Program, evaluator: Evaluator, leaves: Sequence[Any], recorder: Recorder
) -> None:
    """Record one execution of a program with all floating-point arithmetic in float64."""
    ledger = Ledger(Observed(), recorder)
    input_values = {}
    for (name, path), value in zip(program.placeholders, leaves, strict=True):
        if isinstance(value, torch.Tensor):
            ledger.tensor(model_input(name), value, name=path)
            input_values[model_input(name)] = value
    outputs = evaluator.run_all(program, input_values, ledger)
    for position, (edge, value) in enumerate(outputs):
        if edge is not None and isinstance(value, torch.Tensor):
            ledger.model_output(edge, position, value, program.outputs[position])


def _as_held(value: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    """A value in the type and layout of the buffer it is written to."""
    return torch.empty_like(buffer).copy_(value)


def _leaves(value: Tree) -> list[Any]:
    return [value] if isinstance(value, Node) else pytree.tree_leaves(value)
