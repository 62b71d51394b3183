"""Writes the files of an `.aimodelintermediates` folder; it appears when it is complete."""

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
_NOT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9_.+-]+")
_MAX_NAME_CHARACTERS = 150


class IntermediatesWriter:
    """Writes one folder, which has a temporary name until `finish`."""

    def __init__(self, path: Path) -> None:
        """Create the temporary folder; a `path` that exists is an InputError."""
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

    def reserve_file(self, name: str) -> str:
        """Return the next file for a value of `name`; it counts even if it is not written."""
        stem = _NOT_IN_FILE_NAMES.sub("_", name)[:_MAX_NAME_CHARACTERS]
        self._number += 1
        return f"{_DATA}/{stem}_{self._number - 1:04d}.npy"

    def write_array(self, file: str, array: NDArray[Any]) -> None:
        """Write an array in its own memory order."""
        with write_errors(self.path), (self._partial / file).open("xb") as opened:
            np.save(opened, array, allow_pickle=False)

    def write_pieces(self, file: str, pieces: Iterable[bytes | memoryview]) -> None:
        """Write a header and values that come in pieces."""
        with write_errors(self.path), (self._partial / file).open("xb") as opened:
            for piece in pieces:
                opened.write(piece)

    def add_entry(
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
        """Describe a file in the metadata, with the keys in the order of Apple's tools."""
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
        """Write the metadata and give the folder its name; returns the path of the metadata."""
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
        raise InputError(f"{path} already exists", cure="choose another name")
