"""The records of the ledger -> a run with statistics or digests in place of values.

What the tensors are called, who reads them and where they come from is known to the reader of the
dump's format. It is given the dump as it was: where a file was deleted, one with the same header
and a hole of the same size. Readers look at headers only.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from syncpoint.dumps.open_dump import open_as
from syncpoint.dumps.registry import named
from syncpoint.dumps.run_folder import write_ops
from syncpoint.errors import FormatError, SyncpointError
from syncpoint.files.atomic_writes import sync
from syncpoint.files.untrusted_files import path_inside, read_whole
from syncpoint.files.write_errors import write_errors
from syncpoint.reducing.progress_journal import Kept as Known
from syncpoint.reducing.progress_journal import Ledger, Record
from syncpoint.reducing.result import Reduced, counted
from syncpoint.reducing.sources import MsprobeSource, Source
from syncpoint.run.digests import XXH3_128 as DIGEST
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Kept, Op, OpKey, Role, RunInfo, Tensor, TensorKey, replace_fields
from syncpoint.run.reader import Run
from syncpoint.run.storage.run_json import RUN_JSON
from syncpoint.run.storage.writer import RunWriter
from syncpoint.run.value_store import FileStore
from syncpoint.supervision.scratch_folder import scratch_folder

VALUES = "kept"
"""Folder beside the ledger with the values of model inputs."""
_NEW = "assembling"
_SHOWN = 3


def assemble(source: Source, ledger: Ledger, to: Kept, outcome: Reduced) -> None:
    """Write the run anew from all records, and count what is in it."""
    records = _present(source, ledger)
    outcome.files = len(records)
    outcome.before = sum(record.stamp[0] for record in records.values())
    gone = records.keys() - source.files().keys()
    outcome.deleted = len(gone & ledger.deleted)
    if gone - ledger.deleted:
        lost = counted(len(gone - ledger.deleted), "file")
        outcome.notes.append(f"{lost} gone since; what was recorded of them is kept")
    new = ledger.folder / _NEW
    with write_errors(ledger.folder):
        shutil.rmtree(new, ignore_errors=True)
        with _structure(source, records, bool(gone)) as (run, root):
            _write(run, root, records, ledger, to, new, outcome)
        _replace(new, ledger.folder)


def _present(source: Source, ledger: Ledger) -> dict[str, Record]:
    """The records of files that are there as they were read, or that are gone, whoever deleted
    them. One that has another name by now counts under that name only."""
    there = source.files()
    named = set(there.values()) | {
        record.stamp for file, record in ledger.records.items() if file in ledger.deleted
    }
    return {
        file: record
        for file, record in ledger.records.items()
        if (
            there[file] == record.stamp
            if file in there
            else file in ledger.deleted or record.stamp not in named
        )
    }


@contextmanager
def _structure(
    source: Source, records: Mapping[str, Record], deleted: bool
) -> Iterator[tuple[Run, Path]]:
    """The dump as its reader sees it, and the folder that the names of files are relative to."""
    found = source.structure()
    if found is not None:
        yield found, source.path
        return
    with scratch_folder() as folder:
        # The names of the folders above may tell of ranks and steps.
        root = Path(folder, *source.path.absolute().parts[1:])
        for record in records.values():
            _hollow(root, record)
        for file in source.indices():
            target = path_inside(root, file)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(read_whole(path_inside(source.path, file), 4 << 30))
        named_path = root
        if isinstance(source, MsprobeSource) and source.named.is_file():
            named_path = root / source.named.name
        yield _opened(source, named_path, deleted), root


def _opened(source: Source, path: Path, deleted: bool) -> Run:
    """The dump as its reader sees it. Where that refuses it and files are deleted already, what
    was kept of them must not be out of reach: then their names are all that is known."""
    try:
        return open_as(named(source.format), path)
    except SyncpointError as error:
        if not deleted:
            raise
        missing = f"names, edges and places of tensors, as the dump cannot be read: {error}"
        info = RunInfo(
            model=path.name, options={"format": source.format}, complete=False, missing=missing
        )
        return Run(info, [], [], FileStore(path), path=path)


def _hollow(root: Path, record: Record) -> None:
    """A file that looks like the one it stands for to whoever reads its header only."""
    path = path_inside(root, record.file)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(record.stamp[0])
        for at, data in record.pieces:
            file.seek(at)
            file.write(data)


def _write(
    run: Run,
    root: Path,
    records: dict[str, Record],
    ledger: Ledger,
    to: Kept,
    new: Path,
    outcome: Reduced,
) -> None:
    info = replace(run.info, record=to)
    with RunWriter(new, info) as writer:
        write_ops(run, writer)
        prefix = _shard_prefix(run, root)
        named_files, absent = _write_tensors(writer, run, prefix, records, to, ledger.folder)
        outcome.tensors += named_files.total()
        unnamed = [record for file, record in records.items() if not named_files[file]]
        _account_for_unnamed(writer, unnamed, ledger, to, outcome)
        writer.note(f"reduced to {to} from {Path(ledger.source).name}")
        missing = _missing(absent, outcome)
        if missing or not run.info.complete:
            both = "; ".join(text for text in (run.info.missing, missing) if text)
            writer.abort(both.removeprefix("what came after: ") or "its writer died")


def _shard_prefix(run: Run, root: Path) -> str:
    """What stands before the name of a shard where files are named relative to `root`."""
    base = run.path if run.path is not None else root
    base = base.parent if base.is_file() else base
    prefix = base.absolute().relative_to(root.absolute()).as_posix()
    return "" if prefix == "." else f"{prefix}/"


def _write_tensors(
    writer: RunWriter,
    run: Run,
    prefix: str,
    records: Mapping[str, Record],
    to: Kept,
    folder: Path,
) -> tuple[Counter[str], list[str]]:
    """Write every tensor that is recorded; return how many each file has, and who is absent."""
    written: Counter[str] = Counter()
    absent: list[str] = []
    for tensor in run.tensors:
        file = prefix + tensor.shard
        if tensor.kept is not Kept.VALUES or not tensor.count:
            _pass_on(writer, tensor)
            written[file] += 1
            continue
        record = records.get(file)
        place = (tensor.offset, tensor.dtype, tensor.count)
        known = None if record is None else record.tensors.get(place)
        if known is None:
            absent.append(str(tensor.key))
            continue
        _reduced(writer, tensor, known, to, folder)
        written[file] += 1
    return written, absent


def _account_for_unnamed(
    writer: RunWriter, records: list[Record], ledger: Ledger, to: Kept, outcome: Reduced
) -> None:
    """Keep what was recorded of deleted files that no tensor names; leave the files of others."""
    deleted = [record for record in records if record.file in ledger.deleted]
    outcome.tensors += _unnamed(writer, deleted, to)
    for record in records:
        if record.file not in ledger.deleted:
            outcome.left.setdefault(record.file, "no index names it")
    if deleted:
        outcome.notes.append(f"{counted(len(deleted), 'deleted file')} known by name alone")


def _pass_on(writer: RunWriter, tensor: Tensor) -> None:
    """What had no values before, and what has no elements, stays as it is."""
    if tensor.kept is Kept.VALUES:
        empty = replace_fields(tensor, shard="", offset=0, nbytes=0, digest="", digest_kind="")
        writer.tensor(empty, b"")
    else:
        writer.tensor(tensor)


def _reduced(writer: RunWriter, tensor: Tensor, known: Known, to: Kept, folder: Path) -> None:
    if known.values:
        path = path_inside(folder / VALUES, known.digest)
        data = read_whole(path, DTYPES[tensor.dtype].nbytes(tensor.count))
        written = writer.tensor(replace_fields(tensor, digest="", digest_kind=""), data)
        if written.digest != known.digest:
            raise FormatError(f"the values of {tensor.key} in {path}", "others")
        return
    writer.tensor(
        replace_fields(
            tensor,
            kept=to,
            statistics=known.statistics if to is Kept.STATISTICS else None,
            digest=known.digest,
            digest_kind=DIGEST,
            shard="",
            offset=0,
            nbytes=0,
        )
    )


def _unnamed(writer: RunWriter, records: list[Record], to: Kept) -> int:
    """Tensors of files that the dump's reader does not know what to do with, under the names of
    the files: what was read is not dropped."""
    count = 0
    for record in records:
        key = OpKey(record.file, path="files that nothing names")
        writer.op(Op(key, "", attributes={"file": record.file}))
        for index, ((_, dtype, size), known) in enumerate(record.tensors.items()):
            tensor = Tensor(
                TensorKey(key, Role.OUTPUT, index),
                dtype,
                (size,),
                kept=to,
                statistics=known.statistics if to is Kept.STATISTICS else None,
                digest=known.digest,
                digest_kind=DIGEST,
            )
            writer.tensor(tensor)
            count += 1
    return count


def _missing(absent: list[str], outcome: Reduced) -> str:
    said = []
    if outcome.left:
        first = next(iter(outcome.left.items()))
        said.append(f"{counted(len(outcome.left), 'file')} not reduced ({first[0]}: {first[1]})")
    if absent:
        shown = ", ".join(absent[:_SHOWN]) + (", ..." if len(absent) > _SHOWN else "")
        said.append(f"{counted(len(absent), 'tensor')} of which no file is whole ({shown})")
    return "; ".join(said)


def _replace(new: Path, folder: Path) -> None:
    """Put the files of the new run in the place of those of an older one, run.json last: without
    it the folder is no run, and another call makes it one."""
    (folder / RUN_JSON).unlink(missing_ok=True)
    sync(folder)
    names = sorted(p.name for p in new.iterdir() if p.name not in (RUN_JSON, "run.lock"))
    for old in folder.iterdir():
        ours = old.name.startswith("tensors-") and old.name.endswith(".safetensors")
        if ours and old.name not in names:
            old.unlink()
    for name in [*names, RUN_JSON]:
        target = folder / name
        if target.is_dir():
            shutil.rmtree(target)
        (new / name).replace(target)
    sync(folder)
    shutil.rmtree(new, ignore_errors=True)
