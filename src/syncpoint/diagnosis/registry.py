"""The causes there are: ours, and those that other packages bring by an entry point.

A package adds one with an entry point in the group `syncpoint.causes` that names a class, or an
object, with the attributes of `Cause`, among them `API = 1`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from syncpoint.diagnosis.protocol import API, Cause
from syncpoint.errors import SyncpointWarning
from syncpoint.run.files import one_line

GROUP = "syncpoint.causes"
_BUILT_IN = (
    "syncpoint.diagnosis.causes.capture:Capture",
    "syncpoint.diagnosis.causes.processing:Processing",
    "syncpoint.diagnosis.causes.weights:Weights",
    "syncpoint.diagnosis.causes.environment:Environment",
    "syncpoint.diagnosis.causes.memory:Memory",
    "syncpoint.diagnosis.causes.overflow:Overflow",
    "syncpoint.diagnosis.causes.fusion:Fusion",
    "syncpoint.diagnosis.causes.precision:Precision",
    "syncpoint.diagnosis.causes.implementation:Implementation",
    "syncpoint.diagnosis.causes.accumulation:Accumulation",
    "syncpoint.diagnosis.causes.nondeterminism:Nondeterminism",
)
"""In this order: what makes the comparison itself doubtful first, then what the runs were given,
then what they did. Those that come later see what was found before."""


def causes() -> Iterator[Cause]:
    """All causes; those of other packages after ours."""
    for place in _BUILT_IN:
        yield _built_in(place)
    yield from foreign()


@cache
def _built_in(place: str) -> Cause:
    module, _, name = place.partition(":")
    made: Cause = getattr(import_module(module), name)()
    return made


@cache
def foreign() -> tuple[Cause, ...]:
    """Causes of other packages; one that cannot be loaded is a warning."""
    found = []
    for entry in entry_points(group=GROUP):
        try:
            loaded: Any = entry.load()
            made = loaded() if isinstance(loaded, type) else loaded
            if getattr(made, "API", None) != API:
                raise TypeError(f"API is {getattr(made, 'API', None)!r}, wanted {API}")
            if not isinstance(made, Cause):
                raise TypeError("not a cause")
        except Exception as error:
            text = f"cause {entry.name} is left out: {one_line(error)}"
            warnings.warn(text, SyncpointWarning, stacklevel=2)
            continue
        found.append(made)
    return tuple(found)
