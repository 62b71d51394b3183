"""Which known variant of an op explains the target's numbers.

An error far above the rounding is explained by the variant that leaves nothing but rounding.
Below it the error is projected on (variant - reference), each element weighted by how little
rounding may move it: 1 means the target is the variant, 0 that it is the reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.local import Local
from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, Seen
from syncpoint.diagnosis.variants.registry import variants
from syncpoint.matching.kinds import op_class
from syncpoint.run.dtypes import DTYPES, Kind, from_numpy
from syncpoint.run.model import Edge, Op

Values = NDArray[np.float64]
_MOST_OPS = 12
"""Ops of a region that are varied; longer ones are whole models."""
_MOST_ELEMENTS = 1 << 22
_FLOOR = 4.0
"""So many times the allowed error may be left by a variant that explains everything."""
_SHARE = 0.98
"""So much of the error's energy a variant must explain where what is allowed is not known."""
_SIGMAS = 8.0


@dataclass(frozen=True)
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

    @property
    def share(self) -> float:
        """Of the error's energy."""
        return 1 - (self.after / self.before) ** 2 if self.before else 0.0

    @property
    def confidence(self) -> float:
        """How sure it is."""
        if self.whole:
            return 0.97
        return 0.92 if self.share >= 0.999 else 0.85


def explanations(local: Local) -> list[Explained]:
    """The variants that explain an error above the rounding, the best first."""
    found = []
    for op, hypothesis in _candidates(local):
        value = local.replaced(op, hypothesis.value)
        if value is None or value.shape != local.target.shape:
            continue
        scored = _scored(local, op, hypothesis, value)
        if scored is not None and (scored.whole or scored.share >= _SHARE):
            found.append(scored)
    return sorted(found, key=lambda e: (not e.whole, -e.hypothesis.simplicity, e.after))


def below_rounding(local: Local) -> list[Explained]:
    """The subtle variants that the error of an op, small as it is, points to."""
    found = []
    for op, hypothesis in _candidates(local):
        value = local.replaced(op, hypothesis.value) if hypothesis.subtle else None
        if value is None or value.shape != local.target.shape:
            continue
        scored = _scored(local, op, hypothesis, value)
        if scored is not None and abs(scored.projection - 1) < 0.15 and scored.sigmas > _SIGMAS:
            found.append(scored)
    return sorted(found, key=lambda e: -e.sigmas)


def _candidates(local: Local) -> Iterator[tuple[Op, Hypothesis]]:
    if local.target.size > _MOST_ELEMENTS:
        return
    for op in local.ops[-_MOST_OPS:]:
        output = local.output(op)
        if output is None:
            continue
        arguments = [None if a is None else _wide(a) for a in local.arguments(op)]

        def again(changed: Mapping[Edge, Array], op: Op = op) -> Array | None:
            return local.op_again(op, changed)

        def reach(value: Array, op: Op = op) -> Array | None:
            return local.replaced(op, value)

        seen = Seen(
            op,
            op_class(op.type),
            arguments,
            output,
            again,
            index=local.region.outputs[0].index if op is local.ops[-1] else 0,
            target=local.target,
            reach=reach,
            values={edge: _wide(value) for edge, value in local.values.items()},
            ops=local.ops,
            siblings=local.siblings,
        )
        for hypothesis in variants(seen):
            if not np.array_equal(hypothesis.value, output, equal_nan=True):
                yield op, hypothesis


def _wide(array: Array) -> Array:
    """In float64 where it is floating point; NumPy takes bfloat16 for no number at all."""
    return array.astype(np.float64) if from_numpy(array.dtype).kind is Kind.FLOAT else array


def _scored(local: Local, op: Op, hypothesis: Hypothesis, value: Array) -> Explained | None:
    target, truth = local.target, np.asarray(local.truth, np.float64)
    value = np.asarray(value, np.float64)
    finite = np.isfinite(target) & np.isfinite(truth)
    marked = _marks(target)
    if not np.array_equal(marked, _marks(truth), equal_nan=True):
        # Masks and overflows that are elsewhere: only what has them there too explains them.
        return _by_marks(local, op, hypothesis, value, marked)
    if not np.array_equal(np.isfinite(value), np.isfinite(target)) and not finite.all():
        finite &= np.isfinite(value)
    if not finite.any() or not np.isfinite(value[finite]).all():
        return None
    error, change = (target - truth)[finite], (value - truth)[finite]
    before, after = _rms(error), _rms(error - change)
    noise = _noise(local, truth)[finite]
    weights = 1 / np.square(noise)
    energy = float(np.sum(weights * np.square(change)))
    if not energy or not before:
        return None
    projection = float(np.sum(weights * error * change)) / energy
    sigmas = abs(projection) * float(np.sqrt(energy))
    allowed = _FLOOR * max(local.noise, float(np.sqrt(np.mean(np.square(noise)))))
    whole = after <= allowed and after < before / 4
    return Explained(op, hypothesis, before, after, projection, sigmas, whole)


def _marks(values: Values) -> Values:
    """NaN and infinities, 0 elsewhere."""
    return np.where(np.isfinite(values), 0.0, values)


def _by_marks(
    local: Local, op: Op, hypothesis: Hypothesis, value: Values, marked: Values
) -> Explained | None:
    if not np.array_equal(_marks(value), marked, equal_nan=True):
        return None
    finite = np.isfinite(value)
    after = _rms((local.target - value)[finite])
    noise = _rms(_noise(local, value)[finite])
    whole = bool(finite.any()) and after <= _FLOOR * max(local.noise, noise)
    return Explained(op, hypothesis, np.inf, after, 1.0, 0.0, True) if whole else None


def _noise(local: Local, truth: Values) -> Values:
    """How far rounding may move each element."""
    dtype = DTYPES[local.row.target.dtype]
    unit = dtype.unit if dtype.kind is Kind.FLOAT else 2.0**-24
    size = np.abs(np.where(np.isfinite(truth), truth, 0.0))
    least = unit * float(np.sqrt(np.mean(np.square(size)))) * 1e-2
    found: Values = np.maximum(unit * size / np.sqrt(3), least)
    return np.maximum(found, np.finfo(np.float64).tiny ** 0.5)


def _rms(values: Values) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0
