"""Check the comparison that a form requests (paths, inputs, options), name it, and turn it into a
command line or a call; warnings before it runs."""

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
from syncpoint.server.allowed_files import AllowedFolders
from syncpoint.server.path_preview import preview_path
from syncpoint.server.session_schema import PathPreview, SessionSpec, SideSpec, option_text

_GENERATED_INPUTS = re.compile(r"random(:\d+)?|zeros|ones")


@dataclass(frozen=True, kw_only=True)
class RequestedComparison:
    """A comparison that may be run: every path in it is in an allowed folder."""

    target: str
    reference: str
    inputs: str
    shapes: tuple[str, ...]
    target_options: dict[str, str]
    reference_options: dict[str, str]
    """Options that differ from their defaults, including `runtime` and `record`."""
    metric: str
    preset: str
    introduced: str
    reference_model: str

    def is_recording(self, side: str) -> bool:
        """Whether a side is a recording, which is opened, and not a model, which is run."""
        path = {"target": self.target, "reference": self.reference}.get(side)
        return path is not None and not find_runtimes_accepting(path)

    @classmethod
    def of(cls, spec: SessionSpec, folders: AllowedFolders) -> RequestedComparison:
        """Check a form; the first field that cannot be used is an InputError."""
        if spec.metric not in CHOOSABLE_METRICS:
            raise InputError(
                f"{spec.metric!r} is not a metric",
                cure=f"choose one of {', '.join(CHOOSABLE_METRICS)}",
            )
        if spec.preset != "auto" and spec.preset not in PRESETS:
            raise InputError(
                f"{spec.preset!r} is not a preset",
                cure=f"choose one of auto, {', '.join(PRESETS)}",
            )
        for text in spec.shapes:
            parse_shape(text)
        inputs = spec.inputs.strip()
        if inputs and not _GENERATED_INPUTS.fullmatch(inputs):
            inputs = _check_inputs(inputs, folders)
        model = spec.reference_model.strip()
        return cls(
            target=_check_side(spec.target, "target", folders),
            reference=_check_side(spec.reference, "reference", folders),
            inputs=inputs,
            shapes=tuple(spec.shapes),
            target_options=_check_options(spec.target, folders),
            reference_options=_check_options(spec.reference, folders),
            metric=spec.metric,
            preset=spec.preset,
            introduced=spec.introduced,
            reference_model=folders.check_path(model) if model else "",
        )

    def build_command(self, out: str) -> str:
        """Return the comparison as a command line for the shell."""
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

    def build_call(self) -> dict[str, Any]:
        """Return the arguments of `syncpoint.api.compare`."""
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
        """The name of the comparison, such as `vit_tiny_against_vit`."""
        return f"{_file_name(self.target)}_against_{_file_name(self.reference)}"


def find_warnings(target: PathPreview, reference: PathPreview) -> list[str]:
    """Return what looks wrong before anything is run."""
    sides = [_coarsest(preview.precision) for preview in (target, reference)]
    if all(sides) and is_coarser(sides[1], sides[0]):
        return [f"B, the reference, is {sides[1]} and A, the target, {sides[0]}: are they swapped?"]
    return []


def preview_side(folders: AllowedFolders, side: SideSpec) -> PathPreview:
    """Return what is at a side's path, with the precision that its options set."""
    preview = preview_path(folders, side.path)
    dtype = side.options.get("dtype", "")
    return preview.model_copy(update={"precision": dtype}) if dtype else preview


def _coarsest(precision: str) -> str:
    presets = [part for part in precision.split("+") if part in PRESETS]
    return coarsest(presets) if presets else ""


def _check_side(side: SideSpec, role: str, folders: AllowedFolders) -> str:
    text = side.path.strip()
    if not text:
        raise InputError(f"the path of the {role} is empty", cure="type a path or choose one")
    name = folders.check_path(text)
    if not is_import_path(text) and not folders.resolve(text).exists():
        raise InputError(f"no such file or folder for the {role}: {text}", cure="check the path")
    return name


def _check_inputs(text: str, folders: AllowedFolders) -> str:
    name = folders.check_path(text)
    if not (is_import_path(text) or has_magic(text)) and not folders.resolve(text).exists():
        raise InputError(f"no such file for the inputs: {text}", cure="check the path")
    return name


def _check_options(side: SideSpec, folders: AllowedFolders) -> dict[str, str]:
    text = side.path.strip()
    runtimes = find_runtimes_accepting(text)
    if not runtimes or (not is_import_path(text) and _is_recording(folders, text)):
        return {}
    chosen = find_runtime(text, side.runtime or None)
    parse_options(chosen, side.options)
    options = {} if chosen is runtimes[0] else {"runtime": chosen.name}
    defaults = {option.name: option_text(option.default) for option in chosen.options()}
    options |= {name: text for name, text in side.options.items() if text != defaults[name]}
    if side.record != "values":
        options["record"] = side.record
    return options


def _is_recording(folders: AllowedFolders, text: str) -> bool:
    from syncpoint.dumps.registry import find_format

    return find_format(folders.resolve(text)) is not None


def _file_name(text: str) -> str:
    """Return a short name for a file: `vit_model` for `vit.py:model`."""
    last = Path(text.rstrip("/")).name or "here"
    for suffix in (".onnx", ".aimodel", ".run", ".npz", ".safetensors", ".pt2", ".pt"):
        last = last.removesuffix(suffix)
    last = last.replace(".py:", "_").replace(":", "_")
    return re.sub(r"[^\w.-]+", "_", last, flags=re.ASCII).strip("._-")[:60] or "side"
