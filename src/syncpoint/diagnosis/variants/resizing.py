"""Resizing: coordinates, rounding, the cubic's coefficient, antialiasing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from syncpoint.diagnosis.numpy_ops.resizing import COORDINATES, ROUNDINGS, resized
from syncpoint.diagnosis.variants.protocol import Hypothesis, Seen

_KINDS = {"nearest": "nearest-neighbor", "linear": "linear", "cubic": "cubic"}
Settings = Mapping[str, Any]
Change = tuple[str, str, int, Settings]
"""Kind, text and simplicity of a variant, and the settings that it changes."""


def resizes(seen: Seen) -> Iterable[Hypothesis]:
    """For ops that resize images."""
    bound = seen.bound if "upsample" in seen.op.type or "Resize" in seen.op.type else None
    if bound is None or bound.function is not resized:
        return
    for kind, text, simplicity, changed in _changes(bound.settings):
        value = seen.changed(**changed) if seen.wants(kind) else None
        if value is not None:
            yield Hypothesis(kind, text, value, simplicity=simplicity)


def _changes(own: Settings) -> Iterator[Change]:
    """Other settings of a resize."""
    for coordinates in COORDINATES:
        if coordinates != own["coordinates"]:
            text = f"uses {coordinates} coordinates instead of {own['coordinates']}"
            yield "resize-coordinates", text, 2, {"coordinates": coordinates}
        if own["kind"] == "nearest":
            yield from _roundings(own, coordinates)
    if own["kind"] == "cubic":
        for a in (-0.5, -0.75, -1.0):
            if a != own.get("cubic"):
                text = f"uses cubic coefficient {a} instead of {own.get('cubic')}"
                yield "resize-cubic", text, 2, {"cubic": a}
    if own["kind"] != "nearest":
        text = (
            "does not antialias; the reference does"
            if own.get("antialias")
            else "antialiases; the reference does not"
        )
        yield "resize-antialias", text, 2, {"antialias": not own.get("antialias")}
    for kind, text in _KINDS.items():
        if kind != own["kind"]:
            for coordinates in COORDINATES[:3]:
                changed = {"kind": kind, "coordinates": coordinates}
                said = f"uses {text} interpolation ({coordinates}) instead of {_KINDS[own['kind']]}"
                yield "resize-kind", said, 1, changed


def _roundings(own: Settings, coordinates: str) -> Iterator[Change]:
    """Other ways to round to the nearest element; with other coordinates they are less simple."""
    simplicity = 2 if coordinates == own["coordinates"] else 1
    for rounding in ROUNDINGS:
        if rounding != own.get("rounding"):
            changed = {"coordinates": coordinates, "rounding": rounding}
            text = (
                f"rounds {coordinates} coordinates with {rounding} instead of {own.get('rounding')}"
            )
            yield "resize-rounding", text, simplicity, changed
