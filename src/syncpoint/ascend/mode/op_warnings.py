"""Warnings that name the ops they are about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_MAX_LISTED = 5
"""Names in a warning before it says how many more."""


def warn_of_ops(what: str, names: Iterable[str]) -> Iterator[str]:
    """A warning that says this of all named ops and names the first; none without a name."""
    unique = list(dict.fromkeys(name for name in names if name))
    if unique:
        rest = len(unique) - _MAX_LISTED
        more = f" and {rest} more" if rest > 0 else ""
        yield f"{len(unique)} ops {what}: {', '.join(unique[:_MAX_LISTED])}{more}"
