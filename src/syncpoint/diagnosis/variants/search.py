"""Which known variant of an op explains the target's numbers.

An error far above the rounding is explained by the variant that leaves nothing but rounding.
Below it the error is projected on (variant - reference), each element weighted by how little
rounding may move it: 1 means the target is the variant, 0 that it is the reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.budget import check_time
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.numpy_ops.registry import proven, readings, results
from syncpoint.diagnosis.variants.any_op import GENERAL
from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, Seen
from syncpoint.diagnosis.variants.registry import variants
from syncpoint.diagnosis.variants.screening import LARGE, places_to_try, thinned
from syncpoint.matching.op_kinds import op_class
from syncpoint.run.dtypes import DTYPES, Kind, from_numpy
from syncpoint.run.model import Edge, Op, TensorKey
from syncpoint.run.statistics import rms

Values = NDArray[np.float64]
_MOST_OPS = 12
"""Ops of a region that are varied; longer ones are whole models."""
_MOST_ELEMENTS = 1 << 22
_FLOOR = 4.0
"""So many times the allowed error may be left by a variant that explains everything."""
_SHARE = 0.995
"""So much of the error's energy a variant must explain where what is allowed is not known."""
_SIGMAS = 8.0
_SIMPLEST = 3
_MOST_WORK = 1 << 28
"""Multiplications, at most, that running an op once more may take to be worth it."""
_PER_NUMBER = 4
"""Elements that each number chosen to fit must move."""


@dataclass(frozen=True, kw_only=True)
class Explained:
    """A variant, and how well it explains what the target's op gave."""

    op: Op
    hypothesis: Hypothesis
    before: float
    """Root mean square of the error against the reference's op."""
    after: float
    """And against the variant."""
    projection: float
    """Of the error on (variant - reference)."""
    sigmas: float
    """How many standard deviations the projection is from 0."""
    whole: bool
    """Leaves nothing but what the precision allows."""
    share: float
    """Of the error's energy, or of the target's own where that is less: a variant that is small
    beside a large error says nothing of a target that is small too."""
    doubt: float = 0.0
    """Taken off what is sure, where more ops than the row's own were free to explain it."""

    @property
    def confidence(self) -> float:
        """How sure it is."""
        sure = 0.97 if self.whole else 0.92 if self.share >= 0.999 else 0.85
        return sure - self.doubt


def explanations(experiment: RegionExperiment) -> list[Explained]:
    """The variants that explain an error above the rounding, the best first."""
    found = []
    scale = Scale(experiment)
    for op, hypothesis in _candidates(experiment):
        value = experiment.replaced(op, hypothesis.value)
        if value is None or value.shape != experiment.target.shape or not scale.promises(value):
            continue
        scored = scale.scored(op, hypothesis, value)
        if scored is not None and (scored.whole or scored.share >= _SHARE):
            found.append(scored)
    return _ordered(found)


def as_said(experiment: RegionExperiment, theirs: Op) -> list[Explained]:
    """The reference's op with the attributes that the target's op says it has, where both are of
    one type and that gives the target's numbers."""
    scale = Scale(experiment)
    for op in experiment.ops if experiment.target.size <= _MOST_ELEMENTS else ():
        output, arguments = experiment.output(op), experiment.arguments(op)
        other = {n: v for n, v in theirs.attributes.items() if op.attributes.get(n, v) != v}
        if op.type != theirs.type or not other or output is None:
            continue
        if proven(op, arguments, output) is None:
            continue
        for bound in readings(replace(op, attributes={**op.attributes, **other}), arguments):
            made = results(bound)
            value = experiment.replaced(op, made[0]) if made else None
            if not made or value is None or value.shape != experiment.target.shape:
                continue
            words = ", ".join(f"{n} {v} instead of {op.attributes[n]}" for n, v in other.items())
            after = f"set {' and '.join(other)} of {theirs.key} in the target as in the reference"
            hypothesis = Hypothesis("attributes", f"has {words}", made[0], next=after)
            scored = scale.scored(op, hypothesis, value)
            if scored is not None and (scored.whole or scored.share >= _SHARE):
                return [scored]
    return []


def _ordered(found: list[Explained]) -> list[Explained]:
    """What is whole first, then what is simple. What leaves much more than the best does not
    explain the error, however simple it is."""
    if not found:
        return []
    least = min(e.after for e in found)
    near = [e for e in found if e.whole or e.after <= 3 * least]
    return sorted(near, key=lambda e: (not e.whole, -e.hypothesis.simplicity, e.after))


def below_rounding(experiment: RegionExperiment) -> list[Explained]:
    """The subtle variants that the error of an op, small as it is, points to."""
    found = []
    scale = Scale(experiment)
    for op, hypothesis in _candidates(experiment):
        value = experiment.replaced(op, hypothesis.value) if hypothesis.subtle else None
        if value is None or value.shape != experiment.target.shape:
            continue
        scored = scale.scored(op, hypothesis, value)
        if scored is not None and abs(scored.projection - 1) < 0.15 and scored.sigmas > _SIGMAS:
            found.append(scored)
    return sorted(found, key=lambda e: -e.sigmas)


def _candidates(experiment: RegionExperiment) -> Iterator[tuple[Op, Hypothesis]]:
    if experiment.target.size > _MOST_ELEMENTS:
        return
    for op in experiment.ops[-_MOST_OPS:]:
        output = experiment.output(op)
        if output is None:
            continue

        def again(changed: Mapping[Edge, Array], op: Op = op) -> Array | None:
            return experiment.op_again(op, changed)

        def reach(value: Array, op: Op = op) -> Array | None:
            return experiment.replaced(op, value)

        last = op.key == experiment.ops[-1].key
        seen = Seen(
            op=op,
            kind=op_class(op.type),
            arguments=[None if a is None else _wide(a) for a in experiment.arguments(op)],
            output=output,
            again=again,
            target=experiment.target if last and experiment.target.shape == output.shape else None,
            index=experiment.region.outputs[0].index if last else 0,
            end=experiment.target,
            reach=reach,
            values={edge: _wide(value) for edge, value in experiment.values.items()},
            ops=experiment.ops,
            siblings=experiment.siblings,
            kept=experiment.kept if last and experiment.target.shape == output.shape else None,
        )
        for hypothesis in variants(_narrowed(seen)):
            check_time()
            # In the middle of a region what follows would be run for nothing.
            if last or not np.array_equal(hypothesis.value, output, equal_nan=True):
                yield op, hypothesis


def _wide(array: Array) -> Array:
    """In float64 where it is floating point; NumPy takes bfloat16 for no number at all."""
    return array.astype(np.float64) if from_numpy(array.dtype).kind is Kind.FLOAT else array


def _narrowed(seen: Seen) -> Seen:
    """A large op with the kinds of variants that a few of its elements do not rule out."""
    if seen.output.size < LARGE:
        return seen
    thin = thinned(seen)
    if thin is None:
        work = seen.output.size * max(
            (a.size for a in seen.arguments[1:] if a is not None), default=1
        )
        return replace(seen, dear=work > _MOST_WORK)
    assert thin.target is not None
    error = rms(_finite(thin.counted(thin.target - thin.output)))
    kinds = set()
    for hypothesis in variants(thin):
        check_time()
        if hypothesis.kind in GENERAL:
            continue
        after = rms(_finite(thin.counted(thin.target - hypothesis.value)))
        if after < 0.7 * error:
            kinds.add(hypothesis.kind)
        if hypothesis.simplicity >= _SIMPLEST and after < 1e-3 * error:
            # Nothing that follows could be preferred to it.
            break
    left = replace(seen, kinds=frozenset(kinds | GENERAL))
    ways = list(readings(seen.op, seen.arguments))
    if len(ways) == 1:
        # The few elements have proven it.
        left.__dict__["bound"] = ways[0]
    return left


def _finite(values: Array) -> Values:
    return np.asarray(np.nan_to_num(values, nan=np.inf), np.float64)


class Scale:
    """Weighs variants of one place against the target; what they share is computed once."""

    def __init__(self, experiment: RegionExperiment) -> None:
        truth = np.asarray(experiment.truth, np.float64)
        self._finite = experiment.without_masked(
            np.isfinite(experiment.target) & np.isfinite(truth)
        )
        self._all = bool(self._finite.all())
        self._target = experiment.target
        self._truth = truth
        self._marks = _marks(experiment.target)
        self._moved = not np.array_equal(self._marks, _marks(truth), equal_nan=True)
        self._experiment = experiment
        noise = _noise(experiment, truth)
        self._noise = noise
        self._allowed = _FLOOR * max(experiment.noise, rms(experiment.counted(noise)))
        self._sample = places_to_try(
            np.where(self._finite, experiment.target - truth, 0.0).reshape(-1)
        )
        flat = self._sample
        self._few = (experiment.target.reshape(-1)[flat], truth.reshape(-1)[flat])

    def promises(self, value: Array) -> bool:
        """Whether a look at some elements does not rule the variant out."""
        if self._moved:
            return True
        target, truth = self._few
        given = np.asarray(value, np.float64).reshape(-1)[self._sample]
        fine = np.isfinite(target) & np.isfinite(truth)
        with np.errstate(all="ignore"):
            left = np.square((target - given)[fine])
            error = np.square((target - truth)[fine])
        if not np.isfinite(left).all():
            return not self._all
        return bool(left.sum() < 0.5 * error.sum())

    def scored(self, op: Op, hypothesis: Hypothesis, value: Array) -> Explained | None:
        """How well a variant explains the target; None where it cannot be said, or where too
        few elements bear it out."""
        value = np.asarray(value, np.float64)
        if self._moved:
            # Masks and overflows that are elsewhere: only what has them there too explains them.
            return self._by_marks(op, hypothesis, value)
        finite = self._finite
        if not self._all and not np.array_equal(np.isfinite(value), np.isfinite(self._target)):
            finite = finite & np.isfinite(value)
        if not finite.any() or not np.isfinite(value[finite]).all():
            return None
        target, truth = self._target[finite], self._truth[finite]
        error, change = target - truth, value[finite] - truth
        before, after = rms(error), rms(error - change)
        noise = self._noise[finite]
        weights = 1 / np.square(noise)
        energy = float(np.sum(weights * np.square(change)))
        if not energy or not before or not self._borne_out(hypothesis, change, noise):
            return None
        projection = float(np.sum(weights * error * change)) / energy
        sigmas = abs(projection) * float(np.sqrt(energy))
        whole = after <= self._allowed and after < before / 4
        share = 1 - (after / (min(before, float(np.std(target))) or before)) ** 2
        return Explained(
            op=op,
            hypothesis=hypothesis,
            before=before,
            after=after,
            projection=projection,
            sigmas=sigmas,
            whole=whole,
            share=share,
        )

    def _by_marks(self, op: Op, hypothesis: Hypothesis, value: Values) -> Explained | None:
        if not np.array_equal(_marks(value), self._marks, equal_nan=True):
            return None
        finite = self._experiment.without_masked(np.isfinite(value))
        after = rms((self._target - value)[finite])
        noise = rms(_noise(self._experiment, value)[finite])
        whole = bool(finite.any()) and after <= _FLOOR * max(self._experiment.noise, noise)
        return (
            Explained(
                op=op,
                hypothesis=hypothesis,
                before=np.inf,
                after=after,
                projection=1.0,
                sigmas=0.0,
                whole=True,
                share=1.0,
            )
            if whole
            else None
        )

    def _borne_out(self, hypothesis: Hypothesis, change: Values, noise: Values) -> bool:
        """Each number that was chosen to fit wants several elements that it moves."""
        if hypothesis.subtle and not hypothesis.solved:
            return True
        moved = int(np.count_nonzero(np.abs(change) > 4 * noise))
        return moved >= (2 if not hypothesis.solved else _PER_NUMBER * (hypothesis.solved + 1))


def _marks(values: Values) -> Values:
    """NaN and infinities, 0 elsewhere."""
    return np.where(np.isfinite(values), 0.0, values)


def _noise(experiment: RegionExperiment, truth: Values) -> Values:
    """How far rounding may move each element."""
    dtype = DTYPES[experiment.row.target.dtype]
    unit = dtype.unit if dtype.kind is Kind.FLOAT else 2.0**-24
    size = np.abs(np.where(np.isfinite(truth), truth, 0.0))
    least = unit * rms(size) * 1e-2
    found: Values = np.maximum(unit * size / np.sqrt(3), least)
    return np.maximum(found, np.finfo(np.float64).tiny ** 0.5)


def find_variant(case: Case, row: Row) -> tuple[Explained | None, set[TensorKey]]:
    """The variant that explains a row best, and the rows before it that it explains too: steps of
    one thing may each be paired with a step of another."""
    experiment = case.experiment(row)
    variants = explanations(experiment) if experiment is not None else []
    declared = case.op("target", row.target.key.op)
    is_vague = not variants or variants[0].hypothesis.simplicity < 0
    if is_vague and experiment is not None and declared is not None:
        # What it says of itself tells more than numbers that were made to fit.
        variants = as_said(experiment, declared) or variants
    if variants:
        return variants[0], set()
    wider = case.widen_experiment(row)
    together = explanations(wider[0]) if wider is not None else []
    if wider is None or not together:
        return None, set()
    return replace(together[0], doubt=0.05), {r.target.key for r in wider[1]}
