"""The log of an unfinished comparison for `--resume`: write and read measured rows and introduced
errors as JSON, check that the request is the same.

`progress.log` has the frame format of a run's journal: first the request, then the identity of the
two runs, then measured rows and introduced errors. A resumed comparison must have the same request
and the same runs. Numbers are restored bit by bit, so that the result is the same as without the
interruption. See docs/formats.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from syncpoint.comparison.rows import Introduced, Row
from syncpoint.comparison.storage.comparison_folder import is_comparison, is_comparison_file
from syncpoint.comparison.storage.file_names import PROGRESS_LOG
from syncpoint.comparison.storage.older_schemas import split_reason
from syncpoint.comparison.storage.run_identity import run_identity
from syncpoint.errors import FormatError, InputError
from syncpoint.files.read_errors import read_errors
from syncpoint.files.write_errors import cannot_write
from syncpoint.files.writer_lock import RunLock
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import Part, Role, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.storage.journal import JournalWriter, encode_frame, read_journal
from syncpoint.run.storage.record_json import (
    op_key_from_json,
    op_key_to_json,
    parse_record,
    to_json_text,
)

Pair = tuple[TensorKey, TensorKey]
_RESULT_FRAMES = ("measured", "introduced")
_RESTART_CURE = "remove the folder and compare again"
_INTRODUCED_FIELDS = tuple(field.name for field in fields(Introduced) if field.name != "region")


class ProgressLog:
    """The log of the process that writes the comparison in `folder`.

    As a context manager it keeps the file for `--resume` if the block raises. If nothing was
    measured yet, the file is removed, so that the command can simply be repeated.
    """

    def __init__(self, folder: Path, request: Mapping[str, Any], *, resume: bool = False) -> None:
        """Start a log, or with `resume` continue an existing one.

        `request` has all settings that affect the result, by name. Raises InputError if it differs
        from the logged one, or if there is an unfinished comparison and `resume` is False.
        """
        self._folder = folder
        self._path = folder / PROGRESS_LOG
        self._measured: dict[Pair, list[Any]] = {}
        self._introduced: dict[Pair, list[Any]] = {}
        self._runs: dict[str, Any] | None = None
        self._has_results = False
        """Whether it has results that a later attempt can reuse."""
        self._is_new_folder = not folder.exists()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = RunLock(folder)
            try:
                self._journal = self._open(request, resume)
            except BaseException:
                self._release()
                raise
        except OSError as error:
            raise cannot_write(folder, error) from error

    @classmethod
    def open_read_only(cls, folder: Path) -> ProgressLog:
        """The log in `folder`, for reading only; another process may still be writing it."""
        log = object.__new__(cls)
        log._folder, log._path = folder, folder / PROGRESS_LOG
        log._measured, log._introduced, log._runs, log._has_results = {}, {}, None, False
        where = str(log._path)
        with read_errors(f"the unfinished comparison at {folder}"):
            frames = read_journal(log._path).frames
        for kind, body in frames:
            if kind != "asked":
                parse_record(partial(log._load_frame, kind), body, where)
        if log._runs is None or not log._has_results:
            raise InputError(
                f"the comparison in {folder} has no results yet",
                cure="if it is still running, try again later; if it was stopped, run the same"
                " syncpoint compare command again",
            )
        return log

    def record_runs(self, target: Run, reference: Run) -> None:
        """Log the identity of the runs; raises InputError if other runs were logged before."""
        identities = {"target": run_identity(target), "reference": run_identity(reference)}
        if self._runs is None:
            self._runs = identities
            self._append("runs", identities)
            return
        for side, logged in self._runs.items():
            if identities.get(side) != logged:
                raise InputError(
                    f"the {side} run has changed since the comparison at {self._folder} was"
                    " started",
                    cure=f"compare the same runs, or {_RESTART_CURE}",
                )

    def measured_row(self, row: Row) -> Row | None:
        """The row with its logged numbers; None if it is not measured yet."""
        facts = self._measured.get(_key_pair(row))
        if facts is None:
            return None
        names, values, unmeasured, view, preset, notes = facts
        numbers = (
            None if names is None else dict(zip(names, map(_lists_to_tuples, values), strict=True))
        )
        return replace(
            row,
            numbers=numbers,
            unmeasured=_reason_from_json(unmeasured),
            view=view,
            preset=preset,
            notes=tuple(notes),
        )

    def add_measured(self, rows: Iterable[Row]) -> None:
        """Log rows that have just been measured."""
        columns: dict[tuple[str, ...] | None, int] = {}
        logged_rows = []
        for row in rows:
            names = None if row.numbers is None else tuple(row.numbers)
            column_set = columns.setdefault(names, len(columns))
            values = None if row.numbers is None else list(row.numbers.values())
            facts = [_reason_to_json(row.unmeasured), row.view, row.preset, row.notes]
            logged_rows.append([*_pair_to_json(row), column_set, values, *facts])
        if logged_rows:
            self._append(
                "measured", {"columns": list(columns), "rows": logged_rows, "verified": True}
            )

    def introduced_row(self, row: Row) -> Row | None:
        """The row with its logged introduced error, or the reason why it is unknown; else None."""
        facts = self._introduced.get(_key_pair(row))
        if facts is None:
            return None
        values, region, unknown = facts[0], facts[1], _reason_from_json(facts[2])
        if values is None:
            return replace(row, unknown=unknown)
        introduced = Introduced(
            **dict(zip(_INTRODUCED_FIELDS, values, strict=False)), region=tuple(region)
        )
        return replace(row, introduced=introduced, unknown=unknown)

    def add_introduced(self, rows: Iterable[Row]) -> None:
        """Log introduced errors that have just been computed."""
        logged_rows = []
        for row in rows:
            introduced = row.introduced
            values = (
                None
                if introduced is None
                else [getattr(introduced, name) for name in _INTRODUCED_FIELDS]
            )
            region = () if introduced is None else introduced.region
            logged_rows.append([*_pair_to_json(row), values, region, _reason_to_json(row.unknown)])
        self._append("introduced", logged_rows)

    def finish(self) -> None:
        """Remove the log, because the comparison is saved."""
        self._journal.close()
        self._path.unlink(missing_ok=True)
        self._release()

    def __enter__(self) -> ProgressLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
            return
        with suppress(OSError):
            self._journal.close()
            if issubclass(kind, Exception) and not self._has_results:
                self._path.unlink(missing_ok=True)
        self._release()

    def _open(self, request: Mapping[str, Any], resume: bool) -> JournalWriter:
        folder = self._folder
        # A saved comparison that still has a log was interrupted during its diagnosis.
        undiagnosed = is_comparison(folder) and self._path.is_file()
        if undiagnosed and not resume:
            raise InputError(
                f"{folder} contains a comparison whose diagnosis was interrupted",
                cure="add --resume to finish it, or give another folder with -o",
            )
        if is_comparison(folder) and not undiagnosed:
            cure = (
                f"show it with: syncpoint report {folder}"
                if resume
                else "give another folder with -o"
            )
            raise InputError(f"{folder} already contains a finished comparison", cure=cure)
        if self._path.is_file():
            if not resume:
                raise InputError(
                    f"{folder} contains an unfinished comparison that was interrupted",
                    cure="add --resume to continue it, or give another folder with -o",
                )
            return self._resume(request)
        if not all(is_comparison_file(entry) for entry in folder.iterdir()):
            raise InputError(
                f"the folder {folder} contains files that do not belong to a comparison",
                cure="give another folder with -o",
            )
        return JournalWriter(self._path, encode_frame("asked", _through_json(request)))

    def _resume(self, request: Mapping[str, Any]) -> JournalWriter:
        journal = read_journal(self._path)
        where = str(self._path)
        for number, (kind, body) in enumerate(journal.frames):
            if (kind == "asked") is not (number == 0):
                raise FormatError(
                    f"{where} is damaged: the settings of the comparison must be its first entry"
                    f" and no other, but entry {number} is {kind[:40]!r}",
                    cure=_RESTART_CURE,
                )
            if number == 0:
                self._check_request(parse_record(dict, body, where), _through_json(request))
            else:
                parse_record(partial(self._load_frame, kind), body, where)
        if not journal.frames:
            return JournalWriter(self._path, encode_frame("asked", _through_json(request)))
        return JournalWriter.reopened(self._path, journal.end)

    def _load_frame(self, kind: str, body: Any) -> None:
        """Load a frame of an earlier attempt."""
        if kind == "runs":
            self._runs = dict(body)
        elif kind == "measured":
            if not body.get("verified"):
                return  # written by a version that did not verify values: measure again
            for target, reference, which, *facts in body["rows"]:
                pair = (_key_from_json(target), _key_from_json(reference))
                self._measured[pair] = [body["columns"][which], *facts]
        elif kind == "introduced":
            for target, reference, *facts in body:
                self._introduced[_key_from_json(target), _key_from_json(reference)] = facts
        else:
            raise ValueError(f"a frame of unknown kind {kind[:40]!r}")
        self._has_results = self._has_results or kind in _RESULT_FRAMES

    def _check_request(self, logged: Mapping[str, Any], request: Mapping[str, Any]) -> None:
        for name in dict.fromkeys((*logged, *request)):
            before, now = logged.get(name), request.get(name)
            if before != now:
                raise InputError(
                    f"the comparison in {self._folder} was started with {name} ="
                    f" {_shorten(before)}, but now {name} = {_shorten(now)}",
                    cure=f"use the old value, or {_RESTART_CURE}",
                )

    def _append(self, kind: str, body: object) -> None:
        try:
            self._journal.append(encode_frame(kind, body))
        except OSError as error:
            raise cannot_write(self._path, error, "free disk space, then add --resume") from error
        self._has_results = self._has_results or kind in _RESULT_FRAMES

    def _release(self) -> None:
        self._lock.release()
        if self._is_new_folder:
            with suppress(OSError):
                self._folder.rmdir()


def can_resume(folder: Path) -> bool:
    """Whether `folder` has a comparison: unfinished, or finished, which `--resume` refuses."""
    return (folder / PROGRESS_LOG).is_file() or is_comparison(folder)


def _key_pair(row: Row) -> Pair:
    return row.target.key, row.reference.key


def _pair_to_json(row: Row) -> list[Any]:
    return [
        [
            op_key_to_json(key.op),
            key.role.value,
            key.index,
            [key.part.sample, key.part.step, key.part.rank],
        ]
        for key in _key_pair(row)
    ]


def _key_from_json(body: Any) -> TensorKey:
    op, role, index, part = body
    return TensorKey(op_key_from_json(op), Role(role), index, Part(*part))


def _reason_to_json(reason: Reason) -> list[str]:
    return [reason.code or "", reason.detail, reason.cure]


def _reason_from_json(body: Any) -> Reason:
    if isinstance(body, str):  # in a log that an older version began
        return split_reason(body)
    code, detail, cure = body
    return Reason(ReasonCode(code) if code else None, detail, cure)


def _lists_to_tuples(value: Any) -> Any:
    return tuple(_lists_to_tuples(item) for item in value) if isinstance(value, list) else value


def _through_json(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request as it is read from the file, so that the two can be compared."""
    restored: dict[str, Any] = json.loads(to_json_text(dict(request)))
    return restored


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else to_json_text(value)
    return text if len(text) <= 80 else text[:77] + "..."
