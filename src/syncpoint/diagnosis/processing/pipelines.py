"""Run the user's preprocessing functions on a raw sample, such as an image file, and name the
arrays they return.

The functions are code. They run because the caller named them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import FormatError, InputError, SyncpointError, describe_error
from syncpoint.runtimes.import_path import load_object

_IMAGE_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
)
_TEXT_SUFFIXES = frozenset({".txt", ".md", ".json", ".csv"})


def load_raw_sample(raw: object) -> Any:
    """Load a raw sample: read a path by its suffix, return any other object as it is."""
    if not isinstance(raw, str | Path):
        return raw
    path = Path(raw)
    if not path.is_file():
        raise InputError(
            f"no such file for the raw sample: {str(raw)!r}", cure="check the path of --raw"
        )
    suffix = path.suffix.lower()
    try:
        if suffix == ".npy":
            return np.load(path, allow_pickle=False)
        if suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return dict(file)
        if suffix in _TEXT_SUFFIXES:
            return path.read_text(encoding="utf-8")
        if suffix in _IMAGE_SUFFIXES:
            return _load_image(path)
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise FormatError(
            f"cannot read the raw sample {path.name}: {describe_error(error)}",
            cure="check that the path names the right file, or give the sample as .npy",
        ) from None


def _load_image(path: Path) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise InputError(
            f"Pillow is not installed; it is needed to read {path.name}",
            cure="run pip install pillow, or give the raw sample as .npy",
        ) from None
    image = Image.open(path)
    image.load()
    return image


def run_pipeline(pipeline: object, sample: object) -> dict[str, NDArray[Any]]:
    """Run a pipeline on a raw sample and return its arrays by name or position."""
    function = load_object(pipeline) if isinstance(pipeline, str) else pipeline
    if not callable(function):
        raise InputError(
            f"the preprocessing function is not callable: {repr(pipeline)[:80]}",
            cure="give a function as file.py:function",
        )
    try:
        outputs = function(sample)
    except SyncpointError:
        raise
    except Exception as error:  # the user's own code may raise anything
        raise InputError(
            f"{pipeline if isinstance(pipeline, str) else repr(function)} failed on the raw sample:"
            f" {describe_error(error)}",
            cure="check that the function takes the raw sample as its only argument",
        ) from None
    return {name: _as_array(name, value) for name, value in _name_outputs(outputs)}


def _name_outputs(outputs: object) -> list[tuple[str, object]]:
    if isinstance(outputs, Mapping):
        return [(str(name), value) for name, value in outputs.items()]
    is_sequence = isinstance(outputs, Sequence) and not isinstance(outputs, str | bytes)
    several = list(outputs) if isinstance(outputs, Sequence) and is_sequence else []
    if several and not isinstance(several[0], int | float | list):
        return [(str(index), value) for index, value in enumerate(several)]
    return [("0", outputs)]


def _as_array(name: str, value: object) -> NDArray[Any]:
    detach = getattr(value, "detach", None)
    if callable(detach):
        value = detach().cpu()
        if str(getattr(value, "dtype", "")) == "torch.bfloat16":
            value = value.float()  # type: ignore[attr-defined]
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"output {name} of the preprocessing function is not an array of numbers:"
            f" {describe_error(error)}",
            cure="return arrays, or a dictionary of arrays",
        ) from None
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"output {name} of the preprocessing function is not numeric (dtype {array.dtype})",
            cure="convert it to numbers, or leave it out of the returned outputs",
        )
    return array
