"""List the past comparisons and runs in the folders of a session, with date, sides, worst output
and first divergence."""

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
from syncpoint.server.allowed_files import AllowedFolders
from syncpoint.server.output_folders import has_measurements
from syncpoint.server.session_memory import SessionMemory
from syncpoint.server.session_schema import Past, PastComparison, PastRun

_MAX_PARSED_BYTES = 1 << 20
"""Of a larger comparison.json only the part before its long lists is parsed."""
_FIRST_LIST = b'\n "unmatched": '
_MAX_LINES = 500
_MAX_ROWS_TO_LOAD = 2000
"""Up to this size a comparison is loaded to find its first divergence."""
_COLUMNS = (
    *("target_op", "target_order", "verdict", "output", "psnr"),
    *("introduced_verdict", "first_non_finite"),
)
_OFF_VERDICTS = ["moderate", "large"]
_IS_GUILTY = (
    pl.col("verdict").is_in(_OFF_VERDICTS)
    & pl.col("introduced_verdict").is_in(_OFF_VERDICTS)
    & ~(pl.col("output") | pl.col("first_non_finite"))
)
"""Guilty rows, as in the navigator."""


_FileStamp = tuple[int, int] | None
"""When a file was written, and its size; None where there is none."""


def _read_stamp(file: Path) -> _FileStamp:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


@dataclass
class PastList:
    """The list, with a cache; a comparison that changes is read again."""

    folders: AllowedFolders
    out: Path
    memory: SessionMemory | None = None
    _summaries: dict[Path, tuple[list[_FileStamp], PastComparison]] = field(default_factory=dict)
    _measured_by_log_size: dict[Path, tuple[int, bool]] = field(default_factory=dict)

    def list_all(self, busy: Collection[Path] = ()) -> Past:
        """Return everything there is now, newest first, except the folders of running jobs."""
        folders = dict.fromkeys(self._find_folders(JSON_NAME))
        unfinished = [
            path
            for path in self._find_folders(PROGRESS_LOG)
            if path not in folders and path not in busy
        ]
        comparisons = [self._summarize(path) for path in list(folders)[:_MAX_LINES]]
        comparisons += [
            self._summarize_unfinished(path) for path in dict.fromkeys(unfinished[:_MAX_LINES])
        ]
        comparisons.sort(key=lambda comparison: -comparison.when)
        run_folders = dict.fromkeys(self._find_run_folders())
        runs = [run for path in run_folders if (run := self._summarize_run(path))]
        runs.sort(key=lambda run: -run.when)
        return Past(
            folder=self.folders.display_path(self.out),
            comparisons=comparisons,
            runs=runs[:_MAX_LINES],
        )

    def _find_folders(self, name: str) -> Iterator[Path]:
        """Yield allowed folders, one level down, with a file of that name."""
        for root in dict.fromkeys((*self.folders.roots, self.out)):
            for file in sorted(root.glob(f"*/{name}")):
                if not file.parent.name.isprintable():
                    continue  # as in listings of folders
                with suppress(InputError):
                    yield self.folders.resolve(str(file.parent))

    def _find_run_folders(self) -> Iterator[Path]:
        for name in (RUN_JSON, f"*/{RUN_JSON}"):
            yield from self._find_folders(name)

    def _summarize(self, path: Path) -> PastComparison:
        stamps = [_read_stamp(path / name) for name in (JSON_NAME, TABLE_NAME)]
        try:
            cached = self._summaries.get(path)
            if cached is None or cached[0] != stamps:
                modified = (path / JSON_NAME).stat().st_mtime
                cached = self._summaries[path] = (stamps, self._read_summary(path, modified))
            return cached[1]
        except (SyncpointError, OSError) as error:
            problem = Problem(problem=f"cannot read {path.name}: {describe_error(error)}")
            if isinstance(error, SyncpointError):
                problem = Problem.of(error)
            return self._summarize_broken(path, problem)

    def _summarize_unfinished(self, path: Path) -> PastComparison:
        spec = self.memory.load_request(path) if self.memory is not None else None
        target, reference = _read_logged_sides(path)
        if spec is not None:
            target, reference = spec.target.path, spec.reference.path
        cure = "resume it" if spec else "resume it by its command with --resume"
        problem = Problem(problem="interrupted before it was finished", cure=cure)
        return self._summarize_broken(path, problem).model_copy(
            update={
                "target": _label_run({"model": target}) if target else "",
                "reference": _label_run({"model": reference}) if reference else "",
                "can_resume": spec is not None,
                "measured": self._is_measured(path),
            }
        )

    def _summarize_broken(self, path: Path, problem: Problem) -> PastComparison:
        when = 0.0
        with suppress(OSError):
            when = path.stat().st_mtime
        return PastComparison(
            id="",
            name=path.name.removesuffix(".cmp"),
            path=self.folders.display_path(path),
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

    def _is_measured(self, path: Path) -> bool:
        """Whether an unfinished comparison has measurements."""
        try:
            size = (path / PROGRESS_LOG).stat().st_size
            if self._measured_by_log_size.get(path, (-1, False))[0] != size:
                self._measured_by_log_size[path] = (size, has_measurements(path))
            return self._measured_by_log_size[path][1]
        except OSError:
            return False

    def _read_summary(self, path: Path, modified: float) -> PastComparison:
        document = _read_document(path)
        about = document.body
        frame = open_table(path, document).read({name: COLUMNS[name] for name in _COLUMNS})
        verdict = str(about.get("verdict", "none"))
        level: Level = "none"
        if verdict in ("close", "moderate", "large"):
            level = verdict  # type: ignore[assignment]
        has_introduced = (frame["introduced_verdict"] != "none").any()
        guilty = frame.filter(_IS_GUILTY).height if has_introduced else None
        try:
            target, reference = about["target"], about["reference"]
            coverage = Coverage.of_saved(about)
            return PastComparison(
                id=comparison_id(path),
                name=path.name.removesuffix(".cmp"),
                path=self.folders.display_path(path),
                when=_read_date(about, modified),
                target=_label_run(target),
                target_facts=" · ".join(
                    str(target.get(k)) for k in ("runtime", "device", "precision") if target.get(k)
                ),
                reference=_label_run(reference),
                verdict=verdict,
                verdict_text=qualify_verdict(verdict, coverage),
                level="large" if verdict == "amplified" else level,
                guilt="amplified" if verdict == "amplified" else "",
                first=_name_first_divergence(path, frame, verdict),
                output=_worst_output_psnr(frame),
                coverage=min(coverage.target_covered, coverage.reference_covered),
                guilty=guilty,
                rows=frame.height,
                problem=None,
                can_resume=False,
                measured=True,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedFileError(path / JSON_NAME, repr(error)[:200], RESTORE) from error

    def _summarize_run(self, path: Path) -> PastRun | None:
        file = path / RUN_JSON
        try:
            body = parse_json(read_whole(file, 1 << 20), RUN_JSON)
            facts = [body.get(k) for k in ("runtime", "device", "precision")]
            return PastRun(
                path=self.folders.display_path(path),
                model=str(body.get("model") or path.name),
                facts=" · ".join(str(fact) for fact in facts if fact),
                when=file.stat().st_mtime,
            )
        except (SyncpointError, OSError, AttributeError):
            return None


def _read_logged_sides(path: Path) -> tuple[str, str]:
    """Return the target and the reference in the log of an unfinished comparison; "" where it does
    not have them."""
    with suppress(SyncpointError, OSError):
        kind, body = read_first_frame(path / PROGRESS_LOG, _MAX_PARSED_BYTES) or ("", {})
        if kind == "asked" and isinstance(body, dict):
            return str(body.get("target") or ""), str(body.get("reference") or "")
    return "", ""


def _read_document(path: Path) -> Document:
    """Return comparison.json; of a long one the part before its lists."""
    is_long = (path / JSON_NAME).stat().st_size > _MAX_PARSED_BYTES
    return read_comparison_json(path, before=_FIRST_LIST if is_long else b"")


def _read_date(about: dict[str, Any], modified: float) -> float:
    try:
        return datetime.fromisoformat(about["created"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return modified


def _label_run(side: dict[str, Any]) -> str:
    path = str(side.get("model") or side.get("path") or "in memory")
    return os.path.basename(path.rstrip("/")) or path  # noqa: PTH119


def _worst_output_psnr(frame: pl.DataFrame) -> Number:
    """Return the PSNR of the worst model output; None where one of them has no verdict."""
    outputs = frame.filter(pl.col("output"))
    worst = outputs["psnr"].min()
    if (outputs["verdict"] == "none").any() or not isinstance(worst, float) or math.isnan(worst):
        return None
    return json_number(worst)


def _name_first_divergence(path: Path, frame: pl.DataFrame, verdict: str) -> str:
    if verdict == "close":
        return ""
    if frame.height <= _MAX_ROWS_TO_LOAD:
        rows = load(path).first_divergence
        if rows:
            more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
            return f"{rows[0].target.label}{more}"
    else:
        guilty = frame.filter(pl.col("introduced_verdict") == "large").sort("target_order")
        if guilty.height:
            return str(guilty["target_op"][0])
    return "no op guilty, amplified" if verdict == "amplified" else ""
