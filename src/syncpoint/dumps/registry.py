"""The dump formats: those of this package, and those that packages add by an entry point.

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


def _recognises(candidate: DumpFormat, path: Path) -> bool:
    return FORMATS.ask(candidate.name, lambda: candidate.sniff(path))
