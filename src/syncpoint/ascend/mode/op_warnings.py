"""Warnings that name the ops they are about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_MAX_LISTED = 5
"""Names in a warning before it says how many more."""


def warn_of_ops(statement: str, names: Iterable[str]) -> Iterator[str]:
    """One warning on the named ops, with the first names; none if there are no names."""
    unique = list(dict.fromkeys(name for name in names if name))
    if unique:
        remaining = len(unique) - _MAX_LISTED
        more = f" and {remaining} more" if remaining > 0 else ""
        yield f"{len(unique)} ops {statement}: {', '.join(unique[:_MAX_LISTED])}{more}"
