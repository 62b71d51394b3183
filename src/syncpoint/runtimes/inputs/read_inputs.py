"""Reads inputs of a model: files, runs, functions, generated values or live objects."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from syncpoint.errors import CaptureError, InputError
from syncpoint.run.storage.folder import is_run
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.import_path import is_import_path, load_object
from syncpoint.runtimes.inputs.array_files import ARRAY_SUFFIXES, read_array_file
from syncpoint.runtimes.inputs.generate import generate_inputs
from syncpoint.runtimes.inputs.recorded_inputs import open_recorded_inputs
from syncpoint.runtimes.inputs.shapes import InputShape, to_shapes
from syncpoint.runtimes.protocol import Inputs, InputSpec

if TYPE_CHECKING:
    pass

_GENERATED_KINDS = ("random", "zeros", "ones")
_SOURCE_FORMS = ".npz, .npy, .safetensors, a run, module:function, random[:seed], zeros or ones"


def read_inputs(
    source: object,
    shapes: Mapping[str, InputShape | tuple[int, ...]] | None = None,
    declared: Sequence[InputSpec] = (),
) -> list[Inputs]:
    """Read the samples of `source`, at least one.

    `shapes` are for random, zeros and ones; inputs without one use what the model declares.
    """
    if isinstance(source, (str, Path)):
        return _read_named(str(source), to_shapes(shapes), declared)
    if isinstance(source, list) and source and all(isinstance(s, Inputs) for s in source):
        return list(source)
    return [as_inputs(source)]


def as_inputs(value: object) -> Inputs:
    """Inputs from arguments, from (arguments, keyword arguments), from a dict or one value."""
    if isinstance(value, Inputs):
        return value
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise InputError(
                f"the keys of inputs by name must be text, not {sorted(map(repr, value))[:3]}",
                cure="use the names of the model's inputs as keys",
            )
        return Inputs(kwargs=dict(value))
    if isinstance(value, (tuple, list)):
        if (
            len(value) == 2
            and isinstance(value[0], (tuple, list))
            and isinstance(value[1], Mapping)
            and all(isinstance(key, str) for key in value[1])
        ):
            return Inputs(tuple(value[0]), dict(value[1]))
        return Inputs(tuple(value))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return Inputs((value,))
    raise InputError(
        f"inputs cannot be a {type(value).__qualname__}",
        cure="give a tuple, a dict, an array or a tensor",
    )


def _read_named(
    text: str, shapes: Mapping[str, InputShape], declared: Sequence[InputSpec]
) -> list[Inputs]:
    kind, _, seed = text.partition(":")
    path = Path(text)
    if kind in _GENERATED_KINDS and not path.exists():
        return [generate_inputs(kind, seed, shapes, declared)]
    if path.is_dir():
        return (
            open_recorded_inputs(path)
            if is_run(path)
            else _read_files(text, sorted(path.iterdir()))
        )
    if path.is_file():
        return [read_array_file(path)]
    if is_import_path(text):
        return _call_function(text)
    if glob.has_magic(text):
        return _read_files(text, [Path(p) for p in sorted(glob.glob(text))])  # noqa: PTH207
    raise InputError(
        f"no such file: {text!r}",
        cure=f"give inputs as {_SOURCE_FORMS}",
    )


def _read_files(text: str, paths: Sequence[Path]) -> list[Inputs]:
    samples = [
        read_array_file(path) for path in paths if path.suffix in ARRAY_SUFFIXES and path.is_file()
    ]
    if not samples:
        raise InputError(
            f"no files of inputs ({', '.join(ARRAY_SUFFIXES)}) in {text!r}",
            cure="check the path",
        )
    return samples


def _call_function(text: str) -> list[Inputs]:
    value = load_object(text)
    if callable(value) and not hasattr(value, "shape"):
        try:
            value = value()
        except Exception as error:
            raise CaptureError(
                f"{text} returned no inputs: it raised {one_line(error)}",
                cure="fix the error, then try again",
            ) from error
    return read_inputs(value) if not isinstance(value, (str, Path)) else [as_inputs(value)]
