"""A target that does not agree with itself: its own noise is the floor of every comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.budget import stored_values, windows
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.draws import drawn_for
from syncpoint.diagnosis.proof import rms
from syncpoint.diagnosis.telling import finding_at
from syncpoint.errors import SyncpointError
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Kept, Op, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

_GROSS = 64.0
"""Roundings that no order of additions makes."""
_FAIR = 0.05
_TIMES = 3
_FEW = 4.0
"""A difference of so many times the self-noise is still explained by it."""


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
            noise = _noise(case.target, again)
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
        order = {t.key: at for at, t in enumerate(case.target.tensors if case.target else ())}
        rows = {row.target.key: row for row in case.computed if row.target.key in noise}
        first = min(noise, key=lambda key: (key.role is not Role.OUTPUT, order.get(key, 0)))
        # The outputs too: noise that an op makes must account for all that came of it.
        judged = [*case.guilty, *case.result.outputs]
        off = [r for r in judged if r.verdict not in (Verdict.CLOSE, Verdict.NONE)]
        within = [row for row in off if _is_within(row, noise)]
        explained = bool(off) and len(within) == len(off)
        left = [row for row in case.guilty if not _is_within(row, noise)]
        gross = bool(left) and all(_varies(case, again, row) for row in left)
        row = rows.get(first)
        label = row.target.label if row is not None else str(first.op)
        worst = max(noise.values())
        evidence = [
            f"two runs of the target on the same inputs differ in {len(noise)} tensors,"
            f" first in {label} (by {noise[first]:.2g} on the root mean square)",
        ]
        if within:
            most = max(_gap(r) / noise[r.target.key] for r in within)
            evidence.append(
                f"{within[0].target.label} is off from the reference by no more than"
                f" {most:.1f} times what it is off from itself"
            )
        else:
            evidence.append(f"its noise, {worst:.2g} at most, is too small for what is off")
        damaged = [case.place[r.target.key] for r in case.computed if _is_within(r, noise)]
        yield Finding(
            cause=self.name,
            kind="self-noise",
            title=f"{label} does not give the same twice",
            level=Level.CAUSE if explained or gross else Level.NOTE,
            confidence=0.93 if explained else 0.85 if gross else 0.6,
            ops=(label,),
            reference_ops=(row.reference.label,) if row is not None else (),
            module=row.target.module or row.reference.module if row is not None else "",
            source=row.target.source or row.reference.source if row is not None else "",
            evidence=tuple(evidence),
            next=f"make {label} deterministic: a fixed seed, one thread, no atomic additions",
            rows=tuple(dict.fromkeys(damaged)) if explained or gross else (),
        )


def _varies(case: Case, again: Run, row: Row) -> bool:
    """Whether what is off here is what is not the same twice: most of it differs from itself by a
    fair part of what it is off, or all that is off does and all that does not is right. Memory that
    nothing was written to may hold much the same each time."""
    local = case.local(row)
    ours = case.values("target", row)
    wanted = local.truth if local is not None else case.values("reference", row)
    twin = again.tensor(row.target.key)
    other = _stored(again, twin)
    if ours is None or wanted is None or other is None:
        return False
    if other.size != ours.size or wanted.shape != ours.shape:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(ours - wanted)
        noise = np.abs(ours - other.reshape(ours.shape))
    finite = np.isfinite(error) & np.isfinite(noise)
    off = finite & (error > _GROSS * DTYPES[row.target.dtype].unit * rms(wanted[finite]))
    if not off.any():
        return False
    still = finite & (noise == 0)
    confined = still.any() and not (off & still).any()
    return bool(confined) or float(np.mean(noise[off] >= _FAIR * error[off])) >= 0.5


def _noise(one: Run, other: Run) -> dict[TensorKey, float]:
    """Tensors that differ between two runs, with the root mean square of the difference."""
    found: dict[TensorKey, float] = {}
    for tensor in one.tensors:
        twin = other.tensor(tensor.key)
        computed = tensor.key.role in (Role.OUTPUT, Role.MODEL_OUTPUT)
        if twin is None or not computed or tensor.kept is not Kept.VALUES:
            continue
        if twin.shape != tensor.shape or _same(tensor, twin):
            continue
        try:
            gap = _apart(one, tensor, other, twin)
        except (SyncpointError, TypeError, ValueError):
            continue
        if gap > 0:
            found[tensor.key] = gap
    return found


def _stored(run: Run, tensor: Tensor | None) -> NDArray[np.float64] | None:
    values = stored_values(run, tensor)
    try:
        return None if values is None else np.asarray(values, np.float64)
    except (TypeError, ValueError):
        return None


def _apart(one: Run, tensor: Tensor, other: Run, twin: Tensor) -> float:
    """Root mean square of what two tensors differ by, where both are finite."""
    square = 0.0
    for left, right in zip(windows(one, tensor), windows(other, twin), strict=True):
        with np.errstate(invalid="ignore", over="ignore"):
            finite = np.isfinite(left) & np.isfinite(right)
            square += len(left) * rms(np.where(finite, left - right, 0.0)) ** 2
    return float(np.sqrt(square / max(tensor.count, 1)))


def _same(one: Tensor, other: Tensor) -> bool:
    return bool(one.digest) and one.digest_kind == other.digest_kind and one.digest == other.digest


def _gap(row: Row) -> float:
    """How far the target is off here: by its own op where that is known, else in all."""
    if row.introduced is not None and row.guilty:
        return row.introduced.rmse
    found = (row.numbers or {}).get("rmse")
    return float(found) if found is not None else float("inf")


def _is_within(row: Row, noise: dict[TensorKey, float]) -> bool:
    return row.target.key in noise and _gap(row) <= _FEW * noise[row.target.key]
