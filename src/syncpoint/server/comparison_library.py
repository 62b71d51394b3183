"""The comparisons that this server may show, by name in URLs, and a cache of open ones."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from syncpoint.comparison.storage.comparison_folder import is_comparison
from syncpoint.comparison.storage.file_names import JSON_NAME
from syncpoint.errors import InputError
from syncpoint.page.open_comparison import OpenComparison, ResultInMemory, comparison_id

_MAX_OPEN = 4


@dataclass
class Library:
    """The comparisons named on the command line, and those in the folders named there."""

    paths: list[Path] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    """Folders with past comparisons, new comparisons, and files to choose from."""
    in_memory: list[ResultInMemory] = field(default_factory=list)
    """Comparisons of this process that are not saved."""

    def __post_init__(self) -> None:
        self._path_by_id = {comparison_id(path): path for path in self.paths}
        self._in_memory = {result.id: result for result in self.in_memory}
        self._open: OrderedDict[tuple[str, str], OpenComparison] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, path: Path) -> str:
        """Allow a comparison to be shown; return its name in URLs."""
        self._path_by_id[comparison_id(path)] = path
        return comparison_id(path)

    def list_comparisons(self) -> dict[str, Path]:
        """Return all comparisons that may be shown, by name in URLs, newest first."""
        paths = dict(self._path_by_id)
        for folder in self.folders:
            for path in folder.glob(f"*/{JSON_NAME}"):
                if not path.parent.resolve().is_relative_to(folder.resolve()):
                    continue  # a link that leads out
                paths.setdefault(comparison_id(path.parent), path.parent)
        existing = [(name, path) for name, path in paths.items() if is_comparison(path)]
        return dict(sorted(existing, key=lambda entry: -(entry[1] / JSON_NAME).stat().st_mtime))

    def get(self, name: str, limits: str = "") -> OpenComparison:
        """Return an open comparison; the least recently used one is closed."""
        with self._lock:
            key = (name, limits)
            if key not in self._open:
                self._open[key] = OpenComparison(self._find(name), limits)
                while len(self._open) > _MAX_OPEN:
                    self._open.popitem(last=False)
            self._open.move_to_end(key)
            return self._open[key]

    def _find(self, name: str) -> Path | ResultInMemory:
        source = self._in_memory.get(name) or self._path_by_id.get(name)
        source = source or self.list_comparisons().get(name)
        if source is None:
            raise InputError(
                f"no comparison {name!r} is open here", cure="open it with: syncpoint view"
            )
        return source
