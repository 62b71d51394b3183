"""Read one function (graph block) of an asset's program: its ops in order, with calls inlined,
their operands and constants.

The runtime shows what a kernel reads and writes as sets. Only the program says which operand is the
first, and to which call a kernel of a shared body belongs. Reading it needs parts of coreai-core
that are not public. Without them there is no program, and the capture has a note.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from syncpoint.runtimes.coreai.node_metadata import DebugInfo, parse_location, short_type

_TENSOR = re.compile(r"tensor<((?:(?:\d+|\?)x)*)(\w+)>")
_CALLEE = re.compile(r"@([\w.$-]+)")
_OPS_WITHOUT_KERNEL = frozenset(
    {"constant", "output", "create_token", "read_handle", "write_handle"}
)

Source = tuple[str, Any, int]
"""("node", number of the node, result), ("argument", name, 0), ("constant", form, 0) or UNKNOWN."""
UNKNOWN: Source = ("unknown", None, 0)
"""The value of a state, which depends on earlier writes."""


@dataclass(kw_only=True)
class ProgramNode:
    """One op of the program; ops in bodies of calls are nodes too."""

    number: int
    name: str
    operands: tuple[Source, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    """Of the results; -1 for an open axis, None for an unknown shape."""
    call: DebugInfo | None = None
    """For an op of a body: the debug information of the call."""
    step: str = ""
    """Type of the op that this node is a step of, if the compiler splits it into steps."""
    group: int = -1
    """Number of the first step of that op."""
    has_zero_minimum: bool = False
    """Whether that op subtracts nothing before it scales."""
    twin: int = -1
    """Number of the same step of an equal earlier op; both may be computed once."""


_STEPS = {
    "quantize": ("sub", "divide", "round", "add", "maximum", "minimum", "cast"),
    "dequantize": ("cast", "sub", "mul", "add"),
}
"""Ops that the compiler splits -> the kernels of their steps, some of which may be merged with
other ops."""
_CONSTANT_OPERANDS = {
    "quantize": {"sub": 3, "divide": 1, "add": 2, "maximum": 2, "minimum": 2},
    "dequantize": {"sub": 2, "mul": 1, "add": 3},
}
"""Step -> the operand of the op that is its constant: scale, zero point or minimum."""


@dataclass
class AssetProgram:
    """One function of an asset; calls are inlined."""

    nodes: list[ProgramNode] = field(default_factory=list)
    debug_by_node: dict[str, DebugInfo] = field(default_factory=dict)
    """By torch node: module and source lines, from the ops of that node alone."""


def read_program(asset: Any, function: str) -> AssetProgram | None:
    """Read a function; None where this version of coreai-core does not show programs."""
    try:
        from coreai._compiler import ir

        module = asset.program._module._mlir_module.operation
        graphs = {_symbol(op): op for op in _list_ops(module) if op.name == "coreai.graph"}
        return _ProgramReader(ir, graphs).read_function(function)
    except (ImportError, AttributeError, KeyError, TypeError, ValueError):
        return None


class _ProgramReader:
    def __init__(self, ir: Any, graphs: Mapping[str, Any]) -> None:
        self._ir = ir
        self._graphs = graphs
        self._program = AssetProgram()
        self._calls = 0
        self._first_steps: dict[Any, int] = {}
        """Type and operands of an op that is split -> number of its first step."""

    def read_function(self, name: str) -> AssetProgram:
        graph = self._graphs[name]
        block = graph.regions[0].blocks[0]
        names = _argument_names(graph)
        sources = {arg: ("argument", n, 0) for arg, n in zip(block.arguments, names, strict=True)}
        self._add_body(block, sources, None, {name})
        return self._program

    def _add_body(
        self, block: Any, sources: dict[Any, Source], call: DebugInfo | None, callers: set[str]
    ) -> tuple[Source, ...]:
        """Add the ops of a block; returns the sources of its outputs."""
        for view in block.operations:
            op = view.operation
            kind = short_type(op.name)
            debug = parse_location(str(op.location))
            if call is None and len(debug.origins) == 1:
                self._program.debug_by_node.setdefault(debug.origins[0], debug)
            operands = tuple(sources.get(v, UNKNOWN) for v in op.operands)
            if kind == "output":
                return operands
            if kind in _OPS_WITHOUT_KERNEL:
                is_constant = kind == "constant"
                sources |= {r: _constant_source(r) if is_constant else UNKNOWN for r in op.results}
                continue
            callee = _CALLEE.search(str(op.attributes["callee"])) if kind == "invoke" else None
            name = callee[1] if callee else ""
            if name in self._graphs and name not in callers:
                self._add_call(op, operands, name, sources, call or debug, callers)
                continue
            if kind == "get_shape":
                operands = ()  # its kernel reads no values
            if kind in _STEPS:
                sources[op.results[0]] = self._add_steps(op, kind, operands, call or debug)
                continue
            shapes = tuple(_shape(result) for result in op.results)
            node = ProgramNode(
                number=len(self._program.nodes),
                name=kind,
                operands=operands,
                shapes=shapes,
                call=call,
            )
            self._program.nodes.append(node)
            sources |= {r: ("node", node.number, i) for i, r in enumerate(op.results)}
        return ()

    def _add_steps(
        self, op: Any, kind: str, operands: Sequence[Source], debug: DebugInfo
    ) -> Source:
        """Add the steps of an op that the compiler splits; returns the source of its output."""
        if not debug.origins:
            self._calls += 1
            debug = replace(debug, origins=(f"@{kind}.{self._calls}",))
        group = len(self._program.nodes)
        first_twin = self._first_steps.setdefault(
            (kind, operands[0], tuple(op.operands)[1:]), group
        )
        has_zero_minimum = _is_zero(op.operands[3])
        last, shapes = operands[0], (_shape(op.results[0]),)
        for position, name in enumerate(_STEPS[kind]):
            constant = _CONSTANT_OPERANDS[kind].get(name)
            step_operands: tuple[Source, ...] = (last,)
            if constant is not None:
                step_operands = (last, _as_float32(operands[constant]))
            number = len(self._program.nodes)
            is_last = position == len(_STEPS[kind]) - 1
            twin = first_twin + position if first_twin != group else -1
            call = replace(debug, completes=is_last)
            node = ProgramNode(
                number=number,
                name=name,
                operands=step_operands,
                shapes=shapes,
                call=call,
                step=kind,
                group=group,
                has_zero_minimum=has_zero_minimum,
                twin=twin,
            )
            self._program.nodes.append(node)
            last = ("node", number, 0)
        return last

    def _add_call(
        self,
        op: Any,
        operands: Sequence[Source],
        callee: str,
        sources: dict[Any, Source],
        call: DebugInfo,
        callers: set[str],
    ) -> None:
        if not call.origins:
            # Without debug information, a generated origin still groups the ops of the call.
            self._calls += 1
            call = replace(call, origins=(f"@{callee}.{self._calls}",))
        block = self._graphs[callee].regions[0].blocks[0]
        inner_sources = dict(zip(block.arguments, operands, strict=True))
        first = len(self._program.nodes)
        outputs = self._add_body(block, inner_sources, call, {*callers, callee})
        sources |= dict(zip(op.results, outputs, strict=True))
        last_numbers = {source[1] for source in outputs if source[0] == "node"}
        for node in self._program.nodes[first:]:
            if node.number in last_numbers and node.call is call:
                node.call = replace(call, completes=True)


def _list_ops(op: Any) -> list[Any]:
    return [view.operation for region in op.regions for b in region.blocks for view in b.operations]


def _constant_source(constant: Any) -> Source:
    match = _TENSOR.fullmatch(str(constant.type))
    return ("constant", (_shape(constant), match[2]), 0) if match else UNKNOWN


def _is_zero(value: Any) -> bool:
    """Whether a value is a constant of zeros only, by its text."""
    owner = getattr(value.owner, "operation", value.owner)
    is_constant = getattr(owner, "name", "") == "coreai.constant"
    text = str(owner.attributes["value"]) if is_constant else ""
    return text.startswith("dense<0.000000e+00>")


def _as_float32(source: Source) -> Source:
    """A constant as the kernels of steps read it: they read a zero point as float32."""
    return ("constant", (source[1][0], "f32"), 0) if source[0] == "constant" else source


def _shape(value: Any) -> tuple[int, ...] | None:
    match = _TENSOR.fullmatch(str(value.type))
    if match is None:
        return None
    return tuple(-1 if n == "?" else int(n) for n in match[1].split("x")[:-1])


def _symbol(op: Any) -> str:
    return str(op.attributes["sym_name"]).strip('"')


def _argument_names(graph: Any) -> list[str]:
    names = []
    for entry in graph.attributes["arg_attrs"]:
        match = re.search(r'coreai\.name = "([^"]+)"', str(entry))
        names.append(match[1] if match else "")
    return names
