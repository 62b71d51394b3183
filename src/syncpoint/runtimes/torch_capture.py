"""Runs a program node by node and tells the recorder of every op and tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from syncpoint.errors import Unsupported
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import WHOLE, Edge, Op, OpKey, Role, TensorKey
from syncpoint.run.recorder import Recorder
from syncpoint.run.writer import RunWriter
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch_names import (
    Edges,
    arguments,
    frames,
    is_op,
    is_random,
    is_tensor,
    json_value,
    module_of,
    type_of,
)
from syncpoint.runtimes.torch_program import AMBIGUOUS, AUTOCAST, Program
from syncpoint.runtimes.torch_tensors import dtype_name, to_numpy

_PARAMETERS: WeakKeyDictionary[RunWriter, set[Edge]] = WeakKeyDictionary()
"""Which parameters each run that is being written has already."""


class OpFailed(Exception):
    """An op of the model raised; carries the op and leaves the error as its cause."""

    def __init__(self, key: OpKey, type: str, place: str) -> None:
        super().__init__(str(key), type, place)
        self.key = key
        self.type = type
        self.place = place


class Ledger:
    """What one capture has recorded so far; shared by the graph and its sub-graphs."""

    def __init__(self, program: Program, recorder: Recorder) -> None:
        self.program = program
        self.recorder = recorder
        self.computed: Counter[str] = Counter()
        """Elements computed, by floating-point type: the precision that was really in effect."""
        self.made: WeakIdKeyDictionary = WeakIdKeyDictionary()
        """Live tensor -> the edge it is known by; for what passes through sub-graphs."""
        self.rounds: Counter[str] = Counter()
        self._keys: dict[Edge, TensorKey] = {}
        self._storages: dict[Edge, int] = {}

    def tensor(
        self, edge: Edge, value: torch.Tensor, reads: tuple[Edge, ...] = (), name: str = ""
    ) -> None:
        """Record a tensor under its edge; `reads` are the tensors whose memory it may share."""
        storage = _storage(value)
        alias = next((e for e in reads if storage and self._storages.get(e) == storage), None)
        key = self._write(edge.op, edge.role, edge.index, value, name, alias)
        if key is not None:
            self._keys[edge] = key
            self._storages[edge] = storage
        self.made[value] = edge
        if value.requires_grad:
            self.program.learns.add(edge)

    def parameter(self, edge: Edge, value: torch.Tensor) -> None:
        """Record a parameter; of each run once, whatever the number of its parts."""
        whole = self.recorder.for_part(WHOLE)
        recorded = _PARAMETERS.setdefault(self.recorder.writer, set())
        if edge not in recorded:
            recorded.add(edge)
            self._write(edge.op, edge.role, edge.index, value, "", None, whole)
        self._keys[edge] = TensorKey(edge.op, edge.role, edge.index, WHOLE)
        self._storages[edge] = _storage(value)
        self.made[value] = edge

    def model_output(self, edge: Edge, position: int, value: torch.Tensor, name: str) -> None:
        """Record a final output; the same values as those of the tensor at `edge`."""
        self._write(edge.op, Role.MODEL_OUTPUT, position, value, name, edge)

    def _write(
        self,
        op: OpKey,
        role: Role,
        index: int,
        value: torch.Tensor,
        name: str,
        alias: Edge | None,
        recorder: Recorder | None = None,
    ) -> TensorKey | None:
        try:
            array = to_numpy(value)
        except Unsupported as error:
            self.recorder.note(f"{op} {role} {index} was not recorded: {error}")
            return None
        known = dtype_name(value.dtype)
        return (recorder or self.recorder).tensor(
            op,
            array,
            role=role,
            index=index,
            dtype=known if known in DTYPES else None,
            name=name,
            strides=tuple(value.stride()) if value.layout is torch.strided else None,
            device=str(value.device),
            requires_grad=value.requires_grad,
            alias_of=str(self._keys[alias]) if alias in self._keys else "",
        )


class Capture(Interpreter):
    """Executes one graph; values are let go as soon as nobody reads them any more."""

    def __init__(
        self, ledger: Ledger, module: GraphModule, edges: Edges, path: str = "", iteration: int = 0
    ) -> None:
        super().__init__(module)
        self.extra_traceback = False
        self._ledger = ledger
        self._edges = edges
        self._path = path
        self._iteration = iteration
        self._outer: dict[Node, Edge | None] = {}
        """Placeholders of a sub-graph -> the tensors of the graph around it."""
        self._keys: dict[str, OpKey] = {}
        """Ops of this graph so far; in a sub-graph a key has a path and a round."""
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
        if n.op != "call_function":
            return super().run_node(n)
        if not is_op(n):
            is_check = isinstance(n.target, torch._ops.OpOverload)
            return None if is_check else super().run_node(n)
        if n.target is torch.ops.aten.copy_.default and self._writes_back(n):
            return None
        if any(isinstance(v, GraphModule) for v in self._values_of(n)):
            return self._sub_graphs(n)
        reads = tuple(e for e in (self._edge(i) for i in _tensor_nodes(n)) if e is not None)
        key = self._ledger.recorder.op(self._describe(n, reads))
        self._keys[n.name] = key
        try:
            context = n.meta.get(AUTOCAST)
            if context is None:
                result = super().run_node(n)
            else:
                with torch.autocast(
                    context[0], dtype=context[1], enabled=context[2], cache_enabled=False
                ):
                    result = super().run_node(n)
        except Exception as error:
            place = str(frames(n)[-1]) if frames(n) else ""
            raise OpFailed(key, type_of(n), place) from error
        self._record(n, key, result, reads)
        return result

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
        leaves = pytree.tree_leaves(result)
        for index, value in enumerate(leaves):
            if not isinstance(value, torch.Tensor):
                continue
            self._ledger.tensor(Edge(key, index), value, reads)
            if value.is_floating_point():
                self._ledger.computed[dtype_name(value.dtype)] += value.numel()
        if not any(isinstance(value, torch.Tensor) for value in leaves):
            known = self._ledger.program.scalars
            agreed = node.name not in known or known[node.name] == result
            known[node.name] = result if agreed else AMBIGUOUS

    def _describe(self, node: Node, reads: tuple[Edge, ...]) -> Op:
        module, module_type = module_of(node)
        originals = self._ledger.program.originals.get(node.name, ())
        origins = dict.fromkeys((node.name, *originals))
        return Op(
            replace(self._edges.key(node.name), path=self._path, iteration=self._iteration),
            type_of(node),
            reads,
            self._attributes(node),
            module,
            module_type,
            frames(node),
            tuple(origins),
            is_random(node),
        )

    def _attributes(self, node: Node) -> dict[str, Any]:
        """The non-tensor arguments by name, with the numbers that were in effect."""
        found = {}
        for name, value in arguments(node):
            leaves = [self.env.get(v, v) if isinstance(v, Node) else v for v in _leaves(value)]
            plain = [v for v in leaves if not isinstance(v, (torch.Tensor, Node))]
            if not plain or (value is None):
                continue
            if isinstance(value, Node):
                found[name] = json_value(plain[0])
            else:
                here = pytree.tree_map(
                    lambda v: self.env.get(v, v) if isinstance(v, Node) else v, value
                )
                found[name] = json_value(here)
        return found

    def _values_of(self, node: Node) -> list[Any]:
        return [
            self.env.get(v)
            for v in pytree.tree_leaves((node.args, node.kwargs))
            if isinstance(v, Node)
        ]

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
            self._ledger.tensor(Edge(edge.op, role=Role.STATE), value)
        return True

    def _sub_graphs(self, node: Node) -> Tree:
        """Run an op that has graphs as arguments (cond, while_loop), recording what is inside."""

        def recorded(name: str, module: GraphModule) -> Callable[..., Any]:
            def call(*operands: Tree) -> Tree:
                path = "/".join(p for p in (self._path, f"{node.name}.{name}") if p)
                round_ = self._ledger.rounds[path]
                self._ledger.rounds[path] += 1
                inner = Capture(self._ledger, module, Edges({}, self._edges.graph), path, round_)
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
            reads = tuple(e for e in (self._edge(i) for i in _tensor_nodes(node)) if e is not None)
            key = self._ledger.recorder.op(self._describe(node, reads))
            self._keys[node.name] = key
            self._record(node, key, result, reads)
        return result


def _leaves(value: Tree) -> list[Any]:
    return [value] if isinstance(value, Node) else pytree.tree_leaves(value)


def _tensor_nodes(node: Node) -> list[Node]:
    return [
        leaf
        for _, value in arguments(node)
        for leaf in _leaves(value)
        if isinstance(leaf, Node) and is_tensor(leaf)
    ]


def _storage(value: torch.Tensor) -> int:
    try:
        return value.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return 0
