"""Find the variant of an op that explains the target's output: generate variants, score them by the
error left and by evidence, rank the matches.

An error far above rounding is explained by a variant that leaves only rounding errors. A smaller
error is projected on (variant - reference), with a greater weight for elements that rounding moves
less: a projection of 1 means the target computes the variant, 0 the reference.
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
from syncpoint.diagnosis.variants.any_op import GENERAL_KINDS
from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, OpUnderTest
from syncpoint.diagnosis.variants.registry import generate_variants
from syncpoint.diagnosis.variants.screening import (
    MIN_SCREENED_ELEMENTS,
    choose_sample_indices,
    reduce_op,
)
from syncpoint.matching.op_kinds import op_class
from syncpoint.run.dtypes import DTYPES, Kind, from_numpy
from syncpoint.run.model import RECORDER_ATTRIBUTES, Edge, Op, TensorKey
from syncpoint.run.statistics import rms

Values = NDArray[np.float64]
_MAX_OPS = 12
"""Maximum number of ops of a region that are varied, from its end; longer regions are models."""
_MAX_ELEMENTS = 1 << 22
_MAX_RESIDUAL_NOISE_RATIO = 4.0
"""Maximum residual of a complete match, as a multiple of the rounding noise."""
_MIN_ENERGY_SHARE = 0.995
"""Minimum share of the error's energy that an incomplete match must explain."""
_MIN_SIGMAS = 8.0
_MAX_SIMPLICITY = 3
_MAX_MULTIPLICATIONS = 1 << 28
"""Maximum cost of an op that may be run again for each variant."""
_MIN_ELEMENTS_PER_NUMBER = 4
"""Minimum number of elements that must change for each number that was fitted."""


@dataclass(frozen=True, kw_only=True)
class VariantMatch:
    """A variant and how well it explains the output of the target's op."""

    op: Op
    hypothesis: Hypothesis
    reference_rms: float
    """RMS error of the target against the reference's op."""
    variant_rms: float
    """RMS error of the target against the variant."""
    projection: float
    """Projection of the error on (variant - reference)."""
    sigmas: float
    """Distance of the projection from 0 in standard deviations."""
    is_complete: bool
    """The remaining error is within the precision of the dtype."""
    share: float
    """Explained share of the energy of the error, or of the target if that is less: a small
    variant beside a large error proves nothing if the target is small too."""
    doubt: float = 0.0
    """Subtracted from the confidence if more ops than the row's own were varied."""

    @property
    def confidence(self) -> float:
        """Confidence of the finding, 0 to 1."""
        certainty = 0.97 if self.is_complete else 0.92 if self.share >= 0.999 else 0.85
        return certainty - self.doubt


def find_matches(experiment: RegionExperiment) -> list[VariantMatch]:
    """Find the variants that explain an error above rounding, the best first."""
    matches = []
    scorer = VariantScorer(experiment)
    for op, hypothesis in _generate_candidates(experiment):
        value = experiment.replaced(op, hypothesis.value)
        if (
            value is None
            or value.shape != experiment.target.shape
            or not scorer.is_promising(value)
        ):
            continue
        match = scorer.score(op, hypothesis, value)
        if match is not None and (match.is_complete or match.share >= _MIN_ENERGY_SHARE):
            matches.append(match)
    return _sort_matches(matches)


def find_declared_variant(experiment: RegionExperiment, target_op: Op) -> list[VariantMatch]:
    """Match the reference's op with the attributes that the target's op declares, if both have
    the same type and that explains the output of the target."""
    scorer = VariantScorer(experiment)
    for op in experiment.ops if experiment.target.size <= _MAX_ELEMENTS else ():
        output, arguments = experiment.output(op), experiment.arguments(op)
        other_attributes = {
            n: v
            for n, v in target_op.attributes.items()
            if n not in RECORDER_ATTRIBUTES and op.attributes.get(n, v) != v
        }
        if op.type != target_op.type or not other_attributes or output is None:
            continue
        if proven(op, arguments, output) is None:
            continue
        for bound in readings(
            replace(op, attributes={**op.attributes, **other_attributes}), arguments
        ):
            outputs = results(bound)
            value = experiment.replaced(op, outputs[0]) if outputs else None
            if not outputs or value is None or value.shape != experiment.target.shape:
                continue
            differences = ", ".join(
                f"{n} {_short(v)} instead of {_short(op.attributes[n])}"
                for n, v in other_attributes.items()
            )
            settings = " and ".join(
                f"`{n}` of {target_op.key} to {_short(op.attributes[n])}" for n in other_attributes
            )
            advice = f"set {settings} in the target"
            hypothesis = Hypothesis("attributes", f"has {differences}", outputs[0], next=advice)
            match = scorer.score(op, hypothesis, value)
            if match is not None and (match.is_complete or match.share >= _MIN_ENERGY_SHARE):
                return [match]
    return []


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _sort_matches(matches: list[VariantMatch]) -> list[VariantMatch]:
    """Sort complete matches first, then by simplicity. Drop matches with a much greater residual
    than the best: they do not explain the error, however simple they are."""
    if not matches:
        return []
    least_rms = min(e.variant_rms for e in matches)
    near_matches = [e for e in matches if e.is_complete or e.variant_rms <= 3 * least_rms]
    return sorted(
        near_matches, key=lambda e: (not e.is_complete, -e.hypothesis.simplicity, e.variant_rms)
    )


def find_subtle_variants(experiment: RegionExperiment) -> list[VariantMatch]:
    """Find the subtle variants that explain an error below rounding."""
    matches = []
    scorer = VariantScorer(experiment)
    for op, hypothesis in _generate_candidates(experiment):
        value = experiment.replaced(op, hypothesis.value) if hypothesis.subtle else None
        if value is None or value.shape != experiment.target.shape:
            continue
        match = scorer.score(op, hypothesis, value)
        if match is not None and abs(match.projection - 1) < 0.15 and match.sigmas > _MIN_SIGMAS:
            matches.append(match)
    return sorted(matches, key=lambda e: -e.sigmas)


def _generate_candidates(experiment: RegionExperiment) -> Iterator[tuple[Op, Hypothesis]]:
    if experiment.target.size > _MAX_ELEMENTS:
        return
    for op in experiment.ops[-_MAX_OPS:]:
        output = experiment.output(op)
        if output is None:
            continue

        def rerun(changed: Mapping[Edge, Array], op: Op = op) -> Array | None:
            return experiment.op_again(op, changed)

        def run_to_region_end(value: Array, op: Op = op) -> Array | None:
            return experiment.replaced(op, value)

        is_last = op.key == experiment.ops[-1].key
        tested_op = OpUnderTest(
            op=op,
            kind=op_class(op.type),
            arguments=[None if a is None else _widen(a) for a in experiment.arguments(op)],
            output=output,
            rerun=rerun,
            target=experiment.target
            if is_last and experiment.target.shape == output.shape
            else None,
            index=experiment.region.outputs[0].index if is_last else 0,
            region_target=experiment.target,
            run_to_region_end=run_to_region_end,
            values={edge: _widen(value) for edge, value in experiment.values.items()},
            ops=experiment.ops,
            siblings=experiment.siblings,
            kept=experiment.kept if is_last and experiment.target.shape == output.shape else None,
        )
        for hypothesis in generate_variants(_narrow_kinds(tested_op)):
            check_time()
            # An unchanged output in the middle of a region changes nothing after it.
            if is_last or not np.array_equal(hypothesis.value, output, equal_nan=True):
                yield op, hypothesis


def _widen(array: Array) -> Array:
    """Convert floats to float64, including bfloat16, which is no NumPy float dtype."""
    return array.astype(np.float64) if from_numpy(array.dtype).kind is Kind.FLOAT else array


def _narrow_kinds(tested_op: OpUnderTest) -> OpUnderTest:
    """Restrict a large op to the kinds of variants that a sample does not rule out."""
    if tested_op.output.size < MIN_SCREENED_ELEMENTS:
        return tested_op
    reduced = reduce_op(tested_op)
    if reduced is None:
        multiplications = tested_op.output.size * max(
            (a.size for a in tested_op.arguments[1:] if a is not None), default=1
        )
        return replace(tested_op, is_expensive=multiplications > _MAX_MULTIPLICATIONS)
    assert reduced.target is not None
    reference_rms = rms(_finite(reduced.counted(reduced.target - reduced.output)))
    kinds = set()
    for hypothesis in generate_variants(reduced):
        check_time()
        if hypothesis.kind in GENERAL_KINDS:
            continue
        variant_rms = rms(_finite(reduced.counted(reduced.target - hypothesis.value)))
        if variant_rms < 0.7 * reference_rms:
            kinds.add(hypothesis.kind)
        if hypothesis.simplicity >= _MAX_SIMPLICITY and variant_rms < 1e-3 * reference_rms:
            # No later variant can rank higher.
            break
    narrowed = replace(tested_op, kinds=frozenset(kinds | GENERAL_KINDS))
    readings_of_op = list(readings(tested_op.op, tested_op.arguments))
    if len(readings_of_op) == 1:
        # The sample has proven this reading.
        narrowed.__dict__["bound"] = readings_of_op[0]
    return narrowed


def _finite(values: Array) -> Values:
    return np.asarray(np.nan_to_num(values, nan=np.inf), np.float64)


class VariantScorer:
    """Scores variants against the target; values that all variants share are computed once."""

    def __init__(self, experiment: RegionExperiment) -> None:
        truth = np.asarray(experiment.truth, np.float64)
        self._finite = experiment.without_masked(
            np.isfinite(experiment.target) & np.isfinite(truth)
        )
        self._is_all_finite = bool(self._finite.all())
        self._target = experiment.target
        self._truth = truth
        self._non_finite = _non_finite_values(experiment.target)
        self._has_other_non_finite = not np.array_equal(
            self._non_finite, _non_finite_values(truth), equal_nan=True
        )
        self._experiment = experiment
        noise = _rounding_noise(experiment, truth)
        self._noise = noise
        self._allowed = _MAX_RESIDUAL_NOISE_RATIO * max(
            experiment.noise, rms(experiment.counted(noise))
        )
        self._sample_indices = choose_sample_indices(
            np.where(self._finite, experiment.target - truth, 0.0).reshape(-1)
        )
        indices = self._sample_indices
        self._sampled_pair = (experiment.target.reshape(-1)[indices], truth.reshape(-1)[indices])

    def is_promising(self, value: Array) -> bool:
        """Whether a sample of elements does not rule the variant out."""
        if self._has_other_non_finite:
            return True
        target, truth = self._sampled_pair
        sampled = np.asarray(value, np.float64).reshape(-1)[self._sample_indices]
        is_finite = np.isfinite(target) & np.isfinite(truth)
        with np.errstate(all="ignore"):
            residual = np.square((target - sampled)[is_finite])
            error = np.square((target - truth)[is_finite])
        if not np.isfinite(residual).all():
            return not self._is_all_finite
        return bool(residual.sum() < 0.5 * error.sum())

    def score(self, op: Op, hypothesis: Hypothesis, value: Array) -> VariantMatch | None:
        """Score how well a variant explains the target; None if that cannot be computed or too
        few elements are evidence for it."""
        value = np.asarray(value, np.float64)
        if self._has_other_non_finite:
            # NaN or infinities differ: only a variant with the same ones explains them.
            return self._score_non_finite(op, hypothesis, value)
        finite = self._finite
        if not self._is_all_finite and not np.array_equal(
            np.isfinite(value), np.isfinite(self._target)
        ):
            finite = finite & np.isfinite(value)
        if not finite.any() or not np.isfinite(value[finite]).all():
            return None
        target, truth = self._target[finite], self._truth[finite]
        error, change = target - truth, value[finite] - truth
        reference_rms, variant_rms = rms(error), rms(error - change)
        noise = self._noise[finite]
        weights = 1 / np.square(noise)
        energy = float(np.sum(weights * np.square(change)))
        if (
            not energy
            or not reference_rms
            or not self._has_enough_evidence(hypothesis, change, noise)
        ):
            return None
        projection = float(np.sum(weights * error * change)) / energy
        sigmas = abs(projection) * float(np.sqrt(energy))
        is_complete = variant_rms <= self._allowed and variant_rms < reference_rms / 4
        share = (
            1 - (variant_rms / (min(reference_rms, float(np.std(target))) or reference_rms)) ** 2
        )
        return VariantMatch(
            op=op,
            hypothesis=hypothesis,
            reference_rms=reference_rms,
            variant_rms=variant_rms,
            projection=projection,
            sigmas=sigmas,
            is_complete=is_complete,
            share=share,
        )

    def _score_non_finite(
        self, op: Op, hypothesis: Hypothesis, value: Values
    ) -> VariantMatch | None:
        if not np.array_equal(_non_finite_values(value), self._non_finite, equal_nan=True):
            return None
        finite = self._experiment.without_masked(np.isfinite(value))
        variant_rms = rms((self._target - value)[finite])
        noise = rms(_rounding_noise(self._experiment, value)[finite])
        is_complete = bool(finite.any()) and variant_rms <= _MAX_RESIDUAL_NOISE_RATIO * max(
            self._experiment.noise, noise
        )
        return (
            VariantMatch(
                op=op,
                hypothesis=hypothesis,
                reference_rms=np.inf,
                variant_rms=variant_rms,
                projection=1.0,
                sigmas=0.0,
                is_complete=True,
                share=1.0,
            )
            if is_complete
            else None
        )

    def _has_enough_evidence(self, hypothesis: Hypothesis, change: Values, noise: Values) -> bool:
        """Whether the variant changes enough elements for each number that was fitted."""
        if hypothesis.subtle and not hypothesis.solved:
            return True
        moved = int(np.count_nonzero(np.abs(change) > 4 * noise))
        return moved >= (
            2 if not hypothesis.solved else _MIN_ELEMENTS_PER_NUMBER * (hypothesis.solved + 1)
        )


def _non_finite_values(values: Values) -> Values:
    """Return NaN and infinities as they are, 0 for finite values."""
    return np.where(np.isfinite(values), 0.0, values)


def _rounding_noise(experiment: RegionExperiment, truth: Values) -> Values:
    """Return how far rounding may move each element."""
    dtype = DTYPES[experiment.row.target.dtype]
    unit = dtype.unit if dtype.kind is Kind.FLOAT else 2.0**-24
    size = np.abs(np.where(np.isfinite(truth), truth, 0.0))
    least_noise = unit * rms(size) * 1e-2
    noise: Values = np.maximum(unit * size / np.sqrt(3), least_noise)
    return np.maximum(noise, np.finfo(np.float64).tiny ** 0.5)


def find_variant(case: Case, row: Row) -> tuple[VariantMatch | None, set[TensorKey]]:
    """Find the variant that explains a row best, and the earlier rows that it explains too: the
    steps of one computation may be matched with steps of another."""
    experiment = case.experiment(row)
    matches = find_matches(experiment) if experiment is not None else []
    declared = case.op("target", row.target.key.op)
    is_vague = not matches or matches[0].hypothesis.simplicity < 0
    if is_vague and experiment is not None and declared is not None:
        # Declared attributes are better evidence than fitted numbers.
        matches = find_declared_variant(experiment, declared) or matches
    if matches:
        return matches[0], set()
    wider_experiment = case.widen_experiment(row)
    wider_matches = find_matches(wider_experiment[0]) if wider_experiment is not None else []
    if wider_experiment is None or not wider_matches:
        return None, set()
    return replace(wider_matches[0], doubt=0.05), {r.target.key for r in wider_experiment[1]}
