"""The list of dump formats, built in or of plugins: find one by name or by the path that it
recognises.

A package adds one with an entry point in the group `syncpoint.dumps` that names a class, or an
object, with the attributes of `DumpFormat`, among them `API = 1`. The formats of Ascend's tools
are added in this way too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from syncpoint.dumps.protocol import API, DumpFormat
from syncpoint.errors import InputError
from syncpoint.plugins import Seam

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
"""The folder of .npy files fits many folders, so it is tried among the plugins."""
DEFAULT_PRIORITY = 1000


def iter_formats() -> Iterator[DumpFormat]:
    """Yield all formats in the order in which they are tried.

    Formats that recognise their files with certainty come first, before any plugin is loaded. The
    others follow by their `priority`, the lowest first, then by name.
    """
    for name in FORMATS.built_in:
        if name != _FALLBACK:
            yield FORMATS.load(name)
    yield from sorted((FORMATS.load(_FALLBACK), *FORMATS.plugins()), key=_sort_key)


def _sort_key(candidate: DumpFormat) -> tuple[int, str]:
    return getattr(candidate, "priority", DEFAULT_PRIORITY), candidate.name


def get_format(name: str) -> DumpFormat:
    """Return the format called `name`; an unknown name is an InputError."""
    names = []
    for candidate in iter_formats():
        if candidate.name == name:
            return candidate
        names.append(candidate.name)
    raise InputError(
        f"there is no dump format {name!r}", cure=f"choose one of these: {', '.join(names)}"
    )


def find_format(path: Path) -> DumpFormat | None:
    """Return the first format that recognises `path`, or None."""
    return next((candidate for candidate in iter_formats() if _recognizes(candidate, path)), None)


def _recognizes(candidate: DumpFormat, path: Path) -> bool:
    return FORMATS.ask(candidate.name, lambda: candidate.sniff(path))
