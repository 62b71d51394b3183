"""Verify a whole run, dump or comparison: recompute every checksum and CRC, list what is damaged or
has no checksum; verdict and exit code as JSON.

Opening a run or a comparison verifies its JSON and its tables; comparing verifies what it reads.
This reads everything and reports which op and which file is damaged, what was verified, and what
has no checksum.
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
from syncpoint.files.read_errors import CHECK_FOLDER, read_errors
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
_REDUCE_LOG, _REDUCED_VALUES = "reduce.log", "kept"
_MAX_LISTED = 20
"""Maximum number of damaged and of unverified files that are listed in a terminal."""


@dataclass(frozen=True)
class Damage:
    """A damaged file, or a damaged tensor in a file."""

    file: str
    """Relative to the verified path."""
    detail: str
    op: str = ""
    """The key of the tensor if only one is damaged."""

    def __str__(self) -> str:
        location = f"{self.op} in {self.file}" if self.op else self.file
        return f"{location}: {self.detail}"


@dataclass(kw_only=True)
class Verification:
    """The result of `verify`: what was verified, what is damaged, and what has no checksum."""

    path: Path
    kind: str
    """`run`, `comparison`, or the format of a dump."""
    files: int = 0
    """Number of files that were verified whole."""
    tensors: int = 0
    """Number of verified tensors; tensors that share their bytes count each."""
    bytes: int = 0
    """Number of verified bytes."""
    damaged: list[Damage] = field(default_factory=list)
    unverified: dict[str, str] = field(default_factory=dict)
    """File -> the reason why it, or a part of it, could not be verified."""
    notes: list[str] = field(default_factory=list)

    def exit_code(self) -> int:
        """0: everything is verified; 1: something is damaged; 3: not everything has a checksum."""
        if self.damaged:
            return EXIT_DIVERGED
        return EXIT_UNCOVERED if self.unverified or not self.bytes else EXIT_CLOSE

    @property
    def verdict(self) -> str:
        """The exit code as a word: verified, damaged or unverified."""
        return {EXIT_CLOSE: "verified", EXIT_DIVERGED: "damaged"}.get(
            self.exit_code(), "unverified"
        )

    def lines(self) -> list[str]:
        """The lines for a terminal: damage first, the verdict last."""
        listed = [f"damaged     {damage}" for damage in self.damaged[:_MAX_LISTED]]
        if len(self.damaged) > _MAX_LISTED:
            listed.append(f"            and {len(self.damaged) - _MAX_LISTED} more; --json has all")
        unverified = list(self.unverified.items())
        listed += [f"unverified  {file}: {reason}" for file, reason in unverified[:_MAX_LISTED]]
        if len(unverified) > _MAX_LISTED:
            listed.append(f"            and {len(unverified) - _MAX_LISTED} more; --json has all")
        listed += [f"note        {note}" for note in self.notes]
        amount = f"{self.files} files and {self.tensors} tensors, {self.bytes:,} bytes"
        summaries = {
            "verified": f"everything matches its recorded checksums: {amount}",
            "damaged": f"{len(self.damaged)} damaged; verified: {amount}",
            "unverified": f"not everything has a checksum; verified: {amount}",
        }
        return [*listed, f"{self.verdict}: {self.path} ({self.kind}): {summaries[self.verdict]}"]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "schema": 1,
            "path": str(self.path),
            "kind": self.kind,
            "verdict": self.verdict,
            "verified": {"files": self.files, "tensors": self.tensors, "bytes": self.bytes},
            "damaged": [{"file": d.file, "op": d.op, "detail": d.detail} for d in self.damaged],
            "unverified": [{"file": f, "reason": reason} for f, reason in self.unverified.items()],
            "notes": list(self.notes),
        }

    def to_json(self, path: str | Path) -> Path:
        """Write the JSON form to a file."""
        return write_output(Path(path), json.dumps(self.as_dict(), indent=1) + "\n")


def verify(path: str | Path) -> Verification:
    """Recompute every checksum of a run, a dump or a comparison.

    Raises InputError if `path` is none of these; damage is part of the result.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"no such file or folder: {path}", cure="check the path")
    if is_comparison(path):
        result = Verification(path=path, kind="comparison")
        _verify_comparison(path, result)
        return result
    if (path / PROGRESS_LOG).is_file():
        raise InputError(
            f"the comparison {path} was interrupted and is not finished",
            cure="continue it with: syncpoint compare ... --resume",
        )
    dump_format = find_format(path)
    kind = dump_format.name if dump_format is not None else ""
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
    """Verify the runs in the folder of a comparison; report those that it names but that are
    missing."""
    runs = {run.name: run for run in path.iterdir() if run.suffix == ".run" and run.is_dir()}
    for name, run in sorted(runs.items()):
        _verify_run(run, result, f"{name}/")
    with suppress(SyncpointError):
        body = read_comparison_json(path).body
        for side in ("target", "reference"):
            name = str(body[side].get("path") or "")
            if name and "/" not in name and name not in runs:
                result.unverified[name] = f"the run of the {side}, which was saved here, is missing"


def _verify_run(path: Path, result: Verification, prefix: str) -> None:
    """Verify a run: its document, tables and sources, then every tensor with values."""
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
        if (path / _REDUCE_LOG).is_file():
            _verify_journal(path / _REDUCE_LOG, result, prefix + _REDUCE_LOG)
        _verify_reduced_values(path / _REDUCED_VALUES, result, prefix)
        _list_unverified_sources(path, documented, result, prefix)
        tables = [d for d in result.damaged[first:] if d.file.endswith(".parquet")]
        run = None if tables else open_run(path)
    except FormatError as error:
        result.damaged.append(_damage_from(error, prefix, RUN_JSON))
        return
    except OSError as error:
        raise InputError(
            f"cannot read the run {path}: {describe_error(error)}",
            cure=CHECK_FOLDER,
        ) from error
    if run is None:
        result.notes.append(f"the tensors of {path.name} were not read: its tables are damaged")
        return
    if not run.info.complete:
        # Its content may be intact, but no checksum covers what is missing.
        reason = run.info.missing or "its writer died"
        result.unverified[prefix.rstrip("/") or path.name] = f"the run is incomplete: {reason}"
    _verify_tensors(run, result, prefix)
    _verify_shard_headers(path, result, prefix)


def _verify_dump(path: Path, result: Verification) -> None:
    """Verify files of other tools: the digests that they record, and the CRCs of ZIP members."""
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
    """Read every member of an archive; this checks its CRC."""
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
    """Verify the files whose checksums a document records."""
    for name, record in files.items():
        with read_errors(folder / name):
            try:
                data = read_whole(path_inside(folder, name), _MAX_FILE_BYTES)
                record.verify(data, folder / name, RESTORE)
            except FileNotFoundError:
                result.damaged.append(Damage(prefix + name, "it is missing"))
            except DamagedFileError as error:
                result.damaged.append(Damage(prefix + name, error.damage))
            except FormatError as error:
                result.damaged.append(Damage(prefix + name, error.problem))
            else:
                result.files += 1
                result.bytes += record.size


def _verify_reduced_values(folder: Path, result: Verification, prefix: str) -> None:
    """Verify the values that `reduce` stored, in files that are named by their digest."""
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        data = read_whole(file, _MAX_FILE_BYTES)
        if digest_of_bytes(data) == file.name:
            result.files += 1
            result.bytes += len(data)
        else:
            detail = "its digest differs from its name"
            result.damaged.append(Damage(f"{prefix}{folder.name}/{file.name}", detail))


def _list_unverified_sources(
    path: Path, documented: Mapping[str, FileRecord], result: Verification, prefix: str
) -> None:
    """List copies of source files whose checksum no document records, as with a journal."""
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
        result.notes.append(f"{name}: {journal.damage}; its writer died")


def _verify_tensors(
    run: Run, result: Verification, prefix: str, archives: set[str] | frozenset[str] = frozenset()
) -> None:
    """Verify every tensor with values; tensors that share their bytes are read once."""
    damage_by_content: dict[tuple[Any, ...], str | None] = {}
    without_checksum: dict[str, int] = {}
    for tensor in run.tensors:
        if tensor.kept is not Kept.VALUES or not tensor.count:
            continue
        if not tensor.digest or not is_computable(tensor.digest_kind):
            if tensor.shard not in archives:
                without_checksum[tensor.shard] = without_checksum.get(tensor.shard, 0) + 1
            continue
        content = (tensor.shard, tensor.offset, tensor.nbytes, tensor.digest)
        if content not in damage_by_content:
            damage_by_content[content] = _find_damage(run, tensor)
            result.bytes += tensor.nbytes if damage_by_content[content] is None else 0
        detail = damage_by_content[content]
        if detail is None:
            result.tensors += 1
        else:
            result.damaged.append(Damage(prefix + tensor.shard, detail, str(tensor.key)))
    for shard, count in without_checksum.items():
        tensors = "tensor" if count == 1 else "tensors"
        result.unverified[prefix + shard] = f"{count} {tensors} without a checksum"


def _find_damage(run: Run, tensor: Tensor) -> str | None:
    """Say what is wrong with the values of a tensor; None if they are the recorded ones."""

    def windows() -> Iterator[Any]:
        # An even number of elements: no byte of packed elements belongs to two windows.
        for start in range(0, tensor.count, _WINDOW_ELEMENTS):
            yield run.window(tensor, start, min(start + _WINDOW_ELEMENTS, tensor.count))

    try:
        computed = compute_digests(tensor.digest_kind, tensor.dtype, windows)
    except DamagedError:
        return f"its bytes do not match their checksum ({tensor.digest_kind})"
    except SyncpointError as error:
        return f"it cannot be read: {error.problem}"
    if tensor.digest.lower() in computed:
        return None
    return f"its bytes do not match their checksum ({tensor.digest_kind})"


def _verify_shard_headers(path: Path, result: Verification, prefix: str) -> None:
    """Check that other tools can read the shards; runs find tensors by the table, not by the
    header."""
    for shard in sorted(path.iterdir()):
        if SHARD_NAME.fullmatch(shard.name):
            try:
                SafetensorsFile().open(shard)
            except SyncpointError as error:
                if not any(d.file == prefix + shard.name for d in result.damaged):
                    result.damaged.append(Damage(prefix + shard.name, error.problem))


def _count_document(path: Path, is_verified: bool, result: Verification, name: str) -> None:
    if is_verified:
        result.files += 1
        result.bytes += path.stat().st_size
    else:
        result.unverified[name] = UNVERIFIED


def _damage_from(error: FormatError, prefix: str, file: str) -> Damage:
    """Turn an error of opening into damage of the file that it names, or else of `file`."""
    if isinstance(error, DamagedFileError):
        return Damage(prefix + error.name, error.damage)
    return Damage(prefix + file, error.problem)
