"""Write the reduced run: open the dump's structure from sparse copies, give its tensors the
statistics or digests of the journal, say what is missing.

The reader of the dump's format knows the names, edges and sources of the tensors. It opens a copy
of the dump: each data file is replaced by a sparse file of the same size with the same header.
Readers look only at headers.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from syncpoint.dumps.open_dump import open_as
from syncpoint.dumps.registry import get_format
from syncpoint.dumps.run_folder import write_ops
from syncpoint.errors import FormatError, SyncpointError
from syncpoint.files.atomic_writes import sync
from syncpoint.files.untrusted_files import path_inside, read_whole
from syncpoint.files.write_errors import write_errors
from syncpoint.reducing.progress_journal import ReducedFile, ReduceJournal, TensorRecord
from syncpoint.reducing.result import Reduced, count_text
from syncpoint.reducing.sources import MAX_INDEX_BYTES, DumpSource, MsprobeSource
from syncpoint.run.digests import XXH3_128 as DIGEST
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Kept, Op, OpKey, Role, RunInfo, Tensor, TensorKey, replace_fields
from syncpoint.run.reader import Run
from syncpoint.run.storage.run_json import RUN_JSON
from syncpoint.run.storage.writer import RunWriter
from syncpoint.run.value_store import FileStore
from syncpoint.supervision.scratch_folder import scratch_folder

VALUES_FOLDER = "kept"
"""Folder beside the journal with the values of model inputs."""
_TEMPORARY_FOLDER = "assembling"
_MAX_LISTED_TENSORS = 3


def assemble(source: DumpSource, journal: ReduceJournal, to: Kept, outcome: Reduced) -> None:
    """Write the run from all records, and count its files and tensors."""
    records = _valid_records(source, journal)
    outcome.files = len(records)
    outcome.before = sum(record.stamp[0] for record in records.values())
    missing = records.keys() - source.files().keys()
    outcome.deleted = len(missing & journal.deleted)
    if missing - journal.deleted:
        count = count_text(len(missing - journal.deleted), "file")
        outcome.notes.append(f"{count} deleted by another program; their records are kept")
    temporary = journal.folder / _TEMPORARY_FOLDER
    with write_errors(journal.folder):
        shutil.rmtree(temporary, ignore_errors=True)
        with _open_structure(source, records, bool(missing)) as (run, root):
            _write_run(run, root, records, journal, to, temporary, outcome)
        _replace_run(temporary, journal.folder)


def _valid_records(source: DumpSource, journal: ReduceJournal) -> dict[str, ReducedFile]:
    """The records of files that are unchanged, or that were deleted, by reduce or by another
    program. A file that was renamed counts only under its new name."""
    stamps = source.files()
    known_stamps = set(stamps.values()) | {
        record.stamp for file, record in journal.records.items() if file in journal.deleted
    }
    return {
        file: record
        for file, record in journal.records.items()
        if (
            stamps[file] == record.stamp
            if file in stamps
            else file in journal.deleted or record.stamp not in known_stamps
        )
    }


@contextmanager
def _open_structure(
    source: DumpSource, records: Mapping[str, ReducedFile], has_deleted: bool
) -> Iterator[tuple[Run, Path]]:
    """The dump as its reader opens it, and the folder that file names are relative to."""
    structure = source.structure()
    if structure is not None:
        yield structure, source.path
        return
    with scratch_folder() as folder:
        # The names of the parent folders may hold ranks and steps.
        root = Path(folder, *source.path.absolute().parts[1:])
        for record in records.values():
            _write_sparse_copy(root, record)
        for file in source.index_files():
            target = path_inside(root, file)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(read_whole(path_inside(source.path, file), MAX_INDEX_BYTES))
        named_path = root
        if isinstance(source, MsprobeSource) and source.named_path.is_file():
            named_path = root / source.named_path.name
        yield _open_copy(source, named_path, has_deleted), root


def _open_copy(source: DumpSource, path: Path, has_deleted: bool) -> Run:
    """Open the copy of the dump. If its reader refuses it and files are deleted already, return a
    run without ops: the records must stay accessible, by the names of their files."""
    try:
        return open_as(get_format(source.format), path)
    except SyncpointError as error:
        if not has_deleted:
            raise
        missing = f"names, edges and places of tensors, as the dump cannot be read: {error}"
        info = RunInfo(
            model=path.name, options={"format": source.format}, complete=False, missing=missing
        )
        return Run(info, [], [], FileStore(path), path=path)


def _write_sparse_copy(root: Path, record: ReducedFile) -> None:
    """Write a sparse file of the same size with the same header."""
    path = path_inside(root, record.file)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(record.stamp[0])
        for offset, piece in record.pieces:
            file.seek(offset)
            file.write(piece)


def _write_run(
    run: Run,
    root: Path,
    records: dict[str, ReducedFile],
    journal: ReduceJournal,
    to: Kept,
    path: Path,
    outcome: Reduced,
) -> None:
    info = replace(run.info, record=to)
    with RunWriter(path, info) as writer:
        write_ops(run, writer)
        prefix = _shard_prefix(run, root)
        named_files, absent = _write_tensors(writer, run, prefix, records, to, journal.folder)
        outcome.tensors += named_files.total()
        unnamed = [record for file, record in records.items() if not named_files[file]]
        _add_unnamed(writer, unnamed, journal, to, outcome)
        writer.note(f"reduced to {to} from {Path(journal.source).name}")
        missing = _missing_text(absent, outcome)
        if missing or not run.info.complete:
            texts = "; ".join(text for text in (run.info.missing, missing) if text)
            writer.abort(texts.removeprefix("what came after: ") or "its writer died")


def _shard_prefix(run: Run, root: Path) -> str:
    """The prefix of shard names relative to `root`."""
    base = run.path if run.path is not None else root
    base = base.parent if base.is_file() else base
    prefix = base.absolute().relative_to(root.absolute()).as_posix()
    return "" if prefix == "." else f"{prefix}/"


def _write_tensors(
    writer: RunWriter,
    run: Run,
    prefix: str,
    records: Mapping[str, ReducedFile],
    to: Kept,
    folder: Path,
) -> tuple[Counter[str], list[str]]:
    """Write every tensor with a record; return the count for each file, and the tensors without."""
    written: Counter[str] = Counter()
    absent: list[str] = []
    for tensor in run.tensors:
        file = prefix + tensor.shard
        if tensor.kept is not Kept.VALUES or not tensor.count:
            _write_unreduced(writer, tensor)
            written[file] += 1
            continue
        record = records.get(file)
        place = (tensor.offset, tensor.dtype, tensor.count)
        tensor_record = None if record is None else record.tensors.get(place)
        if tensor_record is None:
            absent.append(str(tensor.key))
            continue
        _write_reduced(writer, tensor, tensor_record, to, folder)
        written[file] += 1
    return written, absent


def _add_unnamed(
    writer: RunWriter,
    records: list[ReducedFile],
    journal: ReduceJournal,
    to: Kept,
    outcome: Reduced,
) -> None:
    """Write the records of deleted files that no tensor refers to; report other such files."""
    deleted = [record for record in records if record.file in journal.deleted]
    outcome.tensors += _write_unnamed(writer, deleted, to)
    for record in records:
        if record.file not in journal.deleted:
            outcome.left.setdefault(record.file, "no index names it")
    if deleted:
        outcome.notes.append(f"{count_text(len(deleted), 'deleted file')} known by name alone")


def _write_unreduced(writer: RunWriter, tensor: Tensor) -> None:
    """Write a tensor that had no values before, or that has no elements."""
    if tensor.kept is Kept.VALUES:
        empty = replace_fields(tensor, shard="", offset=0, nbytes=0, digest="", digest_kind="")
        writer.tensor(empty, b"")
    else:
        writer.tensor(tensor)


def _write_reduced(
    writer: RunWriter, tensor: Tensor, record: TensorRecord, to: Kept, folder: Path
) -> None:
    if record.values:
        path = path_inside(folder / VALUES_FOLDER, record.digest)
        content = read_whole(path, DTYPES[tensor.dtype].nbytes(tensor.count))
        written = writer.tensor(replace_fields(tensor, digest="", digest_kind=""), content)
        if written.digest != record.digest:
            raise FormatError(
                f"{path} is damaged: its contents do not match the digest of {tensor.key}",
                cure="reduce the dump again into another -o",
            )
        return
    writer.tensor(
        replace_fields(
            tensor,
            kept=to,
            statistics=record.statistics if to is Kept.STATISTICS else None,
            digest=record.digest,
            digest_kind=DIGEST,
            shard="",
            offset=0,
            nbytes=0,
        )
    )


def _write_unnamed(writer: RunWriter, records: list[ReducedFile], to: Kept) -> int:
    """Write the tensors of files that the reader of the dump does not use, under the names of the
    files, so that no record is lost; return how many there are."""
    count = 0
    for record in records:
        key = OpKey(record.file, path="files that nothing names")
        writer.op(Op(key, "", attributes={"file": record.file}))
        for index, ((_, dtype, size), tensor_record) in enumerate(record.tensors.items()):
            tensor = Tensor(
                TensorKey(key, Role.OUTPUT, index),
                dtype,
                (size,),
                kept=to,
                statistics=tensor_record.statistics if to is Kept.STATISTICS else None,
                digest=tensor_record.digest,
                digest_kind=DIGEST,
            )
            writer.tensor(tensor)
            count += 1
    return count


def _missing_text(absent: list[str], outcome: Reduced) -> str:
    """What is missing from the run, and why."""
    texts = []
    if outcome.left:
        file, why = next(iter(outcome.left.items()))
        texts.append(f"{count_text(len(outcome.left), 'file')} not reduced ({file}: {why})")
    if absent:
        more = ", ..." if len(absent) > _MAX_LISTED_TENSORS else ""
        names = ", ".join(absent[:_MAX_LISTED_TENSORS]) + more
        texts.append(f"{count_text(len(absent), 'tensor')} without a complete file ({names})")
    return "; ".join(texts)


def _replace_run(new: Path, folder: Path) -> None:
    """Replace the files of an older run by those of the new one, run.json last. Without it the
    folder is not a run, and the next call makes it one."""
    (folder / RUN_JSON).unlink(missing_ok=True)
    sync(folder)
    names = sorted(path.name for path in new.iterdir() if path.name not in (RUN_JSON, "run.lock"))
    for old in folder.iterdir():
        is_shard = old.name.startswith("tensors-") and old.name.endswith(".safetensors")
        if is_shard and old.name not in names:
            old.unlink()
    for name in [*names, RUN_JSON]:
        target = folder / name
        if target.is_dir():
            shutil.rmtree(target)
        (new / name).replace(target)
    sync(folder)
    shutil.rmtree(new, ignore_errors=True)
