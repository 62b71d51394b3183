"""A folder of .npy files: the relative path without its suffix is the name of the op."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import xxhash

from syncpoint.dumps.array_store import ArrayStore, Lay
from syncpoint.dumps.named_arrays import Entry, chunks, flat_run, named_values
from syncpoint.dumps.npy_header import (
    MAGIC,
    SUFFIX,
    make_header,
    npy_entry,
)
from syncpoint.dumps.protocol import API
from syncpoint.errors import FormatError, InputError
from syncpoint.files.atomic_writes import final_name_of
from syncpoint.files.outputs import output_folder
from syncpoint.files.untrusted_files import path_inside, require_folder
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import OpKey, TensorKey
from syncpoint.run.reader import Run

_PLAIN = " !#$&'()+,;=@[]{}^~"
"""Kept in file names beside letters, digits and _.-; all else is written as %XX."""
_MAX_NAME = 200


class NpyFolder:
    """Arrays in files of their own, ordered by name with numbers counted as numbers."""

    API = API
    name = "npy"
    priority = 900

    def sniff(self, path: Path) -> bool:
        """A folder with a .npy file somewhere in it, or one such file."""
        if path.is_file():
            try:
                with path.open("rb") as file:
                    return file.read(len(MAGIC)) == MAGIC
            except OSError:
                return False
        return path.is_dir() and next(_files(path), None) is not None

    def open(self, path: Path) -> Run:
        """Reads the headers only; what is not an array of numbers is a FormatError."""
        if path.is_file():
            root, names = path.parent, [path.name]
        else:
            root = require_folder(path, "a folder of .npy files")
            names = sorted(_files(path), key=_natural)
            if not names:
                raise InputError(f".npy files in {path}", "none", "check the path")
        entries: list[Entry] = []
        odd: dict[TensorKey, Lay] = {}
        for name in names:
            entry, lay = npy_entry(root, name)
            entries.append(entry)
            if lay is not None:
                odd[TensorKey(OpKey(entry.name))] = lay
        return flat_run(path, self.name, entries, ArrayStore(root, odd))

    def save(self, run: Run, path: Path) -> None:
        """One file a tensor; names that would leave the folder are escaped."""
        values = named_values(run)
        headers = [make_header(DTYPES[t.dtype], t.shape) for _, t in values]
        with output_folder(path) as temporary:
            for (name, tensor), header in zip(values, headers, strict=True):
                file_path = path_inside(temporary, escaped(name) + SUFFIX)
                file_path.parent.mkdir(parents=True, exist_ok=True)
                with file_path.open("xb") as file:
                    file.write(header)
                    for chunk in chunks(run, tensor):
                        file.write(chunk.data)


def escaped(name: str) -> str:
    """A relative path for any name; two names never give the same."""
    *parents, last = (_component(c) for c in name.split("/"))
    # A folder must not take the name that a file beside it may have.
    parents = [p[: -len(SUFFIX)] + "%2Enpy" if p.endswith(SUFFIX) else p for p in parents]
    return str(PurePosixPath(*parents, last))


def _component(text: str) -> str:
    plain = quote(text, safe=_PLAIN, errors="backslashreplace")
    if not plain.strip("."):
        plain = plain.replace(".", "%2E") or "%"
    if len(plain) > _MAX_NAME:
        digest = xxhash.xxh3_64_hexdigest(text.encode("utf-8", "backslashreplace"))
        plain = f"{plain[: _MAX_NAME - 17]}~{digest}"
    return plain


def _files(root: Path) -> Iterator[str]:
    """Relative paths of the .npy files; links to folders are not followed, and folders that
    another conversion has not finished are not looked into."""
    for parent, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not final_name_of(name)]
        base = Path(parent).relative_to(root)
        for file in files:
            if file.endswith(SUFFIX):
                name = (base / file).as_posix()
                if not name.isprintable():
                    # Tables, terminals and JSON cannot hold bytes that are no text.
                    raise FormatError(f"printable file names in {root}", ascii(name), "rename it")
                yield name


def _natural(name: str) -> list[tuple[int, str | int]]:
    """Sorts layer2 before layer10."""
    pieces = re.split(r"([0-9]+)", name)
    return [(0, int(p)) if p.isdecimal() and len(p) < 19 else (1, p) for p in pieces]
