"""Findings about error that no single op introduces: small errors that add up with depth, or that
one op amplifies; gain of a finer type."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.finding_text import name_target_op, number
from syncpoint.diagnosis.numerics.error_growth import (
    ErrorStep,
    Growth,
    compute_reference_rms,
    find_amplifier,
    fit_growth,
    list_error_steps,
    relative_error,
)
from syncpoint.matching.op_kinds import op_class
from syncpoint.metrics.limits import coarsest
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES, long_name
from syncpoint.runtimes.inputs.read_inputs import read_recorded_inputs
from syncpoint.runtimes.registry import load_recorded_runtime

_FLOATS = {"f32": "f32", "tf32": "f16", "f16": "f16", "bf16": "bf16"}
_FINER = {"f16": "f32", "bf16": "f32", "f32": "f64"}
_MIN_GROWTH_FACTOR = 3.0
"""Errors grew if an output's error is above this many times the sum of what its ops add."""
_OFF = (Verdict.MODERATE, Verdict.LARGE, Verdict.AMPLIFIED)
_MIN_MEASURED_SHARE = 0.8
"""Share of the ops whose introduced error must be known to say that no op is guilty."""


class Accumulation:
    """Accumulated and amplified error."""

    name = "accumulation"
    title = "small errors add up or are amplified"

    def look(self, case: Case) -> Iterable[Finding]:
        """Yield the finding that errors add up, if an output is off and no op is guilty."""
        if case.guilty or not case.is_off or case.result.inputs_differ:
            return
        if any(finding.level is Level.CAUSE for finding in case.findings):
            return
        preset = coarsest([row.preset for row in case.computed])
        outputs = [row for row in case.result.outputs if row.verdict in _OFF]
        inherited = [row for row in case.computed if row.verdict is Verdict.INHERITED]
        if preset not in _FLOATS or not (outputs or inherited):
            return
        path = list_error_steps(case)
        measured = [step for step in path if step.row.introduced is not None]
        if len(measured) < _MIN_MEASURED_SHARE * len(path) or not path:
            return
        yield self._report_growth(case, path, outputs, inherited, _FLOATS[preset])

    def _report_growth(
        self,
        case: Case,
        path: list[ErrorStep],
        outputs: list[Row],
        inherited: list[Row],
        dtype: str,
    ) -> Finding:
        final = max((relative_error(row) or 0.0 for row in outputs), default=0.0)
        worst = max((s.row.introduced.ratio or 0.0 for s in path if s.row.introduced), default=0.0)
        blamed = find_amplifier(path, final)
        floor = f"no op introduces more than {worst:.1f} times the error that rounding explains"
        finer_lines, is_better = self._try_finer(case, dtype, final)
        added = float(np.linalg.norm([step.added_error for step in path]))
        level = Level.CAUSE if _is_growth(outputs, final, added) else Level.NOTE
        rows = [case.place[row.target.key] for row in (*inherited, *outputs)]
        if blamed is not None:
            return self._report_amplifier(case, blamed, (floor, *finer_lines), level, rows, dtype)
        curve = fit_growth(path)
        first = outputs[0] if outputs else inherited[-1]
        end = f"the output '{first.target.label}'" if outputs else first.target.label
        return Finding(
            cause=self.name,
            kind="growth-exponential" if curve and curve.exponential else "growth",
            title=f"rounding errors of {long_name(dtype)} accumulate in the target up to {end}; no"
            " single op is at fault",
            level=level,
            confidence=0.95 if is_better else 0.85,
            ops=(first.target.label,),
            reference_ops=(first.reference.label,),
            evidence=(floor, *_describe_curve(curve), *_describe_sum(added, final), *finer_lines),
            next=f"run the target's model in {long_name(_FINER[dtype])}, or accumulate in float32;"
            f" keep {long_name(dtype)} if the task's accuracy does not suffer",
            missing=()
            if finer_lines and is_better is not None
            else (
                f"a run of the target in {long_name(_FINER[dtype])} (give the target's model:"
                " --target-model)",
            ),
            rows=tuple(rows),
        )

    def _report_amplifier(
        self,
        case: Case,
        step: ErrorStep,
        evidence: tuple[str, ...],
        level: Level,
        rows: list[int],
        dtype: str,
    ) -> Finding:
        row = step.row
        reason, kind = _explain_gain(step)
        error_before = max(step.input_error, step.added_error)
        labels = [row.target.label, *(r.target.label for r in step.inputs[:2])]
        finer = long_name(_FINER[dtype])
        return Finding(
            cause=self.name,
            kind=kind,
            title=f"{name_target_op(row)} amplifies small errors {number(step.gain)} times",
            level=level,
            confidence=0.92,
            ops=tuple(dict.fromkeys(labels)),
            reference_ops=tuple(
                dict.fromkeys([row.reference.label, *(r.reference.label for r in step.inputs[:2])])
            ),
            module=row.target.module or row.reference.module,
            source=row.target.source or row.reference.source,
            evidence=(
                f"the relative error is {number(error_before)} before and"
                f" {number(step.output_error)} after it",
                *reason,
                *evidence,
            ),
            next=f"compute {labels[0]} of the target and its inputs in {finer}"
            + (
                ", or reorder the computation to avoid the cancellation"
                if kind == "cancellation"
                else ""
            ),
            rows=tuple(dict.fromkeys([case.place[row.target.key], *rows])),
        )

    def _try_finer(
        self, case: Case, dtype: str, final: float
    ) -> tuple[tuple[str, ...], bool | None]:
        """Describe what more precision gains: by a run if the runtime can, else by estimate.

        Also returns whether the run was clearly better; None if it was not run.
        """
        finer = _FINER[dtype]
        ratio = DTYPES[dtype].unit / DTYPES[finer].unit
        expected = (
            f"in {long_name(finer)} instead of {long_name(dtype)} the error should be about"
            f" {number(ratio)} times smaller",
        )
        if not _offers_dtype(case, finer) or case.reference is None or not final:
            return expected, None
        # The reference's inputs: the target's were rounded already.
        inputs = read_recorded_inputs(case.reference)
        run = case.rerun("target", f"the target in {long_name(finer)}", inputs, dtype=finer)
        if run is None:
            return expected, None
        result = case.compare_again(run)
        after = [relative_error(row) for row in result.outputs] if result is not None else []
        if not after or None in after:
            return expected, None
        finer_error = max(value for value in after if value is not None)
        line = (
            f"in {long_name(finer)} the output's relative error is {number(finer_error)} instead of"
            f" {number(final)}"
        )
        return (line,), finer_error < final / 4


def _offers_dtype(case: Case, dtype: str) -> bool:
    """Whether the target's runtime has an option to run its models in this type."""
    runtime = load_recorded_runtime(str(case.result.target.get("runtime", "")))
    options = runtime.options() if runtime is not None else ()
    return any(option.name == "dtype" and dtype in option.choices for option in options)


def _is_growth(outputs: list[Row], final: float, added: float) -> bool:
    """Whether an output is off by more than independent errors of this size add up to. A large
    error always is."""
    if any(row.verdict is not Verdict.MODERATE for row in outputs):
        return True
    return bool(outputs) and final > _MIN_GROWTH_FACTOR * added


def _explain_gain(step: ErrorStep) -> tuple[tuple[str, ...], str]:
    row = step.row
    kind = op_class(row.reference.type)
    own = compute_reference_rms(row)
    size = max((compute_reference_rms(r) for r in step.inputs), default=0.0)
    if kind in ("add", "sub", "mean", "sum", "matmul", "conv", "layer_norm") and size > 4 * own > 0:
        line = f"its inputs are {number(size / own)} times as large as its result: they cancel out"
        return (line,), "cancellation"
    if kind in ("div", "reciprocal", "rsqrt", "log", "sqrt", "pow"):
        numbers = [(r.numbers or {}) for r in step.inputs]
        ends = [(n.get("reference_min"), n.get("reference_max")) for n in numbers]
        lines = [
            f"its inputs range from {number(low)} to {number(high)}"
            for low, high in ends
            if low is not None and high is not None
        ]
        return tuple(lines[:1]), "small-divisor"
    return (), "steep"


def _describe_sum(added: float, final: float) -> tuple[str, ...]:
    if not added or not final:
        return ()
    if final > _MIN_GROWTH_FACTOR * added:
        text = f"the ops add {number(added)} in total, and later ops amplify it to {number(final)}"
    else:
        text = f"the ops add {number(added)} in total; the output's error is {number(final)}"
    return (f"{text} (relative)",)


def _describe_curve(curve: Growth | None) -> tuple[str, ...]:
    if curve is None:
        return ()
    ends = f"from {number(curve.first)} to {number(curve.last)} over {curve.points} ops"
    if curve.exponential:
        return (f"the relative error grows {ends}, by {100 * (curve.rate - 1):.2g} % per op",)
    return (f"the relative error grows {ends}, as depth to the power of {curve.rate:.2g}",)
