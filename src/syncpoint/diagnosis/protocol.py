"""The interface of a cause (`Cause`), which looks at a case and yields findings; plugins implement
it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from syncpoint.comparison.findings import Finding

if TYPE_CHECKING:
    from syncpoint.diagnosis.case import Case

API = 1
"""Version of this protocol; a cause of another package declares the version it was written for."""


@runtime_checkable
class Cause(Protocol):
    """One class of causes: looks at a case and yields findings.

    It knows no model and no op by name: its rules hold for every model. It may ask the case for
    experiments, and lists in `Finding.missing` those that could not be run.
    """

    name: str
    """The name of the class, as in `Finding.cause`."""
    title: str
    """What goes wrong, for users."""

    def look(self, case: Case) -> Iterable[Finding]:
        """Yield findings; none if the case is not of this kind."""
