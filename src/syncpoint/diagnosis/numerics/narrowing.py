"""An op that computes in fewer bits than its type says: whether rounding what it reads, or what
it gives, yields the target's very numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Edge, Role
from syncpoint.run.statistics import finite_rms

Array = NDArray[Any]
_TYPES = ("f16", "bf16")


@dataclass(frozen=True, kw_only=True)
class Narrowed:
    """A type in which an op seems to compute."""

    dtype: str
    where: str
    """What is rounded, in words."""
    error: float
    left: float
    """What of the error rounding does not reproduce."""
    all_representable: bool
    """Every value that the op gives is a number of that type."""
    size: float
    """Error over what rounding to that type makes."""

    @property
    def reproduces(self) -> bool:
        """Whether rounding gives most of the target's very error."""
        return self.left <= 0.5 * self.error

    @property
    def explains(self) -> bool:
        """Whether the type is to blame: the very error, or its size and its numbers."""
        return self.reproduces or (self.all_representable and 1 / 8 <= self.size <= 8)


def narrowed(experiment: RegionExperiment) -> Narrowed | None:
    """The type and the place that explain the op's error best."""
    if experiment.row.target.dtype not in ("f32", "f64") or experiment.truth.dtype.kind != "f":
        return None
    if not np.isfinite(experiment.target).all() or not np.isfinite(experiment.truth).all():
        return None
    error = finite_rms(experiment.counted(experiment.error))
    if not error:
        return None
    found = [one for dtype in _TYPES for one in _tried(experiment, dtype, error) if one.explains]
    return min(found, key=lambda one: one.left, default=None)


def _tried(experiment: RegionExperiment, dtype: str, error: float) -> list[Narrowed]:
    kind = DTYPES[dtype].numpy
    with np.errstate(over="ignore", invalid="ignore"):
        held = experiment.target.astype(kind).astype(np.float64)
        rounded = {e: _round(v, kind) for e, v in experiment.inputs.items() if v.dtype.kind == "f"}
    held, target = experiment.counted(held), experiment.counted(experiment.target)
    every = bool(np.array_equal(held, target, equal_nan=True)) and bool(target.any())
    # Whole numbers and zeros are numbers of every type.
    plain = experiment.counted(experiment.truth).astype(np.float32).astype(np.float64)
    telling = bool(np.any(_round(plain, kind) != plain))
    values = {e: v for e, v in rounded.items() if e.role is not Role.PARAMETER}
    weights = {e: v for e, v in rounded.items() if e.role is Role.PARAMETER}
    out = []
    for where, changed in (
        ("what it reads", rounded),
        ("its inputs", values),
        ("its weights", weights),
        ("its result", {}),
    ):
        made = _made(experiment, changed)
        for after in (False, True) if changed else (True,):
            if made is None:
                continue
            final = _round(made, kind) if after else made
            both = after and bool(changed)
            simulated = finite_rms(experiment.counted(final - experiment.truth))
            size = error / simulated if simulated else np.inf
            out.append(
                Narrowed(
                    dtype=dtype,
                    where=f"{where} and its result" if both else where,
                    error=error,
                    left=finite_rms(experiment.counted(experiment.target - final)),
                    all_representable=every and telling,
                    size=size,
                )
            )
    return out


def _made(experiment: RegionExperiment, changed: dict[Edge, Array]) -> Array | None:
    if not changed:
        return experiment.truth
    made = experiment.run_with(changed)
    return made if made is not None and made.shape == experiment.truth.shape else None


def _round(value: Array, kind: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return value.astype(kind).astype(value.dtype)
