"""Read inputs of a model from .npy, .npz, .safetensors files, recorded runs, functions or live
objects; rebuild nested ones from paths (dicts, tuples)."""

from __future__ import annotations

import glob
import json
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from syncpoint.errors import FormatError, InputError
from syncpoint.files.read_errors import CHECK_FILE
from syncpoint.run.dtypes import from_safetensors
from syncpoint.run.model import Role, Tensor
from syncpoint.run.reader import Run
from syncpoint.run.storage.folder import is_run
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.import_path import call_user_function, is_import_path, load_object
from syncpoint.runtimes.inputs.generate import generate_inputs
from syncpoint.runtimes.inputs.shapes import InputShape, to_shapes
from syncpoint.runtimes.protocol import Array, Inputs, InputSpec, Tree

_GENERATED_KINDS = ("random", "zeros", "ones")
_SOURCE_FORMS = ".npz, .npy, .safetensors, a run, module:function, random[:seed], zeros or ones"
_POSITIONAL = "args"
"""Name under which inputs by position are recorded."""

ARRAY_SUFFIXES = (".npz", ".npy", ".safetensors")


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
            f"no input files ({', '.join(ARRAY_SUFFIXES)}) in {text!r}",
            cure="check the path",
        )
    return samples


def _call_function(text: str) -> list[Inputs]:
    value = load_object(text)
    if callable(value) and not hasattr(value, "shape"):
        value = call_user_function(value, text, "inputs")
    return read_inputs(value) if not isinstance(value, (str, Path)) else [as_inputs(value)]


def open_recorded_inputs(path: Path) -> list[Inputs]:
    """The inputs of the run in a folder, one `Inputs` for each sample."""
    from syncpoint.run.storage.open_run import open_run

    samples = read_recorded_inputs(open_run(path))
    if not samples:
        raise InputError(
            f"the run {path} has no recorded inputs",
            cure="give the inputs, or record the run with its inputs",
        )
    return samples


def read_recorded_inputs(run: Run | None) -> list[Inputs] | None:
    """The inputs that a run was recorded with, one `Inputs` for each sample; None if it has
    none."""
    if run is None:
        return None
    samples: dict[Any, dict[str, Any]] = {}
    for tensor in run.tensors:
        if tensor.key.role is Role.MODEL_INPUT:
            _insert_at_path(samples.setdefault(tensor.key.part, {}), tensor, run.values(tensor))
    return [_rebuild_inputs(samples[part]) for part in sorted(samples)] or None


def find_recorded_names(run: Run) -> set[str]:
    """The names of the inputs that a run was recorded with by name, without reading them."""
    paths = (t.name or t.key.op.op for t in run.tensors if t.key.role is Role.MODEL_INPUT)
    return {path.partition("[")[0] for path in paths} - {_POSITIONAL}


_PATH_STEP = re.compile(r'\[(?:(?P<index>\d+)|(?P<key>"(?:[^"\\]|\\.)*"))\]')


def _insert_at_path(sample: dict[str, Any], tensor: Tensor, values: Array) -> None:
    """Insert a value at its path, such as `x`, `extra["mask"]` or `states[0]`."""
    path = tensor.name or tensor.key.op.op
    root = path.partition("[")[0]
    steps: list[Any] = []
    position = len(root)
    while match := _PATH_STEP.match(path, position):
        steps.append(int(match["index"]) if match["index"] else json.loads(match["key"]))
        position = match.end()
    if position != len(path):
        root, steps = path, []
    holder = sample
    last: Any = root
    for step in steps:
        holder = holder.setdefault(last, {})
        last = step
    holder[last] = values


def _rebuild_inputs(sample: dict[str, Any]) -> Inputs:
    kwargs = {name: _rebuild_sequences(value) for name, value in sample.items()}
    args = kwargs.pop(_POSITIONAL, ())
    return Inputs(tuple(args), kwargs)


def _rebuild_sequences(value: Tree) -> Tree:
    """Turn dicts whose keys are positions into tuples."""
    if not isinstance(value, dict):
        return value
    children = {key: _rebuild_sequences(child) for key, child in value.items()}
    if children and all(isinstance(key, int) for key in children):
        return tuple(children[key] for key in sorted(children))
    return children


def read_array_file(path: Path) -> Inputs:
    """The inputs in one file: by position from .npy, by name from .npz and .safetensors."""
    try:
        if path.suffix == ".npy":
            with path.open("rb") as file:
                return Inputs((_read_npy(file, path.stat().st_size, path.name),))
        if path.suffix == ".npz":
            return Inputs(kwargs=_read_npz(path))
        if path.suffix == ".safetensors":
            return Inputs(kwargs=_read_safetensors(path))
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {one_line(error)}",
            cure=CHECK_FILE,
        ) from error
    raise InputError(
        f"{path.name!r} is not an input file: its suffix must be one of"
        f" {', '.join(ARRAY_SUFFIXES)}",
        cure="give such a file, a run, module:function, random[:seed], zeros or ones",
    )


def _read_npz(path: Path) -> dict[str, Array]:
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                with archive.open(member) as file:
                    name = member.filename.removesuffix(".npy")
                    arrays[name] = _read_npy(file, member.file_size, f"{path.name}:{name}")  # type: ignore[arg-type]
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise FormatError(
            f"{path.name} is not a .npz file: {one_line(error)}",
            cure="write it with numpy.savez",
        ) from error
    if not arrays:
        raise InputError(
            f"{path.name} holds no arrays",
            cure="give a file with at least one array",
        )
    return arrays


def _read_npy(file: BinaryIO, size: int, where: str) -> Array:
    """Read one .npy stream of `size` bytes; never unpickle, never allocate more than `size`."""
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, is_fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, is_fortran_order, dtype = np.lib.format.read_array_header_2_0(file)
    except (ValueError, EOFError, SyntaxError) as error:
        raise FormatError(
            f"{where} is not a .npy file: {one_line(error)}",
            cure="write it with numpy.save",
        ) from error
    if dtype.hasobject or dtype.kind not in "biufc":
        raise FormatError(
            f"{where} is not numeric (NumPy dtype {dtype})",
            cure="convert it to numbers or leave it out; for bf16 use .safetensors",
        )
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > size:
        raise FormatError(
            f"{where} declares {nbytes} bytes of values, but has only {size} bytes",
            cure="write the file again",
        )
    value_bytes = file.read(nbytes)
    if len(value_bytes) != nbytes:
        raise FormatError(
            f"{where} is truncated: {len(value_bytes)} of {nbytes} bytes of values",
            cure="write the file again",
        )
    values = np.frombuffer(bytearray(value_bytes), dtype)
    return values.reshape(shape[::-1]).T if is_fortran_order else values.reshape(shape)


def _read_safetensors(path: Path) -> dict[str, Array]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise FormatError(
                f"{path.name} is not a .safetensors file: its header declares {length} bytes,"
                f" the file has {size}",
                cure="write it with safetensors.save_file",
            )
        try:
            header = json.loads(file.read(length))
            entries = {k: v for k, v in header.items() if k != "__metadata__"}
            spans = {k: _check_entry(v, size - 8 - length) for k, v in entries.items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise FormatError(
                f"{path.name} is not a .safetensors file: {one_line(error)}",
                cure="write it with safetensors.save_file",
            ) from error
        arrays = {}
        for name, (dtype, shape, start, nbytes) in spans.items():
            file.seek(8 + length + start)
            arrays[name] = np.frombuffer(bytearray(file.read(nbytes)), dtype).reshape(shape)
    if not arrays:
        raise InputError(
            f"{path.name} holds no arrays",
            cure="give a file with at least one array",
        )
    return arrays


def _check_entry(
    entry: Mapping[str, Any], available_bytes: int
) -> tuple[np.dtype[np.generic], tuple[int, ...], int, int]:
    """Check one entry of a safetensors header: dtype, shape, first byte and size in bytes."""
    dtype = from_safetensors(entry["dtype"])
    if dtype is None:
        raise ValueError(f"unknown dtype {entry['dtype']!r}")
    shape = tuple(int(n) for n in entry["shape"])
    start, stop = (int(n) for n in entry["data_offsets"])
    if not 0 <= start <= stop <= available_bytes or any(n < 0 for n in shape):
        raise ValueError(f"a tensor is at bytes {start} to {stop} of {available_bytes}")
    if stop - start != dtype.nbytes(math.prod(shape)):
        raise ValueError(f"{stop - start} bytes for shape {list(shape)} of {dtype}")
    return dtype.numpy, shape, start, stop - start
