"""Error that nobody makes: every op is as good as its precision allows, and the output is off all
the same. Small errors add up with depth, or one op makes large ones of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.finding_text import number
from syncpoint.diagnosis.numerics.error_growth import (
    Growth,
    Step,
    amplifier,
    growth,
    norm_of,
    relative,
    steps,
)
from syncpoint.matching.op_kinds import op_class
from syncpoint.metrics.limits import coarsest
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES, long_name
from syncpoint.runtimes.inputs.recorded_inputs import read_recorded_inputs
from syncpoint.runtimes.registry import load_recorded_runtime

_FLOATS = {"f32": "f32", "tf32": "f16", "f16": "f16", "bf16": "bf16"}
_FINER = {"f16": "f32", "bf16": "f32", "f32": "f64"}
_MORE = 3.0
"""An output that is off by more than so many times what its ops add is off by growth; up to that
the errors merely add up, as they must."""
_OFF = (Verdict.MODERATE, Verdict.LARGE, Verdict.AMPLIFIED)
_KNOWN = 0.8
"""Share of the ops whose introduced error must be known before nobody is guilty."""


class Accumulation:
    """Accumulated and amplified error."""

    name = "accumulation"
    title = "small errors add up or are amplified"

    def look(self, case: Case) -> Iterable[Finding]:
        """What makes the output be off where no op is guilty."""
        if case.guilty or not case.is_off or case.result.inputs_differ:
            return
        if any(finding.level is Level.CAUSE for finding in case.found):
            return
        preset = coarsest([row.preset for row in case.computed])
        outputs = [row for row in case.result.outputs if row.verdict in _OFF]
        inherited = [row for row in case.computed if row.verdict is Verdict.INHERITED]
        if preset not in _FLOATS or not (outputs or inherited):
            return
        found = steps(case)
        known = [step for step in found if step.row.introduced is not None]
        if len(known) < _KNOWN * len(found) or not found:
            return
        yield self._grown(case, found, outputs, inherited, _FLOATS[preset])

    def _grown(
        self, case: Case, found: list[Step], outputs: list[Row], inherited: list[Row], dtype: str
    ) -> Finding:
        final = max((relative(row) or 0.0 for row in outputs), default=0.0)
        worst = max((s.row.introduced.ratio or 0.0 for s in found if s.row.introduced), default=0.0)
        blamed = amplifier(found, final)
        floor = f"no op introduces more than {worst:.1f} times what its precision allows"
        told, gained = self._finer(case, dtype, final)
        added = float(np.linalg.norm([step.adds for step in found]))
        level = Level.CAUSE if _weighs(outputs, final, added) else Level.NOTE
        rows = [case.place[row.target.key] for row in (*inherited, *outputs)]
        if blamed is not None:
            return self._amplified(case, blamed, final, (floor, *told), level, rows, dtype)
        curve = growth(found)
        first = outputs[0] if outputs else inherited[-1]
        return Finding(
            cause=self.name,
            kind="growth-exponential" if curve and curve.exponential else "growth",
            title=f"small errors of {long_name(dtype)} add up on the way to {first.target.label}",
            level=level,
            confidence=0.95 if gained else 0.85,
            ops=(first.target.label,),
            reference_ops=(first.reference.label,),
            evidence=(floor, *_curve(curve, found), *_sum(added, final), *told),
            next=f"run the model in {long_name(_FINER[dtype])}, or with sums in float32, and see"
            " whether the task suffers",
            missing=()
            if told and gained is not None
            else (f"the target in {long_name(_FINER[dtype])}: name its model",),
            rows=tuple(rows),
        )

    def _amplified(
        self,
        case: Case,
        step: Step,
        final: float,
        evidence: tuple[str, ...],
        level: Level,
        rows: list[int],
        dtype: str,
    ) -> Finding:
        row = step.row
        why, kind = _why(step)
        given = max(step.given, step.adds)
        labels = [row.target.label, *(r.target.label for r in step.inputs[:2])]
        finer = long_name(_FINER[dtype])
        return Finding(
            cause=self.name,
            kind=kind,
            title=f"{row.target.label} makes large errors of small ones",
            level=level,
            confidence=0.92,
            ops=tuple(dict.fromkeys(labels)),
            reference_ops=tuple(
                dict.fromkeys([row.reference.label, *(r.reference.label for r in step.inputs[:2])])
            ),
            module=row.target.module or row.reference.module,
            source=row.target.source or row.reference.source,
            evidence=(
                f"it is given a relative error of {number(given)} and gives {number(step.gives)},"
                f" {number(step.gain)} times as much",
                *why,
                *evidence,
            ),
            next=f"compute {labels[0]} and what it reads in {finer}"
            + (", or reorder it so that nothing cancels" if kind == "cancellation" else ""),
            rows=tuple(dict.fromkeys([case.place[row.target.key], *rows])),
        )

    def _finer(self, case: Case, dtype: str, final: float) -> tuple[tuple[str, ...], bool | None]:
        """What more precision brings: tried where the runtime can, else what is to be expected."""
        finer = _FINER[dtype]
        ratio = DTYPES[dtype].unit / DTYPES[finer].unit
        expected = (
            f"{long_name(finer)} rounds {number(ratio)} times finer; errors that grow in"
            " proportion shrink by as much",
        )
        if not _offers_dtype(case, finer) or case.reference is None or not final:
            return expected, None
        # The reference's inputs: the target's were rounded already.
        given = read_recorded_inputs(case.reference) or None
        run = case.again("target", f"the target in {long_name(finer)}", given, dtype=finer)
        if run is None:
            return expected, None
        result = case.compare_again(run)
        after = [relative(row) for row in result.outputs] if result is not None else []
        if not after or None in after:
            return expected, None
        left = max(value for value in after if value is not None)
        told = (
            f"in {long_name(finer)} the output's relative error is {number(left)} in place of"
            f" {number(final)}",
        )
        return told, left < final / 4


def _offers_dtype(case: Case, dtype: str) -> bool:
    """Whether the runtime of the target has an option to run its models in this type."""
    runtime = load_recorded_runtime(str(case.result.target.get("runtime", "")))
    options = runtime.options() if runtime is not None else ()
    return any(option.name == "dtype" and dtype in option.choices for option in options)


def _weighs(outputs: list[Row], final: float, added: float) -> bool:
    """Whether an output is off by more than independent errors of this size add up to; a large
    one is a reason to stop in any case."""
    if any(row.verdict is not Verdict.MODERATE for row in outputs):
        return True
    return bool(outputs) and final > _MORE * added


def _why(step: Step) -> tuple[tuple[str, ...], str]:
    row = step.row
    kind = op_class(row.reference.type)
    own = norm_of(row)
    size = max((norm_of(r) for r in step.inputs), default=0.0)
    if kind in ("add", "sub", "mean", "sum", "matmul", "conv", "layer_norm") and size > 4 * own > 0:
        said = f"its inputs are {number(size / own)} times as large as its result: they cancel"
        return (said,), "cancellation"
    if kind in ("div", "reciprocal", "rsqrt", "log", "sqrt", "pow"):
        numbers = [(r.numbers or {}) for r in step.inputs]
        ends = [(n.get("reference_min"), n.get("reference_max")) for n in numbers]
        told = [
            f"its inputs lie from {number(low)} to {number(high)}"
            for low, high in ends
            if low is not None and high is not None
        ]
        return tuple(told[:1]), "small-divisor"
    return (), "steep"


def _sum(added: float, final: float) -> tuple[str, ...]:
    if not added or not final:
        return ()
    return (f"put together, what the ops add is {number(added)}; the output has {number(final)}",)


def _curve(curve: Growth | None, found: list[Step]) -> tuple[str, ...]:
    if curve is None:
        return ()
    ends = f"from {number(curve.first)} to {number(curve.last)} over {curve.points} ops"
    if curve.exponential:
        return (f"the relative error grows {ends}, by {100 * (curve.rate - 1):.2g} % an op",)
    return (f"the relative error grows {ends}, as depth to the power {curve.rate:.2g}",)
