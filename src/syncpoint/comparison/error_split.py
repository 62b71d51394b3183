"""Split each error by a third run into the part of the compression and the part of the runtime;
RMSE of a row; as JSON.

The third run is the compressed model in another engine, such as the quantized program in PyTorch.
Third run against reference is the error of the compression; target against third run is the error
of the runtime. Both are ordinary comparisons, joined at the tensor of the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.run.model import TensorKey

_MIN_FACTOR = 2.0
"""Minimum factor by which one part must exceed the other to count as the larger."""


@dataclass(frozen=True, kw_only=True)
class ErrorParts:
    """The error of one sync point in two parts, which may cancel each other."""

    target: str
    reference: str
    through: str
    """The tensor of the third run; "" where it has none."""
    output: bool
    total: float | None
    """RMSE of target against reference; None where it is unknown."""
    compression: float | None
    """RMSE of third run against reference."""
    runtime: float | None
    """RMSE of target against third run."""

    @property
    def mostly(self) -> str:
        """The larger part: `compression`, `runtime`, `both`, `equal` (no error), "" (unknown)."""
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
    """The split of every sync point by a third run."""

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
    def of_dict(cls, document: dict[str, Any]) -> ErrorSplit:
        """Back from `as_dict`."""
        parts = [{k: v for k, v in p.items() if k != "mostly"} for p in document["sync_points"]]
        return cls(
            document["run"], tuple(ErrorParts(**p) for p in parts), tuple(document["warnings"])
        )


def split_errors(label: str, total: Result, runtime: Result, compression: Result) -> ErrorSplit:
    """Join the three comparisons at the tensors of the reference."""
    by_reference = {row.reference.key: row for row in compression.rows}
    by_pair: dict[tuple[TensorKey, TensorKey], Row] = {
        (row.target.key, row.reference.key): row for row in runtime.rows
    }
    parts = []
    for row in total.rows:
        compression_row = by_reference.get(row.reference.key)
        runtime_row = (
            by_pair.get((row.target.key, compression_row.target.key)) if compression_row else None
        )
        parts.append(
            ErrorParts(
                target=row.target.label,
                reference=row.reference.label,
                through=compression_row.target.label if compression_row else "",
                output=row.output,
                total=_rmse(row),
                compression=_rmse(compression_row),
                runtime=_rmse(runtime_row),
            )
        )
    warnings = [
        f"{side} and the third run have different inputs, so the split is meaningless"
        for side, partial_comparison in (("the target", runtime), ("the reference", compression))
        if partial_comparison.inputs_differ
    ]
    return ErrorSplit(label, tuple(parts), tuple(warnings))


def _rmse(row: Row | None) -> float | None:
    """The RMSE of a row; None also where values are non-finite on one side only."""
    if row is None or row.numbers is None or row.basis != "values" or row.numbers["mismatched"]:
        return None
    rmse = row.numbers["rmse"]
    return None if rmse is None else float(rmse)
