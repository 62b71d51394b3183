"""Variants of resizing: coordinates, rounding, cubic coefficient, antialiasing; what to set in the
target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from syncpoint.diagnosis.numpy_ops.resizing import COORDINATES, ROUNDINGS, resized
from syncpoint.diagnosis.variants.protocol import Hypothesis, OpUnderTest

_TEXT_BY_KIND = {"nearest": "nearest-neighbor", "linear": "linear", "cubic": "cubic"}
Settings = Mapping[str, Any]
Change = tuple[str, str, int, Settings]
"""Kind, text and simplicity of a variant, and its changed settings."""


def vary_resizing(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary ops that resize images."""
    bound = (
        tested_op.bound
        if "upsample" in tested_op.op.type or "Resize" in tested_op.op.type
        else None
    )
    if bound is None or bound.function is not resized:
        return
    for kind, text, simplicity, changes in _change_settings(bound.settings):
        value = tested_op.run_with_settings(**changes) if tested_op.is_requested(kind) else None
        if value is not None:
            setting = _right_setting(kind, bound.settings)
            yield Hypothesis(kind, text, value, setting=setting, simplicity=simplicity)


def _right_setting(kind: str, settings: Settings) -> tuple[str, str]:
    """Return what to set to which value in the target, for a kind of variant."""
    coordinates = settings["coordinates"]
    rule = f"{coordinates} (align_corners={coordinates == 'align_corners'})"
    return {
        "resize-coordinates": ("the coordinates", rule),
        "resize-rounding": (
            "the coordinate mode and its rounding",
            f"{coordinates} and {settings.get('rounding')}",
        ),
        "resize-cubic": ("the cubic coefficient", str(settings.get("cubic"))),
        "resize-antialias": ("`antialias`", str(bool(settings.get("antialias")))),
        "resize-kind": ("the interpolation", _TEXT_BY_KIND[settings["kind"]]),
    }[kind]


def _change_settings(settings: Settings) -> Iterator[Change]:
    """Yield changed settings of a resize."""
    for coordinates in COORDINATES:
        if coordinates != settings["coordinates"]:
            text = f"uses {coordinates} coordinates instead of {settings['coordinates']}"
            yield "resize-coordinates", text, 2, {"coordinates": coordinates}
        if settings["kind"] == "nearest":
            yield from _change_rounding(settings, coordinates)
    if settings["kind"] == "cubic":
        for a in (-0.5, -0.75, -1.0):
            if a != settings.get("cubic"):
                text = f"uses cubic coefficient {a} instead of {settings.get('cubic')}"
                yield "resize-cubic", text, 2, {"cubic": a}
    if settings["kind"] != "nearest":
        text = (
            "does not antialias; the reference does"
            if settings.get("antialias")
            else "antialiases; the reference does not"
        )
        yield "resize-antialias", text, 2, {"antialias": not settings.get("antialias")}
    for kind, text in _TEXT_BY_KIND.items():
        if kind != settings["kind"]:
            for coordinates in COORDINATES[:3]:
                changes = {"kind": kind, "coordinates": coordinates}
                title = (
                    f"uses {text} interpolation ({coordinates})"
                    f" instead of {_TEXT_BY_KIND[settings['kind']]}"
                )
                yield "resize-kind", title, 1, changes


def _change_rounding(settings: Settings, coordinates: str) -> Iterator[Change]:
    """Yield other ways to round to the nearest element, less simple with other coordinates."""
    simplicity = 2 if coordinates == settings["coordinates"] else 1
    for rounding in ROUNDINGS:
        if rounding != settings.get("rounding"):
            changes = {"coordinates": coordinates, "rounding": rounding}
            text = (
                f"rounds {coordinates} coordinates with {rounding}"
                f" instead of {settings.get('rounding')}"
            )
            yield "resize-rounding", text, simplicity, changes
