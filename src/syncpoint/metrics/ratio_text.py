"""How many times as much, in words that are the same wherever a ratio is told."""

from __future__ import annotations

from math import inf


def ratio_text(ratio: float | None) -> str:
    """Introduced over expected error; the page writes it the same way (`times` in numbers.ts)."""
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
