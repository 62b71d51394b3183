"""Too few bits: integers that are read with a wrong scale, ops that compute in a coarser type than
the rest, and quantization that costs more than the output can bear."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.accumulators import Narrow, narrow
from syncpoint.diagnosis.amounts import number, type_name
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.local import Local
from syncpoint.diagnosis.lossy import COARSE, noise
from syncpoint.diagnosis.narrowing import Narrowed, narrowed
from syncpoint.diagnosis.ranges import Uneven, Wasted, uneven, wasted
from syncpoint.diagnosis.scales import Misread, misread, weight_ratio
from syncpoint.diagnosis.telling import finding_at
from syncpoint.metrics.limits import coarser, coarsest
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import OpKey, Role

_OFF = (Verdict.MODERATE, Verdict.LARGE, Verdict.AMPLIFIED)
_MOST = 8
_FEW = 0.25
"""At most this share of the ops is coarser than the rest, or it is the model's own precision."""
_NAMES = {"f16": "float16", "bf16": "bfloat16", "fp8": "8-bit floats", "int8": "8-bit integers"}


class Precision:
    """Low precision and quantization."""

    name = "precision"
    title = "too few bits"

    def look(self, case: Case) -> Iterable[Finding]:
        """What guilty ops lost to bits, else what all of them lost together."""
        for row in case.guilty[:_MOST]:
            local = case.local(row)
            found = self._lost(case, local) if local is not None else None
            if found is not None:
                yield found
        outputs = [row for row in case.result.outputs if row.verdict in _OFF]
        preset = coarsest([row.preset for row in case.computed])
        if preset in COARSE and (outputs or case.guilty):
            yield from self._quantized(case, outputs)
        yield from self._few_coarse(case, outputs)

    # One op

    def _lost(self, case: Case, local: Local) -> Finding | None:
        one = misread(case, local)
        if one is not None:
            return self._misread(case, local, one)
        coarse = narrowed(local)
        if coarse is not None:
            return self._narrowed(case, local.row, coarse)
        total = narrow(local) if local.row.preset not in COARSE else None
        if total is not None and (total.reproduces or _is_noise(local.row, total)):
            return self._accumulator(case, local.row, total)
        return None

    def _misread(self, case: Case, local: Local, one: Misread) -> Finding:
        row = local.row
        what = one.what
        if what == "weight":
            size = weight_ratio(case, one, local)
            if size is not None and abs(size - 1) < 0.1 and abs(one.factor - 1) > 0.15:
                what = "input"
        at = f" of {one.tensor.key.op}" if one.tensor is not None else ""
        allowed = f" (rounding allows {number(local.noise)})" if local.noise else ""
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
        good = local.noise > 0 and one.left <= 4 * local.noise
        return finding_at(case, row, self.name, kind, title, 0.94 if good else 0.8, said, cure)

    def _narrowed(self, case: Case, row: Row, one: Narrowed) -> Finding:
        name = type_name(one.dtype)
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
            f"{row.target.label} computes in {name} among {type_name(row.target.dtype)}",
            0.93 if one.reproduces and one.left <= 0.3 * one.error else 0.85,
            said,
            f"keep {row.target.label} in {type_name(row.target.dtype)}",
        )

    def _accumulator(self, case: Case, row: Row, one: Narrow) -> Finding:
        name = type_name(one.dtype)
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
            yield noise(case, outputs)

    def _uneven(self, case: Case, one: Uneven) -> Finding | None:
        readers = [
            op
            for op in (case.target.ops if case.target is not None else ())
            if any(e.op == one.tensor.key.op and e.role is Role.PARAMETER for e in op.inputs)
        ]
        row = _row_behind(case, {op.key for op in readers})
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
        known = [
            row
            for row in case.computed
            if row.introduced is not None and row.target.key.role is Role.OUTPUT
        ]
        presets = Counter(row.introduced.preset for row in known if row.introduced)
        if len(presets) < 2:
            return
        usual = presets.most_common(1)[0][0]
        few = [
            row
            for row in known
            if row.introduced
            and row.introduced.preset in ("f16", "bf16", "tf32", "fp8")
            and coarser(row.introduced.preset, usual)
            and not row.guilty
            and row.introduced.rmse > 0
        ]
        if not few or len(few) > _FEW * len(known):
            return
        few.sort(key=lambda row: -(row.introduced.rel_l2 or 0.0) if row.introduced else 0.0)
        row = few[0]
        preset = row.introduced.preset if row.introduced else ""
        name = _NAMES.get(preset, preset)
        others = [r for r in known if r.introduced and r.introduced.preset == usual]
        floor = float(np.median([r.introduced.rel_l2 or 0.0 for r in others if r.introduced]))
        own = (row.introduced.rel_l2 or 0.0) if row.introduced else 0.0
        said = [f"it adds a relative error of {number(own)}, the median op {number(floor)}"]
        if len(few) > 1:
            said.append(f"{len(few)} of {len(known)} ops are so")
        found = finding_at(
            case,
            row,
            self.name,
            "narrow",
            f"{row.target.label} computes in {name} among {_NAMES.get(usual, type_name(usual))}",
            0.85 if outputs else 0.9,
            said,
            f"keep {row.target.label} in {_NAMES.get(usual, type_name(usual))} if the output"
            " should be closer",
            level=Level.CAUSE if outputs and not case.guilty else Level.SUSPECT,
        )
        yield replace(
            found,
            ops=tuple(r.target.label for r in few[:_MOST]),
            reference_ops=tuple(r.reference.label for r in few[:_MOST]),
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


def _is_noise(row: Row, one: Narrow) -> bool:
    """Whether the error has the size of such a sum and is small beside the values."""
    made = row.introduced
    unit = DTYPES[one.dtype].unit
    return made is not None and made.rel_l2 is not None and made.rel_l2 <= unit * one.terms**0.5


def _row_behind(case: Case, ops: set[OpKey]) -> Row | None:
    """The first row that one of the ops makes, or that is made of what they give."""
    rows = {row.target.key.op: row for row in reversed(case.computed)}
    reached = set(ops)
    for op in case.target.ops if case.target is not None else ():
        if op.key not in reached and not any(edge.op in reached for edge in op.inputs):
            continue
        if op.key in rows:
            return rows[op.key]
        reached.add(op.key)
    return None


def _introduced(row: Row) -> str:
    sqnr = row.introduced.sqnr if row.introduced is not None else None
    return f"what {row.target.label} adds is {sqnr:.1f} dB below its values" if sqnr else ""
