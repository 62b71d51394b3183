"""Findings about values outside the range of their type: NaN and inf where the reference is finite
(result, inside, earlier op), clipped, saturated values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case, Values
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.finding_text import (
    describe_change,
    finding_at,
    name_inner_op,
    name_op,
    name_target_op,
    number,
    share,
)
from syncpoint.diagnosis.numerics.integer_kernels import Saturation, find_saturation
from syncpoint.diagnosis.numerics.nonfinite import (
    MAX_MASK_VALUE,
    BreakingOp,
    InternalOverflow,
    Places,
    ceiling,
    count_masked_rows,
    find_best_overflow,
    find_breaking_op,
    find_underflow_upstream,
    find_unrepresentable_literal,
    is_caused_upstream,
    is_float,
    is_non_finite,
)
from syncpoint.diagnosis.numerics.quantization_ranges import (
    Clipping,
    find_clipped_outputs,
    find_clipping,
)
from syncpoint.matching.op_kinds import op_class
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES, long_name
from syncpoint.run.model import Role
from syncpoint.run.statistics import finite_rms

_MAX_BROKEN_ROWS = 4
"""Rows with NaN or inf to look into. Later ones are mostly of the same kind."""


class Overflow:
    """Values that leave the range of their type."""

    name = "overflow"
    title = "values leave the range of their type"

    def look(self, case: Case) -> Iterable[Finding]:
        """Yield one finding for each op that breaks first."""
        findings = [
            f
            for row in _first_broken(case)
            if (f := self._report_non_finite(case, row)) is not None
        ]
        others = [row for row in case.guilty if not is_non_finite(row)]
        findings += [
            f
            for row in others[: 2 * _MAX_BROKEN_ROWS]
            if (f := self._report_range(case, row)) is not None
        ]
        if others and not findings:
            findings += self._find_saturated_kernels(case)
        if not case.guilty and any(row.verdict is not Verdict.CLOSE for row in case.result.outputs):
            findings += [
                self._report_clipping(case, row, cut)
                for row, cut in find_clipped_outputs(case)[:_MAX_BROKEN_ROWS]
            ]
        yield from findings[: 2 * _MAX_BROKEN_ROWS]

    def _find_saturated_kernels(self, case: Case) -> list[Finding]:
        # Kernels of one kind have the same error, some of them a small one.
        rows = [row for row in case.computed if row.guilty and not is_non_finite(row)]
        kernels = find_saturation(case, rows)
        return [self._report_kernels(case, kernels)] if kernels is not None else []

    # NaN and inf

    def _report_non_finite(self, case: Case, row: Row) -> Finding | None:
        target, reference = case.values("target", row), case.values("reference", row)
        if target is None or reference is None or target.shape != reference.shape:
            return self._report_by_statistics(case, row)
        places = ~np.isfinite(target) & np.isfinite(reference)
        if not places.any():
            return None
        count = int(np.count_nonzero(places))
        what = "NaN" if np.isnan(target[places]).all() else "inf"
        if what == "inf" and np.isnan(target[places]).any():
            what = "inf or NaN"
        head = finding_at(
            case,
            row,
            self.name,
            kind="non-finite",
            title=f"{name_target_op(row)} gives {what} where the reference is finite",
            confidence=0.55 if row.target.dtype in ("f16", "bf16") else 0.45,
            evidence=(
                f"{count:,} of {case.count_elements(row):,} elements of {row.target.label} are"
                f" {what}",
            ),
            next=f"run {row.target.type or row.target.label} in float32, and check its inputs"
            " there",
        )
        dead = count_masked_rows(case, row, places)
        if dead:
            return replace(
                head,
                kind="mask",
                title=f"{name_target_op(row)} reads rows that are masked completely (all -inf) and"
                " gives NaN",
                confidence=0.93,
                evidence=(*head.evidence, f"{dead:,} rows consist of -inf only"),
                next="mask with the lowest finite value of the type instead of -inf",
            )
        broken = find_breaking_op(case, row.target.key)
        if broken is not None and (broken.constant or broken.op.key != row.target.key.op):
            return self._report_earlier_op(case, head, row, broken, places)
        experiment = case.experiment(row)
        if experiment is None:
            return self._report_result(head, row, reference, places, 0.85)
        if np.isfinite(experiment.truth[places]).all():
            confidence = 0.6 if is_caused_upstream(case, row, reference[places]) else 0.95
            finding = self._report_result(head, row, experiment.truth, places, confidence)
            return (
                self._report_inside(head, experiment, places)
                if finding.kind == head.kind
                else finding
            )
        return self._report_inputs(case, head, experiment, places)

    def _report_earlier_op(
        self, case: Case, head: Finding, row: Row, broken: BreakingOp, places: Places
    ) -> Finding:
        """Complete the finding: an op that only the target has broke before this one."""
        label = str(broken.op.key)
        kind = op_class(broken.op.type)
        if broken.constant:
            value = find_unrepresentable_literal(case.op("reference", row.reference.key.op), "f16")
            what = f"the constant {number(value)}" if value is not None else "a constant"
            if any(e.role is not Role.PARAMETER for e in broken.op.inputs):
                head = replace(head, ops=tuple(dict.fromkeys((label, *head.ops))))
                line = f"a parameter of {label} holds inf"
            else:
                line = f"{label} holds inf and reads no input"
            return replace(
                head,
                kind="constant",
                title=f"{what} of {head.ops[0]} does not fit {long_name('f16')} and becomes inf"
                " in the target",
                confidence=0.95 if value is not None else 0.85,
                evidence=(*head.evidence, line),
                next=f"use a constant that fits {long_name('f16')}, such as -6e4 for a mask",
            )
        if broken.greatest is None:
            line = (
                f"in the target, NaN or inf appear first in {broken.count:,} elements of {label}"
                f" ({broken.op.type}), from which {row.target.label} is computed"
            )
            finding = replace(head, ops=(label, *head.ops), evidence=(*head.evidence, line))
            experiment = case.experiment(row)
            is_finite = experiment is not None and np.isfinite(experiment.truth[places]).all()
            best = (
                find_best_overflow(experiment, row.target.dtype, places)
                if experiment and is_finite
                else None
            )
            return _add_inside(finding, experiment, *best) if experiment and best else finding
        is_exp = kind == "exp"
        return replace(
            head,
            kind="exp" if is_exp else "overflow",
            title=f"the target's {label} overflows {long_name(broken.dtype)}: the exact result"
            f" (float64) reaches {number(broken.greatest)}",
            confidence=0.95,
            ops=(label, *head.ops),
            evidence=(
                *head.evidence,
                f"in float64 {label} reaches {number(broken.greatest)}; the maximum of"
                f" {long_name(broken.dtype)} is {number(DTYPES[broken.dtype].max)}",
            ),
            next=f"subtract the maximum before {label}, as softmax does"
            if is_exp
            else f"keep {label} in float32 or bfloat16, or scale its input down and its result back"
            " in float32",
        )

    def _report_result(
        self, head: Finding, row: Row, truth: Values, places: Places, confidence: float
    ) -> Finding:
        """Complete the finding: the result itself does not fit its type."""
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
        if values.size == 1 and values[0] <= MAX_MASK_VALUE:
            return replace(
                head,
                kind="mask",
                title=f"the mask value {number(float(values[0]))} of {name_target_op(row)} does not"
                f" fit {name} and becomes -inf",
                confidence=confidence,
                evidence=(*head.evidence, f"the lowest value of {name} is {number(-top)}"),
                next=f"mask with {number(-top)}, the lowest value of {name}",
            )
        factor = number(most / top)
        line = f"the exact result (float64) is {factor} times as large"
        return replace(
            head,
            kind="overflow",
            title=f"{name_target_op(row)} overflows {name}: the exact result (float64) reaches"
            f" {number(most)}, and the largest {name} is {number(top)}",
            confidence=confidence,
            evidence=(*head.evidence, f"{line} as the largest {name}"),
            next=f"keep {row.target.label} in float32 or bfloat16, or scale its input down by"
            f" {number(float(2 ** np.ceil(np.log2(most / top) + 1)))} and its result back in"
            " float32"
            if most < np.inf
            else f"keep {row.target.label} in float32 or bfloat16",
        )

    def _report_inside(
        self, head: Finding, experiment: RegionExperiment, places: Places
    ) -> Finding:
        """Complete the finding: the result fits its type, an intermediate value does not."""
        dtype = experiment.row.target.dtype
        best = find_best_overflow(experiment, dtype, places)
        if best is None:
            most = float(np.abs(experiment.truth[places]).max())
            line = f"in float64 they are at most {number(most)}, which fits {long_name(dtype)}"
            return replace(head, evidence=(*head.evidence, line))
        return _add_inside(head, experiment, *best)

    def _report_inputs(
        self, case: Case, head: Finding, experiment: RegionExperiment, places: Places
    ) -> Finding:
        """Complete the finding: the reference's op breaks on these inputs too."""
        row = experiment.row
        lost = find_underflow_upstream(case, experiment)
        if lost is not None:
            name = long_name(lost.row.target.dtype)
            label = lost.row.target.label
            return replace(
                head,
                kind="underflow",
                title=f"{name_target_op(lost.row)} underflows to 0 in {name}, so"
                f" {name_op(row)} gives NaN or inf",
                confidence=0.95,
                ops=(*head.ops, label) if label not in head.ops else head.ops,
                reference_ops=tuple(dict.fromkeys((*head.reference_ops, lost.row.reference.label))),
                evidence=(
                    *head.evidence,
                    f"{label} is 0 in {lost.count:,} elements where the reference has up to"
                    f" {number(lost.value)}; the smallest positive value of {name} is"
                    f" {number(lost.min_positive)}",
                    _describe_right_op(row),
                ),
                next=_advise_underflow(row, label),
                rows=(*head.rows, case.place[lost.row.target.key]),
            )
        return replace(head, confidence=0.6, evidence=(*head.evidence, _describe_right_op(row)))

    def _report_by_statistics(self, case: Case, row: Row) -> Finding | None:
        numbers = row.numbers or {}
        top = DTYPES[row.target.dtype].max if is_float(row.target.dtype) else 0.0
        ends = [abs(numbers.get(f"reference_{e}") or 0.0) for e in ("min", "max")]
        over = bool(top) and max(ends) > top
        line = f"the reference reaches {number(max(ends))} there" if any(ends) else ""
        return finding_at(
            case,
            row,
            self.name,
            kind="overflow" if over else "non-finite",
            title=f"{name_target_op(row)} overflows {long_name(row.target.dtype)}"
            if over
            else f"{name_target_op(row)} gives NaN or inf where the reference is finite",
            confidence=0.85 if over else 0.45,
            evidence=(line,),
            next=f"keep {row.target.label} in float32 or bfloat16",
            missing=("the op's result in float64 (record values of both runs)",),
        )

    # The end of the range, without NaN or inf

    def _report_range(self, case: Case, row: Row) -> Finding | None:
        experiment = case.experiment(row)
        if experiment is None:
            return None
        cut = find_clipping(case, experiment)
        if cut is not None:
            return self._report_clipping(case, row, cut, experiment.noise)
        return self._report_saturated(case, experiment) if is_float(row.target.dtype) else None

    def _report_clipping(
        self, case: Case, row: Row, cut: Clipping, noise: float | None = None
    ) -> Finding:
        effect = describe_change(
            f"with the reference's {cut.what} clipped in the same way",
            cut.error,
            cut.residual,
            "RMS",
            f"rounding explains {number(noise)}" if noise else "",
            f"the two results of {row.target.label}",
        )
        subject = f"{name_target_op(row)} clips its {cut.what}"
        if cut.what == "weight":
            subject = f"the target clips {cut.tensor.key.op}, read by {name_op(row)},"
        if noise is None:
            effect = (
                f"the RMS error is {number(cut.error)} from clipping and {number(cut.residual)}"
                " from rounding"
            )
        is_exact = noise is None or (noise > 0 and cut.residual <= 4 * noise)
        return finding_at(
            case,
            row,
            self.name,
            kind="clipping",
            title=f"{subject} to {number(cut.low)} ... {number(cut.high)}: the quantized range is"
            " too small",
            confidence=(0.95 if is_exact else 0.85) if noise is not None else 0.9,
            evidence=(
                f"{share(cut.share, 1)} of the unclipped {cut.what} is outside {number(cut.low)}"
                f" ... {number(cut.high)}; its largest magnitude is {number(cut.greatest)}",
                effect,
            ),
            next=f"calibrate the range of {cut.tensor.key.op} again, up to at least"
            f" {number(cut.greatest)}",
        )

    def _report_saturated(self, case: Case, experiment: RegionExperiment) -> Finding | None:
        """Report values that stop at the maximum, or zeros that an overflow inside left."""
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
                    title=f"{name_target_op(row)} saturates at {number(top)}, the maximum of"
                    f" {name}",
                    confidence=0.95,
                    evidence=(
                        f"{int(stopped.sum()):,} of {error.size:,} elements of {row.target.label}"
                        f" are {number(top)}; in float64 they reach {number(most)}",
                    ),
                    next=f"keep {row.target.label} in float32 or bfloat16, or scale its input down"
                    " and its result back in float32",
                )
        zeroed = (experiment.target == 0) & (np.abs(experiment.truth) > 8 * experiment.noise)
        count, total = int(zeroed.sum()), experiment.counted(zeroed).size
        if experiment.noise and count and count >= 0.01 * total:
            best = find_best_overflow(experiment, dtype, zeroed)
            if best is not None and best[0].certain:
                head = finding_at(
                    case,
                    row,
                    self.name,
                    kind="overflow",
                    title="",
                    confidence=0.9,
                    evidence=(
                        f"{count:,} of {total:,} elements of {row.target.label} are 0 in the"
                        " target only",
                    ),
                )
                return _add_inside(head, experiment, *best)
        return None

    def _report_kernels(self, case: Case, kernels: Saturation) -> Finding:
        first = finding_at(
            case,
            kernels.rows[0],
            self.name,
            kind="int16-saturation",
            title=f"the target's {kernels.worst.kernel.key} saturates: it adds two 8-bit products"
            " in 16 bits",
            confidence=0.93 if kernels.proven else 0.65,
            evidence=_write_kernel_evidence(kernels),
            next="quantize the weights with reduce_range=True (7 bits), use uint8 weights, or run"
            " on a processor with VNNI",
            missing=()
            if kernels.proven
            else (
                "a run of the target with its ops one by one, without integer kernels (give its"
                " model)",
            ),
            level=Level.CAUSE if kernels.proven else Level.SUSPECT,
        )
        labels = (str(kernels.worst.kernel.key), *(row.target.label for row in kernels.rows))
        return replace(
            first,
            ops=tuple(dict.fromkeys(labels)),
            reference_ops=tuple(row.reference.label for row in kernels.rows),
            rows=tuple(case.place[row.target.key] for row in kernels.rows),
        )


def _write_kernel_evidence(kernels: Saturation) -> Iterator[str]:
    worst = kernels.worst
    yield (
        f"{share(worst.saturating_share, 1)} of the pairs of neighboring weights of"
        f" {worst.kernel.key} have a sum above 128 (at most {number(worst.greatest_sum)})"
    )
    yield "with inputs up to 255 the sum of two such products does not fit 16 bits"
    if worst.rmse_in_floats is not None and worst.row.introduced is not None:
        yield (
            f"the same integers summed in floats have an error of {number(worst.rmse_in_floats)}"
            f" instead of {number(worst.row.introduced.rmse)} (RMS)"
        )
    if len(kernels.rows) > 1:
        yield f"{len(kernels.rows)} ops are affected"


def _first_broken(case: Case) -> list[Row]:
    """Return the guilty rows with NaN or inf, else the first such output."""
    rows = [row for row in case.guilty if is_non_finite(row)]
    return rows[:_MAX_BROKEN_ROWS] or [row for row in case.result.outputs if is_non_finite(row)][:1]


def _add_inside(
    head: Finding, experiment: RegionExperiment, one: InternalOverflow, _: float, precise: float
) -> Finding:
    row = experiment.row
    name = long_name(row.target.dtype)
    limit = (
        f"exp overflows {name} above {np.log(ceiling(row.target.dtype)):.4g}"
        if one.kind == "softmax"
        else f"the maximum of {name} is {number(DTYPES[row.target.dtype].max)}"
    )
    is_last = one.op.key == experiment.ops[-1].key
    inner = str(one.op.key)
    label = row.target.label if is_last or inner == row.target.label else inner
    subject = name_target_op(row) if label == row.target.label else name_inner_op(row, one.op)
    cures = {
        "softmax": f"subtract the maximum score before exp in {label}",
        "squares": f"compute the squares and their sum in {label} in float32",
        "scores": "scale the query before the product, or compute the scores in float32",
    }
    return replace(
        head,
        kind=f"overflow-{one.kind}",
        title=f"{subject} overflows {name} in an intermediate value",
        reference_ops=tuple(dict.fromkeys((str(one.op.key), *head.reference_ops))),
        confidence=0.92 if one.certain and precise >= 0.9 else 0.75,
        evidence=(*head.evidence, f"{one.description}; {limit}"),
        next=cures.get(one.kind, f"keep {label} in float32 or bfloat16"),
    )


def _describe_right_op(row: Row) -> str:
    return (
        f"{row.target.label} itself is right: the reference's {row.reference.label} gives NaN or"
        " inf on these inputs too"
    )


def _advise_underflow(row: Row, label: str) -> str:
    if op_class(row.reference.type) == "log":
        return f"use log_softmax, or clamp {label} from below before {row.target.label}"
    return f"keep {label} in float32 or bfloat16, or use an epsilon that its type can represent"
