"""Findings about a target that varies from run to run, because of random ops or noise; what makes
an op deterministic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.execution.random_ops import find_random_op
from syncpoint.diagnosis.execution.self_noise import (
    error_of,
    explains_all,
    explains_gross,
    find_first,
    find_off,
    is_within,
    measure_self_noise,
)
from syncpoint.diagnosis.finding_text import finding_at, name_target_op
from syncpoint.matching.op_kinds import op_class
from syncpoint.run.model import Op, TensorKey
from syncpoint.run.reader import Run

_ADDING_CLASSES = frozenset(
    {"matmul", "conv", "conv_transpose", "attention", "sum", "mean", "scatter", "embedding"}
)
"""Classes of ops whose result depends on the order in which threads add."""
_MAX_RERUNS = 3
"""Runs to try if recording changed the outputs: rare noise needs several."""


class Nondeterminism:
    """Targets whose values vary from run to run."""

    name = "nondeterminism"
    title = "the target is not deterministic"

    def look(self, case: Case) -> Iterable[Finding]:
        """Yield findings about random numbers, else about noise in a second run of the target, if
        something is off and unexplained."""
        if not case.is_off or case.is_explained or case.target is None:
            return
        random_finding = self._find_random_op(case)
        if random_finding is not None:
            yield random_finding
            return
        if "target" not in case.subjects:
            return
        observer = case.result.target.get("observer") or {}
        # If recording changed the outputs, the cause may be noise that shows in few runs.
        for time in range(1 if observer.get("equal", True) else _MAX_RERUNS):
            why = "a second run of the target on the same inputs"
            rerun = case.rerun("target", why, time=time)
            if rerun is None:
                return
            noise = measure_self_noise(case.target, rerun)
            if noise:
                yield from self._report_noise(case, rerun, noise)
                return

    def _find_random_op(self, case: Case) -> Finding | None:
        """Make the finding about the first guilty op that draws random numbers, if one does."""
        target_ops = {row.target.key.op for row in case.computed}
        reference_ops = {row.reference.key.op for row in case.computed}
        for row in case.guilty:
            target_op = find_random_op(case.target, row.target.key.op, target_ops)
            reference_op = find_random_op(case.reference, row.reference.key.op, reference_ops)
            if target_op is not None or reference_op is not None:
                return self._report_random(case, row, target_op, reference_op)
        return None

    def _report_random(
        self, case: Case, row: Row, target_op: Op | None, reference_op: Op | None
    ) -> Finding:
        evidence = [
            f"{op.key.op} ({op.type}) of the {side} draws them"
            for side, op in (("target", target_op), ("reference", reference_op))
            if op is not None
        ]
        if target_op and reference_op:
            title = f"{name_target_op(row)} holds random numbers, and each side draws its own"
            cure = "pass the same random numbers to both sides as an input, or remove the random op"
        else:
            side, other = ("target", "reference") if target_op else ("reference", "target")
            title = f"{name_target_op(row)} holds random numbers in the {side}, not in the {other}"
            cure = f"call eval() on the {side}'s model before you convert or record it"
        return finding_at(case, row, self.name, "random", title, 0.88, evidence, cure)

    def _report_noise(
        self, case: Case, rerun: Run, noise: dict[TensorKey, float]
    ) -> Iterator[Finding]:
        first = find_first(case, noise)
        row = next((row for row in reversed(case.computed) if row.target.key == first), None)
        label = row.target.label if row is not None else str(first.op)
        subject = name_target_op(row) if row is not None else f"the target's {label}"
        op = case.op("target", first.op)
        is_explained = explains_all(case, noise)
        is_cause = is_explained or explains_gross(case, rerun, noise)
        affected = [case.place[r.target.key] for r in case.computed if is_within(r, noise)]
        ends = (row.target, row.reference) if row is not None else ()
        yield Finding(
            cause=self.name,
            kind="self-noise",
            title=f"{subject} gives different values in each run on the same inputs",
            level=Level.CAUSE if is_cause else Level.NOTE,
            confidence=0.93 if is_explained else 0.85 if is_cause else 0.6,
            ops=(label,),
            reference_ops=(row.reference.label,) if row is not None else (),
            module=next((end.module for end in ends if end.module), ""),
            source=next((end.source for end in ends if end.source), ""),
            evidence=(
                f"two runs of the target on the same inputs differ in {len(noise)} tensors,"
                f" first in {label} (by {noise[first]:.2g}, RMS); the tensors before it are equal",
                _compare_with_noise(case, noise),
            ),
            next=f"make {label} deterministic: {_advise(op)}",
            rows=tuple(dict.fromkeys(affected)) if is_cause else (),
        )


def _compare_with_noise(case: Case, noise: dict[TensorKey, float]) -> str:
    within = [row for row in find_off(case) if is_within(row, noise)]
    if not within:
        return (
            f"the noise is at most {max(noise.values()):.2g} (RMS), too small to explain the error"
        )
    ratio_by_label = {r.target.label: error_of(r) / noise[r.target.key] for r in within}
    label = max(ratio_by_label, key=lambda name: ratio_by_label[name])
    return (
        f"the difference of {label} from the reference is {ratio_by_label[label]:.1f} times its"
        " difference between two runs of the target; of all tensors that are off, this ratio is the"
        " largest"
    )


def _advise(op: Op | None) -> str:
    """Return what may make an op deterministic, by its class."""
    if op is not None and op_class(op.type) in _ADDING_CLASSES:
        return "use one thread, and avoid atomic additions"
    return "set a seed if it draws random numbers, else look for uninitialized or shared memory"
