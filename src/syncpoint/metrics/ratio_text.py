"""Format the ratio of introduced to expected error, the same in every report."""

from __future__ import annotations

from math import inf


def ratio_text(ratio: float | None) -> str:
    """Introduced / expected error as text; `times` in numbers.ts formats it the same way."""
    if ratio is None:
        return "–"
    if ratio == inf:
        return "∞×"
    if ratio == 0:
        return "0"
    if round(ratio, 1) < 100:
        return f"{ratio:.1f}×"
    if round(ratio) < 1e6:
        return f"{ratio:,.0f}×"
    return f"{ratio:.0e}×".replace("e+0", "e").replace("e+", "e")
