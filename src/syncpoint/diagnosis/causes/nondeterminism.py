"""A target that does not agree with itself: its own noise is the floor of every comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.proof import rms
from syncpoint.errors import SyncpointError
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Kept, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

_GROSS = 64.0
"""Roundings that no order of additions makes."""
_FEW = 4.0
"""A difference of so many times the self-noise is still explained by it."""


class Nondeterminism:
    """Nondeterminism."""

    name = "nondeterminism"
    title = "the target does not give the same twice"

    def look(self, case: Case) -> Iterable[Finding]:
        """Run the target once more on the same inputs, where something is off and not explained."""
        if not case.is_off or case.sure or case.target is None:
            return
        if "target" not in case.subjects:
            return
        again = case.again("target", "the target once more, on the same inputs")
        if again is None:
            return
        noise = _noise(case.target, again)
        if noise:
            yield from self._told(case, noise)

    def _told(self, case: Case, noise: dict[TensorKey, float]) -> Iterator[Finding]:
        order = {t.key: at for at, t in enumerate(case.target.tensors if case.target else ())}
        rows = {row.target.key: row for row in case.computed if row.target.key in noise}
        first = min(noise, key=lambda key: (key.role is not Role.OUTPUT, order.get(key, 0)))
        # The outputs too: noise that an op makes must account for all that came of it.
        judged = [*case.guilty, *case.result.outputs]
        off = [r for r in judged if r.verdict not in (Verdict.CLOSE, Verdict.NONE)]
        within = [row for row in off if _is_within(row, noise)]
        explained = bool(off) and len(within) == len(off)
        gross = not explained and _is_gross(case, first, noise[first])
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


def _is_gross(case: Case, key: TensorKey, noise: float) -> bool:
    """Whether an op that nothing wrong comes before differs from itself by far more than its
    precision allows: memory that nothing was written to is not the same amount off each time."""
    run = case.target
    tensor = run.tensor(key) if run is not None else None
    op = run.op(key.op) if run is not None else None
    if run is None or tensor is None or op is None or tensor.dtype not in DTYPES:
        return False
    order = {o.key: at for at, o in enumerate(run.ops)}
    first = min((order.get(r.target.key.op, 0) for r in case.guilty), default=-1)
    size = rms(np.nan_to_num(np.asarray(run.values(tensor), np.float64), posinf=0.0, neginf=0.0))
    return order[op.key] <= first and noise > _GROSS * max(DTYPES[tensor.dtype].unit * size, 1e-300)


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
            left = np.asarray(one.values(tensor), np.float64)
            right = np.asarray(other.values(twin), np.float64)
        except (SyncpointError, TypeError, ValueError):
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            gap = rms(np.where(np.isfinite(left) & np.isfinite(right), left - right, 0.0))
        if gap > 0:
            found[tensor.key] = gap
    return found


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
