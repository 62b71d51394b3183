"""Models that stand inside another one on one side only: `module.layers.0` is `layers.0`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

_FEW = 3
"""Names that must agree, at least."""
_SHARE = 0.5
"""And this share of the side that has fewer."""


def unwrapped(mine: Collection[str], theirs: Collection[str]) -> dict[str, str]:
    """The target's names with what the reference calls them, if one side has a prefix that the
    other has not. Empty where names agree as they are, or where too few agree without it."""
    mine, theirs = set(mine) - {""}, set(theirs) - {""}
    least = max(_FEW, _SHARE * min(len(mine), len(theirs)), len(mine & theirs) + 1)
    outer, inner = _prefix(mine, theirs), _prefix(theirs, mine)
    if outer[1] >= max(least, inner[1]):
        return {n: n.removeprefix(outer[0]) for n in mine if n.startswith(outer[0])}
    if inner[1] >= least:
        return {n: f"{inner[0]}{n}" for n in mine if f"{inner[0]}{n}" in theirs}
    return {}


def _prefix(long: Collection[str], short: Collection[str]) -> tuple[str, int]:
    """The prefix, dots included, by which most of the long names are short ones, and how many;
    none where two do so: a net that stands in another twice is none of the two for sure."""
    found: Counter[str] = Counter()
    for name in long:
        at = name.find(".")
        while at >= 0:
            if name[at + 1 :] in short:
                found[name[: at + 1]] += 1
            at = name.find(".", at + 1)
    first, second = [*found.most_common(2), ("", 0), ("", 0)][:2]
    return first if first[1] > second[1] else ("", 0)
