"""The dump formats: those of this package, and those that packages add by an entry point.

A package adds one with an entry point in the group `syncpoint.dumps` that names a class, or an
object, with the attributes of `DumpFormat`, among them `API = 1`. The formats of Ascend's tools
are added in this way too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from syncpoint.dumps.environment_file import with_environment
from syncpoint.dumps.protocol import API, DumpFormat, Saves
from syncpoint.errors import FormatError, InputError, Unsupported
from syncpoint.files.write_errors import write_errors
from syncpoint.plugins import Seam
from syncpoint.run.reader import Run

FORMATS: Seam[DumpFormat] = Seam(
    "syncpoint.dumps",
    "dump format",
    DumpFormat,
    API,
    {
        "run": "syncpoint.dumps.run_folder:RunFolder",
        "safetensors": "syncpoint.dumps.safetensors:SafetensorsFile",
        "npz": "syncpoint.dumps.npz:NpzFile",
        "aimodelintermediates": "syncpoint.dumps.aimodelintermediates.format:AimodelIntermediates",
        "npy": "syncpoint.dumps.npy_folder:NpyFolder",
    },
)
_FALLBACK = "npy"
"""The folder of .npy files recognises little, so it takes its turn among the plugins."""
DEFAULT_PRIORITY = 1000


def formats() -> Iterator[DumpFormat]:
    """All formats in the order in which they are tried.

    Those that know their files beyond doubt come first, before any plugin is loaded. The others
    follow by their `priority`, the lowest first, then by name.
    """
    for name in FORMATS.built_in:
        if name != _FALLBACK:
            yield FORMATS.load(name)
    yield from sorted((FORMATS.load(_FALLBACK), *FORMATS.plugins()), key=_order)


def _order(candidate: DumpFormat) -> tuple[int, str]:
    return getattr(candidate, "priority", DEFAULT_PRIORITY), candidate.name


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
    return next((candidate for candidate in formats() if _recognises(candidate, path)), None)


def open_dump(path: Path | str) -> Run:
    """Open whatever is at `path`; a path that no format recognises is an InputError."""
    path = Path(path)
    if not path.exists():
        raise InputError("a run or a dump", f"nothing at {path}", "check the path")
    run = open_recognized(path)
    if run is None:
        _refuse_damaged(path)
        known = ", ".join(candidate.name for candidate in formats())
        raise InputError(
            "a run or a dump", f"{path}, which no format recognises", f"known: {known}"
        )
    return run


def open_recognized(path: Path) -> Run | None:
    """Open the run or dump at `path` with its `env.json`; None where no format recognises it."""
    dump_format = find(path) if path.exists() else None
    return None if dump_format is None else open_as(dump_format, path)


def open_as(dump_format: DumpFormat, path: Path) -> Run:
    """Open the run or dump at `path`, which is of this format, with its `env.json`.

    Everything that opens a recording by its path comes through here.
    """
    with FORMATS.contain_errors(dump_format.name, FormatError, f"to open {path}"):
        return with_environment(dump_format.open(path), path)


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
        with write_errors(path), FORMATS.contain_errors(name, Unsupported, f"to write {path}"):
            target.save(run, path)
    except UnicodeEncodeError as error:
        raise Unsupported(
            f"names that are valid Unicode for the format {name}", repr(error.object)[:200]
        ) from error


def _recognises(candidate: DumpFormat, path: Path) -> bool:
    return FORMATS.ask(candidate.name, lambda: candidate.sniff(path))
