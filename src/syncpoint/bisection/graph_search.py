"""The first bad op of a graph in few tests, whatever its branches.

As one looks for the commit that broke a program: what is bad makes suspects of all it is made
from, what is good clears all it is made from. Of the suspects the one is tested that halves them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """What a test says of an op."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"
    """It cannot be run to there, or there is nothing to compare."""


Test = Callable[[int], State]


@dataclass
class Search:
    """Remembers what was tested: several searches in one graph share it."""

    parents: Sequence[Sequence[int]]
    """Of each op, those that it reads; all before it in the order."""
    test: Test
    testable: Collection[int]
    tested: dict[int, State] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._before: list[int] = []
        for at, reads in enumerate(self.parents):
            mine = 1 << at
            for one in reads:
                mine |= self._before[one]
            self._before.append(mine)

    def behind(self, op: int) -> list[int]:
        """The op and all that it is made from."""
        return _members(self._before[op])

    def first_bad(self, bad: int, probes: int = 2) -> Found:
        """The first bad op behind one that is known to be bad.

        What a good op clears is not tested. So in the end the op's own inputs are, and `probes`
        more places: an error that is damped on the way makes a good op of one that is not.
        """
        self.tested[bad] = State.BAD
        suspects = self._before[bad]
        damped: set[int] = set()
        while True:
            bad, suspects = self._narrowed(bad, suspects)
            again, used = self._doubted(bad, suspects, probes)
            probes = max(probes - used, 0)
            if again is None:
                rest = tuple(at for at in _members(suspects) if at != bad)
                return Found(bad, rest, tuple(sorted(damped)))
            for at, state in self.tested.items():
                if state is State.GOOD and self._before[at] >> again & 1:
                    damped.add(at)
            bad, suspects = again, self._before[again]
            for at, state in self.tested.items():
                # It stands for itself alone now: what it is made from may be bad.
                if state is State.GOOD and at not in damped:
                    suspects &= ~self._before[at]
                elif state is State.GOOD:
                    suspects &= ~(1 << at)

    def _narrowed(self, bad: int, suspects: int) -> tuple[int, int]:
        while True:
            open_ = [
                at
                for at in _members(suspects)
                if at != bad and at in self.testable and at not in self.tested
            ]
            known = [a for a in _members(suspects) if a != bad and a in self.tested]
            earlier = [a for a in known if self.tested[a] is State.BAD]
            if earlier:
                bad = earlier[0]
                suspects &= self._before[bad]
                continue
            if not open_:
                return bad, suspects
            total = suspects.bit_count()

            def halves(at: int, suspects: int = suspects, total: int = total) -> int:
                count = (self._before[at] & suspects).bit_count()
                return min(count, total - count)

            at = max(open_, key=halves)
            state = self._asked(at)
            if state is State.BAD:
                bad, suspects = at, suspects & self._before[at]
            elif state is State.GOOD:
                suspects &= ~self._before[at]

    def _doubted(self, bad: int, suspects: int, probes: int) -> tuple[int | None, int]:
        """A bad op among those that were cleared without a test, and how many were tested."""
        cleared = [
            at
            for at in _members(self._before[bad] & ~suspects)
            if at in self.testable and at not in self.tested
        ]
        inputs = {one for at in _members(suspects) for one in self.parents[at]}
        used = 0
        for at in [at for at in cleared if at in inputs]:
            used += 1
            if self._asked(at) is State.BAD:
                return at, used
        cleared = [at for at in cleared if at not in self.tested]
        for number in range(min(max(probes - used, 0), len(cleared))):
            at = cleared[(2 * number + 1) * len(cleared) // (2 * max(probes - used, 1))]
            if at in self.tested:
                continue
            if self._asked(at) is State.BAD:
                return at, probes
        return None, probes

    def _asked(self, at: int) -> State:
        if at not in self.tested:
            self.tested[at] = self.test(at)
        return self.tested[at]


@dataclass(frozen=True)
class Found:
    """The first bad op."""

    op: int
    rest: tuple[int, ...] = ()
    """Ops right before it that could not be tested: it may be one of these."""
    damped: tuple[int, ...] = ()
    """Good ones behind which something is bad."""


def _members(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
