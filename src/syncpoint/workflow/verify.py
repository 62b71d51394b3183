"""Verifying a run, a dump or a comparison whole: every checksum that it has is computed again.

Opening a run or a comparison verifies its JSON and its tables; comparing verifies what it reads.
This reads everything, also what nobody asked for, and says which op and which file is damaged, what
was verified, and what has no checksum to be verified by.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xxhash import xxh3_128_hexdigest as digest_of_bytes

from syncpoint.comparison.storage.comparison_folder import is_comparison, load
from syncpoint.comparison.storage.comparison_json import read_comparison_json
from syncpoint.comparison.storage.file_names import JSON_NAME, PROGRESS_LOG, TABLE_NAME
from syncpoint.dumps.open_dump import open_dump
from syncpoint.dumps.registry import find_format
from syncpoint.dumps.safetensors import SafetensorsFile
from syncpoint.errors import (
    EXIT_CLOSE,
    EXIT_DIVERGED,
    EXIT_UNCOVERED,
    DamagedError,
    FormatError,
    InputError,
    SyncpointError,
    describe_error,
)
from syncpoint.files.file_checksums import DamagedFileError, FileRecord
from syncpoint.files.outputs import write_output
from syncpoint.files.sealed_json import UNVERIFIED
from syncpoint.files.untrusted_files import path_inside, read_whole
from syncpoint.run.digests import compute_digests, is_computable
from syncpoint.run.model import Kept, Tensor
from syncpoint.run.reader import Run
from syncpoint.run.storage.journal import JOURNAL, read_journal
from syncpoint.run.storage.open_run import open_run
from syncpoint.run.storage.run_json import RESTORE, RUN_JSON, read_run_json
from syncpoint.run.storage.shards import SHARD_NAME
from syncpoint.run.storage.source_code import FOLDER as SOURCES
from syncpoint.run.storage.table_columns import OPS, TENSORS

_WINDOW_ELEMENTS = 1 << 22
_CHUNK_BYTES = 1 << 22
_MAX_FILE_BYTES = 8 << 30
_LEDGER, _KEPT_VALUES = "reduce.log", "kept"
_MAX_LISTED = 20
"""Damaged and unverified things that are listed by name in a terminal."""


@dataclass(frozen=True)
class Damage:
    """One thing that is not what was written."""

    file: str
    """Relative to the path that was verified."""
    detail: str
    op: str = ""
    """The tensor, by its key, where only one is damaged."""

    def __str__(self) -> str:
        place = f"{self.op} in {self.file}" if self.op else self.file
        return f"{place}: {self.detail}"


@dataclass(kw_only=True)
class Verification:
    """What was verified of a path, what is damaged, and what has no checksum."""

    path: Path
    kind: str
    """`run`, `comparison`, or the format of a dump."""
    files: int = 0
    """Files that were verified whole."""
    tensors: int = 0
    """Tensors that were verified; those that share their bytes are counted each."""
    bytes: int = 0
    """Bytes that were verified."""
    damaged: list[Damage] = field(default_factory=list)
    unverified: dict[str, str] = field(default_factory=dict)
    """File -> why it, or what in it, could not be verified."""
    notes: list[str] = field(default_factory=list)

    def exit_code(self) -> int:
        """0 all of it is verified, 1 something is damaged, 3 not all of it has a checksum."""
        if self.damaged:
            return EXIT_DIVERGED
        return EXIT_UNCOVERED if self.unverified or not self.bytes else EXIT_CLOSE

    @property
    def verdict(self) -> str:
        """The same in a word."""
        return {EXIT_CLOSE: "verified", EXIT_DIVERGED: "damaged"}.get(
            self.exit_code(), "unverified"
        )

    def lines(self) -> list[str]:
        """For a terminal: what is damaged first, the verdict last."""
        listed = [f"damaged     {damage}" for damage in self.damaged[:_MAX_LISTED]]
        if len(self.damaged) > _MAX_LISTED:
            listed.append(f"            and {len(self.damaged) - _MAX_LISTED} more; --json has all")
        places = list(self.unverified.items())
        listed += [f"unverified  {place}: {why}" for place, why in places[:_MAX_LISTED]]
        if len(places) > _MAX_LISTED:
            listed.append(f"            and {len(places) - _MAX_LISTED} more; --json has all")
        listed += [f"note        {note}" for note in self.notes]
        amount = f"{self.files} files and {self.tensors} tensors, {self.bytes:,} bytes"
        words = {
            "verified": f"all of it has the checksums that were recorded: {amount}",
            "damaged": f"{len(self.damaged)} damaged; verified: {amount}",
            "unverified": f"not all of it has a checksum; verified: {amount}",
        }
        return [*listed, f"{self.verdict}: {self.path} ({self.kind}): {words[self.verdict]}"]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema": 1,
            "path": str(self.path),
            "kind": self.kind,
            "verdict": self.verdict,
            "verified": {"files": self.files, "tensors": self.tensors, "bytes": self.bytes},
            "damaged": [{"file": d.file, "op": d.op, "detail": d.detail} for d in self.damaged],
            "unverified": [{"file": f, "reason": why} for f, why in self.unverified.items()],
            "notes": list(self.notes),
        }

    def to_json(self, path: str | Path) -> Path:
        """The form for other programs, in a file."""
        return write_output(Path(path), json.dumps(self.as_dict(), indent=1) + "\n")


def verify(path: str | Path) -> Verification:
    """Compute every checksum of a run, a dump or a comparison again.

    Raises InputError where there is none of these; damage is part of the answer.
    """
    path = Path(path)
    if not path.exists():
        raise InputError("a run, a dump or a comparison", f"nothing at {path}", "check the path")
    if is_comparison(path):
        result = Verification(path=path, kind="comparison")
        _verify_comparison(path, result)
        return result
    if (path / PROGRESS_LOG).is_file():
        raise InputError(
            f"a finished comparison at {path}",
            "one that was interrupted",
            "go on with it by: syncpoint compare ... --resume",
        )
    recognised = find_format(path)
    kind = recognised.name if recognised is not None else ""
    result = Verification(path=path, kind=kind or "unknown")
    if kind == "run":
        _verify_run(path, result, "")
    else:
        _verify_dump(path, result)
    return result


def _verify_comparison(path: Path, result: Verification) -> None:
    try:
        document = read_comparison_json(path)
        _count_document(path / JSON_NAME, document.is_verified, result, JSON_NAME)
        _verify_files(path, document.files, result, "")
        if not document.is_verified:
            result.unverified[TABLE_NAME] = UNVERIFIED
        if not result.damaged:
            load(path)
    except FormatError as error:
        result.damaged.append(_damage_from(error, "", JSON_NAME))
    if (path / PROGRESS_LOG).is_file():
        _verify_journal(path / PROGRESS_LOG, result, PROGRESS_LOG)
    _verify_runs_inside(path, result)


def _verify_runs_inside(path: Path, result: Verification) -> None:
    """The runs in the folder of a comparison; one that it names there and that is gone is told."""
    runs = {run.name: run for run in path.iterdir() if run.suffix == ".run" and run.is_dir()}
    for name, run in sorted(runs.items()):
        _verify_run(run, result, f"{name}/")
    with suppress(SyncpointError):
        body = read_comparison_json(path).body
        for side in ("target", "reference"):
            named = str(body[side].get("path") or "")
            if named and "/" not in named and named not in runs:
                result.unverified[named] = f"the {side}'s run, which was kept here, is missing"


def _verify_run(path: Path, result: Verification, prefix: str) -> None:
    """A run of ours: its document, tables and sources, then every tensor that it kept."""
    first = len(result.damaged)
    documented: Mapping[str, FileRecord] = {}
    try:
        if (path / RUN_JSON).exists():
            document = read_run_json(path / RUN_JSON)
            documented = document.files
            _count_document(path / RUN_JSON, document.is_verified, result, prefix + RUN_JSON)
            _verify_files(path, document.files, result, prefix)
            if not document.is_verified:
                for name in (OPS, TENSORS):
                    result.unverified[prefix + name] = UNVERIFIED
        else:
            _verify_journal(path / JOURNAL, result, prefix + JOURNAL)
        if (path / _LEDGER).is_file():
            _verify_journal(path / _LEDGER, result, prefix + _LEDGER)
        _verify_kept(path / _KEPT_VALUES, result, prefix)
        _list_unverified_sources(path, documented, result, prefix)
        tables = [d for d in result.damaged[first:] if d.file.endswith(".parquet")]
        run = None if tables else open_run(path)
    except FormatError as error:
        result.damaged.append(_damage_from(error, prefix, RUN_JSON))
        return
    except OSError as error:
        raise InputError(f"a readable run at {path}", describe_error(error)) from error
    if run is None:
        result.notes.append(f"the tensors of {path.name} were not read: its tables are damaged")
        return
    if not run.info.complete:
        # What it has may be sound; what it lost, no checksum tells.
        why = run.info.missing or "its writer died"
        result.unverified[prefix.rstrip("/") or path.name] = f"the run is incomplete: {why}"
    _verify_tensors(run, result, prefix)
    _verify_shard_headers(path, result, prefix)


def _verify_dump(path: Path, result: Verification) -> None:
    """Files of other tools: the digests that they record, and the checksums of ZIP members."""
    try:
        run = open_dump(path)
    except FormatError as error:
        result.damaged.append(_damage_from(error, "", path.name))
        return
    root = path if path.is_dir() else path.parent
    archives = set()
    for file in _zip_files(path):
        archives.add(str(file.relative_to(root)))
        _verify_members(file, result, str(file.relative_to(root)))
    for file in sorted(path.rglob("*.json")) if path.is_dir() else ():
        result.unverified[str(file.relative_to(root))] = "it has no checksum"
    _verify_tensors(run, result, "", archives)


def _zip_files(path: Path) -> Iterator[Path]:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    for file in files:
        if file.suffix in (".npz", ".pt") and file.is_file() and not file.is_symlink():
            yield file


def _verify_members(file: Path, result: Verification, name: str) -> None:
    """Read every member of an archive, which compares it with its CRC."""
    try:
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                try:
                    with archive.open(member) as stream:
                        while stream.read(_CHUNK_BYTES):
                            pass
                except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
                    op = member.filename.removesuffix(".npy")
                    result.damaged.append(Damage(name, describe_error(error), op))
                else:
                    result.tensors += member.filename.endswith(".npy")
                    result.bytes += member.file_size
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        result.damaged.append(Damage(name, describe_error(error)))


def _verify_files(
    folder: Path, files: Mapping[str, FileRecord], result: Verification, prefix: str
) -> None:
    """The files that a document speaks for."""
    for name, record in files.items():
        try:
            data = read_whole(path_inside(folder, name), _MAX_FILE_BYTES)
            record.verify(data, folder / name, RESTORE)
        except FileNotFoundError:
            result.damaged.append(Damage(prefix + name, "it is missing"))
        except DamagedFileError as error:
            result.damaged.append(Damage(prefix + name, error.damage))
        except FormatError as error:
            result.damaged.append(Damage(prefix + name, error.found))
        except OSError as error:
            raise InputError(f"a readable file {folder / name}", describe_error(error)) from error
        else:
            result.files += 1
            result.bytes += record.size


def _verify_kept(folder: Path, result: Verification, prefix: str) -> None:
    """Values that `reduce` kept, in files that are named by their digest."""
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        data = read_whole(file, _MAX_FILE_BYTES)
        if digest_of_bytes(data) == file.name:
            result.files += 1
            result.bytes += len(data)
        else:
            detail = "its digest is not the one in its name"
            result.damaged.append(Damage(f"{prefix}{folder.name}/{file.name}", detail))


def _list_unverified_sources(
    path: Path, documented: Mapping[str, FileRecord], result: Verification, prefix: str
) -> None:
    """Copies of source files that no document speaks for, as beside a journal."""
    folder = path / SOURCES
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        name = f"{SOURCES}/{file.name}"
        if name not in documented:
            result.unverified[prefix + name] = "it has no checksum"


def _verify_journal(path: Path, result: Verification, name: str) -> None:
    journal = read_journal(path)
    result.files += 1
    result.bytes += journal.end
    if journal.is_damaged:
        result.damaged.append(Damage(name, journal.damage))
    elif journal.damage:
        result.notes.append(f"{name}: {journal.damage}, as after a writer that died")


def _verify_tensors(
    run: Run, result: Verification, prefix: str, archives: set[str] | frozenset[str] = frozenset()
) -> None:
    """Every tensor that was kept as values, those with the same bytes once."""
    known: dict[tuple[Any, ...], str | None] = {}
    without: dict[str, int] = {}
    for tensor in run.tensors:
        if tensor.kept is not Kept.VALUES or not tensor.count:
            continue
        if not tensor.digest or not is_computable(tensor.digest_kind):
            if tensor.shard not in archives:
                without[tensor.shard] = without.get(tensor.shard, 0) + 1
            continue
        place = (tensor.shard, tensor.offset, tensor.nbytes, tensor.digest)
        if place not in known:
            known[place] = _damage_of(run, tensor)
            result.bytes += tensor.nbytes if known[place] is None else 0
        detail = known[place]
        if detail is None:
            result.tensors += 1
        else:
            result.damaged.append(Damage(prefix + tensor.shard, detail, str(tensor.key)))
    for shard, count in without.items():
        tensors = "tensor" if count == 1 else "tensors"
        result.unverified[prefix + shard] = f"{count} {tensors} without a checksum"


def _damage_of(run: Run, tensor: Tensor) -> str | None:
    """What is wrong with the values of a tensor; None if they are those that were recorded."""

    def windows() -> Iterator[Any]:
        # An even window: a packed element never shares its byte with the next window.
        for start in range(0, tensor.count, _WINDOW_ELEMENTS):
            yield run.window(tensor, start, min(start + _WINDOW_ELEMENTS, tensor.count))

    try:
        computed = compute_digests(tensor.digest_kind, tensor.dtype, windows)
    except DamagedError:
        return f"its bytes are not those that were recorded ({tensor.digest_kind})"
    except SyncpointError as error:
        return f"it cannot be read: {error.found}"
    if tensor.digest.lower() in computed:
        return None
    return f"its bytes are not those that were recorded ({tensor.digest_kind})"


def _verify_shard_headers(path: Path, result: Verification, prefix: str) -> None:
    """That other tools can read the shards; we find tensors by the table, not by the header."""
    for shard in sorted(path.iterdir()):
        if SHARD_NAME.fullmatch(shard.name):
            try:
                SafetensorsFile().open(shard)
            except SyncpointError as error:
                if not any(d.file == prefix + shard.name for d in result.damaged):
                    result.damaged.append(Damage(prefix + shard.name, error.found))


def _count_document(path: Path, is_verified: bool, result: Verification, name: str) -> None:
    if is_verified:
        result.files += 1
        result.bytes += path.stat().st_size
    else:
        result.unverified[name] = UNVERIFIED


def _damage_from(error: FormatError, prefix: str, file: str) -> Damage:
    """What opening raised, as damage of the file that the error names, else of `file`."""
    if isinstance(error, DamagedFileError):
        return Damage(prefix + error.name, error.damage)
    return Damage(prefix + file, error.found)
