"""The search algorithm: choose the op to test next so that it halves the suspects in a graph with
branches; needs no model.

It works like `git bisect`: a bad op makes suspects of all its ancestors, a good op clears all its
ancestors. The next op to test is the suspect that splits the suspects into halves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """The outcome of the test of an op."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"
    """The target does not run up to this op, or there is nothing to compare."""


Test = Callable[[int], State]


@dataclass
class Search:
    """Searches in one graph; several searches share the results of the tests."""

    parents: Sequence[Sequence[int]]
    """For each op, the ops that it reads. All of them come before it in the order."""
    test: Test
    testable: Collection[int]
    tested: dict[int, State] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ancestors: list[int] = []
        """For each op, a bit mask of the op and its ancestors."""
        for index, parents in enumerate(self.parents):
            mask = 1 << index
            for parent in parents:
                mask |= self._ancestors[parent]
            self._ancestors.append(mask)

    def ancestors(self, op: int) -> list[int]:
        """The op and every op that it depends on."""
        return _indices(self._ancestors[op])

    def first_bad(self, bad: int, probes: int = 2) -> FirstBadOp:
        """Find the first bad op among the ancestors of a bad op.

        Ops that a good op clears are not tested. At the end the inputs of the first bad op are
        tested after all, and `probes` more places: where an error is damped on the way, a good op
        has bad ancestors.
        """
        self.tested[bad] = State.BAD
        suspects = self._ancestors[bad]
        damped: set[int] = set()
        while True:
            bad, suspects = self._narrow(bad, suspects)
            earlier, used = self._probe_cleared(bad, suspects, probes)
            probes = max(probes - used, 0)
            if earlier is None:
                untested = tuple(index for index in _indices(suspects) if index != bad)
                return FirstBadOp(bad, untested, tuple(sorted(damped)))
            for index, state in self.tested.items():
                if state is State.GOOD and self._ancestors[index] >> earlier & 1:
                    damped.add(index)
            bad, suspects = earlier, self._ancestors[earlier]
            for index, state in self.tested.items():
                # A damped op clears only itself: its ancestors may be bad.
                if state is State.GOOD and index not in damped:
                    suspects &= ~self._ancestors[index]
                elif state is State.GOOD:
                    suspects &= ~(1 << index)

    def _narrow(self, bad: int, suspects: int) -> tuple[int, int]:
        """Test suspects until none of them is left to test; return the bad op and the suspects."""
        while True:
            untested = [
                index
                for index in _indices(suspects)
                if index != bad and index in self.testable and index not in self.tested
            ]
            earlier = [
                index
                for index in _indices(suspects)
                if index != bad and self.tested.get(index) is State.BAD
            ]
            if earlier:
                bad = earlier[0]
                suspects &= self._ancestors[bad]
                continue
            if not untested:
                return bad, suspects
            total = suspects.bit_count()

            def smaller_half(index: int, suspects: int = suspects, total: int = total) -> int:
                count = (self._ancestors[index] & suspects).bit_count()
                return min(count, total - count)

            index = max(untested, key=smaller_half)
            state = self._test_once(index)
            if state is State.BAD:
                bad, suspects = index, suspects & self._ancestors[index]
            elif state is State.GOOD:
                suspects &= ~self._ancestors[index]

    def _probe_cleared(self, bad: int, suspects: int, probes: int) -> tuple[int | None, int]:
        """Test ops that were cleared without a test; return a bad one, and the number of tests."""
        cleared = [
            index
            for index in _indices(self._ancestors[bad] & ~suspects)
            if index in self.testable and index not in self.tested
        ]
        inputs = {parent for index in _indices(suspects) for parent in self.parents[index]}
        used = 0
        for index in [index for index in cleared if index in inputs]:
            used += 1
            if self._test_once(index) is State.BAD:
                return index, used
        cleared = [index for index in cleared if index not in self.tested]
        for number in range(min(max(probes - used, 0), len(cleared))):
            index = cleared[(2 * number + 1) * len(cleared) // (2 * max(probes - used, 1))]
            if index in self.tested:
                continue
            if self._test_once(index) is State.BAD:
                return index, probes
        return None, probes

    def _test_once(self, index: int) -> State:
        if index not in self.tested:
            self.tested[index] = self.test(index)
        return self.tested[index]


@dataclass(frozen=True)
class FirstBadOp:
    """The first bad op of a search."""

    op: int
    untested: tuple[int, ...] = ()
    """Ops right before it that could not be tested: one of them may be the first bad op."""
    damped: tuple[int, ...] = ()
    """Good ops with a bad ancestor."""


def _indices(mask: int) -> list[int]:
    """The numbers of the bits that are set."""
    indices = []
    while mask:
        lowest = mask & -mask
        indices.append(lowest.bit_length() - 1)
        mask ^= lowest
    return indices
