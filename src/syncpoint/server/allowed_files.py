"""Which files a session may be shown: those in the folders named on the command line.

Paths come from a page. Each is made plain, links followed, before it is held against the folders;
hidden files and what leads out of them are treated as if they were not there.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from syncpoint.comparison.storage.comparison_folder import is_comparison
from syncpoint.errors import InputError, describe_error
from syncpoint.run.storage.folder import is_run
from syncpoint.runtimes.import_path import is_import_path
from syncpoint.runtimes.registry import find_runtimes_accepting
from syncpoint.server.session_schema import FileEntry, FolderListing

_MOST_ENTRIES = 2000
_MOST_MATCHES = 10_000
_DATA = (".npz", ".npy", ".safetensors")
Kind = Literal["folder", "model", "recording", "comparison", "python", "inputs", "file"]


class Folders:
    """The folders that may be looked into. Relative paths start where syncpoint was started."""

    def __init__(self, roots: Sequence[Path], out: Path | None = None) -> None:
        """`out`, where comparisons are kept, is one of them too, and need not exist yet."""
        self.here = Path.cwd().resolve()
        found = []
        for root in roots:
            if not root.is_dir():
                raise InputError("a folder", str(root), "name one that exists with --folder")
            found.append(root.resolve())
        self.roots = tuple(dict.fromkeys(found))
        if out is not None and self._root_of(out.resolve()) is None:
            self.roots += (out.resolve(),)

    def resolve(self, text: str) -> Path:
        """The file or folder that `text` names, whether it exists or not, but never outside."""
        named = ["the current folder" if r == self.here else self.text_of(r) for r in self.roots]
        refusal = InputError(
            f"a path in {' or '.join(named)}",
            repr(text),
            "name its folder on the command line: syncpoint session --folder DIR",
        )
        if "\0" in text or not text.strip():
            raise refusal
        try:
            path = (self.here / Path(text).expanduser()).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # circles, no such user, no letters
            raise InputError("a path", f"{text!r}: {describe_error(error)}") from error
        root = self._root_of(path)
        if root is None or any(part.startswith(".") for part in path.relative_to(root).parts):
            raise refusal
        return path

    def allowed(self, text: str) -> str:
        """What a model, a recording or inputs are called, once every file in it may be read.

        `package.module:attribute` names no file and is taken as it is: whoever has the token runs
        models on this machine anyway.
        """
        if is_import_path(text):
            where, _, attribute = text.rpartition(":")
            return f"{self._checked(where)}:{attribute}" if where.endswith(".py") else text
        if glob.has_magic(text) and not Path(text).expanduser().exists():
            return self._pattern(text)
        return self._checked(text)

    def listing(self, text: str = "") -> FolderListing:
        """What is in a folder; without one, the folders themselves."""
        if not text:
            roots = _known([self._entry(root, str(root)) for root in self.roots])
            if len(roots) == 1:
                return self.listing(str(self.roots[0]))
            return FolderListing(path="", parent=None, entries=roots, left_out=0)
        folder = self.resolve(text)
        if not folder.is_dir():
            raise InputError("a folder", text)
        try:
            names = sorted((entry.name for entry in folder.iterdir()), key=str.lower)
        except OSError as error:
            raise InputError(
                f"a folder that can be read at {text}", describe_error(error)
            ) from error
        names = [name for name in names if not name.startswith(".") and name.isprintable()]
        entries = _known([self._entry(folder / name, name) for name in names[:_MOST_ENTRIES]])
        entries.sort(key=lambda entry: entry.kind != "folder")
        parent: str | None = None
        if folder not in self.roots:
            parent = self.text_of(folder.parent)
        elif len(self.roots) > 1:
            parent = ""
        return FolderListing(
            path=self.text_of(folder),
            parent=parent,
            entries=entries,
            left_out=max(0, len(names) - _MOST_ENTRIES),
        )

    def text_of(self, path: Path) -> str:
        """A path as people write it here: relative where it is below the current folder."""
        if path == self.here:
            return "."
        return str(path.relative_to(self.here) if path.is_relative_to(self.here) else path)

    def _root_of(self, path: Path) -> Path | None:
        return next((root for root in self.roots if path.is_relative_to(root)), None)

    def _checked(self, text: str) -> str:
        self.resolve(text)
        plain = str(Path(text).expanduser())
        return f"./{plain}" if plain.startswith("-") else plain  # which no option begins with

    def _pattern(self, text: str) -> str:
        plain = str(Path(text).expanduser())
        if glob.has_magic(str(Path(plain).parent)):
            raise InputError("wildcards in the last part of a path alone", repr(text))
        self.resolve(str(Path(plain).parent))
        for number, match in enumerate(glob.iglob(plain)):  # noqa: PTH207
            if number == _MOST_MATCHES:
                raise InputError(f"at most {_MOST_MATCHES} files", f"more at {text!r}")
            self.resolve(match)
        return plain

    def _entry(self, path: Path, name: str) -> FileEntry | None:
        with suppress(OSError, RuntimeError, InputError):
            self.resolve(str(path))
            facts = path.stat()
            kind = kind_of(path)
            return FileEntry(
                name=name,
                path=self.text_of(path),
                kind=kind,
                size=facts.st_size if path.is_file() else None,
                modified=facts.st_mtime,
            )
        return None


def _known(entries: Sequence[FileEntry | None]) -> list[FileEntry]:
    return [entry for entry in entries if entry is not None]


def kind_of(path: Path) -> Kind:
    """What a file or folder seems to be, without reading much of it."""
    if path.is_dir():
        if is_comparison(path):
            return "comparison"
        if path.suffix == ".aimodelintermediates" or is_run(path):
            return "recording"
    elif path.suffix == ".py":
        return "python"
    elif path.suffix in _DATA:
        return "inputs"
    if find_runtimes_accepting(str(path)):
        return "model"
    return "folder" if path.is_dir() else "file"
