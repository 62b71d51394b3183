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
        "capture": "syncpoint.diagnosis.findings_by_cause.capture:Capture",
        "processing": "syncpoint.diagnosis.findings_by_cause.processing:Processing",
        "weights": "syncpoint.diagnosis.findings_by_cause.weights:Weights",
        "environment": "syncpoint.diagnosis.findings_by_cause.environment:Environment",
        "memory": "syncpoint.diagnosis.findings_by_cause.memory:Memory",
        "overflow": "syncpoint.diagnosis.findings_by_cause.overflow:Overflow",
        "fusion": "syncpoint.diagnosis.findings_by_cause.fusion:Fusion",
        "precision": "syncpoint.diagnosis.findings_by_cause.precision:Precision",
        "implementation": "syncpoint.diagnosis.findings_by_cause.implementation:Implementation",
        "accumulation": "syncpoint.diagnosis.findings_by_cause.accumulation:Accumulation",
        "nondeterminism": "syncpoint.diagnosis.findings_by_cause.nondeterminism:Nondeterminism",
    },
)
"""In this order: what makes the comparison itself doubtful first, then what the runs were given,
then what they did. Those that come later see what was found before."""


def causes() -> Iterator[Cause]:
    """All causes; those of other packages after ours."""
    yield from CAUSES.built_in_members()
    yield from CAUSES.plugins()
