"""The formats there are: ours, and those that other packages bring by an entry point.

A package adds one with an entry point in the group `syncpoint.dumps` that names a class, or an
object, with the attributes of `DumpFormat`, among them `API = 1`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from syncpoint.dumps.environment_file import with_environment
from syncpoint.dumps.protocol import API, DumpFormat, Saves
from syncpoint.errors import FormatError, InputError, SyncpointWarning, Unsupported
from syncpoint.run.files import one_line
from syncpoint.run.outputs import write_errors
from syncpoint.run.reader import Run

GROUP = "syncpoint.dumps"
_BUILT_IN = (
    "syncpoint.dumps.run_folder:RunFolder",
    "syncpoint.dumps.safetensors:SafetensorsFile",
    "syncpoint.dumps.npz:NpzFile",
    "syncpoint.dumps.aimodel_intermediates:AimodelIntermediates",
    "syncpoint.dumps.ascend.device_folder:DeviceFolder",
    "syncpoint.dumps.ascend.golden_folder:GoldenFolder",
    "syncpoint.dumps.msprobe.format:MsprobeDump",
    "syncpoint.dumps.ascend.torchair_run:TorchairFolders",
    "syncpoint.dumps.npy_folder:NpyFolder",
)
"""Tried in this order; the folder of .npy files, which recognises little, comes last."""


def formats() -> Iterator[DumpFormat]:
    """All formats; those of other packages after ours."""
    for place in _BUILT_IN:
        yield _built_in(place)
    yield from _foreign()


def named(name: str) -> DumpFormat:
    """The format called `name`."""
    known = []
    for candidate in formats():
        if candidate.name == name:
            return candidate
        known.append(candidate.name)
    raise InputError("the name of a format", repr(name), f"these are known: {', '.join(known)}")


def find(path: Path) -> DumpFormat | None:
    """The format that recognises `path`, or None."""
    return next((candidate for candidate in formats() if candidate.sniff(path)), None)


def open_dump(path: Path | str) -> Run:
    """Open whatever is at `path`; a path that no format recognises is an InputError."""
    path = Path(path)
    if not path.exists():
        raise InputError("a run or a dump", f"nothing at {path}", "check the path")
    found = find(path)
    if found is None:
        _refuse_damaged(path)
        known = ", ".join(candidate.name for candidate in formats())
        raise InputError(
            "a run or a dump", f"{path}, which no format recognises", f"known: {known}"
        )
    return with_environment(found.open(path), path)


def _refuse_damaged(path: Path) -> None:
    """A FormatError for a file that has the name of a format and not what it holds."""
    if path.is_file() and path.suffix in (".npz", ".npy", ".safetensors"):
        size = path.stat().st_size
        raise FormatError(
            f"a whole {path.suffix} file at {path}",
            f"{size:,} bytes that are none: it is cut off or damaged" if size else "an empty file",
            "copy it again, or record it again",
        )


def save_dump(run: Run, path: Path | str, name: str) -> None:
    """Write the values of a run in the format called `name`."""
    target, path = named(name), Path(path)
    if not isinstance(target, Saves):
        writable = ", ".join(f.name for f in formats() if isinstance(f, Saves))
        raise Unsupported("a format that can be written", name, f"these can: {writable}")
    if path.exists() or path.is_symlink():
        raise InputError("a new path to write to", f"{path} exists", "choose another name")
    try:
        with write_errors(path):
            target.save(run, path)
    except UnicodeEncodeError as error:
        raise Unsupported(
            f"names that are valid Unicode for the format {name}", repr(error.object)[:200]
        ) from error


@cache
def _built_in(place: str) -> DumpFormat:
    module, _, attribute = place.partition(":")
    found: DumpFormat = getattr(import_module(module), attribute)()
    return found


@cache
def _foreign() -> tuple[DumpFormat, ...]:
    """Formats of other packages; a broken one is left out with a warning, not fatal to all."""
    found = []
    for entry in entry_points(group=GROUP):
        try:
            loaded = entry.load()
            candidate = loaded() if isinstance(loaded, type) else loaded
        except Exception as error:
            _warn(entry.name, f"it cannot be loaded: {one_line(error)}")
            continue
        if getattr(candidate, "API", None) != API:
            _warn(entry.name, f"it is not written for API {API}")
        elif not isinstance(candidate, DumpFormat):
            _warn(entry.name, "it lacks name, sniff or open")
        else:
            found.append(candidate)
    return tuple(found)


def _warn(name: str, why: str) -> None:
    warnings.warn(f"the dump format {name} is left out: {why}", SyncpointWarning, stacklevel=3)
