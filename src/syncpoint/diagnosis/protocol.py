"""What every cause offers: the seam between a comparison and its explanation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from syncpoint.comparison.findings import Finding

if TYPE_CHECKING:
    from syncpoint.diagnosis.case import Case

API = 1
"""Version of this protocol; a cause from elsewhere declares the one it was written for."""


@runtime_checkable
class Cause(Protocol):
    """A class of causes: looks at a case and says what it finds.

    Names no model and no op by name: what it knows holds for every model. It may ask the case
    for experiments, and names in `Finding.missing` those that could not be run.
    """

    name: str
    """The class, as `Finding.cause` has it."""
    title: str
    """For people: what goes wrong."""

    def look(self, case: Case) -> Iterable[Finding]:
        """The findings; none where the case is not one of its kind."""
