"""Resizing: coordinates, rounding, the cubic's coefficient, antialiasing."""

from __future__ import annotations

from collections.abc import Iterable

from syncpoint.diagnosis.numpy_ops.resizing import COORDINATES, ROUNDINGS, resized
from syncpoint.diagnosis.variants.protocol import Hypothesis, Seen

_KINDS = {"nearest": "the nearest element", "linear": "linear interpolation", "cubic": "cubic"}


def resizes(seen: Seen) -> Iterable[Hypothesis]:
    """For ops that resize images."""
    bound = seen.bound if "upsample" in seen.op.type or "Resize" in seen.op.type else None
    if bound is None or bound.function is not resized:
        return
    own = bound.settings

    def tried(kind: str, text: str, simplicity: int, /, **changed: object) -> Iterable[Hypothesis]:
        value = seen.changed(**changed) if seen.wants(kind) else None
        if value is not None:
            yield Hypothesis(kind, text, value, simplicity=simplicity)

    for coordinates in COORDINATES:
        if coordinates != own["coordinates"]:
            text = f"{coordinates} coordinates instead of {own['coordinates']}"
            yield from tried("resize-coordinates", text, 2, coordinates=coordinates)
        if own["kind"] != "nearest":
            continue
        for rounding in ROUNDINGS:
            if rounding == own.get("rounding"):
                continue
            same = coordinates == own["coordinates"]
            text = f"{rounding} of {coordinates} coordinates"
            changed = {"coordinates": coordinates, "rounding": rounding}
            yield from tried("resize-rounding", text, 2 if same else 1, **changed)
    if own["kind"] == "cubic":
        for a in (-0.5, -0.75, -1.0):
            if a != own.get("cubic"):
                yield from tried("resize-cubic", f"a cubic with coefficient {a}", 2, cubic=a)
    if own["kind"] != "nearest":
        text = "no antialiasing" if own.get("antialias") else "antialiasing"
        yield from tried("resize-antialias", text, 2, antialias=not own.get("antialias"))
    for kind, text in _KINDS.items():
        if kind != own["kind"]:
            for coordinates in COORDINATES[:3]:
                changed = {"kind": kind, "coordinates": coordinates}
                yield from tried("resize-kind", f"{text} ({coordinates}) instead", 1, **changed)
