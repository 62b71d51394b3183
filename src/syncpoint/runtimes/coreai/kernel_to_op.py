"""Which op of the program a kernel does: found as the kernels run, proven by what they read.

A kernel is taken for the next op of its name and shape that the program has, if it reads what
the kernels of that op's operands gave. Kernels that the compiler added (broadcasts, copies) are
seen through. Nothing else is guessed: a kernel that fits no op stays without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncpoint.runtimes.coreai.kernel_names import short
from syncpoint.runtimes.coreai.program import UNKNOWN, Node, Program, Source

_AHEAD = 96
"""How far ahead of the last op that had a kernel the next one is looked for."""
_BACK = 256
"""How far back an op may be that still waits for its kernel."""
_THROUGH = 8
"""How many ops without a kernel are seen through, one behind the other."""

_REWRITTEN = {"sub": "add", "divide": "mul", "relu": "maximum"}
"""What the compiler makes of an op that has a constant as its second operand, or none."""


@dataclass(frozen=True)
class Tie:
    """Where an input of a kernel comes from."""

    kernel: int = -1
    """Position of the kernel that made it in the order of execution; -1 for none."""
    index: int = 0
    given: str = ""
    """Name of the input or state of the model."""
    constant: int = -1
    form: object = None
    """Of a constant: shape and element type, as the program has them."""


class Aligner:
    """Goes along with one execution."""

    def __init__(self, program: Program | None) -> None:
        self._program = program.nodes if program else []
        self._waiting: list[Node] = list(self._program)
        self._done: set[int] = set()
        """Numbers of the ops whose kernels have run."""
        self._kernels: list[frozenset[Source]] = []
        """By kernel without an op: what of the program lies behind it."""
        self._nodes: list[Node | None] = []
        self._last = 0
        """Number of the furthest op whose kernel has run."""

    def kernel(
        self, name: str, inputs: Sequence[Tie], shapes: Sequence[tuple[int, ...]]
    ) -> tuple[Node | None, list[int]]:
        """The op that the next kernel does, and its inputs in the order of the operands."""
        read = [self._read(tie) for tie in inputs]
        node = self._fitting(short(name), read, shapes)
        self._nodes.append(node)
        self._kernels.append(frozenset().union(*read))
        if node is None:
            return None, sorted(range(len(inputs)), key=lambda i: _stable(inputs[i]))
        order = _ordered([self._behind(s) for s in node.operands], inputs, read)
        self._done.add(node.number)
        self._last = max(self._last, node.number)
        self._waiting = [n for n in self._waiting if n is not node]
        while self._waiting and self._waiting[0].number < node.number - _BACK:
            self._waiting.pop(0)
        return node, order

    def _read(self, tie: Tie) -> frozenset[Source]:
        if tie.given:
            return frozenset({("argument", tie.given, 0)})
        if tie.kernel < 0:
            return frozenset({("constant", tie.form, 0) if tie.constant >= 0 else UNKNOWN})
        node = self._nodes[tie.kernel]
        if node is None:
            return self._kernels[tie.kernel]
        return frozenset({("node", node.number, tie.index)})

    def _behind(self, source: Source, steps: int = _THROUGH) -> frozenset[Source]:
        """What lies behind an operand: ops that have had no kernel by the time they are read
        were taken into others, and are seen through."""
        if source[0] != "node" or source[1] in self._done:
            return frozenset({source})
        twin = self._program[source[1]].twin
        if twin in self._done:
            return frozenset({("node", twin, source[2])})
        if not steps:
            return frozenset({UNKNOWN})
        operands = self._program[source[1]].operands
        return frozenset().union(*(self._behind(s, steps - 1) for s in operands))

    def _fitting(
        self, name: str, read: Sequence[frozenset[Source]], shapes: Sequence[tuple[int, ...]]
    ) -> Node | None:
        live = _live(read)
        for node in self._waiting:
            if node.number > self._last + _AHEAD:
                break
            if len(node.shapes) != len(shapes) or not self._does(name, node):
                continue
            if not all(_fits(a, b) for a, b in zip(shapes, node.shapes, strict=True)):
                continue
            if node.step and not self._is_step(node, read):
                continue
            wanted = _live([self._behind(s) for s in node.operands])
            if wanted == live or (UNKNOWN in wanted and wanted - {UNKNOWN} <= live):
                return node
        return None

    def _is_step(self, node: Node, read: Sequence[frozenset[Source]]) -> bool:
        """Whether a kernel does nothing but this step of an op that was taken apart. The first
        step may be merged with what is before it; if the last is merged with what follows, or
        another one with anything, it is something else by now."""
        before = node.operands[0]
        if node.number > node.group + 1 and before[1] not in self._done:
            return False
        return _constants(read) == _constants([frozenset({s}) for s in node.operands])

    def _does(self, name: str, node: Node) -> bool:
        """Whether a kernel may be that of an op: by its name, or as the compiler writes what takes
        away or divides by a constant."""
        if node.name == name:
            return True
        if _REWRITTEN.get(node.name) != name:
            return False
        return not _live([self._behind(s) for s in node.operands[1:]])


def _live(sources: Sequence[frozenset[Source]]) -> frozenset[Source]:
    """All of them but the constants: those may be folded, and are no evidence."""
    return frozenset(s for found in sources for s in found if s[0] != "constant")


def _constants(sources: Sequence[frozenset[Source]]) -> list[Source]:
    return sorted((s for found in sources for s in found if s[0] == "constant"), key=str)


def _ordered(
    wanted: Sequence[frozenset[Source]], inputs: Sequence[Tie], read: Sequence[frozenset[Source]]
) -> list[int]:
    """Positions of the inputs in the order of the operands: those that are the same first, then
    those that have something in common, constants that were folded, and the rest as it comes."""
    left = sorted(range(len(inputs)), key=lambda i: _stable(inputs[i]))
    placed: dict[int, int] = {}
    for alike in (frozenset.__eq__, frozenset.__and__, _same_elements):
        for at, operand in enumerate(wanted):
            fits = (i for i in left if alike(operand, read[i]))
            found = next(fits, None) if at not in placed else None
            if found is not None:
                placed[at] = found
                left.remove(found)
    waiting = iter(left)
    order = [placed[at] if at in placed else next(waiting, None) for at in range(len(wanted))]
    return [*(i for i in order if i is not None), *waiting]


def _same_elements(operand: frozenset[Source], read: frozenset[Source]) -> bool:
    """Whether both are constants of one element type: a fold may have changed the shape."""
    kinds = [{s[1][1] if s[0] == "constant" else None for s in side} for side in (operand, read)]
    return None not in kinds[0] and kinds[0] == kinds[1]


def _stable(tie: Tie) -> tuple[int, str, int, int]:
    """An order that does not depend on the order of a callback: what was computed first."""
    return (tie.constant, tie.given, tie.kernel, tie.index)


def _fits(shape: tuple[int, ...], said: tuple[int, ...] | None) -> bool:
    return said is None or (
        len(shape) == len(said) and all(s in (-1, n) for n, s in zip(shape, said, strict=True))
    )
