"""The elements of one op, one by one, and the worst of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.ascend.dumps.file_names import escape_name
from syncpoint.ascend.matching.device_views import PLAIN
from syncpoint.ascend.matching.plan import Entry
from syncpoint.ascend.mode.offline_data.open_dumps import Case
from syncpoint.ascend.mode.offline_data.options import Asked
from syncpoint.errors import InputError
from syncpoint.files.outputs import output_folder
from syncpoint.spreadsheet_text import CsvWriter

_AT_ONCE = 1 << 16
_COLUMNS = ("NPUDump", "GroundTruth", "AbsoluteError", "RelativeError")
_KINDS = ("absolute", "relative")


def write_detail(asked: Asked, case: Case, folder: Path) -> list[Path]:
    """One file with every element of each compared tensor of the op, and two with the worst, in a
    folder beside the report."""
    entries = [e for e in case.plan.entries if asked.op in (e.op, *e.target_names)]
    if not entries:
        raise InputError("-op with the name of a device op", repr(asked.op), _hint(asked, case))
    made: list[Path] = []
    with output_folder(folder) as temporary:
        for entry in entries:
            if entry.reason is None and entry.target is not None and entry.reference is not None:
                made += _write(asked, case, entry, temporary)
        if not made:
            raise InputError(
                f"a tensor of {asked.op} that can be compared", entries[0].words or "none"
            )
    return [folder / path.name for path in made]


def _hint(asked: Asked, case: Case) -> str:
    names = {name for entry in case.plan.entries for name in entry.target_names}
    near = get_close_matches(asked.op or "", names, n=3)
    return f"near to it: {', '.join(near)}" if near else "the names are in the column NPUDump"


def _write(asked: Asked, case: Case, entry: Entry, folder: Path) -> Iterator[Path]:
    assert entry.target is not None and entry.reference is not None
    mine = entry.view.apply(case.target.values(entry.target))
    theirs = case.reference.values(entry.reference)
    shape = theirs.shape
    flat = np.ascontiguousarray(mine).reshape(-1), np.ascontiguousarray(theirs).reshape(-1)
    named = entry.axes not in PLAIN and len(entry.axes) == len(shape)
    axes = " ".join(entry.axes) if named else "Position"
    key = entry.target.key
    stem = f"{escape_name(entry.op)[:120]}_{key.role}_{key.index}"
    worst: dict[str, list[tuple[float, int]]] = {kind: [] for kind in _KINDS}
    path = folder / f"{stem}.csv"
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = CsvWriter(file)
        writer.writerow(["Index", axes, *_COLUMNS])
        for start in range(0, flat[0].size, _AT_ONCE):
            part = _Errors(*(side[start : start + _AT_ONCE] for side in flat))
            places = np.arange(start, start + part.count)
            writer.writerows(part.rows(places, shape, range(part.count)))
            for kind in _KINDS:
                worst[kind] = _merged(worst[kind], part.of(kind), start, asked.top)
    yield path
    for kind in _KINDS:
        path = folder / f"{stem}_{kind}_topn.csv"
        with path.open("x", newline="", encoding="utf-8") as file:
            writer = CsvWriter(file)
            writer.writerow(["Index", axes, *_COLUMNS])
            places = np.array([place for _, place in worst[kind]], np.int64)
            part = _Errors(*(side[places] for side in flat))
            writer.writerows(part.rows(places, shape, range(part.count)))
        yield path


class _Errors:
    """The errors of some elements, in float64, or exactly for integers."""

    def __init__(self, mine: NDArray[Any], theirs: NDArray[Any]) -> None:
        self.count = mine.size
        self._values = (mine, theirs)
        integers = all(side.dtype.kind in "iub" for side in self._values)
        with np.errstate(all="ignore"):
            if integers:
                whole = [side.astype(object) for side in self._values]
                self.absolute = np.abs(whole[0] - whole[1]).astype(np.float64)
                size = np.abs(whole[1]).astype(np.float64)
            else:
                wide = np.complex128 if any(s.dtype.kind == "c" for s in self._values) else float
                x, y = (side.astype(wide) for side in self._values)
                self.absolute = np.where(x == y, 0.0, np.abs(x - y))
                size = np.abs(y)
            self.relative = np.where(self.absolute == 0, 0.0, self.absolute / size)

    def of(self, kind: str) -> NDArray[np.float64]:
        """The errors of one kind; what cannot be computed counts as the worst."""
        errors = self.absolute if kind == "absolute" else self.relative
        return np.where(np.isnan(errors), np.inf, errors)

    def rows(
        self, places: NDArray[Any], shape: tuple[int, ...], which: Sequence[int]
    ) -> Iterator[tuple[Any, ...]]:
        """Lines of the file."""
        at = np.unravel_index(places, shape) if shape else (np.zeros(len(places), np.int64),)
        coordinates = np.stack(at, axis=1).tolist() if len(places) else []
        mine, theirs = (side.tolist() for side in self._values)
        for k in which:
            yield (
                int(places[k]),
                " ".join(map(str, coordinates[k])),
                mine[k],
                theirs[k],
                float(self.absolute[k]),
                float(self.relative[k]),
            )


def _merged(
    kept: list[tuple[float, int]], errors: NDArray[np.float64], start: int, top: int
) -> list[tuple[float, int]]:
    """The worst so far, the first of equals before the others."""
    if not errors.size:
        return kept
    count = min(top, errors.size)
    least = np.partition(errors, errors.size - count)[errors.size - count]
    candidates = [*np.flatnonzero(errors > least), *np.flatnonzero(errors == least)[:count]]
    found = [*kept, *((float(errors[k]), start + int(k)) for k in candidates)]
    found.sort(key=lambda pair: (-pair[0], pair[1]))
    return found[:top]
