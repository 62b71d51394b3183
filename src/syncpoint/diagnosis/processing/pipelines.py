"""Two preprocessing functions on one raw sample: what each makes of it, as named arrays.

The functions are code, and run because the caller named them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import FormatError, InputError, SyncpointError, describe_error
from syncpoint.runtimes.import_path import load_object

_IMAGES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
)
_TEXTS = frozenset({".txt", ".md", ".json", ".csv"})


def raw_sample(raw: object) -> Any:
    """A raw sample: a path is read by its kind, everything else is what it is."""
    if not isinstance(raw, str | Path):
        return raw
    path = Path(raw)
    if not path.is_file():
        raise InputError("a file with a raw sample", repr(str(raw)))
    suffix = path.suffix.lower()
    try:
        if suffix == ".npy":
            return np.load(path, allow_pickle=False)
        if suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return dict(file)
        if suffix in _TEXTS:
            return path.read_text(encoding="utf-8")
        if suffix in _IMAGES:
            return _image(path)
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise FormatError(f"a raw sample in {path.name}", describe_error(error)) from None


def _image(path: Path) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise InputError(
            f"Pillow, to read {path.name}",
            "it is not installed",
            "pip install pillow, or give the raw sample as .npy",
        ) from None
    image = Image.open(path)
    image.load()
    return image


def prepared(pipeline: object, sample: object) -> dict[str, NDArray[Any]]:
    """What a pipeline makes of a raw sample, by name or position."""
    function = load_object(pipeline) if isinstance(pipeline, str) else pipeline
    if not callable(function):
        raise InputError("a preprocessing function", repr(pipeline)[:80])
    try:
        made = function(sample)
    except SyncpointError:
        raise
    except Exception as error:  # the user's own code may raise anything
        raise InputError(
            f"{pipeline if isinstance(pipeline, str) else function!r} to take the raw sample",
            describe_error(error),
        ) from None
    return {name: _array(name, value) for name, value in _named(made)}


def _named(made: object) -> list[tuple[str, object]]:
    if isinstance(made, Mapping):
        return [(str(name), value) for name, value in made.items()]
    several = list(made) if isinstance(made, Sequence) and not isinstance(made, str | bytes) else []
    if several and not isinstance(several[0], int | float | list):
        return [(str(at), value) for at, value in enumerate(several)]
    return [("0", made)]


def _array(name: str, value: object) -> NDArray[Any]:
    detach = getattr(value, "detach", None)
    if callable(detach):
        value = detach().cpu()
        if str(getattr(value, "dtype", "")) == "torch.bfloat16":
            value = value.float()  # type: ignore[attr-defined]
    try:
        found = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"numbers in output {name} of a pipeline", describe_error(error)) from None
    if found.dtype.kind not in "biuf":
        raise InputError(f"numbers in output {name} of a pipeline", str(found.dtype))
    return found
