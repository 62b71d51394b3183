"""Regular expressions that users write (fullmatch, search, replace), in Python's syntax and with a
time limit over all calls.

Python's own engine can take practically forever on `(a|aa)+$` and cannot be stopped. It checks the
syntax, so that the accepted expressions and their meaning are Python's; the package `regex`, which
has timeouts, does the matching (docs/decisions/0014).
"""

from __future__ import annotations

import re
import time
import warnings
from typing import Any

from syncpoint.errors import InputError

MAX_SECONDS = 5.0
"""Processor time that one expression may take in total, over all names it is matched with."""
_MAX_PATTERN_CHARS = 10_000
_LITERAL_BRACE = re.compile(r"(\\.)|\{(?!\d*,?\d*\})", re.S)


class Pattern:
    """One regular expression and its remaining time."""

    def __init__(self, pattern: str, where: str) -> None:
        """Raises InputError if `pattern` is invalid; `where` names its option or file."""
        self.pattern = pattern
        self._where = where
        self._seconds = MAX_SECONDS
        self._compiled = _compile(pattern, where)

    def fullmatch(self, text: str) -> Any:
        """The match of the whole text, or None."""
        return self._match_in_time(self._compiled.fullmatch, text)

    def search(self, text: str) -> Any:
        """The first match in the text, or None."""
        return self._match_in_time(self._compiled.search, text)

    def expand(self, match: Any, template: str) -> str:
        """Replace `\\1` and the like in `template` by the groups of a match."""
        import regex

        try:
            return str(match.expand(template))
        except IndexError as error:
            raise InputError(
                f"the replacement {template!r} in {self._where} uses a group that its regular"
                f" expression {self.pattern!r} does not have: {error}",
                cure="use only groups that the expression has",
            ) from error
        except regex.error as error:
            raise InputError(
                f"the replacement {template!r} in {self._where} is not valid: {error}",
                cure=r"refer to a group as \1 or \g<name>; write a literal backslash as \\",
            ) from error

    def _match_in_time(self, match: Any, text: str) -> Any:
        began = time.thread_time()
        try:
            hit = match(text, timeout=max(self._seconds, 1e-3))
        except TimeoutError:
            raise InputError(
                f"the regular expression {self.pattern!r} in {self._where} "
                f"takes more than {MAX_SECONDS:g} seconds",
                cure="avoid repeats inside repeats such as (a+)+ and alternatives that overlap",
            ) from None
        self._seconds -= time.thread_time() - began
        return hit


def _compile(pattern: str, where: str) -> Any:
    import regex

    if len(pattern) > _MAX_PATTERN_CHARS:
        raise InputError(
            f"the regular expression in {where} has more than {_MAX_PATTERN_CHARS} characters",
            cure="use a shorter one",
        )
    try:
        with warnings.catch_warnings():
            # Raised for syntax whose meaning may change in later versions of Python.
            warnings.simplefilter("error", FutureWarning)
            re.compile(pattern)
        # In Python a brace that begins no repeat is a literal; in `regex` it may mean more.
        return regex.compile(_LITERAL_BRACE.sub(lambda m: m[1] or r"\{", pattern))
    except (re.error, regex.error, OverflowError, FutureWarning) as error:
        raise InputError(
            f"{pattern!r} in {where} is not a valid regular expression: {error}",
            cure="correct the expression; put a backslash before special characters",
        ) from error
    except RecursionError as error:
        raise InputError(
            f"{pattern[:40]!r} in {where} is not a valid regular expression: nested too deep",
            cure="use a simpler expression",
        ) from error
