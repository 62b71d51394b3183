"""Match kernels to ops of the program while they run, by type, shape and what they read; order the
inputs; steps of split ops.

A kernel is matched to the next op of the program with its type and shape, if it reads the outputs
of the kernels of that op's operands. Kernels that the compiler added (broadcasts, copies) are
skipped on the way. Nothing else is guessed: a kernel that fits no op stays without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncpoint.runtimes.coreai.node_metadata import short_type
from syncpoint.runtimes.coreai.program import UNKNOWN, AssetProgram, ProgramNode, Source

_MAX_OPS_AHEAD = 96
"""Ops after the furthest matched op among which a kernel is looked for."""
_MAX_OPS_BACK = 256
"""Ops before the matched op that may still get a kernel."""
_MAX_SKIPPED_OPS = 8
"""Ops without a kernel that are skipped, one behind the other."""

_REWRITTEN = {"sub": "add", "divide": "mul", "relu": "maximum"}
"""Op with a constant as its second operand, or none -> the kernel that the compiler makes of it."""


@dataclass(frozen=True)
class KernelInput:
    """Where an input of a kernel comes from."""

    kernel: int = -1
    """Position of the kernel that computed it in the order of execution; -1 for none."""
    index: int = 0
    model_input: str = ""
    """Name of the input or state of the model."""
    constant: int = -1
    form: object = None
    """Of a constant: shape and element type, as in the program."""


class KernelMatcher:
    """Matches the kernels of one execution, in the order in which they run."""

    def __init__(self, program: AssetProgram | None) -> None:
        self._program = program.nodes if program else []
        self._unmatched: list[ProgramNode] = list(self._program)
        self._done: set[int] = set()
        """Numbers of the ops whose kernels have run."""
        self._kernel_sources: list[frozenset[Source]] = []
        """By kernel: the sources in the program that it reads."""
        self._nodes: list[ProgramNode | None] = []
        self._furthest = 0
        """Number of the furthest op whose kernel has run."""

    def match_kernel(
        self, name: str, inputs: Sequence[KernelInput], shapes: Sequence[tuple[int, ...]]
    ) -> tuple[ProgramNode | None, list[int]]:
        """Match the next kernel; also returns its inputs in the order of the op's operands."""
        sources = [self._sources_of(kernel_input) for kernel_input in inputs]
        node = self._find_op(short_type(name), sources, shapes)
        self._nodes.append(node)
        self._kernel_sources.append(frozenset().union(*sources))
        if node is None:
            return None, sorted(range(len(inputs)), key=lambda i: _sort_key(inputs[i]))
        order = _order_inputs([self._find_behind(s) for s in node.operands], inputs, sources)
        self._done.add(node.number)
        self._furthest = max(self._furthest, node.number)
        self._unmatched = [n for n in self._unmatched if n is not node]
        while self._unmatched and self._unmatched[0].number < node.number - _MAX_OPS_BACK:
            self._unmatched.pop(0)
        return node, order

    def _sources_of(self, kernel_input: KernelInput) -> frozenset[Source]:
        if kernel_input.model_input:
            return frozenset({("argument", kernel_input.model_input, 0)})
        if kernel_input.kernel < 0:
            is_constant = kernel_input.constant >= 0
            return frozenset({("constant", kernel_input.form, 0) if is_constant else UNKNOWN})
        node = self._nodes[kernel_input.kernel]
        if node is None:
            return self._kernel_sources[kernel_input.kernel]
        return frozenset({("node", node.number, kernel_input.index)})

    def _find_behind(self, source: Source, steps: int = _MAX_SKIPPED_OPS) -> frozenset[Source]:
        """Find the sources behind an operand.

        Ops without a kernel at the time they are read were merged into others, so they are
        skipped.
        """
        if source[0] != "node" or source[1] in self._done:
            return frozenset({source})
        twin = self._program[source[1]].twin
        if twin in self._done:
            return frozenset({("node", twin, source[2])})
        if not steps:
            return frozenset({UNKNOWN})
        operands = self._program[source[1]].operands
        return frozenset().union(*(self._find_behind(s, steps - 1) for s in operands))

    def _find_op(
        self, name: str, sources: Sequence[frozenset[Source]], shapes: Sequence[tuple[int, ...]]
    ) -> ProgramNode | None:
        kernel_sources = _drop_constants(sources)
        for node in self._unmatched:
            if node.number > self._furthest + _MAX_OPS_AHEAD:
                break
            if len(node.shapes) != len(shapes) or not self._has_type(name, node):
                continue
            if not all(_fits_shape(a, b) for a, b in zip(shapes, node.shapes, strict=True)):
                continue
            if node.step and not self._is_single_step(node, sources):
                continue
            op_sources = _drop_constants([self._find_behind(s) for s in node.operands])
            if op_sources == kernel_sources or (
                UNKNOWN in op_sources and op_sources - {UNKNOWN} <= kernel_sources
            ):
                return node
        return None

    def _is_single_step(self, node: ProgramNode, sources: Sequence[frozenset[Source]]) -> bool:
        """Whether a kernel does only this step of an op that the compiler split.

        The first step may be merged with the ops before it. A last step that is merged with what
        follows, or any other merged step, is another computation.
        """
        previous = node.operands[0]
        if node.number > node.group + 1 and previous[1] not in self._done:
            return False
        return _list_constants(sources) == _list_constants([frozenset({s}) for s in node.operands])

    def _has_type(self, name: str, node: ProgramNode) -> bool:
        """Whether a kernel has the type of an op, or the type that the compiler rewrites it to
        where it subtracts or divides by a constant."""
        if node.name == name:
            return True
        if _REWRITTEN.get(node.name) != name:
            return False
        return not _drop_constants([self._find_behind(s) for s in node.operands[1:]])


def _drop_constants(sources: Sequence[frozenset[Source]]) -> frozenset[Source]:
    """All sources except constants: the compiler may fold those, so they are no evidence."""
    return frozenset(s for group in sources for s in group if s[0] != "constant")


def _list_constants(sources: Sequence[frozenset[Source]]) -> list[Source]:
    return sorted((s for group in sources for s in group if s[0] == "constant"), key=str)


def _order_inputs(
    operands: Sequence[frozenset[Source]],
    inputs: Sequence[KernelInput],
    sources: Sequence[frozenset[Source]],
) -> list[int]:
    """Positions of the inputs in the order of the operands.

    Inputs with equal sources are placed first, then those with common sources, then constants
    that were folded, then the rest.
    """
    unplaced = sorted(range(len(inputs)), key=lambda i: _sort_key(inputs[i]))
    input_by_operand: dict[int, int] = {}
    for is_alike in (frozenset.__eq__, frozenset.__and__, _has_same_element_type):
        for position, operand in enumerate(operands):
            candidates = (i for i in unplaced if is_alike(operand, sources[i]))
            chosen = next(candidates, None) if position not in input_by_operand else None
            if chosen is not None:
                input_by_operand[position] = chosen
                unplaced.remove(chosen)
    rest = iter(unplaced)
    order = [
        input_by_operand[position] if position in input_by_operand else next(rest, None)
        for position in range(len(operands))
    ]
    return [*(i for i in order if i is not None), *rest]


def _has_same_element_type(operand: frozenset[Source], source: frozenset[Source]) -> bool:
    """Whether both are constants of one element type: folding may have changed the shape."""
    types = [{s[1][1] if s[0] == "constant" else None for s in side} for side in (operand, source)]
    return None not in types[0] and types[0] == types[1]


def _sort_key(kernel_input: KernelInput) -> tuple[int, str, int, int]:
    """Sort key that does not depend on the order of a callback: what was computed first."""
    return (
        kernel_input.constant,
        kernel_input.model_input,
        kernel_input.kernel,
        kernel_input.index,
    )


def _fits_shape(shape: tuple[int, ...], declared: tuple[int, ...] | None) -> bool:
    return declared is None or (
        len(shape) == len(declared)
        and all(s in (-1, n) for n, s in zip(shape, declared, strict=True))
    )
