"""Lines that say how much of each error is compression and how much runtime."""

from __future__ import annotations

from syncpoint.comparison.error_split import ErrorSplit

_SHARE_WORDS = {
    "compression": "mostly compression",
    "runtime": "mostly runtime",
    "both": "both",
    "equal": "equal",
}


def error_split_lines(error_split: ErrorSplit) -> list[str]:
    """The number of sync points by the greater part of their error, then every model output."""
    split_parts = [part for part in error_split.parts if part.mostly]
    counts = [
        f"{sum(part.mostly == name for part in split_parts)} {words}"
        for name, words in _SHARE_WORDS.items()
    ]
    lines = [
        f"through {error_split.label}: {len(split_parts)} of {len(error_split.parts)} sync points"
        f" split: {', '.join(counts)}"
    ]
    for part in error_split.parts:
        if part.output:
            lines.append(
                f"  {part.target}: rmse {_rmse_text(part.total)}, of compression"
                f" {_rmse_text(part.compression)}, of the runtime {_rmse_text(part.runtime)}"
            )
    return [*lines, *(f"  {warning}" for warning in error_split.warnings)]


def _rmse_text(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"
