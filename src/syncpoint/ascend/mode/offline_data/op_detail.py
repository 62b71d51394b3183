"""Write files with every element of the tensors of one op, and with its worst elements; suggest
similar op names."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.ascend.dumps.file_names import escape_name
from syncpoint.ascend.matching.device_views import PLAIN_LAYOUTS
from syncpoint.ascend.matching.plan import PlanEntry
from syncpoint.ascend.mode.offline_data.open_and_plan import OfflineCase
from syncpoint.ascend.mode.offline_data.options import OfflineFlags
from syncpoint.errors import InputError
from syncpoint.files.outputs import output_folder
from syncpoint.spreadsheet_text import CsvWriter

_PIECE_ELEMENTS = 1 << 16
_COLUMNS = ("NPUDump", "GroundTruth", "AbsoluteError", "RelativeError")
_KINDS = ("absolute", "relative")


def write_op_detail(flags: OfflineFlags, case: OfflineCase, folder: Path) -> list[Path]:
    """Write a file with every element of each compared tensor of the op, and two files with the
    worst elements, to a folder beside the report."""
    entries = [e for e in case.plan.entries if flags.op in (e.op, *e.target_names)]
    if not entries:
        raise InputError(
            f"there is no device op {flags.op!r} for -op", cure=_similar_names(flags, case)
        )
    paths: list[Path] = []
    with output_folder(folder) as temporary:
        for entry in entries:
            if entry.reason is None and entry.target is not None and entry.reference is not None:
                paths += _write_tensor(flags, case, entry, temporary)
        if not paths:
            why = entries[0].report_text or "none is paired"
            raise InputError(f"none of the tensors of {flags.op} can be compared: {why}")
    return [folder / path.name for path in paths]


def _similar_names(flags: OfflineFlags, case: OfflineCase) -> str:
    names = {name for entry in case.plan.entries for name in entry.target_names}
    similar = get_close_matches(flags.op or "", names, n=3)
    if similar:
        return f"use one of the similar names: {', '.join(similar)}"
    return "use a name from the column NPUDump"


def _write_tensor(
    flags: OfflineFlags, case: OfflineCase, entry: PlanEntry, folder: Path
) -> Iterator[Path]:
    assert entry.target is not None and entry.reference is not None
    target = entry.view.apply(case.target.values(entry.target))
    reference = case.reference.values(entry.reference)
    shape = reference.shape
    flat = [np.ascontiguousarray(side).reshape(-1) for side in (target, reference)]
    has_axes = entry.axes not in PLAIN_LAYOUTS and len(entry.axes) == len(shape)
    axes = " ".join(entry.axes) if has_axes else "Position"
    key = entry.target.key
    stem = f"{escape_name(entry.op)[:120]}_{key.role}_{key.index}"
    worst: dict[str, list[tuple[float, int]]] = {kind: [] for kind in _KINDS}
    path = folder / f"{stem}.csv"
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = CsvWriter(file)
        writer.writerow(["Index", axes, *_COLUMNS])
        for start in range(0, flat[0].size, _PIECE_ELEMENTS):
            errors = _Errors(*(side[start : start + _PIECE_ELEMENTS] for side in flat))
            indices = np.arange(start, start + errors.count)
            writer.writerows(errors.rows(indices, shape))
            for kind in _KINDS:
                worst[kind] = _merge_worst(worst[kind], errors.of_kind(kind), start, flags.top)
    yield path
    for kind in _KINDS:
        path = folder / f"{stem}_{kind}_topn.csv"
        with path.open("x", newline="", encoding="utf-8") as file:
            writer = CsvWriter(file)
            writer.writerow(["Index", axes, *_COLUMNS])
            indices = np.array([index for _, index in worst[kind]], np.int64)
            errors = _Errors(*(side[indices] for side in flat))
            writer.writerows(errors.rows(indices, shape))
        yield path


class _Errors:
    """The errors of some elements in float64; exact for integers."""

    def __init__(self, target: NDArray[Any], reference: NDArray[Any]) -> None:
        self.count = target.size
        self._values = (target, reference)
        are_integers = all(side.dtype.kind in "iub" for side in self._values)
        with np.errstate(all="ignore"):
            if are_integers:
                exact = [side.astype(object) for side in self._values]
                self.absolute = np.abs(exact[0] - exact[1]).astype(np.float64)
                size = np.abs(exact[1]).astype(np.float64)
            else:
                wide = np.complex128 if any(s.dtype.kind == "c" for s in self._values) else float
                x, y = (side.astype(wide) for side in self._values)
                self.absolute = np.where(x == y, 0.0, np.abs(x - y))
                size = np.abs(y)
            self.relative = np.where(self.absolute == 0, 0.0, self.absolute / size)

    def of_kind(self, kind: str) -> NDArray[np.float64]:
        """The absolute or relative errors; NaN counts as infinite."""
        errors = self.absolute if kind == "absolute" else self.relative
        return np.where(np.isnan(errors), np.inf, errors)

    def rows(self, indices: NDArray[Any], shape: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
        """The lines of the file for the elements at these flat indices."""
        axes = np.unravel_index(indices, shape) if shape else (np.zeros(len(indices), np.int64),)
        coordinates = np.stack(axes, axis=1).tolist() if len(indices) else []
        target, reference = (side.tolist() for side in self._values)
        for k in range(self.count):
            yield (
                int(indices[k]),
                " ".join(map(str, coordinates[k])),
                target[k],
                reference[k],
                float(self.absolute[k]),
                float(self.relative[k]),
            )


def _merge_worst(
    worst: list[tuple[float, int]], errors: NDArray[np.float64], start: int, top: int
) -> list[tuple[float, int]]:
    """The worst elements (error, index) with those of another piece; of equals the first."""
    if not errors.size:
        return worst
    count = min(top, errors.size)
    threshold = np.partition(errors, errors.size - count)[errors.size - count]
    candidates = [
        *np.flatnonzero(errors > threshold),
        *np.flatnonzero(errors == threshold)[:count],
    ]
    merged = [*worst, *((float(errors[k]), start + int(k)) for k in candidates)]
    merged.sort(key=lambda pair: (-pair[0], pair[1]))
    return merged[:top]
