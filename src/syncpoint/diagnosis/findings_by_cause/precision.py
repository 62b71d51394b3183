"""Findings about low precision: wrong scale or zero point, narrow types and accumulators,
quantization too coarse or ranges badly used, lossy ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.precision_gain import PrecisionGain, measure_precision_gains
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.finding_text import (
    describe_change,
    finding_at,
    name_op,
    name_target_op,
    number,
)
from syncpoint.diagnosis.numerics.accumulators import (
    NarrowAccumulator,
    find_narrow_accumulator,
    is_accumulation_noise,
)
from syncpoint.diagnosis.numerics.narrower_types import Narrowing, find_coarser_ops, find_narrowing
from syncpoint.diagnosis.numerics.quantization_ranges import (
    UnevenChannels,
    WastedRange,
    find_row_behind,
    find_uneven_channels,
    find_wasted_ranges,
)
from syncpoint.diagnosis.numerics.quantization_scales import (
    MisreadGrid,
    find_misread_grid,
    measure_weight_ratio,
)
from syncpoint.metrics.limits import coarsest, precision_name
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES, long_name
from syncpoint.run.model import Role

_OFF = (Verdict.MODERATE, Verdict.LARGE, Verdict.AMPLIFIED)
_MAX_OPS = 8
"""Guilty ops to look into, and ops that a finding lists."""
_COARSE = ("int8", "int4", "fp8")
"""Presets with so few bits that every op adds noticeable error."""
_MAX_NAMED_OPS = 3
_REDUCTION_SWITCHES = {
    "f16": "allow_fp16_reduced_precision_reduction",
    "bf16": "allow_bf16_reduced_precision_reduction",
}
"""Settings of PyTorch that let a matrix product accumulate in a narrow type."""
_MIN_GAIN_DB = 0.5
"""An op is worth keeping in higher precision if the outputs gain this many decibels."""


class Precision:
    """Low precision and quantization."""

    name = "precision"
    title = "the precision is too low"

    def look(self, case: Case) -> Iterable[Finding]:
        """Yield findings about guilty ops, then about the precision of all ops together."""
        for row in case.guilty[:_MAX_OPS]:
            experiment = case.experiment(row)
            finding = self._report_op(case, experiment) if experiment is not None else None
            if finding is not None:
                yield finding
        outputs = [row for row in case.result.outputs if row.verdict in _OFF]
        preset = coarsest([row.preset for row in case.computed])
        if preset in _COARSE and (outputs or case.guilty):
            yield from self._report_quantization(case, outputs)
        yield from self._report_coarser_ops(case, outputs)

    # One op

    def _report_op(self, case: Case, experiment: RegionExperiment) -> Finding | None:
        one = find_misread_grid(case, experiment)
        if one is not None:
            return self._report_misread(case, experiment, one)
        coarse = find_narrowing(experiment)
        if coarse is not None:
            return self._report_narrowed(case, experiment.row, coarse)
        total = (
            find_narrow_accumulator(experiment) if experiment.row.preset not in _COARSE else None
        )
        if total is not None and (total.reproduces or is_accumulation_noise(experiment.row, total)):
            return self._report_accumulator(case, experiment.row, total)
        return None

    def _report_misread(
        self, case: Case, experiment: RegionExperiment, one: MisreadGrid
    ) -> Finding:
        row = experiment.row
        what = one.what
        if what == "weight":
            size = measure_weight_ratio(case, one, experiment)
            if size is not None and abs(size - 1) < 0.1 and abs(one.factor - 1) > 0.15:
                what = "input"
        of_tensor = f" of {one.tensor.key.op}" if one.tensor is not None else ""
        noise = number(experiment.noise)
        allowed = f"rounding explains {noise}" if experiment.noise else ""
        subject = f"the {what} of {name_op(row)}"
        tensor_name = str(one.tensor.key.op) if one.tensor is not None else row.target.label
        if what in ("weight", "input") and tensor_name != row.target.label:
            subject = f"{tensor_name}, the {what} of {name_op(row)}"
        results = f"the two results of {row.target.label}"
        if one.shift:
            steps = f" ({number(one.shift / one.step)} quantization steps)" if one.step else ""
            evidence: tuple[str, ...] = (
                f"in the target, the {what} of {row.target.label} is shifted by"
                f" {number(one.shift)}{steps} everywhere",
                describe_change(
                    f"with the {what} shifted so in the reference",
                    one.error,
                    one.residual,
                    "RMS",
                    allowed,
                    results,
                ),
            )
            kind = "zero-point"
            title = f"the target uses a wrong zero point for {subject}: it is off by"
            title += (
                f" {number(abs(one.shift / one.step))}"
                if one.step
                else f" {number(abs(one.shift))} (real value)"
            )
            cure = (
                f"compare the zero point{of_tensor} with the calibration or the model before"
                " conversion"
            )
        else:
            evidence = (
                describe_change(
                    f"with the {what} multiplied by {number(one.factor)} in the reference",
                    one.error,
                    one.residual,
                    "RMS",
                    allowed,
                    results,
                ),
            )
            if one.step and what == one.what:
                evidence = (
                    *evidence,
                    f"the scale{of_tensor} is {number(one.step)}; it should be"
                    f" {number(one.step / one.factor)}",
                )
            kind = "scale"
            title = (
                f"the target uses a wrong scale for {subject}: it is {number(one.factor)} times as"
                " large as it should be"
            )
            cure = (
                f"compare the scale{of_tensor} with the calibration or the model before conversion"
            )
            if one.step and what == one.what:
                cure = f"set the scale{of_tensor} to {number(one.step / one.factor)}"
        is_exact = experiment.noise > 0 and one.residual <= 4 * experiment.noise
        return finding_at(
            case, row, self.name, kind, title, 0.94 if is_exact else 0.8, evidence, cure
        )

    def _report_narrowed(self, case: Case, row: Row, one: Narrowing) -> Finding:
        name = long_name(one.dtype)
        own_type = long_name(row.target.dtype)
        evidence = [f"its error is {number(one.error)} (RMS), far above {own_type} rounding"]
        if one.reproduces:
            evidence.append(
                describe_change(
                    f"with {one.where} rounded to {name} in the reference",
                    one.error,
                    one.residual,
                    "RMS",
                )
            )
        if one.all_representable:
            evidence.append(f"every value of its result is representable in {name}")
        return finding_at(
            case,
            row,
            self.name,
            "narrow",
            f"{name_target_op(row)} computes in {name}; the rest of its model is in {own_type}",
            0.93 if one.reproduces and one.residual <= 0.3 * one.error else 0.85,
            evidence,
            f"keep {row.target.label} of the target in {own_type}",
        )

    def _report_accumulator(self, case: Case, row: Row, one: NarrowAccumulator) -> Finding:
        name = long_name(one.dtype)
        errors = (
            f"its error against the exact sum (float64) is {number(one.error)} (RMS); the same"
            f" products summed one by one in {name} have an error of"
            f" {number(one.simulated_error)}, in float32 of {number(one.float32_error)}"
        )
        match = f"the target differs from the sum in {name} by only {number(one.residual)} (RMS)"
        is_torch = case.result.target.get("runtime") == "torch"
        place = "in the options of the target's runtime or compiler"
        if is_torch:
            place = f"with torch.backends.cuda.matmul.{_REDUCTION_SWITCHES[one.dtype]} = False"
        return finding_at(
            case,
            row,
            self.name,
            "narrow-accumulator",
            f"{name_target_op(row)} accumulates {one.terms:,} products in {name} instead of"
            " float32",
            0.93 if one.reproduces else 0.65,
            (errors, match if one.reproduces else ""),
            f"make {row.target.label} accumulate in float32, {place}",
            level=_weight(case, one),
        )

    # All ops together

    def _report_quantization(self, case: Case, outputs: list[Row]) -> Iterable[Finding]:
        """Yield findings about badly used ranges; if there are none, about too few bits."""
        is_explained = any(finding.level is Level.CAUSE for finding in case.findings)
        findings = [self._report_uneven(case, one) for one in list(find_uneven_channels(case))[:3]]
        findings += [self._report_wasted(case, one) for one in list(find_wasted_ranges(case))[:3]]
        yield from (finding for finding in findings if finding is not None)
        if not findings and not case.guilty and outputs and not is_explained:
            yield _report_quantization_noise(case, outputs)

    def _report_uneven(self, case: Case, one: UnevenChannels) -> Finding | None:
        readers = [
            op
            for op in (case.target.ops if case.target is not None else ())
            if any(e.op == one.tensor.key.op and e.role is Role.PARAMETER for e in op.inputs)
        ]
        row = find_row_behind(case, {op.key for op in readers})
        if row is None:
            return None
        bits = DTYPES[one.tensor.dtype].bits
        return finding_at(
            case,
            row,
            self.name,
            "per-tensor",
            f"the target's weight {one.tensor.key.op} has one scale for channels of very different"
            " magnitude",
            0.88,
            (
                f"channel {one.channel} of axis {one.axis} is {number(one.ratio)} times as large as"
                " the median channel",
                f"half of the channels use at most {bits - one.bits:.1f} of {bits} bits",
                _describe_introduced(row, ", which uses this weight,"),
            ),
            f"quantize {one.tensor.key.op} with one scale per channel (per_channel=True)",
        )

    def _report_wasted(self, case: Case, one: WastedRange) -> Finding:
        bits = DTYPES[one.tensor.dtype].bits
        unused = "all" if not np.isfinite(one.bits) or one.bits > bits else f"{one.bits:.1f}"
        return finding_at(
            case,
            one.row,
            self.name,
            "wasted-range",
            f"the target's quantized range of {one.tensor.key.op} is far wider than its values",
            0.9,
            (
                f"its range is {number(one.low)} ... {number(one.high)}; its values are between"
                f" {number(one.least)} and {number(one.greatest)}",
                f"{unused} of {bits} bits are unused",
                _describe_introduced(one.row),
            ),
            f"calibrate {one.tensor.key.op} for {number(one.least)} ... {number(one.greatest)},"
            " without mask values and outliers, or keep it in float",
        )

    def _report_coarser_ops(self, case: Case, outputs: list[Row]) -> Iterable[Finding]:
        """Report a few ops in a coarser type than all others, also if they are close."""
        coarse = find_coarser_ops(case)
        if coarse is None:
            return
        few = coarse.ops
        row, worst = few[0]
        if (case.result.target.get("options") or {}).get("dtype") == worst.preset:
            return  # the type that was asked for; the others stay wider on their own
        evidence = [
            f"it adds a relative error of {number(worst.rel_l2 or 0.0)}; the median op adds"
            f" {number(coarse.median)}"
        ]
        if len(few) > 1:
            evidence.append(f"{len(few)} of {coarse.count} ops compute so coarsely")
        name, usual_name = precision_name(worst.preset), precision_name(coarse.usual)
        yield finding_at(
            case,
            row,
            self.name,
            "narrow",
            f"{name_target_op(row)} computes in {name}; most ops of the target compute in"
            f" {usual_name}",
            0.85 if outputs else 0.9,
            evidence,
            f"keep {row.target.label} of the target in {usual_name} if its result must be closer to"
            " the reference's",
            ()
            if outputs and not case.guilty
            else (f"a run of the target with {row.target.label} in {usual_name}",),
            level=Level.CAUSE if outputs and not case.guilty else Level.SUSPECT,
            ops=[r.target.label for r, _ in few[:_MAX_OPS]],
            reference_ops=[r.reference.label for r, _ in few[:_MAX_OPS]],
        )


def _weight(case: Case, one: NarrowAccumulator) -> Level:
    """Return the level of a narrow accumulator: a cause if an output is off (or anything, if no
    output was compared), else a suspect if most ops have more than 16 bits.

    A sum in the type of most ops is the normal cost of that type, unless an output is off by much.
    """
    outputs = case.result.outputs
    presets = Counter(r.introduced.preset for r in case.computed if r.introduced)
    usual = max(presets, key=lambda preset: presets[preset], default="")
    little = all(r.verdict in (Verdict.CLOSE, Verdict.MODERATE) for r in outputs)
    if usual == one.dtype and outputs and little:
        return Level.NOTE
    if any(r.verdict in _OFF for r in outputs) if outputs else case.is_off:
        return Level.CAUSE
    return Level.SUSPECT if usual in ("f32", "f64") else Level.NOTE


def _describe_introduced(row: Row, clause: str = "") -> str:
    """Describe the error that an op introduced; `clause` follows its name."""
    sqnr = row.introduced.sqnr if row.introduced is not None else None
    if not sqnr:
        return ""
    return f"the error of {row.target.label}{clause} is {sqnr:.1f} dB below its values"


def _report_quantization_noise(case: Case, outputs: list[Row]) -> Finding:
    """Make the finding that quantization is too coarse, with the ops that cost the outputs most:
    by experiment if the reference can be run so, else by what each op adds."""
    lossy = _find_lossy(case)
    measured = measure_precision_gains(case, lossy)
    worth = [cost for cost in measured if cost.gain >= _MIN_GAIN_DB][:_MAX_NAMED_OPS]
    worst = [cost.row for cost in worth] or lossy[:_MAX_NAMED_OPS]
    named = worst or outputs
    is_moderate = all(row.verdict is Verdict.MODERATE for row in outputs)
    return finding_at(
        case,
        named[0],
        "precision",
        "noise",
        f"the target's quantization is too coarse for the output '{outputs[0].target.label}'; no"
        " single op is at fault",
        0.8,
        [
            *_describe_output(outputs[0]),
            "the error of every op is explained by its quantization",
            *_describe_loss(lossy[:_MAX_NAMED_OPS]),
            *_describe_gain(measured, worth),
            *_share_of_compression(case),
        ],
        _advise(worst, measured, worth),
        missing=() if measured else (_MISSING,),
        level=Level.NOTE if is_moderate else Level.CAUSE,
        ops=[row.target.label for row in named],
        reference_ops=[row.reference.label for row in named],
        rows={row.target.key: row for row in (*outputs, *worst)}.values(),
    )


def _describe_output(row: Row) -> list[str]:
    """Describe how far an output is off."""
    numbers = row.numbers or {}
    rel, psnr = numbers.get("rel_l2"), numbers.get("psnr")
    if rel is None or psnr is None:
        return []
    return [
        f"the relative error of the output '{row.target.label}' is {number(rel)} (PSNR"
        f" {psnr:.1f} dB)"
    ]


def _find_lossy(case: Case) -> list[Row]:
    """Return the ops with quantization error, the worst first."""
    outputs = [row for row in case.computed if row.target.key.role is Role.OUTPUT]
    return sorted((row for row in outputs if _is_lossy(row)), key=_decibels)


def _is_lossy(row: Row) -> bool:
    introduced = row.introduced
    if introduced is None or introduced.preset not in _COARSE:
        return False
    return introduced.sqnr is not None and introduced.rmse > 0


def _share_of_compression(case: Case) -> list[str]:
    """Say whether an output's error is mostly compression, if a run in between was compared."""
    through = case.result.through
    parts = [p for p in through.parts if p.output and p.mostly] if through is not None else []
    return [f"{p.target}: the error is mostly {p.mostly}" for p in parts[:1]]


_MISSING = (
    "the error that each op causes in the output (give the reference's model: --reference-model)"
)


def _describe_loss(worst: list[Row]) -> list[str]:
    if not worst:
        return []
    names = ", ".join(f"{row.target.label} {_decibels(row):.1f} dB" for row in worst)
    return [f"worst signal-to-noise ratios (SQNR) of single ops: {names}"]


def _describe_gain(measured: list[PrecisionGain], worth: list[PrecisionGain]) -> list[str]:
    if worth:
        gains = ", ".join(f"{c.row.target.label} {c.gain:.1f} dB" for c in worth)
        return [f"SQNR gained at the output by keeping one op and its inputs in float: {gains}"]
    if measured:
        return [
            f"with any one of {len(measured)} ops in float the outputs gain less than"
            f" {_MIN_GAIN_DB} dB"
        ]
    return []


def _advise(worst: list[Row], measured: list[PrecisionGain], worth: list[PrecisionGain]) -> str:
    names = ", ".join(row.target.label for row in worst)
    if measured and not worth:
        return (
            "quantize more finely (per channel, more bits) or fewer layers: no few ops are at fault"
        )
    if worth:
        return f"keep {names} in float"
    return f"keep {names or 'the worst ops'} in float, and measure what the output gains"


def _decibels(row: Row) -> float:
    return (row.introduced.sqnr or 0.0) if row.introduced is not None else 0.0
