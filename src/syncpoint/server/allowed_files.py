"""The files that a session may read: resolve and check paths against the allowed folders, list
folders, detect the kind of a file.

Paths come from a page. Each is resolved, with its links, before it is checked against the folders;
hidden files and links that lead out of the folders are treated as missing.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from syncpoint.comparison.storage.comparison_folder import is_comparison
from syncpoint.errors import InputError, describe_error
from syncpoint.files.read_errors import read_errors
from syncpoint.run.storage.folder import is_run
from syncpoint.runtimes.import_path import is_import_path
from syncpoint.runtimes.registry import find_runtimes_accepting
from syncpoint.server.session_schema import FileEntry, FolderListing

_MAX_ENTRIES = 2000
_MAX_MATCHES = 10_000
_INPUT_SUFFIXES = (".npz", ".npy", ".safetensors")
FileKind = Literal["folder", "model", "recording", "comparison", "python", "inputs", "file"]


class AllowedFolders:
    """The folders that may be read. Relative paths start at the current folder."""

    def __init__(self, roots: Sequence[Path], out: Path | None = None) -> None:
        """`out`, the folder of comparisons, is allowed too, and need not exist yet."""
        self.current_folder = Path.cwd().resolve()
        for root in roots:
            if not root.is_dir():
                raise InputError(
                    f"{root} is not a folder", cure="give an existing folder with --folder"
                )
        self.roots = tuple(dict.fromkeys(root.resolve() for root in roots))
        if out is not None and self._root_of(out.resolve()) is None:
            self.roots += (out.resolve(),)

    def resolve(self, text: str) -> Path:
        """Return the path that `text` names, whether it exists or not, but never outside."""
        names = [
            "the current folder" if root == self.current_folder else self.display_path(root)
            for root in self.roots
        ]
        refusal = InputError(
            f"{text!r} is not a path in {' or '.join(names)}",
            cure="allow its folder on the command line: syncpoint session --folder DIR",
        )
        if "\0" in text or not text.strip():
            raise refusal
        try:
            path = (self.current_folder / Path(text).expanduser()).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # link loops, no such user, encodings
            if text.startswith("~") and isinstance(error, RuntimeError):
                raise InputError(
                    f"the home folder in {text!r} is not known",
                    cure="write the full path, or set the environment variable HOME",
                ) from error
            raise InputError(
                f"{text!r} is not a valid path: {describe_error(error)}",
                cure="write the full path of a file or folder",
            ) from error
        root = self._root_of(path)
        if root is None or any(part.startswith(".") for part in path.relative_to(root).parts):
            raise refusal
        return path

    def check_path(self, text: str) -> str:
        """Return the name of a model, a recording or inputs if every file in it may be read.

        `package.module:attribute` names no file and is returned as it is: a client with the token
        can run models on this machine anyway.
        """
        if is_import_path(text):
            module, _, attribute = text.rpartition(":")
            if module.endswith(".py"):
                return f"{self._check_plain_path(module)}:{attribute}"
            return text
        if glob.has_magic(text) and not Path(text).expanduser().exists():
            return self._check_pattern(text)
        return self._check_plain_path(text)

    def list_folder(self, text: str = "") -> FolderListing:
        """Return the files in a folder; without a path, the allowed folders."""
        if not text:
            roots = self._build_entries((root, str(root)) for root in self.roots)
            if len(roots) == 1:
                return self.list_folder(str(self.roots[0]))
            return FolderListing(path="", parent=None, entries=roots, left_out=0)
        folder = self.resolve(text)
        if not folder.is_dir():
            raise InputError(f"{text} is not a folder", cure="check the path")
        with read_errors(f"the folder {text}", cure="check that you may read it"):
            names = sorted((entry.name for entry in folder.iterdir()), key=str.lower)
        names = [name for name in names if not name.startswith(".") and name.isprintable()]
        entries = self._build_entries((folder / name, name) for name in names[:_MAX_ENTRIES])
        entries.sort(key=lambda entry: entry.kind != "folder")
        parent: str | None = None
        if folder not in self.roots:
            parent = self.display_path(folder.parent)
        elif len(self.roots) > 1:
            parent = ""
        return FolderListing(
            path=self.display_path(folder),
            parent=parent,
            entries=entries,
            left_out=max(0, len(names) - _MAX_ENTRIES),
        )

    def display_path(self, path: Path) -> str:
        """Return a path as text, relative where it is below the current folder."""
        if path == self.current_folder:
            return "."
        is_below = path.is_relative_to(self.current_folder)
        return str(path.relative_to(self.current_folder) if is_below else path)

    def _root_of(self, path: Path) -> Path | None:
        return next((root for root in self.roots if path.is_relative_to(root)), None)

    def _check_plain_path(self, text: str) -> str:
        self.resolve(text)
        plain = str(Path(text).expanduser())
        return f"./{plain}" if plain.startswith("-") else plain  # not to be read as an option

    def _check_pattern(self, text: str) -> str:
        plain = str(Path(text).expanduser())
        if glob.has_magic(str(Path(plain).parent)):
            raise InputError(
                f"{text!r} has wildcards in a folder name",
                cure="use wildcards only in the last part of the path",
            )
        self.resolve(str(Path(plain).parent))
        for number, match in enumerate(glob.iglob(plain)):  # noqa: PTH207
            if number == _MAX_MATCHES:
                raise InputError(
                    f"{text!r} matches more than {_MAX_MATCHES:,} files",
                    cure="use a narrower pattern",
                )
            self.resolve(match)
        return plain

    def _build_entries(self, paths: Iterable[tuple[Path, str]]) -> list[FileEntry]:
        """Return the entries of a listing, without files that may not be read."""
        entries = []
        for path, name in paths:
            with suppress(OSError, RuntimeError, InputError):
                self.resolve(str(path))
                status = path.stat()
                entries.append(
                    FileEntry(
                        name=name,
                        path=self.display_path(path),
                        kind=detect_kind(path),
                        size=status.st_size if path.is_file() else None,
                        modified=status.st_mtime,
                    )
                )
        return entries


def detect_kind(path: Path) -> FileKind:
    """Return what a file or folder seems to be, without reading much of it."""
    if path.is_dir():
        if is_comparison(path):
            return "comparison"
        if path.suffix == ".aimodelintermediates" or is_run(path):
            return "recording"
    elif path.suffix == ".py":
        return "python"
    elif path.suffix in _INPUT_SUFFIXES:
        return "inputs"
    if find_runtimes_accepting(str(path)):
        return "model"
    return "folder" if path.is_dir() else "file"
