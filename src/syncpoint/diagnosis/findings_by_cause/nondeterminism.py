"""A target that does not agree with itself: its own noise is the floor of every comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.execution.random_ops import drawn_for
from syncpoint.diagnosis.execution.self_noise import (
    error_of,
    explains_all,
    explains_gross,
    find_first,
    find_off,
    is_within,
    self_noise,
)
from syncpoint.diagnosis.finding_text import finding_at
from syncpoint.run.model import Op, TensorKey
from syncpoint.run.reader import Run

_TIMES = 3


class Nondeterminism:
    """Nondeterminism."""

    name = "nondeterminism"
    title = "the target does not give the same twice"

    def look(self, case: Case) -> Iterable[Finding]:
        """Look for random numbers, then run the target once more on the same inputs, where
        something is off and not explained."""
        if not case.is_off or case.sure or case.target is None:
            return
        drawn = self._drawn(case)
        if drawn is not None:
            yield drawn
            return
        if "target" not in case.subjects:
            return
        seen = case.result.target.get("observer") or {}
        # A recording that gave other outputs than a plain run may be noise that is seldom seen.
        for time in range(1 if seen.get("equal", True) else _TIMES):
            why = "the target once more, on the same inputs"
            again = case.again("target", why, time=time)
            if again is None:
                return
            noise = self_noise(case.target, again)
            if noise:
                yield from self._told(case, again, noise)
                return

    def _drawn(self, case: Case) -> Finding | None:
        """The first guilty op that gives random numbers, if one does."""
        mine = {row.target.key.op for row in case.computed}
        theirs = {row.reference.key.op for row in case.computed}
        for row in case.guilty:
            here = drawn_for(case.target, row.target.key.op, mine)
            there = drawn_for(case.reference, row.reference.key.op, theirs)
            if here is not None or there is not None:
                return self._random(case, row, here, there)
        return None

    def _random(self, case: Case, row: Row, mine: Op | None, theirs: Op | None) -> Finding:
        told = [
            f"{op.key.op} ({op.type}) of the {side} draws them"
            for side, op in (("target", mine), ("reference", theirs))
            if op is not None
        ]
        if mine and theirs:
            title = f"{row.target.label} holds random numbers, and each side draws its own"
            cure = "give both sides the same numbers as an input, or leave the drawing out"
        else:
            side = "target" if mine else "reference"
            title = f"{row.target.label} holds random numbers in the {side} alone"
            cure = f"call eval() on the {side}'s model before it is converted or recorded"
        return finding_at(case, row, self.name, "random", title, 0.88, told, cure)

    def _told(self, case: Case, again: Run, noise: dict[TensorKey, float]) -> Iterator[Finding]:
        first = find_first(case, noise)
        row = next((row for row in reversed(case.computed) if row.target.key == first), None)
        label = row.target.label if row is not None else str(first.op)
        is_explained = explains_all(case, noise)
        is_cause = is_explained or explains_gross(case, again, noise)
        damaged = [case.place[r.target.key] for r in case.computed if is_within(r, noise)]
        ends = (row.target, row.reference) if row is not None else ()
        yield Finding(
            cause=self.name,
            kind="self-noise",
            title=f"{label} does not give the same twice",
            level=Level.CAUSE if is_cause else Level.NOTE,
            confidence=0.93 if is_explained else 0.85 if is_cause else 0.6,
            ops=(label,),
            reference_ops=(row.reference.label,) if row is not None else (),
            module=next((end.module for end in ends if end.module), ""),
            source=next((end.source for end in ends if end.source), ""),
            evidence=(
                f"two runs of the target on the same inputs differ in {len(noise)} tensors,"
                f" first in {label} (by {noise[first]:.2g} on the root mean square)",
                _compare_with_noise(case, noise),
            ),
            next=f"make {label} deterministic: a fixed seed, one thread, no atomic additions",
            rows=tuple(dict.fromkeys(damaged)) if is_cause else (),
        )


def _compare_with_noise(case: Case, noise: dict[TensorKey, float]) -> str:
    within = [row for row in find_off(case) if is_within(row, noise)]
    if not within:
        return f"its noise, {max(noise.values()):.2g} at most, is too small for what is off"
    most = max(error_of(row) / noise[row.target.key] for row in within)
    return (
        f"{within[0].target.label} is off from the reference by no more than"
        f" {most:.1f} times what it is off from itself"
    )
