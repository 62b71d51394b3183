"""The dump format of .npy files, one file or a folder: recognise (`sniff`), read and write it, with
relative paths as op names, in natural order."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import xxhash

from syncpoint.dumps.array_store import ArrayStore, StoredLayout
from syncpoint.dumps.named_arrays import ArrayEntry, build_flat_run, iter_chunks, list_named_values
from syncpoint.dumps.npy_header import (
    MAGIC,
    SUFFIX,
    make_header,
    read_npy_entry,
)
from syncpoint.dumps.protocol import API
from syncpoint.errors import FormatError, InputError
from syncpoint.files.atomic_writes import final_name_of
from syncpoint.files.outputs import output_folder
from syncpoint.files.untrusted_files import path_inside, require_folder
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import OpKey, TensorKey
from syncpoint.run.reader import Run

_UNESCAPED = " !#$&'()+,;=@[]{}^~"
"""Characters that file names keep besides letters, digits and _.-; others are written as %XX."""
_MAX_NAME_CHARACTERS = 200
_MAX_DIGITS = 18
"""Longer numbers in file names are sorted as text."""


class NpyFolder:
    """A folder of .npy files, sorted by name; numbers in names are sorted as numbers."""

    API = API
    name = "npy"
    priority = 900

    def sniff(self, path: Path) -> bool:
        """Whether `path` is a .npy file, or a folder that contains one at any depth."""
        if path.is_file():
            try:
                with path.open("rb") as file:
                    return file.read(len(MAGIC)) == MAGIC
            except OSError:
                return False
        return path.is_dir() and next(_iter_npy_files(path), None) is not None

    def open(self, path: Path) -> Run:
        """Open the folder or file; reads the headers only.

        A file that is not an array of numbers is a FormatError.
        """
        if path.is_file():
            root, names = path.parent, [path.name]
        else:
            root = require_folder(path, "a folder of .npy files")
            names = sorted(_iter_npy_files(path), key=_natural_sort_key)
            if not names:
                raise InputError(
                    f"no .npy files in {path}", cure="give the path of the folder that holds them"
                )
        entries: list[ArrayEntry] = []
        layouts: dict[TensorKey, StoredLayout] = {}
        for name in names:
            entry, layout = read_npy_entry(root, name)
            entries.append(entry)
            if layout is not None:
                layouts[TensorKey(OpKey(entry.name))] = layout
        return build_flat_run(path, self.name, entries, ArrayStore(root, layouts))

    def save(self, run: Run, path: Path) -> None:
        """Write one file per tensor; names that would leave the folder are escaped."""
        values = list_named_values(run)
        headers = [make_header(DTYPES[t.dtype], t.shape) for _, t in values]
        with output_folder(path) as temporary:
            for (name, tensor), header in zip(values, headers, strict=True):
                file_path = path_inside(temporary, escape_path(name) + SUFFIX)
                file_path.parent.mkdir(parents=True, exist_ok=True)
                with file_path.open("xb") as file:
                    file.write(header)
                    for chunk in iter_chunks(run, tensor):
                        file.write(chunk.data)


def escape_path(name: str) -> str:
    """Turn any name into a relative path; two names never give the same path."""
    *parents, last = (_escape_component(c) for c in name.split("/"))
    # A folder must not have a name that a file beside it may have.
    parents = [p[: -len(SUFFIX)] + "%2Enpy" if p.endswith(SUFFIX) else p for p in parents]
    return str(PurePosixPath(*parents, last))


def _escape_component(text: str) -> str:
    name = quote(text, safe=_UNESCAPED, errors="backslashreplace")
    if not name.strip("."):
        name = name.replace(".", "%2E") or "%"
    if len(name) > _MAX_NAME_CHARACTERS:
        digest = xxhash.xxh3_64_hexdigest(text.encode("utf-8", "backslashreplace"))
        name = f"{name[: _MAX_NAME_CHARACTERS - 17]}~{digest}"
    return name


def _iter_npy_files(root: Path) -> Iterator[str]:
    """Yield the relative paths of the .npy files.

    Links to folders are not followed. Folders of unfinished conversions are skipped.
    """
    for parent, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not final_name_of(name)]
        base = Path(parent).relative_to(root)
        for file in files:
            if file.endswith(SUFFIX):
                name = (base / file).as_posix()
                if not name.isprintable():
                    # Tables, terminals and JSON cannot hold bytes that are not text.
                    raise FormatError(
                        f"{root} has a file name that is not printable: {name!a}",
                        cure="rename the file",
                    )
                yield name


def _natural_sort_key(name: str) -> list[tuple[int, str | int]]:
    """Sort key that puts layer2 before layer10."""
    pieces = re.split(r"([0-9]+)", name)
    return [(0, int(p)) if p.isdecimal() and len(p) <= _MAX_DIGITS else (1, p) for p in pieces]
