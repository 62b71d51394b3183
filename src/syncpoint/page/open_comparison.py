"""One comparison open for the page (saved or in memory): name in URLs, table, document, limits,
edges, runs on demand, a reduced `Result` of decisive rows."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from syncpoint.comparison.coverage import Coverage
from syncpoint.comparison.result import Result
from syncpoint.comparison.sides import Sides, build_sides
from syncpoint.comparison.storage.comparison_folder import is_comparison, load
from syncpoint.comparison.storage.comparison_json import (
    read_comparison_json,
    result_to_json,
    unmatched_from_json,
    unverified_reason,
)
from syncpoint.comparison.storage.file_names import JSON_NAME
from syncpoint.comparison.storage.sync_point_table import open_table, read_columns, row_from_table
from syncpoint.dumps.open_dump import open_recognized
from syncpoint.dumps.registry import find_format
from syncpoint.errors import FormatError, InputError, SyncpointError
from syncpoint.files.sealed_json import Document
from syncpoint.foreign_text import make_encodable
from syncpoint.matching.masks import read_masks
from syncpoint.metrics.limits import Limits, preset
from syncpoint.metrics.verdict import Verdict
from syncpoint.page.row_table import RowTable
from syncpoint.run.model import OpKey
from syncpoint.run.reader import Run

_MAX_ROWS_TO_REJUDGE = 200_000
"""A larger comparison cannot be judged again under other limits, which is done row by row."""
_MAX_DECISIVE_ROWS = 20_000
_COMPARE_AGAIN = "compare the two runs again"


def comparison_id(path: Path) -> str:
    """Return the name of a comparison in URLs: always the same for the same folder."""
    return hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:12]


@dataclass(frozen=True)
class SavedComparison:
    """A comparison in its folder."""

    path: Path

    @property
    def id(self) -> str:
        """Its name in URLs."""
        return comparison_id(self.path)

    @cached_property
    def _document(self) -> Document:
        return _read_document(self.path)

    @property
    def about(self) -> Mapping[str, Any]:
        """Its `comparison.json`."""
        return self._document.body

    @property
    def unverified(self) -> str:
        """Why its files could not be verified; "" where they were."""
        return unverified_reason(self._document)

    @property
    def runs(self) -> Mapping[str, Run]:
        """Runs in memory: none; they are opened by their paths."""
        return {}

    def frame(self) -> pl.DataFrame:
        """Its table."""
        return read_columns(self.path, self._document)

    def load(self) -> Result | None:
        """Its rows as objects; None where there are too many for that."""
        rows = open_table(self.path, self._document).rows
        return load(self.path) if rows <= _MAX_ROWS_TO_REJUDGE else None


@dataclass(frozen=True)
class ResultInMemory:
    """A comparison that is shown without being saved."""

    result: Result
    name: str
    """Its name; its folder would be `NAME.cmp`."""
    runs: Mapping[str, Run] = field(default_factory=dict)
    """The runs that are in memory, by side."""
    home: Path = field(default_factory=Path.cwd)
    """The folder that paths of runs are relative to."""

    @property
    def path(self) -> Path:
        """Where its folder would be."""
        return self.home / f"{self.name}.cmp"

    @cached_property
    def _text(self) -> str:
        return json.dumps(make_encodable(result_to_json(self.result, self.path)))

    @property
    def id(self) -> str:
        """Its name in URLs: the same for the same content."""
        return hashlib.sha256(self._text.encode()).hexdigest()[:12]

    @cached_property
    def about(self) -> Mapping[str, Any]:
        """What its `comparison.json` would contain, in the types of JSON."""
        about: dict[str, Any] = json.loads(self._text)
        return about

    @property
    def unverified(self) -> str:
        """Why the files it was read from could not be verified; "" if there are none."""
        return self.result.unverified

    def frame(self) -> pl.DataFrame:
        """Its table."""
        return self.result.table

    def load(self) -> Result | None:
        """Its rows as objects."""
        return self.result


class OpenComparison:
    """A comparison as the page reads it. Safe to use from several threads."""

    def __init__(self, source: Path | ResultInMemory, limits: str = "") -> None:
        self._source = SavedComparison(source) if isinstance(source, Path) else source
        self.path = self._source.path
        self.id = self._source.id
        self.about = self._source.about
        self.unverified = self._source.unverified
        """Why its files could not be verified; "" where they were."""
        self.runs: dict[str, Run | None] = dict(self._source.runs)
        """The runs opened so far; None where a run cannot be read."""
        self.why_missing: dict[str, str] = dict.fromkeys(self.runs, "")
        """By side, why a run cannot be read; "" where it can."""
        self._lock = threading.Lock()
        self.cache: dict[str, Any] = {}
        """Answers that are computed once."""
        self._limits_name = limits
        self.table = RowTable(self._frame(), self.limits)

    @cached_property
    def limits(self) -> Limits | None:
        """The limits of every row; None for `auto`."""
        if self._limits_name:
            return None if self._limits_name == "auto" else preset(self._limits_name)
        saved = self.about["limits"]
        if saved == "auto":
            return None
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in saved.items()
        }
        return Limits(**fields)

    @property
    def limits_name(self) -> str:
        """The name of the limits."""
        return self.limits.name if self.limits else "auto"

    @cached_property
    def result(self) -> Result | None:
        """The comparison with its rows as objects; None where there are too many rows for that."""
        comparison = self._source.load()
        if comparison is None or not self._limits_name:
            return comparison
        return comparison.rejudged(self.limits or "auto")

    @cached_property
    def decisive_rows(self) -> tuple[Result, list[int]] | None:
        """The rows that decide on the first divergence and the exit code (not close, no verdict,
        inputs, outputs), and their numbers; None where they are too many."""
        is_off = pl.col("verdict") != "close"
        is_end = pl.col("target_role").is_in(["model-input", "model-output"])
        is_decisive = self.table.frame.select(is_off | pl.col("output") | is_end).to_series()
        numbers = is_decisive.arg_true()
        if len(numbers) > _MAX_DECISIVE_ROWS:
            return None
        try:
            comparison = Result(
                target=self.about["target"],
                reference=self.about["reference"],
                rows=[
                    row_from_table(fields)
                    for fields in self.table.frame[numbers].iter_rows(named=True)
                ],
                unmatched=[unmatched_from_json(lonely) for lonely in self.about["unmatched"]],
                choice=self.limits or "auto",
                edges={
                    OpKey(*op): tuple(OpKey(*i) for i in reads) for op, reads in self.edges.items()
                },
                unkept=self.about.get("unkept", {}),
                partial=tuple(self.about.get("partial", ())),
                min_coverage=self.about.get("min_coverage"),
            )
            verdict = self.result.verdict if self._limits_name and self.result else None
            # Verdict and coverage are those of all rows, not only of these.
            comparison.__dict__["verdict"] = verdict or Verdict(self.about["verdict"])
            comparison.__dict__["coverage"] = Coverage.of_saved(self.about)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(
                f"{self.path} is damaged or incomplete: {error!r}", cure=_COMPARE_AGAIN
            ) from error
        return comparison, numbers.to_list()

    def _frame(self) -> pl.DataFrame:
        if self._limits_name and self.result is not None:
            return self.result.table
        return self._source.frame()

    def run(self, side: str) -> Run | None:
        """The run of one side, opened at the first call; `why_missing` has why there is none."""
        # Several panes ask at once; a run that is being opened is not a missing one.
        with self._lock:
            if side not in self.runs:
                self.runs[side] = self._open_run(side)
            return self.runs[side]

    def _open_run(self, side: str) -> Run | None:
        path = self.run_path(side)
        self.why_missing[side] = self.why_run_missing(side)
        if path is None or self.why_missing[side]:
            return None
        try:
            return _open_recording(path)
        except SyncpointError as error:
            self.why_missing[side] = str(error)
            return None

    def why_run_missing(self, side: str) -> str:
        """Why the run of one side is not available; "" if it is. The run is not opened for this,
        which takes long for a dump of many files."""
        if self.runs.get(side) is not None:
            return ""
        path = self.run_path(side)
        if path is None:
            return "it was not saved to disk"
        if not path.exists():
            return f"no such file: {path.name} in {path.parent.resolve()}"
        return self.why_missing.get(side, "")

    @cached_property
    def sides(self) -> Sides | None:
        """Both runs as they are compared, with the masks of the map; None where one of them is not
        available."""
        target, reference = self.run("target"), self.run("reference")
        if target is None or reference is None:
            return None
        masks = read_masks(self.about.get("masks") or {}, str(self.path / JSON_NAME))
        return build_sides(target, reference, masks)

    @cached_property
    def edges(self) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
        """Target ops with the ops they read, each by the fields of its key."""
        edges = self.about.get("edges") or []
        try:
            return {tuple(op): [tuple(producer) for producer in inputs] for op, inputs in edges}
        except (TypeError, ValueError) as error:
            raise FormatError(
                f"the edges between ops in {self.path} are not valid: {error!r}",
                cure=_COMPARE_AGAIN,
            ) from error

    @property
    def has_edges(self) -> bool:
        """Whether it is known what any op reads; a dump of arrays does not record it."""
        return any(self.edges.values())

    def run_path(self, side: str) -> Path | None:
        """Where the run of one side was when the two were compared."""
        path = self.about[side]["path"]
        return Path(os.path.normpath(self.path / path)) if path else None


def _open_recording(path: Path) -> Run:
    run = open_recognized(path)
    if run is None:
        raise FormatError(f"{path} is not a run or a dump", cure="put the run back in its place")
    return run


def _read_document(path: Path) -> Document:
    if not is_comparison(path):
        raise _not_a_comparison(path)
    return read_comparison_json(path)


def _not_a_comparison(path: Path) -> InputError:
    """Return the error for a path without a comparison: what is there, and what to do about it."""
    if not path.exists():
        return InputError(f"no such file or folder: {path}", cure="check the path")
    problem = f"{path} is not a comparison (a folder with {JSON_NAME})"
    recording = find_format(path)
    if recording is None:
        cure = "make one with: syncpoint compare TARGET REFERENCE -o NAME.cmp"
        return InputError(problem, cure=cure)
    kind = "a run" if recording.name == "run" else f"a recording ({recording.name})"
    cure = f"compare it first: syncpoint compare {path} REFERENCE -o NAME.cmp"
    return InputError(f"{problem} but {kind}", cure=cure)
