"""The list of causes: the built-in ones in order, then those of plugins.

A package adds a cause with an entry point in the group `syncpoint.causes`. It names a class or an
object with the attributes of `Cause`, among them `API = 1`.
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
"""In this order: doubts about the comparison itself, then the inputs of the runs, then what they
computed. Later causes see the findings of earlier ones."""


def causes() -> Iterator[Cause]:
    """Yield all causes, the built-in ones first."""
    yield from CAUSES.built_in_members()
    yield from CAUSES.plugins()
