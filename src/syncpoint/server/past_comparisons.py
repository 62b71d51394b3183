"""Comparisons of the past, each read as little as its line in the list needs."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from syncpoint.comparison.coverage import Coverage
from syncpoint.comparison.storage.comparison_folder import load
from syncpoint.comparison.storage.comparison_json import read_comparison_json
from syncpoint.comparison.storage.file_names import JSON_NAME, PROGRESS_LOG, RESTORE, TABLE_NAME
from syncpoint.comparison.storage.sync_point_table import COLUMNS, open_table
from syncpoint.errors import InputError, SyncpointError, describe_error
from syncpoint.files.file_checksums import DamagedFileError
from syncpoint.files.sealed_json import Document
from syncpoint.files.untrusted_files import read_whole
from syncpoint.files.untrusted_json import parse_json
from syncpoint.page.encoding import json_number
from syncpoint.page.open_comparison import comparison_id
from syncpoint.page.schema import Level, Number, Problem
from syncpoint.reports.verdict_line import qualify_verdict
from syncpoint.run.storage.journal import read_first_frame
from syncpoint.run.storage.run_json import RUN_JSON
from syncpoint.server.allowed_files import Folders
from syncpoint.server.output_folders import has_measurements
from syncpoint.server.session_memory import SessionMemory
from syncpoint.server.session_schema import Past, PastComparison, PastRun

_HEAD = 1 << 20
"""Of a larger comparison.json only the facts are parsed; the long lists stand behind them."""
_LISTS = b'\n "unmatched": '
_MOST = 500
_EXACT_ROWS = 2000
"""Up to here the place where two runs part is found as the comparison itself says it."""
_COLUMNS = (
    *("target_op", "target_order", "verdict", "output", "psnr"),
    *("introduced_verdict", "first_non_finite"),
)
_OFF = ["moderate", "large"]
_GUILTY = (
    pl.col("verdict").is_in(_OFF)
    & pl.col("introduced_verdict").is_in(_OFF)
    & ~(pl.col("output") | pl.col("first_non_finite"))
)
"""As the navigator has it."""


_Stamp = tuple[int, int] | None
"""When a file was written, and how large it is; None where there is none."""


def _stamp(file: Path) -> _Stamp:
    try:
        facts = file.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size


@dataclass
class PastList:
    """The list, with what has been read of it once; a comparison that changes is read again."""

    folders: Folders
    out: Path
    memory: SessionMemory | None = None
    _read: dict[Path, tuple[list[_Stamp], PastComparison]] = field(default_factory=dict)
    _logs: dict[Path, tuple[int, bool]] = field(default_factory=dict)

    def all(self, busy: Collection[Path] = ()) -> Past:
        """Everything there is now, newest first, but what is being made."""
        places = dict.fromkeys(self._places(JSON_NAME))
        unfinished = [p for p in self._places(PROGRESS_LOG) if p not in places and p not in busy]
        found = [self._comparison(path) for path in list(places)[:_MOST]]
        found += [self._unfinished(path) for path in dict.fromkeys(unfinished[:_MOST])]
        found.sort(key=lambda one: -one.when)
        runs = [run for path in dict.fromkeys(self._runs()) if (run := self._run(path))]
        runs.sort(key=lambda run: -run.when)
        return Past(folder=self.folders.text_of(self.out), comparisons=found, runs=runs[:_MOST])

    def _places(self, name: str) -> Iterator[Path]:
        """Folders, one level down, that hold a file of that name and lead nowhere else."""
        for root in dict.fromkeys((*self.folders.roots, self.out)):
            for file in sorted(root.glob(f"*/{name}")):
                if not file.parent.name.isprintable():
                    continue  # as in listings
                with suppress(InputError):
                    yield self.folders.resolve(str(file.parent))

    def _runs(self) -> Iterator[Path]:
        for name in (RUN_JSON, f"*/{RUN_JSON}"):
            yield from self._places(name)

    def _comparison(self, path: Path) -> PastComparison:
        stamps = [_stamp(path / name) for name in (JSON_NAME, TABLE_NAME)]
        try:
            known = self._read.get(path)
            if known is None or known[0] != stamps:
                when = (path / JSON_NAME).stat().st_mtime
                known = self._read[path] = (stamps, self._summary(path, when))
            return known[1]
        except (SyncpointError, OSError) as error:
            said = (
                error
                if isinstance(error, SyncpointError)
                else InputError(f"a comparison at {path.name}", describe_error(error))
            )
            return self._broken(path, Problem.of(said))

    def _unfinished(self, path: Path) -> PastComparison:
        spec = self.memory.asked(path) if self.memory is not None else None
        said = (spec.target.path, spec.reference.path) if spec else _asked(path)
        cure = "go on with it" if spec else "go on with it by its command and --resume"
        problem = Problem(problem="interrupted before it was finished", cure=cure)
        return self._broken(path, problem).model_copy(
            update={
                "target": _label({"model": said[0]}) if said[0] else "",
                "reference": _label({"model": said[1]}) if said[1] else "",
                "can_resume": spec is not None,
                "measured": self._measured(path),
            }
        )

    def _broken(self, path: Path, problem: Problem) -> PastComparison:
        when = 0.0
        with suppress(OSError):
            when = path.stat().st_mtime
        return PastComparison(
            id="",
            name=path.name.removesuffix(".cmp"),
            path=self.folders.text_of(path),
            when=when,
            target="",
            target_facts="",
            reference="",
            verdict="none",
            verdict_text="none",
            level="none",
            guilt="",
            first="",
            output=None,
            coverage=None,
            guilty=None,
            rows=0,
            problem=problem,
            can_resume=False,
            measured=False,
        )

    def _measured(self, path: Path) -> bool:
        """Whether an unfinished comparison has come to any numbers yet."""
        try:
            size = (path / PROGRESS_LOG).stat().st_size
            if self._logs.get(path, (-1, False))[0] != size:
                self._logs[path] = (size, has_measurements(path))
            return self._logs[path][1]
        except OSError:
            return False

    def _summary(self, path: Path, modified: float) -> PastComparison:
        document = _document(path)
        about = document.body
        frame = open_table(path, document).read({name: COLUMNS[name] for name in _COLUMNS})
        verdict = str(about.get("verdict", "none"))
        level: Level = "none"
        if verdict in ("close", "moderate", "large"):
            level = verdict  # type: ignore[assignment]
        known = frame.filter(pl.col("introduced_verdict") != "none").height
        guilty = frame.filter(_GUILTY).height if known else None
        try:
            target, reference = about["target"], about["reference"]
            coverage = Coverage.of_saved(about)
            return PastComparison(
                id=comparison_id(path),
                name=path.name.removesuffix(".cmp"),
                path=self.folders.text_of(path),
                when=_when(about, modified),
                target=_label(target),
                target_facts=" · ".join(
                    str(target.get(k)) for k in ("runtime", "device", "precision") if target.get(k)
                ),
                reference=_label(reference),
                verdict=verdict,
                verdict_text=qualify_verdict(verdict, coverage),
                level="large" if verdict == "amplified" else level,
                guilt="amplified" if verdict == "amplified" else "",
                first=_first(path, frame, verdict),
                output=_output(frame),
                coverage=min(coverage.target_covered, coverage.reference_covered),
                guilty=guilty,
                rows=frame.height,
                problem=None,
                can_resume=False,
                measured=True,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedFileError(path / JSON_NAME, repr(error)[:200], RESTORE) from error

    def _run(self, path: Path) -> PastRun | None:
        file = path / RUN_JSON
        try:
            body = parse_json(read_whole(file, 1 << 20), RUN_JSON)
            facts = [body.get(k) for k in ("runtime", "device", "precision")]
            return PastRun(
                path=self.folders.text_of(path),
                model=str(body.get("model") or path.name),
                facts=" · ".join(str(fact) for fact in facts if fact),
                when=file.stat().st_mtime,
            )
        except (SyncpointError, OSError, AttributeError):
            return None


def _asked(path: Path) -> tuple[str, str]:
    """What an unfinished comparison is of, by its log; empty where that does not say."""
    with suppress(SyncpointError, OSError):
        kind, body = read_first_frame(path / PROGRESS_LOG, _HEAD) or ("", {})
        if kind == "asked" and isinstance(body, dict):
            return str(body.get("target") or ""), str(body.get("reference") or "")
    return "", ""


def _document(path: Path) -> Document:
    """The facts of comparison.json; of a long one those that stand before its lists."""
    is_long = (path / JSON_NAME).stat().st_size > _HEAD
    return read_comparison_json(path, before=_LISTS if is_long else b"")


def _when(about: dict[str, Any], modified: float) -> float:
    try:
        return datetime.fromisoformat(about["created"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return modified


def _label(side: dict[str, Any]) -> str:
    said = str(side.get("model") or side.get("path") or "in memory")
    return os.path.basename(said.rstrip("/")) or said  # noqa: PTH119


def _output(frame: pl.DataFrame) -> Number:
    """PSNR of the worst model output; none where one of them has no verdict."""
    outputs = frame.filter(pl.col("output"))
    least = outputs["psnr"].min()
    if (outputs["verdict"] == "none").any() or not isinstance(least, float) or math.isnan(least):
        return None
    return json_number(least)


def _first(path: Path, frame: pl.DataFrame, verdict: str) -> str:
    if verdict == "close":
        return ""
    if frame.height <= _EXACT_ROWS:
        rows = load(path).first_divergence
        if rows:
            more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
            return f"{rows[0].target.label}{more}"
    else:
        guilty = frame.filter(pl.col("introduced_verdict") == "large").sort("target_order")
        if guilty.height:
            return str(guilty["target_op"][0])
    return "nobody guilty, amplified" if verdict == "amplified" else ""
