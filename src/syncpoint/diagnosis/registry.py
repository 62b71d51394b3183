"""The causes there are: ours, and those that other packages bring by an entry point.

A package adds one with an entry point in the group `syncpoint.causes` that names a class, or an
object, with the attributes of `Cause`, among them `API = 1`.
"""

from __future__ import annotations

from collections.abc import Iterator

from syncpoint.diagnosis.protocol import API, Cause
from syncpoint.plugins import Seam

CAUSES: Seam[Cause] = Seam(
    "syncpoint.causes",
    "cause",
    Cause,
    API,
    {
        "capture": "syncpoint.diagnosis.causes.capture:Capture",
        "processing": "syncpoint.diagnosis.causes.processing:Processing",
        "weights": "syncpoint.diagnosis.causes.weights:Weights",
        "environment": "syncpoint.diagnosis.causes.environment:Environment",
        "memory": "syncpoint.diagnosis.causes.memory:Memory",
        "overflow": "syncpoint.diagnosis.causes.overflow:Overflow",
        "fusion": "syncpoint.diagnosis.causes.fusion:Fusion",
        "precision": "syncpoint.diagnosis.causes.precision:Precision",
        "implementation": "syncpoint.diagnosis.causes.implementation:Implementation",
        "accumulation": "syncpoint.diagnosis.causes.accumulation:Accumulation",
        "nondeterminism": "syncpoint.diagnosis.causes.nondeterminism:Nondeterminism",
    },
)
"""In this order: what makes the comparison itself doubtful first, then what the runs were given,
then what they did. Those that come later see what was found before."""


def causes() -> Iterator[Cause]:
    """All causes; those of other packages after ours."""
    yield from CAUSES.built_in_members()
    yield from CAUSES.plugins()
