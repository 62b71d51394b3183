"""Too few bits: integers that are read with a wrong scale, ops that compute in a coarser type than
the rest, and quantization that costs more than the output can bear."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.precision_gain import Cost, costs
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.finding_text import finding_at, number
from syncpoint.diagnosis.numerics.accumulators import Narrow, is_noise, narrow
from syncpoint.diagnosis.numerics.coarser_ops import few_coarser
from syncpoint.diagnosis.numerics.narrowing import Narrowed, narrowed
from syncpoint.diagnosis.numerics.ranges import Uneven, Wasted, row_behind, uneven, wasted
from syncpoint.diagnosis.numerics.scales import Misread, misread, weight_ratio
from syncpoint.metrics.limits import coarsest, precision_name
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES, long_name
from syncpoint.run.model import Role

_OFF = (Verdict.MODERATE, Verdict.LARGE, Verdict.AMPLIFIED)
_MOST = 8
_COARSE = ("int8", "int4", "fp8")
"""Presets of what has so few bits that every op is heard."""
_NAMED = 3
_WORTH = 0.5
"""An op is worth leaving in higher precision if the outputs gain so many decibels by it."""


class Precision:
    """Low precision and quantization."""

    name = "precision"
    title = "too few bits"

    def look(self, case: Case) -> Iterable[Finding]:
        """What guilty ops lost to bits, else what all of them lost together."""
        for row in case.guilty[:_MOST]:
            experiment = case.experiment(row)
            found = self._lost(case, experiment) if experiment is not None else None
            if found is not None:
                yield found
        outputs = [row for row in case.result.outputs if row.verdict in _OFF]
        preset = coarsest([row.preset for row in case.computed])
        if preset in _COARSE and (outputs or case.guilty):
            yield from self._quantized(case, outputs)
        yield from self._few_coarse(case, outputs)

    # One op

    def _lost(self, case: Case, experiment: RegionExperiment) -> Finding | None:
        one = misread(case, experiment)
        if one is not None:
            return self._misread(case, experiment, one)
        coarse = narrowed(experiment)
        if coarse is not None:
            return self._narrowed(case, experiment.row, coarse)
        total = narrow(experiment) if experiment.row.preset not in _COARSE else None
        if total is not None and (total.reproduces or is_noise(experiment.row, total)):
            return self._accumulator(case, experiment.row, total)
        return None

    def _misread(self, case: Case, experiment: RegionExperiment, one: Misread) -> Finding:
        row = experiment.row
        what = one.what
        if what == "weight":
            size = weight_ratio(case, one, experiment)
            if size is not None and abs(size - 1) < 0.1 and abs(one.factor - 1) > 0.15:
                what = "input"
        at = f" of {one.tensor.key.op}" if one.tensor is not None else ""
        allowed = f" (rounding allows {number(experiment.noise)})" if experiment.noise else ""
        if one.shift:
            steps = f", {number(one.shift / one.step)} steps" if one.step else ""
            said: tuple[str, ...] = (
                f"all of its {what} is shifted by {number(one.shift)}{steps}",
                f"with that shift the reference gives the target's numbers to"
                f" {number(one.left)}{allowed}, without to {number(one.error)}",
            )
            kind, title = "zero-point", f"{row.target.label} reads its {what} with a wrong zero"
            title += " point"
            cure = f"compare the zero point{at} with that of the model it was made from"
        else:
            said = (
                f"its {what} is {number(one.factor)} times what it should be",
                f"with that factor the reference gives the target's numbers to"
                f" {number(one.left)}{allowed}, without to {number(one.error)}",
            )
            if one.step and what == one.what:
                said = (
                    *said,
                    f"the scale{at} is {number(one.step)}; its integers are right with"
                    f" {number(one.step / one.factor)}",
                )
            kind, title = "scale", f"{row.target.label} reads its {what} with a wrong scale"
            cure = f"compare the scale{at} with that of the model it was made from"
        good = experiment.noise > 0 and one.left <= 4 * experiment.noise
        return finding_at(case, row, self.name, kind, title, 0.94 if good else 0.8, said, cure)

    def _narrowed(self, case: Case, row: Row, one: Narrowed) -> Finding:
        name = long_name(one.dtype)
        said = [f"its error is {number(one.error)}, far above what {row.target.dtype} allows"]
        if one.reproduces:
            said.append(
                f"rounding {one.where} to {name} gives the target's numbers to {number(one.left)}"
            )
        if one.all_representable:
            said.append(f"every value that it gives is a number of {name}")
        return finding_at(
            case,
            row,
            self.name,
            "narrow",
            f"{row.target.label} computes in {name} among {long_name(row.target.dtype)}",
            0.93 if one.reproduces and one.left <= 0.3 * one.error else 0.85,
            said,
            f"keep {row.target.label} in {long_name(row.target.dtype)}",
        )

    def _accumulator(self, case: Case, row: Row, one: Narrow) -> Finding:
        name = long_name(one.dtype)
        last = (
            f"adding up in {name} one after the other gives the target's numbers to"
            f" {number(one.left)}"
            if one.reproduces
            else f"adding up in {name} errs by {number(one.simulated)}, as much as the target"
        )
        return finding_at(
            case,
            row,
            self.name,
            "narrow-accumulator",
            f"{row.target.label} adds up its {one.terms:,} products in {name}",
            0.93 if one.reproduces else 0.65,
            (f"its error is {number(one.error)}; with a float32 sum far less", last),
            f"let {row.target.label} accumulate in float32",
            level=_weight(case, one),
        )

    # All of them

    def _quantized(self, case: Case, outputs: list[Row]) -> Iterable[Finding]:
        """Grids that are used badly; without such, that the bits are too few."""
        sure = any(finding.level is Level.CAUSE for finding in case.found)
        found = [self._uneven(case, one) for one in list(uneven(case))[:3]]
        found += [self._wasted(case, one) for one in list(wasted(case))[:3]]
        yield from (f for f in found if f is not None)
        if not found and not case.guilty and outputs and not sure:
            yield _report_quantization_noise(case, outputs)

    def _uneven(self, case: Case, one: Uneven) -> Finding | None:
        readers = [
            op
            for op in (case.target.ops if case.target is not None else ())
            if any(e.op == one.tensor.key.op and e.role is Role.PARAMETER for e in op.inputs)
        ]
        row = row_behind(case, {op.key for op in readers})
        if row is None:
            return None
        bits = DTYPES[one.tensor.dtype].bits
        return finding_at(
            case,
            row,
            self.name,
            "per-tensor",
            f"one scale is not enough for the weight {one.tensor.key.op}",
            0.88,
            (
                f"channel {one.channel} of axis {one.axis} is {number(one.ratio)} times as large"
                " as the median one",
                f"so half of the channels have at most {bits - one.bits:.1f} of {bits} bits",
                _introduced(row),
            ),
            f"quantize {one.tensor.key.op} with a scale for each channel (per_channel=True)",
        )

    def _wasted(self, case: Case, one: Wasted) -> Finding:
        bits = DTYPES[one.tensor.dtype].bits
        unused = "all" if not np.isfinite(one.bits) or one.bits > bits else f"{one.bits:.1f}"
        return finding_at(
            case,
            one.row,
            self.name,
            "wasted-range",
            f"the range of {one.tensor.key.op} is far wider than what is in it",
            0.9,
            (
                f"its integers reach from {number(one.low)} to {number(one.high)}, its values"
                f" from {number(one.least)} to {number(one.greatest)}",
                f"{unused} of {bits} bits are not used",
                _introduced(one.row),
            ),
            f"calibrate {one.tensor.key.op} without masks and outliers, or leave it in floats",
        )

    def _few_coarse(self, case: Case, outputs: list[Row]) -> Iterable[Finding]:
        """A few ops in a coarser type than all others, said even where that is close."""
        coarse = few_coarser(case)
        if coarse is None:
            return
        few = coarse.ops
        row, worst = few[0]
        evidence = [
            f"it adds a relative error of {number(worst.rel_l2 or 0.0)}, the median op"
            f" {number(coarse.median)}"
        ]
        if len(few) > 1:
            evidence.append(f"{len(few)} of {coarse.count} ops are so")
        name, usual_name = precision_name(worst.preset), precision_name(coarse.usual)
        yield finding_at(
            case,
            row,
            self.name,
            "narrow",
            f"{row.target.label} computes in {name} among {usual_name}",
            0.85 if outputs else 0.9,
            evidence,
            f"keep {row.target.label} in {usual_name} if the output should be closer",
            level=Level.CAUSE if outputs and not case.guilty else Level.SUSPECT,
            ops=[r.target.label for r, _ in few[:_MOST]],
            reference_ops=[r.reference.label for r, _ in few[:_MOST]],
        )


def _weight(case: Case, one: Narrow) -> Level:
    """A cause where an output is off (where none was compared, where anything is), else worth a
    look where most ops have more than 16 bits. A sum in the type that most ops have is what that
    type costs, as long as no output is off by much."""
    outputs = case.result.outputs
    presets = Counter(r.introduced.preset for r in case.computed if r.introduced)
    usual = max(presets, key=lambda preset: presets[preset], default="")
    little = all(r.verdict in (Verdict.CLOSE, Verdict.MODERATE) for r in outputs)
    if usual == one.dtype and outputs and little:
        return Level.NOTE
    if any(r.verdict in _OFF for r in outputs) if outputs else case.is_off:
        return Level.CAUSE
    return Level.SUSPECT if usual in ("f32", "f64") else Level.NOTE


def _introduced(row: Row) -> str:
    sqnr = row.introduced.sqnr if row.introduced is not None else None
    return f"what {row.target.label} adds is {sqnr:.1f} dB below its values" if sqnr else ""


def _report_quantization_noise(case: Case, outputs: list[Row]) -> Finding:
    """As good as the bits allow, and not good enough: the ops that cost the outputs most, by
    experiment where the reference can be run so, else by what each adds."""
    lossy = _find_lossy(case)
    measured = costs(case, lossy)
    worth = [cost for cost in measured if cost.gain >= _WORTH][:_NAMED]
    worst = [cost.row for cost in worth] or lossy[:_NAMED]
    named = worst or outputs
    is_moderate = all(row.verdict is Verdict.MODERATE for row in outputs)
    return finding_at(
        case,
        named[0],
        "precision",
        "noise",
        "quantization costs more than the output can bear",
        0.8,
        [
            "every op loses what its integers cost, and no more",
            *_loss(lossy[:_NAMED]),
            *_cost(measured, worth),
            *_share_of_compression(case),
        ],
        _next(worst, measured, worth),
        missing=() if measured else (_MISSING,),
        level=Level.NOTE if is_moderate else Level.CAUSE,
        ops=[row.target.label for row in named],
        reference_ops=[row.reference.label for row in named],
        rows={row.target.key: row for row in (*outputs, *worst)}.values(),
    )


def _find_lossy(case: Case) -> list[Row]:
    """The ops that lose something to few bits, the worst first."""
    known = [row for row in case.computed if row.target.key.role is Role.OUTPUT]
    return sorted((row for row in known if _is_lossy(row)), key=_decibels)


def _is_lossy(row: Row) -> bool:
    made = row.introduced
    return made is not None and made.preset in _COARSE and made.sqnr is not None and made.rmse > 0


def _share_of_compression(case: Case) -> list[str]:
    """Whether an output's error is mostly compression, where a run in between tells."""
    through = case.result.through
    parts = [p for p in through.parts if p.output and p.mostly] if through is not None else []
    return [f"{p.target}: the error is mostly {p.mostly}" for p in parts[:1]]


_MISSING = "the reference's model, to measure what each op costs the output (--reference-model)"


def _loss(worst: list[Row]) -> list[str]:
    if not worst:
        return []
    names = ", ".join(f"{row.target.label} {_decibels(row):.1f} dB" for row in worst)
    return [f"signal over noise of what each adds: {names}"]


def _cost(measured: list[Cost], worth: list[Cost]) -> list[str]:
    if worth:
        said = ", ".join(f"{c.row.target.label} {c.gain:.1f} dB" for c in worth)
        return [f"what the outputs gain with one op, and what it reads, in float: {said}"]
    if measured:
        return [f"with any one of {len(measured)} ops in float the outputs gain less than 0.5 dB"]
    return []


def _next(worst: list[Row], measured: list[Cost], worth: list[Cost]) -> str:
    names = ", ".join(row.target.label for row in worst)
    if measured and not worth:
        return "no few ops are to blame: quantize finer (by channel, more bits), or fewer layers"
    if worth:
        return f"leave {names} in float"
    return f"leave {names or 'the worst ops'} in float, and see what the output gains"


def _decibels(row: Row) -> float:
    return (row.introduced.sqnr or 0.0) if row.introduced is not None else 0.0
