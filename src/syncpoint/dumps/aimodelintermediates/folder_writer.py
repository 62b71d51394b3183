"""Writes an `.aimodelintermediates` folder: whole under its name, or not at all."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.dumps.aimodelintermediates.syncpoint_keys import KEY
from syncpoint.errors import InputError
from syncpoint.files.outputs import partial_folder
from syncpoint.files.write_errors import write_errors
from syncpoint.run.storage.record_json import to_plain_json

SUFFIX = ".aimodelintermediates"
METADATA = "metadata.json"
CATEGORIES = ("inputs", "outputs", "intermediates")
_DATA = "data"
_ODD = re.compile(r"[^A-Za-z0-9_.+-]+")
_MAX_NAME = 150


class IntermediatesWriter:
    """A folder in the making, under another name until `finish`."""

    def __init__(self, path: Path) -> None:
        """An InputError if there is something at `path` already."""
        self.path = path
        self._entries: dict[str, dict[str, Any]] = {category: {} for category in CATEGORIES}
        self._number = 0
        _check_new(path)
        with write_errors(path):
            self._folder = partial_folder(path)
            self._partial = self._folder.path
            try:
                (self._partial / _DATA).mkdir()
            except OSError:
                self._folder.discard()
                raise

    def __enter__(self) -> IntermediatesWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.discard()  # does nothing after `finish`

    def __contains__(self, name: str) -> bool:
        return any(name in entries for entries in self._entries.values())

    def reserve(self, name: str) -> str:
        """The next file for a value of `name`, counted whether or not it is written."""
        stem = _ODD.sub("_", name)[:_MAX_NAME]
        self._number += 1
        return f"{_DATA}/{stem}_{self._number - 1:04d}.npy"

    def array(self, file: str, array: NDArray[Any]) -> None:
        """Write an array in the memory order it has."""
        with write_errors(self.path), (self._partial / file).open("xb") as opened:
            np.save(opened, array, allow_pickle=False)

    def pieces(self, file: str, pieces: Iterable[bytes | memoryview]) -> None:
        """Write header and data that come in pieces."""
        with write_errors(self.path), (self._partial / file).open("xb") as opened:
            for piece in pieces:
                opened.write(piece)

    def entry(
        self,
        category: str,
        name: str,
        op: str,
        target: str,
        file: str,
        shape: tuple[int, ...],
        dtype: str,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Say what lies in a file; the keys in the order that Apple's tools write them."""
        body: dict[str, Any] = {
            "node_name": name,
            "node_op": op,
            "node_target": target,
            "data_file": file,
            "shape": list(shape),
            "torch_dtype": dtype,
            "numel": int(np.prod(shape, dtype=object)),
        }
        if facts:
            body[KEY] = facts
        self._entries[category][name] = body

    def finish(
        self, mappings: Mapping[str, Any] | None = None, facts: Mapping[str, Any] | None = None
    ) -> Path:
        """Bring all to the disk, then give the folder its name; the path of its metadata."""
        body: dict[str, Any] = dict(self._entries)
        if mappings is not None:
            body["mappings"] = mappings
        if facts is not None:
            body[KEY] = facts
        text = json.dumps(body, indent=2, default=to_plain_json)
        with write_errors(self.path):
            (self._partial / METADATA).write_text(text, encoding="ascii")
            self._folder.publish(new=True)
        return self.path / METADATA


def _check_new(path: Path) -> None:
    if os.path.lexists(path):
        raise InputError(
            "a new folder for the intermediates", f"{path} exists", "choose another name"
        )
