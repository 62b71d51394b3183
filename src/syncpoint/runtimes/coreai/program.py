"""The ops of an asset as it is written: in order, with the order of their operands.

The runtime shows what a kernel reads and writes as sets. Which operand is the first, and which
call a kernel of a shared body belongs to, is said by the program alone. Reading it takes parts
of coreai-core that are not public: where they are missing there is no program, and the capture
says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from syncpoint.runtimes.coreai.debug_info import Debug, read_location
from syncpoint.runtimes.coreai.kernel_names import short

_TENSOR = re.compile(r"tensor<((?:(?:\d+|\?)x)*)(\w+)>")
_CALLEE = re.compile(r"@([\w.$-]+)")
_SILENT = frozenset({"constant", "output", "create_token", "read_handle", "write_handle"})
"""Ops of the program that no kernel does."""

Source = tuple[str, Any, int]
"""("node", number of the node, result), ("argument", name, 0), ("constant", form, 0) or UNKNOWN."""
UNKNOWN: Source = ("unknown", None, 0)
"""What a state holds: it depends on what was written before."""


@dataclass(kw_only=True)
class Node:
    """One op of the program, bodies of calls included."""

    number: int
    name: str
    operands: tuple[Source, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    """Of the results; -1 for an axis that is open, None where nothing is said."""
    call: Debug | None = None
    """For an op of a body: where the call is from; it completes the call or is inside it."""
    step: str = ""
    """The op of the program that this is a step of, where the compiler takes it apart."""
    group: int = -1
    """Number of the first step of that op."""
    plain: bool = False
    """Whether that op takes nothing away before it scales."""
    twin: int = -1
    """The same step of an equal op before it, which may be computed once for both."""


_STEPS = {
    "quantize": ("sub", "divide", "round", "add", "maximum", "minimum", "cast"),
    "dequantize": ("cast", "sub", "mul", "add"),
}
"""Ops that no kernel does as a whole -> the kernels that do it together, of which some may be
merged with what is around them."""
_OPERANDS = {
    "quantize": {"sub": 3, "divide": 1, "add": 2, "maximum": 2, "minimum": 2},
    "dequantize": {"sub": 2, "mul": 1, "add": 3},
}
"""Which operand a step takes its constant from: scale, zero point or least value."""


@dataclass
class Program:
    """One function of an asset, flat."""

    nodes: list[Node] = field(default_factory=list)
    said: dict[str, Debug] = field(default_factory=dict)
    """By torch node: module and lines, from the ops that were made from it alone."""


def read(asset: Any, function: str) -> Program | None:
    """The function of this name; None where this version of coreai-core keeps it to itself."""
    try:
        from coreai._compiler import ir

        module = asset.program._module._mlir_module.operation
        graphs = {_symbol(op): op for op in _inside(module) if op.name == "coreai.graph"}
        return _Reader(ir, graphs).function(function)
    except (ImportError, AttributeError, KeyError, TypeError, ValueError):
        return None


class _Reader:
    def __init__(self, ir: Any, graphs: Mapping[str, Any]) -> None:
        self._ir = ir
        self._graphs = graphs
        self._made = Program()
        self._calls = 0
        self._taken_apart: dict[Any, int] = {}

    def function(self, name: str) -> Program:
        graph = self._graphs[name]
        block = graph.regions[0].blocks[0]
        given = _argument_names(graph)
        known = {arg: ("argument", n, 0) for arg, n in zip(block.arguments, given, strict=True)}
        self._body(block, known, None, {name})
        return self._made

    def _body(
        self, block: Any, known: dict[Any, Source], call: Debug | None, around: set[str]
    ) -> tuple[Source, ...]:
        """Adds the ops of a block; gives what it returns."""
        for view in block.operations:
            op = view.operation
            kind = short(op.name)
            said = read_location(str(op.location))
            if call is None and len(said.origins) == 1:
                self._made.said.setdefault(said.origins[0], said)
            operands = tuple(known.get(v, UNKNOWN) for v in op.operands)
            if kind == "output":
                return operands
            if kind in _SILENT:
                known |= {r: _constant(r) if kind == "constant" else UNKNOWN for r in op.results}
                continue
            callee = _CALLEE.search(str(op.attributes["callee"])) if kind == "invoke" else None
            name = callee[1] if callee else ""
            if name in self._graphs and name not in around:
                self._call(op, operands, name, known, call or said, around)
                continue
            if kind == "get_shape":
                operands = ()  # its kernel reads no values, and shows none
            if kind in _STEPS:
                known[op.results[0]] = self._steps(op, kind, operands, call or said)
                continue
            shapes = tuple(_shape(result) for result in op.results)
            node = Node(
                number=len(self._made.nodes), name=kind, operands=operands, shapes=shapes, call=call
            )
            self._made.nodes.append(node)
            known |= {r: ("node", node.number, i) for i, r in enumerate(op.results)}
        return ()

    def _steps(self, op: Any, kind: str, operands: Sequence[Source], said: Debug) -> Source:
        """The nodes of an op that the compiler takes apart; gives what the last of them makes."""
        if not said.origins:
            self._calls += 1
            said = replace(said, origins=(f"@{kind}.{self._calls}",))
        group = len(self._made.nodes)
        twin = self._taken_apart.setdefault((kind, operands[0], tuple(op.operands)[1:]), group)
        plain = _is_zero(op.operands[3])
        last, shapes = operands[0], (_shape(op.results[0]),)
        for at, name in enumerate(_STEPS[kind]):
            constant = _OPERANDS[kind].get(name)
            read = (last,) if constant is None else (last, _widened(operands[constant]))
            number = len(self._made.nodes)
            ends = at == len(_STEPS[kind]) - 1
            same = twin + at if twin != group else -1
            call = replace(said, completes=ends)
            node = Node(
                number=number,
                name=name,
                operands=read,
                shapes=shapes,
                call=call,
                step=kind,
                group=group,
                plain=plain,
                twin=same,
            )
            self._made.nodes.append(node)
            last = ("node", number, 0)
        return last

    def _call(
        self,
        op: Any,
        operands: Sequence[Source],
        callee: str,
        known: dict[Any, Source],
        call: Debug,
        around: set[str],
    ) -> None:
        if not call.origins:
            # Nothing is known of the torch program; what belongs together still is.
            self._calls += 1
            call = replace(call, origins=(f"@{callee}.{self._calls}",))
        block = self._graphs[callee].regions[0].blocks[0]
        inner = dict(zip(block.arguments, operands, strict=True))
        first = len(self._made.nodes)
        returned = self._body(block, inner, call, {*around, callee})
        known |= dict(zip(op.results, returned, strict=True))
        ends = {source[1] for source in returned if source[0] == "node"}
        for node in self._made.nodes[first:]:
            if node.number in ends and node.call is call:
                node.call = replace(call, completes=True)


def _inside(op: Any) -> list[Any]:
    return [view.operation for region in op.regions for b in region.blocks for view in b.operations]


def _constant(result: Any) -> Source:
    found = _TENSOR.fullmatch(str(result.type))
    return ("constant", (_shape(result), found[2]), 0) if found else UNKNOWN


def _is_zero(value: Any) -> bool:
    """Whether a value is a constant of nothing but zeros, as its text says."""
    owner = getattr(value.owner, "operation", value.owner)
    said = str(owner.attributes["value"]) if getattr(owner, "name", "") == "coreai.constant" else ""
    return said.startswith("dense<0.000000e+00>")


def _widened(source: Source) -> Source:
    """A constant as the kernels of steps read it: a zero point is a float there."""
    return ("constant", (source[1][0], "f32"), 0) if source[0] == "constant" else source


def _shape(result: Any) -> tuple[int, ...] | None:
    found = _TENSOR.fullmatch(str(result.type))
    if found is None:
        return None
    return tuple(-1 if n == "?" else int(n) for n in found[1].split("x")[:-1])


def _symbol(op: Any) -> str:
    return str(op.attributes["sym_name"]).strip('"')


def _argument_names(graph: Any) -> list[str]:
    found = []
    for entry in graph.attributes["arg_attrs"]:
        named = re.search(r'coreai\.name = "([^"]+)"', str(entry))
        found.append(named[1] if named else "")
    return found
