"""Numbers that leave the range of their type: NaN and inf where the reference is finite, values
that stop at the greatest one there is, integers that end too early."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case, Values
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.finding_text import finding_at, number, share
from syncpoint.diagnosis.numerics.clipping import Clipped, clipped, cut_short
from syncpoint.diagnosis.numerics.integer_kernels import Saturation, saturation
from syncpoint.diagnosis.numerics.nonfinite import (
    MASK,
    Broken,
    Inside,
    Places,
    best_inside,
    broken_before,
    ceiling,
    follows_broken,
    is_float,
    is_non_finite,
    literal,
    lost_upstream,
    wholly_masked,
)
from syncpoint.matching.op_kinds import op_class
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES, long_name
from syncpoint.run.model import Role
from syncpoint.run.statistics import finite_rms

_MOST = 4
"""Findings: those that come after are seldom of another kind."""


class Overflow:
    """Overflow and saturation."""

    name = "overflow"
    title = "numbers leave the range of their type"

    def look(self, case: Case) -> Iterable[Finding]:
        """One finding an op, of those that break first."""
        findings = [f for row in _first_broken(case) if (f := self._broken(case, row)) is not None]
        others = [row for row in case.guilty if not is_non_finite(row)]
        findings += [f for row in others[: 2 * _MOST] if (f := self._ends(case, row)) is not None]
        if others and not findings:
            findings += self._saturated_kernels(case)
        if not case.guilty and any(row.verdict is not Verdict.CLOSE for row in case.result.outputs):
            findings += [self._clipped(case, row, cut) for row, cut in cut_short(case)[:_MOST]]
        yield from findings[: 2 * _MOST]

    def _saturated_kernels(self, case: Case) -> list[Finding]:
        # Kernels of one kind err alike, some of them a little.
        rows = [row for row in case.computed if row.guilty and not is_non_finite(row)]
        kernels = saturation(case, rows)
        return [self._kernels(case, kernels)] if kernels is not None else []

    # NaN and inf

    def _broken(self, case: Case, row: Row) -> Finding | None:
        mine, theirs = case.values("target", row), case.values("reference", row)
        if mine is None or theirs is None or mine.shape != theirs.shape:
            return self._by_statistics(case, row)
        places = ~np.isfinite(mine) & np.isfinite(theirs)
        if not places.any():
            return None
        count = int(np.count_nonzero(places))
        made = "NaN" if np.isnan(mine[places]).all() else "inf"
        if made == "inf" and np.isnan(mine[places]).any():
            made = "inf and NaN"
        head = finding_at(
            case,
            row,
            self.name,
            kind="non-finite",
            title=f"{row.target.label} makes {made} where the reference is finite",
            confidence=0.55 if row.target.dtype in ("f16", "bf16") else 0.45,
            evidence=(f"{count:,} of {case.count_elements(row):,} elements are {made}",),
            next=f"look at what {row.target.type} computes there; run it in float32",
        )
        dead = wholly_masked(case, row, places)
        if dead:
            return replace(
                head,
                kind="mask",
                title=f"{row.target.label} is given rows of nothing but -inf",
                confidence=0.93,
                evidence=(*head.evidence, f"{dead:,} rows are masked as a whole"),
                next="mask with the lowest finite value of the type in place of -inf",
            )
        broken = broken_before(case, row.target.key)
        if broken is not None and (broken.constant or broken.op.key != row.target.key.op):
            return self._before(case, head, row, broken, places)
        experiment = case.experiment(row)
        if experiment is None:
            return self._beyond(head, row, theirs, places, 0.85)
        if np.isfinite(experiment.truth[places]).all():
            sure = 0.6 if follows_broken(case, row, theirs[places]) else 0.95
            told = self._beyond(head, row, experiment.truth, places, sure)
            return self._inside(head, experiment, places) if told.kind == head.kind else told
        return self._lost(case, head, experiment, places)

    def _before(
        self, case: Case, head: Finding, row: Row, broken: Broken, places: Places
    ) -> Finding:
        """An op that only the target has broke before this one."""
        label = str(broken.op.key)
        kind = op_class(broken.op.type)
        if broken.constant:
            value = literal(case.op("reference", row.reference.key.op), "f16")
            what = f"the constant {number(value)}" if value is not None else "a constant"
            if any(e.role is not Role.PARAMETER for e in broken.op.inputs):
                head = replace(head, ops=tuple(dict.fromkeys((label, *head.ops))))
                said = f"a parameter of {label} holds inf"
            else:
                said = f"{label} holds inf before any input is read"
            at = head.ops[0]
            return replace(
                head,
                kind="constant",
                title=f"{what} of {at} is infinite in the target",
                confidence=0.95 if value is not None else 0.85,
                evidence=(*head.evidence, said),
                next=f"write a number that {long_name('f16')} holds, such as -6e4 for a mask",
            )
        if broken.greatest is None:
            said = f"{label} ({broken.op.type}) is where it begins: {broken.count:,} elements"
            told = replace(head, ops=(label, *head.ops), evidence=(*head.evidence, said))
            experiment = case.experiment(row)
            whole = experiment is not None and np.isfinite(experiment.truth[places]).all()
            best = (
                best_inside(experiment, row.target.dtype, places) if experiment and whole else None
            )
            return _told_inside(told, experiment, *best) if experiment and best else told
        unguarded = kind == "exp"
        return replace(
            head,
            kind="exp" if unguarded else "overflow",
            title=f"{label} overflows {long_name(broken.dtype)}",
            confidence=0.95,
            ops=(label, *head.ops),
            evidence=(
                *head.evidence,
                f"{label} would reach {number(broken.greatest)}; {long_name(broken.dtype)} ends at"
                f" {number(DTYPES[broken.dtype].max)}",
            ),
            next=f"subtract the greatest value before {label}, as softmax does"
            if unguarded
            else f"keep {label} in float32 or bfloat16, or scale its input down",
        )

    def _beyond(
        self, head: Finding, row: Row, truth: Values, places: Places, confidence: float
    ) -> Finding:
        """The result itself does not fit."""
        dtype = row.target.dtype
        if not is_float(dtype):
            return head
        size = np.abs(truth[places])
        over = size > ceiling(dtype)
        if np.count_nonzero(over) < 0.9 * size.size:
            return head
        name, top = long_name(dtype), DTYPES[dtype].max
        most = float(size.max())
        values = np.unique(truth[places][:100_000])
        if values.size == 1 and values[0] <= MASK:
            return replace(
                head,
                kind="mask",
                title=f"the mask value {number(float(values[0]))} does not fit {name}",
                confidence=confidence,
                evidence=(*head.evidence, f"{name} ends at {number(-top)}: it becomes -inf"),
                next=f"mask with {number(-top)}, the lowest value of {name}",
            )
        factor = number(most / top)
        said = f"in float64 they reach {number(most)}, {factor} times what {name} can hold"
        return replace(
            head,
            kind="overflow",
            title=f"{row.target.label} overflows {name}",
            confidence=confidence,
            evidence=(*head.evidence, f"{said} ({number(top)})"),
            next=f"keep {row.target.label} in float32 or bfloat16, or scale its input down by"
            f" {number(float(2 ** np.ceil(np.log2(most / top) + 1)))}"
            if most < np.inf
            else f"keep {row.target.label} in float32 or bfloat16",
        )

    def _inside(self, head: Finding, experiment: RegionExperiment, places: Places) -> Finding:
        """The result fits, something on the way to it does not."""
        dtype = experiment.row.target.dtype
        best = best_inside(experiment, dtype, places)
        if best is None:
            most = float(np.abs(experiment.truth[places]).max())
            said = f"in float64 they are at most {number(most)}, which {long_name(dtype)} holds"
            return replace(head, evidence=(*head.evidence, said))
        return _told_inside(head, experiment, *best)

    def _lost(
        self, case: Case, head: Finding, experiment: RegionExperiment, places: Places
    ) -> Finding:
        """The reference's op breaks on these inputs too: they are to blame."""
        row = experiment.row
        lost = lost_upstream(case, experiment)
        if lost is not None:
            name = long_name(lost.row.target.dtype)
            label = lost.row.target.label
            return replace(
                head,
                kind="underflow",
                title=f"{label} underflows to 0 in {name}, and {row.target.label} breaks on it",
                confidence=0.95,
                ops=(*head.ops, label) if label not in head.ops else head.ops,
                reference_ops=tuple(dict.fromkeys((*head.reference_ops, lost.row.reference.label))),
                evidence=(
                    *head.evidence,
                    f"{label} is 0 in {lost.count:,} places where the reference has up to"
                    f" {number(lost.value)}; {name} begins at {number(lost.least)}",
                    f"{row.target.type} of the reference breaks on these inputs as well",
                ),
                next=_cure_of_underflow(row, label),
                rows=(*head.rows, case.place[lost.row.target.key]),
            )
        said = f"{row.target.type} of the reference breaks on these inputs as well"
        return replace(head, confidence=0.6, evidence=(*head.evidence, said))

    def _by_statistics(self, case: Case, row: Row) -> Finding | None:
        numbers = row.numbers or {}
        top = DTYPES[row.target.dtype].max if is_float(row.target.dtype) else 0.0
        ends = [abs(numbers.get(f"reference_{e}") or 0.0) for e in ("min", "max")]
        over = bool(top) and max(ends) > top
        said = f"the reference reaches {number(max(ends))} there" if any(ends) else ""
        return finding_at(
            case,
            row,
            self.name,
            kind="overflow" if over else "non-finite",
            title=f"{row.target.label} overflows {long_name(row.target.dtype)}"
            if over
            else f"{row.target.label} makes NaN or inf where the reference is finite",
            confidence=0.85 if over else 0.45,
            evidence=(said,) if said else (),
            next=f"keep {row.target.label} in float32 or bfloat16",
            missing=("what the op would give in float64: record values of both runs",),
        )

    # Ends of the range without NaN

    def _ends(self, case: Case, row: Row) -> Finding | None:
        experiment = case.experiment(row)
        if experiment is None:
            return None
        cut = clipped(case, experiment)
        if cut is not None:
            return self._clipped(case, row, cut, experiment.noise)
        return self._saturated(case, experiment) if is_float(row.target.dtype) else None

    def _clipped(self, case: Case, row: Row, cut: Clipped, noise: float | None = None) -> Finding:
        taken = (
            f"cutting it there takes the op's error from {number(cut.error)} to {number(cut.left)}"
        )
        if noise is None:
            taken = f"cutting it there costs {number(cut.error)}, rounding {number(cut.left)}"
        sure = noise is None or (noise > 0 and cut.left <= 4 * noise)
        return finding_at(
            case,
            row,
            self.name,
            kind="clipping",
            title=f"{row.target.label} clips its {cut.what}: the integers end too early",
            confidence=(0.95 if sure else 0.85) if noise is not None else 0.9,
            evidence=(
                f"{share(cut.share, 1)} of the {cut.what} is beyond {number(cut.low)} to"
                f" {number(cut.high)}, up to {number(cut.greatest)}",
                taken,
            ),
            next=f"calibrate the range of {cut.tensor.key.op} anew, up to"
            f" {number(cut.greatest)} at least",
        )

    def _saturated(self, case: Case, experiment: RegionExperiment) -> Finding | None:
        """Values that stop at the greatest one, and zeros that an overflow inside left."""
        row, dtype = experiment.row, experiment.row.target.dtype
        top = DTYPES[dtype].max
        stopped = (np.abs(experiment.target) >= top) & (np.abs(experiment.truth) > ceiling(dtype))
        stopped = experiment.without_masked(stopped)
        name = long_name(dtype)
        if stopped.any() and np.isfinite(experiment.target).all():
            error = experiment.counted(experiment.error)
            rest = finite_rms(np.where(experiment.counted(stopped), 0.0, error))
            if rest**2 <= 0.2 * finite_rms(error) ** 2:
                most = float(np.abs(experiment.truth[stopped]).max())
                return finding_at(
                    case,
                    row,
                    self.name,
                    kind="saturated",
                    title=f"{row.target.label} stops at the greatest value of {name}",
                    confidence=0.95,
                    evidence=(
                        f"{int(stopped.sum()):,} of {error.size:,} elements are"
                        f" {number(top)} and would reach {number(most)}",
                    ),
                    next=f"keep {row.target.label} in float32 or bfloat16, or scale earlier",
                )
        gone = (experiment.target == 0) & (np.abs(experiment.truth) > 8 * experiment.noise)
        count, total = int(gone.sum()), experiment.counted(gone).size
        if experiment.noise and count and count >= 0.01 * total:
            best = best_inside(experiment, dtype, gone)
            if best is not None and best[0].certain:
                head = finding_at(
                    case,
                    row,
                    self.name,
                    kind="overflow",
                    title="",
                    confidence=0.9,
                    evidence=(f"{count:,} of {total:,} elements became 0",),
                )
                return _told_inside(head, experiment, *best)
        return None

    def _kernels(self, case: Case, kernels: Saturation) -> Finding:
        first = finding_at(
            case,
            kernels.rows[0],
            self.name,
            kind="int16-saturation",
            title=f"{kernels.worst.kernel.key} saturates: sums of two products do not fit 16 bits",
            confidence=0.93 if kernels.proven else 0.65,
            evidence=_describe_kernels(kernels),
            next="quantize the weights with reduce_range=True (7 bits), or use uint8 weights;"
            " a processor with VNNI is not affected",
            missing=()
            if kernels.proven
            else ("the target run op by op, without integer kernels: name its model",),
            level=Level.CAUSE if kernels.proven else Level.SUSPECT,
        )
        labels = (str(kernels.worst.kernel.key), *(row.target.label for row in kernels.rows))
        return replace(
            first,
            ops=tuple(dict.fromkeys(labels)),
            reference_ops=tuple(row.reference.label for row in kernels.rows),
            rows=tuple(case.place[row.target.key] for row in kernels.rows),
        )


def _describe_kernels(kernels: Saturation) -> Iterator[str]:
    worst = kernels.worst
    yield (
        f"{share(worst.over, 1)} of the pairs of neighbouring weights of {worst.kernel.key} add up"
        f" to more than 128, at most {number(worst.most)}"
    )
    yield "with values of up to 255 the sum of two products is then beyond 16 bits"
    if worst.rmse_in_floats is not None and worst.row.introduced is not None:
        yield (
            f"the same integers added up in floats introduce {number(worst.rmse_in_floats)} in"
            f" place of {number(worst.row.introduced.rmse)}"
        )
    if len(kernels.rows) > 1:
        yield f"{len(kernels.rows)} ops are hit"


def _first_broken(case: Case) -> list[Row]:
    """The guilty rows with NaN or inf, else the first such output."""
    rows = [row for row in case.guilty if is_non_finite(row)]
    return rows[:_MOST] or [row for row in case.result.outputs if is_non_finite(row)][:1]


def _told_inside(
    head: Finding, experiment: RegionExperiment, one: Inside, _: float, precise: float
) -> Finding:
    row = experiment.row
    name = long_name(row.target.dtype)
    top = number(DTYPES[row.target.dtype].max)
    own = one.op.key == experiment.ops[-1].key
    label = row.target.label if own else f"{one.op.key} (seen at {row.target.label})"
    cures = {
        "softmax": f"subtract the greatest score before exp in {label}",
        "squares": f"compute {label} in float32: square and add up there",
        "scores": "scale the query before the product, or compute the scores in float32",
    }
    return replace(
        head,
        kind=f"overflow-{one.kind}",
        title=f"{label} overflows {name} inside",
        reference_ops=tuple(dict.fromkeys((str(one.op.key), *head.reference_ops))),
        confidence=0.92 if one.certain and precise >= 0.9 else 0.75,
        evidence=(*head.evidence, f"{one.what}; {name} ends at {top}"),
        next=cures.get(one.kind, f"keep {label} in float32 or bfloat16"),
    )


def _cure_of_underflow(row: Row, label: str) -> str:
    if op_class(row.reference.type) == "log":
        return f"use log_softmax, or add a floor to {label} before {row.target.label}"
    return f"keep {label} in float32 or bfloat16, or add an epsilon that its type can hold"
