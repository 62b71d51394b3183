"""What a comparison has measured so far, kept in its folder until it is finished.

`progress.log` has the frames of a run's journal: first what was asked for, then the identity of
the two runs, then measured rows and introduced errors as they come. Whoever goes on from it must
ask for the same, of the same runs; numbers come back with the bits they had, so that the end is
the same as if nothing had happened. See docs/formats.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from syncpoint.comparison.rows import Introduced, Row
from syncpoint.comparison.storage.comparison_folder import is_comparison, is_comparison_file
from syncpoint.comparison.storage.file_names import PROGRESS_LOG
from syncpoint.comparison.storage.older_schemas import split_reason
from syncpoint.comparison.storage.run_identity import run_identity
from syncpoint.errors import FormatError, InputError, describe_error
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
    """The log of the one process that makes the comparison in `folder`.

    As a context manager it stays for `--resume` when the block is left by an exception, unless
    nothing was measured: then a mistake can be put right without more ado.
    """

    def __init__(self, folder: Path, asked: Mapping[str, Any], *, resume: bool = False) -> None:
        """Start the log, or with `resume` go on with one that is there.

        `asked` says by name all that decides the result; going on with other wishes, or without
        `resume` over an unfinished comparison, is an InputError.
        """
        self._folder = folder
        self._path = folder / PROGRESS_LOG
        self._measured: dict[Pair, list[Any]] = {}
        self._introduced: dict[Pair, list[Any]] = {}
        self._runs: dict[str, Any] | None = None
        self._begun = False
        """Whether there is something in it that a later attempt need not do again."""
        self._fresh_folder = not folder.exists()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = RunLock(folder)
            try:
                self._journal = self._open(asked, resume)
            except BaseException:
                self._release()
                raise
        except OSError as error:
            raise cannot_write(folder, error) from error

    @classmethod
    def open_read_only(cls, folder: Path) -> ProgressLog:
        """What the log in `folder` knows, to be read and not gone on with; its writer may still be
        at work."""
        log = object.__new__(cls)
        log._folder, log._path = folder, folder / PROGRESS_LOG
        log._measured, log._introduced, log._runs, log._begun = {}, {}, None, False
        where = str(log._path)
        try:
            frames = read_journal(log._path).frames
        except OSError as error:
            raise InputError(
                f"an unfinished comparison at {folder}", describe_error(error)
            ) from error
        for kind, body in frames:
            if kind != "asked":
                parse_record(partial(log._take, kind), body, where)
        if log._runs is None or not log._begun:
            raise InputError(
                f"something measured at {folder}", "nothing yet", "let it go on for a while"
            )
        return log

    def record_runs(self, target: Run, reference: Run) -> None:
        """Note which runs are compared; others than before are an InputError."""
        found = {"target": run_identity(target), "reference": run_identity(reference)}
        if self._runs is None:
            self._runs = found
            self._append("runs", found)
            return
        for side, before in self._runs.items():
            if found.get(side) != before:
                raise InputError(
                    f"the {side} run that {self._folder} was begun with",
                    "one with other content",
                    f"compare the same runs, or {_RESTART_CURE}",
                )

    def measured_row(self, row: Row) -> Row | None:
        """The row with its numbers, if they are known already."""
        found = self._measured.get(_key_pair(row))
        if found is None:
            return None
        names, values, unmeasured, view, preset, notes = found
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
        """Keep rows that have just been measured."""
        columns: dict[tuple[str, ...] | None, int] = {}
        said = []
        for row in rows:
            names = None if row.numbers is None else tuple(row.numbers)
            which = columns.setdefault(names, len(columns))
            values = None if row.numbers is None else list(row.numbers.values())
            facts = [_reason_to_json(row.unmeasured), row.view, row.preset, row.notes]
            said.append([*_pair_to_json(row), which, values, *facts])
        if said:
            self._append("measured", {"columns": list(columns), "rows": said, "verified": True})

    def introduced_row(self, row: Row) -> Row | None:
        """The row with what its op introduced, or why that is unknown, if that is settled."""
        found = self._introduced.get(_key_pair(row))
        if found is None:
            return None
        values, region, unknown = found[0], found[1], _reason_from_json(found[2])
        if values is None:
            return replace(row, unknown=unknown)
        made = Introduced(
            **dict(zip(_INTRODUCED_FIELDS, values, strict=True)), region=tuple(region)
        )
        return replace(row, introduced=made, unknown=unknown)

    def add_introduced(self, rows: Iterable[Row]) -> None:
        """Keep what has just been found out about some ops."""
        said = []
        for row in rows:
            made = row.introduced
            values = None if made is None else [getattr(made, name) for name in _INTRODUCED_FIELDS]
            region = () if made is None else made.region
            said.append([*_pair_to_json(row), values, region, _reason_to_json(row.unknown)])
        self._append("introduced", said)

    def finish(self) -> None:
        """The comparison is saved: the log is not needed any more."""
        self._journal.close()
        self._path.unlink(missing_ok=True)
        self._release()

    def __enter__(self) -> ProgressLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
            return
        with suppress(OSError):
            self._journal.close()
            if issubclass(kind, Exception) and not self._begun:
                self._path.unlink(missing_ok=True)
        self._release()

    def _open(self, asked: Mapping[str, Any], resume: bool) -> JournalWriter:
        folder = self._folder
        # One that is saved and still has its log was interrupted during its diagnosis.
        undiagnosed = is_comparison(folder) and self._path.is_file()
        if is_comparison(folder) and not (resume and undiagnosed):
            cure = f"look at it with: syncpoint report {folder}" if resume else "choose another -o"
            if undiagnosed:
                cure = f"add --resume to finish its diagnosis, or {cure}"
            raise InputError(f"no finished comparison at {folder} yet", "one is there", cure)
        if self._path.is_file():
            if not resume:
                raise InputError(
                    f"no unfinished comparison at {folder}",
                    "one that was interrupted",
                    "add --resume to go on with it, or choose another -o",
                )
            return self._resumed(asked)
        if not all(is_comparison_file(entry) for entry in folder.iterdir()):
            raise InputError(
                f"a comparison or nothing at {folder}", "something else", "choose another -o"
            )
        return JournalWriter(self._path, encode_frame("asked", _through_json(asked)))

    def _resumed(self, asked: Mapping[str, Any]) -> JournalWriter:
        journal = read_journal(self._path)
        where = str(self._path)
        for number, (kind, body) in enumerate(journal.frames):
            if (kind == "asked") is not (number == 0):
                raise FormatError(f"what was asked for first in {where}", kind[:40], _RESTART_CURE)
            if number == 0:
                self._check_asked(parse_record(dict, body, where), _through_json(asked))
            else:
                parse_record(partial(self._take, kind), body, where)
        if not journal.frames:
            return JournalWriter(self._path, encode_frame("asked", _through_json(asked)))
        return JournalWriter.reopened(self._path, journal.end)

    def _take(self, kind: str, body: Any) -> None:
        """Remember what a frame of an earlier attempt says."""
        if kind == "runs":
            self._runs = dict(body)
        elif kind == "measured":
            if not body.get("verified"):
                return  # by a version that did not verify what it read: measured again
            for target, reference, which, *facts in body["rows"]:
                pair = (_key_from_json(target), _key_from_json(reference))
                self._measured[pair] = [body["columns"][which], *facts]
        elif kind == "introduced":
            for target, reference, *facts in body:
                self._introduced[_key_from_json(target), _key_from_json(reference)] = facts
        else:
            raise ValueError(f"a frame of the kind {kind[:40]!r}")
        self._begun = self._begun or kind in _RESULT_FRAMES

    def _check_asked(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        for name in dict.fromkeys((*before, *now)):
            then, here = before.get(name), now.get(name)
            if then != here:
                raise InputError(
                    f"the {name} that {self._folder} was begun with, {_shorten(then)}",
                    _shorten(here),
                    f"ask for the same, or {_RESTART_CURE}",
                )

    def _append(self, kind: str, body: object) -> None:
        try:
            self._journal.append(encode_frame(kind, body))
        except OSError as error:
            raise cannot_write(self._path, error, "free space, then --resume") from error
        self._begun = self._begun or kind in _RESULT_FRAMES

    def _release(self) -> None:
        self._lock.release()
        if self._fresh_folder:
            with suppress(OSError):
                self._folder.rmdir()


def can_resume(folder: Path) -> bool:
    """Whether there is something at `folder` that `--resume` could go on with, or that it
    refuses: a finished comparison."""
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


def _through_json(asked: Mapping[str, Any]) -> dict[str, Any]:
    """As it comes back from the file, so that the two can be compared."""
    found: dict[str, Any] = json.loads(to_json_text(dict(asked)))
    return found


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else to_json_text(value)
    return text if len(text) <= 80 else text[:77] + "..."
