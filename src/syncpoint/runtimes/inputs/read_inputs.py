"""What a model is fed: files, runs, functions, made-up values or live objects -> `Inputs`."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from syncpoint.errors import CaptureError, InputError
from syncpoint.run.storage.folder import is_run
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.import_path import is_reference, load_object
from syncpoint.runtimes.inputs.array_files import SUFFIXES, read_array_file
from syncpoint.runtimes.inputs.generate import generate_inputs
from syncpoint.runtimes.inputs.recorded_inputs import read_run_inputs
from syncpoint.runtimes.inputs.shapes import Shape, as_shapes
from syncpoint.runtimes.protocol import Inputs, InputSpec

if TYPE_CHECKING:
    pass

_MADE = ("random", "zeros", "ones")
_FORMS = ".npz, .npy, .safetensors, a run, module:function, random[:seed], zeros or ones"


def read_inputs(
    source: object,
    shapes: Mapping[str, Shape | tuple[int, ...]] | None = None,
    declared: Sequence[InputSpec] = (),
) -> list[Inputs]:
    """The samples that `source` holds, at least one.

    `shapes` serve random, zeros and ones, with what the model itself declares as a fallback.
    """
    if isinstance(source, (str, Path)):
        return _from_text(str(source), as_shapes(shapes), declared)
    if isinstance(source, list) and source and all(isinstance(s, Inputs) for s in source):
        return list(source)
    return [as_inputs(source)]


def as_inputs(given: object) -> Inputs:
    """Arguments, arguments with keyword arguments, keyword arguments, or one value."""
    if isinstance(given, Inputs):
        return given
    if isinstance(given, Mapping):
        if not all(isinstance(key, str) for key in given):
            raise InputError("inputs by name", f"keys {sorted(map(repr, given))[:3]}")
        return Inputs(kwargs=dict(given))
    if isinstance(given, (tuple, list)):
        if (
            len(given) == 2
            and isinstance(given[0], (tuple, list))
            and isinstance(given[1], Mapping)
            and all(isinstance(key, str) for key in given[1])
        ):
            return Inputs(tuple(given[0]), dict(given[1]))
        return Inputs(tuple(given))
    if hasattr(given, "shape") and hasattr(given, "dtype"):
        return Inputs((given,))
    raise InputError(
        "inputs as a tuple, a dict, an array or a tensor", f"a {type(given).__qualname__}"
    )


def _from_text(
    text: str, shapes: Mapping[str, Shape], declared: Sequence[InputSpec]
) -> list[Inputs]:
    kind, _, seed = text.partition(":")
    path = Path(text)
    if kind in _MADE and not path.exists():
        return [generate_inputs(kind, seed, shapes, declared)]
    if path.is_dir():
        return read_run_inputs(path) if is_run(path) else _from_files(text, sorted(path.iterdir()))
    if path.is_file():
        return [read_array_file(path)]
    if is_reference(text):
        return _from_function(text)
    if glob.has_magic(text):
        return _from_files(text, [Path(p) for p in sorted(glob.glob(text))])  # noqa: PTH207
    raise InputError(f"inputs as {_FORMS}", repr(text), "no such file")


def _from_files(text: str, paths: Sequence[Path]) -> list[Inputs]:
    found = [read_array_file(path) for path in paths if path.suffix in SUFFIXES and path.is_file()]
    if not found:
        raise InputError(f"files of {', '.join(SUFFIXES)}", f"none in {text!r}")
    return found


def _from_function(text: str) -> list[Inputs]:
    found = load_object(text)
    if callable(found) and not hasattr(found, "shape"):
        try:
            found = found()
        except Exception as error:
            raise CaptureError(
                f"{text} to return inputs", f"it raised {one_line(error)}"
            ) from error
    return read_inputs(found) if not isinstance(found, (str, Path)) else [as_inputs(found)]
