"""One comparison that is open: its table, what is known of its runs, and the runs on demand."""

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
from syncpoint.page.table import Table
from syncpoint.run.model import OpKey
from syncpoint.run.reader import Run

_MOST_ROWS = 200_000
"""Up to here a comparison can be judged again under other limits, which is done row by row."""
_MOST_TELLING = 20_000


def name_of(path: Path) -> str:
    """What a comparison is called in addresses: the same for the same folder, whoever asks."""
    return hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:12]


@dataclass(frozen=True)
class SavedComparison:
    """A comparison in its folder."""

    path: Path

    @property
    def id(self) -> str:
        """What it is called in addresses."""
        return name_of(self.path)

    @cached_property
    def _document(self) -> Document:
        return _document(self.path)

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
        """The runs at hand: none, they are opened by their paths."""
        return {}

    def frame(self) -> pl.DataFrame:
        """Its table."""
        return read_columns(self.path, self._document)

    def load(self) -> Result | None:
        """Its rows as objects; None where there are too many for that."""
        rows = open_table(self.path, self._document).rows
        return load(self.path) if rows <= _MOST_ROWS else None


@dataclass(frozen=True)
class ResultInMemory:
    """A comparison that need not be saved to be shown."""

    result: Result
    name: str
    """What it is called; its folder would be `NAME.cmp`."""
    runs: Mapping[str, Run] = field(default_factory=dict)
    """Those of its runs that are at hand, by side."""
    home: Path = field(default_factory=Path.cwd)
    """The folder that paths of runs are told from."""

    @property
    def path(self) -> Path:
        """Where its folder would be."""
        return self.home / f"{self.name}.cmp"

    @cached_property
    def _text(self) -> str:
        return json.dumps(make_encodable(result_to_json(self.result, self.path)))

    @property
    def id(self) -> str:
        """What it is called in addresses: the same for the same content."""
        return hashlib.sha256(self._text.encode()).hexdigest()[:12]

    @cached_property
    def about(self) -> Mapping[str, Any]:
        """What its `comparison.json` would say, in the types of JSON."""
        about: dict[str, Any] = json.loads(self._text)
        return about

    @property
    def unverified(self) -> str:
        """Why the files it was read from could not be verified, if it was."""
        return self.result.unverified

    def frame(self) -> pl.DataFrame:
        """Its table."""
        return self.result.table

    def load(self) -> Result | None:
        """Its rows as objects."""
        return self.result


class Opened:
    """A comparison as the page sees it. Reading only; safe to use from several threads."""

    def __init__(self, source: Path | ResultInMemory, limits: str = "") -> None:
        self._source = SavedComparison(source) if isinstance(source, Path) else source
        self.path = self._source.path
        self.id = self._source.id
        self.about = self._source.about
        self.unverified = self._source.unverified
        """Why its files could not be verified; "" where they were."""
        self.runs: dict[str, Run | None] = dict(self._source.runs)
        """Those opened so far; None where a run cannot be read."""
        self.why_not: dict[str, str] = dict.fromkeys(self.runs, "")
        self._opening = threading.Lock()
        self.told: dict[str, Any] = {}
        """Answers that are the same for everyone who asks."""
        self._chosen = limits
        self.table = Table(self._frame(), self.limits)

    @cached_property
    def limits(self) -> Limits | None:
        """Those of every row; None for `auto`."""
        if self._chosen:
            return None if self._chosen == "auto" else preset(self._chosen)
        said = self.about["limits"]
        if said == "auto":
            return None
        pairs: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in said.items()}
        return Limits(**pairs)

    @property
    def limits_name(self) -> str:
        """In one word."""
        return self.limits.name if self.limits else "auto"

    @cached_property
    def result(self) -> Result | None:
        """The same as objects; None where there are too many rows for that."""
        found = self._source.load()
        if found is None or not self._chosen:
            return found
        return found.rejudged(self.limits or "auto")

    @cached_property
    def telling(self) -> tuple[Result, list[int]] | None:
        """The rows on which it depends where the runs part and how the command ends (what is off
        or has no verdict, inputs and outputs), and their places; None where they are too many."""
        off = pl.col("verdict") != "close"
        ends = pl.col("target_role").is_in(["model-input", "model-output"])
        wanted = self.table.frame.select(off | pl.col("output") | ends).to_series().arg_true()
        if len(wanted) > _MOST_TELLING:
            return None
        try:
            found = Result(
                target=self.about["target"],
                reference=self.about["reference"],
                rows=[
                    row_from_table(flat) for flat in self.table.frame[wanted].iter_rows(named=True)
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
            verdict = self.result.verdict if self._chosen and self.result else None
            # These two are of all rows.
            found.__dict__["verdict"] = verdict or Verdict(self.about["verdict"])
            found.__dict__["coverage"] = Coverage.of_saved(self.about)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"a whole comparison in {self.path}", f"{error!r}") from error
        return found, wanted.to_list()

    def _frame(self) -> pl.DataFrame:
        if self._chosen and self.result is not None:
            return self.result.table
        return self._source.frame()

    def run(self, side: str) -> Run | None:
        """The run of one side, opened when first asked for; `why_not` says why there is none."""
        # Several panes ask at once, and none may take a run that is being opened for a lost one.
        with self._opening:
            if side not in self.runs:
                self.runs[side] = self._run(side)
            return self.runs[side]

    def _run(self, side: str) -> Run | None:
        path = self.run_path(side)
        self.why_not[side] = self.absence(side)
        if path is None or self.why_not[side]:
            return None
        try:
            return _recorded(path)
        except SyncpointError as error:
            self.why_not[side] = str(error)
            return None

    def absence(self, side: str) -> str:
        """Why the run of one side is not at hand, as far as can be told without opening it, which
        takes its time where a dump has many files; "" if it is there."""
        if self.runs.get(side) is not None:
            return ""
        path = self.run_path(side)
        if path is None:
            return "it was never kept on disk"
        if not path.exists():
            return f"there is no {path.name} in {path.parent.resolve()}"
        return self.why_not.get(side, "")

    @cached_property
    def sides(self) -> Sides | None:
        """Both runs as they are compared, with the masks of the map; None where one of them is not
        at hand."""
        target, reference = self.run("target"), self.run("reference")
        if target is None or reference is None:
            return None
        masks = read_masks(self.about.get("masks") or {}, str(self.path / JSON_NAME))
        return build_sides(target, reference, masks)

    @cached_property
    def edges(self) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
        """Target ops with the ops they read, each by the fields of its key."""
        said = self.about.get("edges") or []
        try:
            return {tuple(op): [tuple(before) for before in inputs] for op, inputs in said}
        except (TypeError, ValueError) as error:
            raise FormatError(f"edges between ops in {self.path}", f"{error!r}") from error

    @property
    def knows_reads(self) -> bool:
        """Whether it is known what any op reads; a dump of arrays does not say."""
        return any(self.edges.values())

    def run_path(self, side: str) -> Path | None:
        """Where the run of one side was when the two were compared."""
        said = self.about[side]["path"]
        return Path(os.path.normpath(self.path / said)) if said else None


def _recorded(path: Path) -> Run:
    run = open_recognized(path)
    if run is None:
        raise FormatError(f"a run or a dump at {path}", "something else")
    return run


def _document(path: Path) -> Document:
    if not is_comparison(path):
        raise InputError(f"a comparison (a folder with {JSON_NAME})", *_instead(path))
    return read_comparison_json(path)


def _instead(path: Path) -> tuple[str, str]:
    """What is at a path that is no comparison, and what to do about it."""
    if not path.exists():
        return f"nothing at {path}", "check the path"
    recorded = find_format(path)
    if recorded is None:
        return str(path), "make one with: syncpoint compare TARGET REFERENCE -o NAME.cmp"
    kind = "a run" if recorded.name == "run" else f"a recording ({recorded.name})"
    cure = f"compare it first: syncpoint compare {path} REFERENCE -o NAME.cmp"
    return f"{kind} at {path}, which has nothing to stand against yet", cure
