"""Map names when one side wraps the model in another module: `module.layers.0` is `layers.0`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

_MIN_NAMES = 3
"""Minimum number of names that must agree behind the prefix."""
_MIN_SHARE = 0.5
"""Minimum share of the names of the side without the wrapper that must agree."""
_MAX_OWN_SHARE = 0.1
"""This share of the names of the wrapped side, or two names, may belong to the wrapper itself."""


def unwrap_names(
    target: Collection[str], reference: Collection[str], bare: bool = True
) -> dict[str, str]:
    """Map names of the target to names of the reference if one side has a prefix that the other
    lacks; empty if the names agree without that.

    Either every name of the unwrapped side exists behind the prefix with few other names, or all
    names have the prefix. If neither holds, layers were put into groups, and their numbers count
    within the group. With `bare=False`, names without a dot are ignored in this check, since
    constants have such names.
    """
    target_names, reference_names = set(target) - {""}, set(reference) - {""}
    prefix = _find_wrapper_prefix(target_names, reference_names, bare)
    if prefix:
        inner = {name: name.removeprefix(prefix) for name in target_names}
    else:
        prefix = _find_wrapper_prefix(reference_names, target_names, bare)
        inner = {name: f"{prefix}{name}" for name in target_names} if prefix else {}
    return {name: other for name, other in inner.items() if other in reference_names}


def _find_wrapper_prefix(long: set[str], short: set[str], bare: bool) -> str:
    """The prefix of a wrapper that the long names have; "" if there is none."""
    prefix, count = _most_common_prefix(long, short)
    if count < max(_MIN_NAMES, _MIN_SHARE * len(short), len(long & short) + 1):
        return ""
    own_count = sum(not n.startswith(prefix) and (bare or "." in n) for n in long)
    has_few_own = own_count <= max(2, _MAX_OWN_SHARE * len(long))
    return prefix if not own_count or (has_few_own and count == len(short)) else ""


def _most_common_prefix(long: Collection[str], short: Collection[str]) -> tuple[str, int]:
    """The prefix, with its dot, behind which most long names are short names, and their number;
    "" if two prefixes tie: a net that is used twice inside another is ambiguous."""
    prefixes: Counter[str] = Counter()
    for name in long:
        dot = name.find(".")
        while dot >= 0:
            if name[dot + 1 :] in short:
                prefixes[name[: dot + 1]] += 1
            dot = name.find(".", dot + 1)
    first, second = [*prefixes.most_common(2), ("", 0), ("", 0)][:2]
    return first if first[1] > second[1] else ("", 0)
