"""What a model is fed: files, runs, functions, made-up values or live objects -> `Inputs`."""

from __future__ import annotations

import glob
import json
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from syncpoint.errors import CaptureError, FormatError, InputError
from syncpoint.run.dtypes import from_safetensors
from syncpoint.run.model import Role, Tensor
from syncpoint.run.storage.folder import is_run
from syncpoint.runtimes.import_path import is_reference, load_object, one_line
from syncpoint.runtimes.inputs.generate import Shape, generate_inputs
from syncpoint.runtimes.protocol import Array, Inputs, InputSpec, Tree

if TYPE_CHECKING:
    from syncpoint.run.reader import Run

_MADE = ("random", "zeros", "ones")
_SUFFIXES = (".npz", ".npy", ".safetensors")
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
        return _from_text(str(source), _shapes(shapes), declared)
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


def _shapes(given: Mapping[str, Shape | tuple[int, ...]] | None) -> dict[str, Shape]:
    return {
        name: shape if isinstance(shape, Shape) else Shape(tuple(shape))
        for name, shape in (given or {}).items()
    }


def _from_text(
    text: str, shapes: Mapping[str, Shape], declared: Sequence[InputSpec]
) -> list[Inputs]:
    kind, _, seed = text.partition(":")
    path = Path(text)
    if kind in _MADE and not path.exists():
        return [generate_inputs(kind, seed, shapes, declared)]
    if path.is_dir():
        return _from_run(path) if is_run(path) else _from_files(text, sorted(path.iterdir()))
    if path.is_file():
        return [_from_file(path)]
    if is_reference(text):
        return _from_function(text)
    if glob.has_magic(text):
        return _from_files(text, [Path(p) for p in sorted(glob.glob(text))])  # noqa: PTH207
    raise InputError(f"inputs as {_FORMS}", repr(text), "no such file")


def _from_files(text: str, paths: Sequence[Path]) -> list[Inputs]:
    found = [_from_file(path) for path in paths if path.suffix in _SUFFIXES and path.is_file()]
    if not found:
        raise InputError(f"files of {', '.join(_SUFFIXES)}", f"none in {text!r}")
    return found


def _from_file(path: Path) -> Inputs:
    try:
        if path.suffix == ".npy":
            with path.open("rb") as file:
                return Inputs((_npy(file, path.stat().st_size, path.name),))
        if path.suffix == ".npz":
            return Inputs(kwargs=_npz(path))
        if path.suffix == ".safetensors":
            return Inputs(kwargs=_safetensors(path))
    except OSError as error:
        raise InputError(f"a readable file {path}", one_line(error)) from error
    raise InputError(f"inputs as {_FORMS}", f"{path.name!r}")


def _npz(path: Path) -> dict[str, Array]:
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                with archive.open(member) as file:
                    name = member.filename.removesuffix(".npy")
                    found[name] = _npy(file, member.file_size, f"{path.name}:{name}")  # type: ignore[arg-type]
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise FormatError(f"{path.name} as .npz", one_line(error)) from error
    if not found:
        raise InputError("arrays", f"none in {path.name}")
    return found


def _npy(file: BinaryIO, size: int, where: str) -> Array:
    """One .npy stream of `size` bytes; nothing is unpickled and nothing allocated beyond it."""
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, fortran, kind = np.lib.format.read_array_header_1_0(file)
        else:
            shape, fortran, kind = np.lib.format.read_array_header_2_0(file)
    except (ValueError, EOFError, SyntaxError) as error:
        raise FormatError(f"{where} as .npy", one_line(error)) from error
    if kind.hasobject or kind.kind not in "biufc":
        raise FormatError(f"numbers in {where}", f"NumPy dtype {kind}", "use .safetensors for bf16")
    nbytes = math.prod(shape) * kind.itemsize
    if nbytes > size:
        raise FormatError(f"{nbytes} bytes of values in {where}", f"a file of {size}")
    data = file.read(nbytes)
    if len(data) != nbytes:
        raise FormatError(f"{nbytes} bytes of values in {where}", f"{len(data)}")
    flat = np.frombuffer(bytearray(data), kind)
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _safetensors(path: Path) -> dict[str, Array]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise FormatError(f"a header of at most {size - 8} bytes in {path.name}", f"{length}")
        try:
            header = json.loads(file.read(length))
            entries = {k: v for k, v in header.items() if k != "__metadata__"}
            spans = {k: _span(v, size - 8 - length) for k, v in entries.items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise FormatError(f"{path.name} as .safetensors", one_line(error)) from error
        found = {}
        for name, (kind, shape, start, nbytes) in spans.items():
            file.seek(8 + length + start)
            found[name] = np.frombuffer(bytearray(file.read(nbytes)), kind).reshape(shape)
    if not found:
        raise InputError("arrays", f"none in {path.name}")
    return found


def _span(
    entry: Mapping[str, Any], room: int
) -> tuple[np.dtype[np.generic], tuple[int, ...], int, int]:
    """Type, shape, first byte and size of one tensor of a safetensors header, checked."""
    kind = from_safetensors(entry["dtype"])
    if kind is None:
        raise ValueError(f"unknown dtype {entry['dtype']!r}")
    shape = tuple(int(n) for n in entry["shape"])
    start, stop = (int(n) for n in entry["data_offsets"])
    if not 0 <= start <= stop <= room or any(n < 0 for n in shape):
        raise ValueError(f"a tensor at bytes {start} to {stop} of {room}")
    if stop - start != kind.nbytes(math.prod(shape)):
        raise ValueError(f"{stop - start} bytes for shape {list(shape)} of {kind}")
    return kind.numpy, shape, start, stop - start


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


def _from_run(path: Path) -> list[Inputs]:
    from syncpoint.run.storage.open_run import open_run

    found = inputs_of(open_run(path))
    if not found:
        raise InputError("a run with recorded inputs", f"none in {path}")
    return found


def inputs_of(run: Run) -> list[Inputs]:
    """What a recorded run was fed, one `Inputs` for each of its samples; none if it kept none."""
    samples: dict[Any, dict[str, Any]] = {}
    for tensor in run.tensors:
        if tensor.key.role is Role.MODEL_INPUT:
            _place(samples.setdefault(tensor.key.part, {}), tensor, run.values(tensor))
    return [_untangled(samples[part]) for part in sorted(samples)]


_STEP = re.compile(r'\[(?:(?P<index>\d+)|(?P<key>"(?:[^"\\]|\\.)*"))\]')


def _place(sample: dict[str, Any], tensor: Tensor, values: Array) -> None:
    """Put a value at its path, such as `x`, `extra["mask"]` or `states[0]`."""
    path = tensor.name or tensor.key.op.op
    root = path.partition("[")[0]
    steps: list[Any] = []
    at = len(root)
    while match := _STEP.match(path, at):
        steps.append(int(match["index"]) if match["index"] else json.loads(match["key"]))
        at = match.end()
    if at != len(path):
        root, steps = path, []
    holder = sample
    last: Any = root
    for step in steps:
        holder = holder.setdefault(last, {})
        last = step
    holder[last] = values


def _untangled(sample: dict[str, Any]) -> Inputs:
    kwargs = {name: _sequences(value) for name, value in sample.items()}
    args = kwargs.pop("args", ())
    return Inputs(tuple(args), kwargs)


def _sequences(value: Tree) -> Tree:
    """Dicts whose keys are positions, as tuples."""
    if not isinstance(value, dict):
        return value
    inner = {key: _sequences(item) for key, item in value.items()}
    if inner and all(isinstance(key, int) for key in inner):
        return tuple(inner[key] for key in sorted(inner))
    return inner
