"""What a filled form asks for: checked, as a command line, and as a call."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import Any

from syncpoint.errors import InputError
from syncpoint.metrics.limits import PRESETS, coarsest, is_coarser
from syncpoint.page.overview import CHOOSABLE_METRICS
from syncpoint.runtimes.import_path import is_import_path
from syncpoint.runtimes.inputs.shapes import parse_shape
from syncpoint.runtimes.options import parse_options
from syncpoint.runtimes.registry import find_runtime, find_runtimes_accepting
from syncpoint.server.allowed_files import Folders
from syncpoint.server.path_preview import as_text, look
from syncpoint.server.session_schema import PathPreview, SessionSpec, SideSpec

_MADE = re.compile(r"random(:\d+)?|zeros|ones")


@dataclass(frozen=True, kw_only=True)
class ComparisonPlan:
    """A comparison that may be made: every path in it lies where it may."""

    target: str
    reference: str
    inputs: str
    shapes: tuple[str, ...]
    target_options: dict[str, str]
    reference_options: dict[str, str]
    """Those that are not at their defaults, with `runtime` and `record` among them."""
    metric: str
    preset: str
    introduced: str
    reference_model: str

    def opens(self, side: str) -> bool:
        """Whether a side is a recording, which is opened, and no model, which is run."""
        path = {"target": self.target, "reference": self.reference}.get(side)
        return path is not None and not find_runtimes_accepting(path)

    @classmethod
    def of(cls, spec: SessionSpec, folders: Folders) -> ComparisonPlan:
        """Check what was asked; the first thing that cannot be used is an InputError."""
        if spec.metric not in CHOOSABLE_METRICS:
            raise InputError(
                "a metric", repr(spec.metric), f"one of {', '.join(CHOOSABLE_METRICS)}"
            )
        if spec.preset != "auto" and spec.preset not in PRESETS:
            raise InputError("a preset", repr(spec.preset), f"auto, {', '.join(PRESETS)}")
        for text in spec.shapes:
            parse_shape(text)
        inputs = spec.inputs.strip()
        if inputs and not _MADE.fullmatch(inputs):
            inputs = _inputs(inputs, folders)
        model = spec.reference_model.strip()
        return cls(
            target=_path(spec.target, "target", folders),
            reference=_path(spec.reference, "reference", folders),
            inputs=inputs,
            shapes=tuple(spec.shapes),
            target_options=_options(spec.target, folders),
            reference_options=_options(spec.reference, folders),
            metric=spec.metric,
            preset=spec.preset,
            introduced=spec.introduced,
            reference_model=folders.allowed(model) if model else "",
        )

    def command(self, out: str) -> str:
        """The same as a line for the shell."""
        words = ["syncpoint", "compare", self.target, self.reference]
        if self.inputs:
            words += ["--inputs", self.inputs]
        for shape in self.shapes:
            words += ["--shape", shape]
        for flag, options in (
            ("--target-set", self.target_options),
            ("--reference-set", self.reference_options),
        ):
            for name, value in options.items():
                words += [flag, f"{name}={value}"]
        for flag, value, default in (
            ("--metric", self.metric, "psnr"),
            ("--preset", self.preset, "auto"),
            ("--introduced", self.introduced, "local"),
            ("--reference-model", self.reference_model, ""),
        ):
            if value != default:
                words += [flag, value]
        return shlex.join([*words, "-o", out])

    def call(self) -> dict[str, Any]:
        """The arguments of `syncpoint.api.compare`."""
        return {
            "target": self.target,
            "reference": self.reference,
            "inputs": self.inputs or None,
            "preset": self.preset,
            "introduced": self.introduced,
            "reference_model": self.reference_model or None,
            "target_options": self.target_options,
            "reference_options": self.reference_options,
            "shapes": dict(parse_shape(text) for text in self.shapes),
        }

    @property
    def name(self) -> str:
        """What the comparison is called: `vit_tiny_against_vit`."""
        return f"{_stem(self.target)}_against_{_stem(self.reference)}"


def warnings(target: PathPreview, reference: PathPreview) -> list[str]:
    """What looks wrong before anything is run."""
    sides = [_coarsest(seen.precision) for seen in (target, reference)]
    if all(sides) and is_coarser(sides[1], sides[0]):
        return [f"B, the reference, is {sides[1]} and A, the target, {sides[0]}: are they swapped?"]
    return []


def said_precision(folders: Folders, side: SideSpec) -> PathPreview:
    """What is at a side's path, with the precision that its options ask for."""
    seen = look(folders, side.path)
    asked = side.options.get("dtype", "")
    return seen.model_copy(update={"precision": asked}) if asked else seen


def _coarsest(precision: str) -> str:
    known = [part for part in precision.split("+") if part in PRESETS]
    return coarsest(known) if known else ""


def _path(side: SideSpec, role: str, folders: Folders) -> str:
    text = side.path.strip()
    if not text:
        raise InputError(f"a {role}", "nothing", "type a path or choose one")
    named = folders.allowed(text)
    if not is_import_path(text) and not folders.resolve(text).exists():
        raise InputError(f"a {role}", f"nothing at {text}", "check the path")
    return named


def _inputs(text: str, folders: Folders) -> str:
    named = folders.allowed(text)
    if not (is_import_path(text) or has_magic(text)) and not folders.resolve(text).exists():
        raise InputError("inputs", f"nothing at {text}", "check the path")
    return named


def _options(side: SideSpec, folders: Folders) -> dict[str, str]:
    text = side.path.strip()
    taken = find_runtimes_accepting(text)
    if not taken or (not is_import_path(text) and _is_recording(folders, text)):
        return {}
    chosen = find_runtime(text, side.runtime or None)
    parse_options(chosen, side.options)
    options = {} if chosen is taken[0] else {"runtime": chosen.name}
    defaults = {option.name: as_text(option.default) for option in chosen.options()}
    options |= {n: v for n, v in side.options.items() if v != defaults[n]}
    if side.record != "values":
        options["record"] = side.record
    return options


def _is_recording(folders: Folders, text: str) -> bool:
    from syncpoint.dumps.registry import find_format

    return find_format(folders.resolve(text)) is not None


def _stem(text: str) -> str:
    """A short name, fit for a file: `vit.py:model` is `vit_model`."""
    last = Path(text.rstrip("/")).name or "here"
    for suffix in (".onnx", ".aimodel", ".run", ".npz", ".safetensors", ".pt2", ".pt"):
        last = last.removesuffix(suffix)
    last = last.replace(".py:", "_").replace(":", "_")
    return re.sub(r"[^\w.-]+", "_", last, flags=re.ASCII).strip("._-")[:60] or "side"
