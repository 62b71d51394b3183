"""Regular expressions that users write, in Python's syntax and with an end.

Python's own engine can take longer than the universe on `(a|aa)+$` and cannot be stopped. The
syntax is checked by it, so that what is accepted and what it means stay Python's; the matching is
done by the package `regex`, which gives up after a while (docs/decisions/0014).
"""

from __future__ import annotations

import re
import time
import warnings
from typing import Any

from syncpoint.errors import InputError

MAX_SECONDS = 5.0
"""Processor time that one expression may take, over all the names it is held against."""
_LONGEST = 10_000
"""Characters of an expression."""
_LITERAL_BRACE = re.compile(r"(\\.)|\{(?!\d*,?\d*\})", re.S)


class Pattern:
    """One regular expression and what is left of its time."""

    def __init__(self, pattern: str, where: str) -> None:
        """Raises InputError where `pattern`, which stands in `where`, is none."""
        self.pattern = pattern
        self._where = where
        self._seconds = MAX_SECONDS
        self._compiled = _compiled(pattern, where)

    def fullmatch(self, text: str) -> Any:
        """The match of the whole text, or None."""
        return self._matched(self._compiled.fullmatch, text)

    def search(self, text: str) -> Any:
        """The first match in the text, or None."""
        return self._matched(self._compiled.search, text)

    def expand(self, match: Any, template: str) -> str:
        """`template` with the groups of a match in it, as `\\1`."""
        import regex

        try:
            return str(match.expand(template))
        except (regex.error, IndexError) as error:
            groups = f"groups of {self.pattern!r} in {self._where}"
            raise InputError(groups, f"{template!r}: {error}") from error

    def _matched(self, match: Any, text: str) -> Any:
        began = time.thread_time()
        try:
            found = match(text, timeout=max(self._seconds, 1e-3))
        except TimeoutError:
            raise InputError(
                f"a regular expression in {self._where} that is decided in {MAX_SECONDS:g} seconds",
                f"{self.pattern!r}, which is not",
                "avoid repeats inside repeats such as (a+)+ and alternatives that overlap",
            ) from None
        self._seconds -= time.thread_time() - began
        return found


def _compiled(pattern: str, where: str) -> Any:
    import regex

    if len(pattern) > _LONGEST:
        raise InputError(f"at most {_LONGEST} characters of an expression in {where}", "more")
    try:
        with warnings.catch_warnings():
            # What another version of Python may read otherwise.
            warnings.simplefilter("error", FutureWarning)
            re.compile(pattern)
        # To Python a brace that begins no repeat is a brace; to `regex` it may mean more.
        return regex.compile(_LITERAL_BRACE.sub(lambda m: m[1] or r"\{", pattern))
    except (re.error, regex.error, OverflowError, FutureWarning) as error:
        found = f"{pattern!r}: {error}"
        raise InputError(f"a regular expression in {where}", found) from error
    except RecursionError as error:
        found = f"{pattern[:40]!r}, nested too deep"
        raise InputError(f"a regular expression in {where}", found) from error
