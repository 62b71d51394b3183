"""A third run between target and reference: how much of an error is compression, how much runtime.

The run in between holds the compressed model as another engine executes it, such as the quantized
program in PyTorch. Through against reference is then what compressing cost, target against through
what the runtime adds. Both are measured as any comparison is and joined at the reference's tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.run.model import TensorKey

_MIN_FACTOR = 2.0
"""By this factor one part must exceed the other to be called the greater."""


@dataclass(frozen=True, kw_only=True)
class ErrorParts:
    """One sync point, its error in two parts. The two need not add up: they may cancel."""

    target: str
    reference: str
    through: str
    """The tensor of the run in between; "" where it has none."""
    output: bool
    total: float | None
    """Root mean square errors: target against reference,"""
    compression: float | None
    """through against reference,"""
    runtime: float | None
    """and target against through. None where it is not known."""

    @property
    def mostly(self) -> str:
        """`compression`, `runtime`, `both`, `equal` where nothing is off, or "" if unknown."""
        if self.compression is None or self.runtime is None:
            return ""
        if not self.compression and not self.runtime:
            return "equal"
        if self.compression >= _MIN_FACTOR * self.runtime:
            return "compression"
        return "runtime" if self.runtime >= _MIN_FACTOR * self.compression else "both"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**self.__dict__, "mostly": self.mostly or None}


@dataclass(frozen=True)
class ErrorSplit:
    """What a run in between says of every sync point."""

    label: str
    parts: tuple[ErrorParts, ...]
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "run": self.label,
            "warnings": list(self.warnings),
            "sync_points": [part.as_dict() for part in self.parts],
        }

    @classmethod
    def of_dict(cls, said: dict[str, Any]) -> ErrorSplit:
        """Back from `as_dict`."""
        parts = [{k: v for k, v in p.items() if k != "mostly"} for p in said["sync_points"]]
        return cls(said["run"], tuple(ErrorParts(**p) for p in parts), tuple(said["warnings"]))


def split_errors(label: str, total: Result, runtime: Result, compression: Result) -> ErrorSplit:
    """Join target-reference, target-through and through-reference at the reference's tensor."""
    by_reference = {row.reference.key: row for row in compression.rows}
    by_pair: dict[tuple[TensorKey, TensorKey], Row] = {
        (row.target.key, row.reference.key): row for row in runtime.rows
    }
    parts = []
    for row in total.rows:
        middle = by_reference.get(row.reference.key)
        last = by_pair.get((row.target.key, middle.target.key)) if middle else None
        parts.append(
            ErrorParts(
                target=row.target.label,
                reference=row.reference.label,
                through=middle.target.label if middle else "",
                output=row.output,
                total=_rmse(row),
                compression=_rmse(middle),
                runtime=_rmse(last),
            )
        )
    warnings = [
        f"{side} and the run in between were given different inputs: its split means nothing"
        for side, found in (("the target", runtime), ("the reference", compression))
        if found.inputs_differ
    ]
    return ErrorSplit(label, tuple(parts), tuple(warnings))


def _rmse(row: Row | None) -> float | None:
    """Unknown also where something is non-finite on one side only: the finite rest is no
    measure of that."""
    if row is None or row.numbers is None or row.basis != "values" or row.numbers["mismatched"]:
        return None
    found = row.numbers["rmse"]
    return None if found is None else float(found)
