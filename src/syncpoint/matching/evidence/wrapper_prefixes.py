"""Models that stand inside another one on one side only: `module.layers.0` is `layers.0`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

_FEW = 3
"""Names that must agree, at least."""
_SHARE = 0.5
"""And this share of those of the side without a wrapper."""
_MORE = 0.1
"""This share of the names of the side with the wrapper, or two, may be the wrapper's own."""


def unwrapped(mine: Collection[str], theirs: Collection[str], bare: bool = True) -> dict[str, str]:
    """The target's names with what the reference calls them, if one side has a prefix that the
    other has not; empty where names agree as they are.

    Either every name of the side without is there behind the prefix and little else beside it, or
    all names have the prefix. Where neither holds, layers were put into groups, and those of a
    group have numbers that others have in the whole. Names without a dot are no sign of that where
    they are not `bare`: constants have such.
    """
    mine, theirs = set(mine) - {""}, set(theirs) - {""}
    prefix = _wrapper(mine, theirs, bare)
    if prefix:
        return {n: n.removeprefix(prefix) for n in mine if n.removeprefix(prefix) in theirs}
    prefix = _wrapper(theirs, mine, bare)
    return {n: f"{prefix}{n}" for n in mine if f"{prefix}{n}" in theirs} if prefix else {}


def _wrapper(long: set[str], short: set[str], bare: bool) -> str:
    """The prefix of a wrapper that the long names have; "" where there is none."""
    prefix, count = _prefix(long, short)
    if count < max(_FEW, _SHARE * len(short), len(long & short) + 1):
        return ""
    own = sum(not n.startswith(prefix) and (bare or "." in n) for n in long)
    few = own <= max(2, _MORE * len(long))
    return prefix if not own or (few and count == len(short)) else ""


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
