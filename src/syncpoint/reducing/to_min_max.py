"""Reduce .npy and device files to minimum and maximum of each tensor, in `_min_max` files beside
them or elsewhere; delete after a second reading.

    X.npy       X_min_max.npy    [min, max]
    X           X_min_max.npz    `inputs` and `outputs` of an op, a row [min, max] for each tensor

The reduced file is beside the original, or at the same place in another folder. `compare --mode
torchair` reads it. It is written atomically, so it is also the record that the file was reduced.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.ascend.dumps.file_names import is_hashed, parse_device_name
from syncpoint.ascend.dumps.fx_folder import MIN_MAX
from syncpoint.dumps.registry import find_format
from syncpoint.errors import FormatError, InputError, SyncpointError, Unsupported
from syncpoint.files.atomic_writes import write_atomically
from syncpoint.files.untrusted_files import path_inside, read_whole
from syncpoint.files.write_errors import cannot_write, write_errors
from syncpoint.reducing.data_file_readers import (
    DataFile,
    NothingToReduce,
    read_device_op_file,
    read_npy_file,
)
from syncpoint.reducing.file_access import (
    CHANGED_FILE_CURE,
    Stamp,
    check_unchanged,
    open_data_file,
    remove_unchanged,
    stamp_of,
    walk_files,
)
from syncpoint.reducing.file_reduction import FileReduction
from syncpoint.reducing.result import Reduced, count_text
from syncpoint.reducing.sources import INDEX_SUFFIXES, MAX_INDEX_BYTES
from syncpoint.reducing.summarize import Extrema, summarize_tensor
from syncpoint.run.model import Role

_REDUCED_SUFFIXES = (f"{MIN_MAX}.npy", f"{MIN_MAX}.npz")
_UNSUPPORTED_FORMATS = ("run", "msprobe", "npz", "safetensors", "aimodelintermediates")


@dataclass(kw_only=True)
class MinMaxReduction(FileReduction):
    """One call of reduce to min-max; `out` is by default the folder of the dump itself."""

    def run(self) -> Reduced:
        """Work until no more files are expected."""
        outcome = Reduced(source=self.path, out=self.out, to="min-max")
        self._check_format()
        try:
            while self._scan(outcome):
                pass
        except KeyboardInterrupt:
            outcome.interrupted = True
        stamps = self._files()
        outcome.left = {file: why for file, why in self._not_reduced.items() if file in stamps}
        outcome.passed = {file: why for file, why in self._skipped.items() if file in stamps}
        self._add_notes(outcome, stamps)
        return outcome

    @property
    def root(self) -> Path:
        """The folder that file names are relative to."""
        return self.path.parent if self.path.is_file() else self.path

    def _check_format(self) -> None:
        if not self.path.exists():
            if self.watch.enabled:
                return
            raise InputError(f"there is no file or folder at {self.path}", cure="check the path")
        dump_format = find_format(self.path)
        if dump_format is not None and dump_format.name in _UNSUPPORTED_FORMATS:
            raise Unsupported(
                f"{self.path} is in the format {dump_format.name}; min-max needs a folder of .npy"
                " files or of device files",
                cure="reduce it --to statistics",
            )

    def _add_notes(self, outcome: Reduced, stamps: dict[str, Stamp]) -> None:
        """Add the notes; an InputError if there was no file to reduce."""
        unnamed = sum(is_hashed(file.rpartition("/")[2]) for file, _ in walk_files(self.root))
        if unnamed:
            outcome.notes.append(
                f"{count_text(unnamed, 'file')} known by a number only: not reduced, as the names"
                " are too long"
            )
        reduced = sum(file.endswith(_REDUCED_SUFFIXES) for file, _ in walk_files(self.out))
        earlier = reduced - outcome.files
        if earlier > 0:
            outcome.notes.append(f"{count_text(earlier, 'reduced file')} from an earlier call")
        elif not stamps and not outcome.files and not self.watch.enabled:
            raise InputError(
                f"{self.path} has no .npy files and no device files (TYPE.OP.TASK.STREAM.TIME)",
                cure="give the path of the folder that holds such files",
            )

    def _files(self) -> dict[str, Stamp]:
        if self.path.is_file():
            return {self.path.name: stamp_of(self.path.lstat())}
        return {file: stamp for file, stamp in walk_files(self.path) if _reduced_name(file)}

    def _scan(self, outcome: Reduced) -> bool:
        """Reduce the files that are complete; return whether to scan again."""
        stamps = self._files()
        reduced_count = 0
        for file in self.watch.files_to_read(stamps):
            self._not_reduced.pop(file, None)
            try:
                reduced_count += self._reduce_file(file, stamps[file], outcome)
            except NothingToReduce as error:
                self._skipped[file] = error.problem
            except SyncpointError as error:
                self._not_reduced[file] = str(error)
            except OSError as error:
                raise cannot_write(self.out / _reduced_name(file), error) from error
            self.watch.mark_read(file, stamps[file])
        self._copy_index_files()
        if reduced_count and self.progress is not None:
            self.progress(
                f"{outcome.files} files reduced, {len(self._not_reduced)} not reduced so far"
            )
        return self.watch.should_continue(bool(reduced_count), False)

    def _reduce_file(self, file: str, stamp: Stamp, outcome: Reduced) -> int:
        """Reduce one file; return 0 if an earlier call did it. A FormatError if it changes."""
        target = self.out / _reduced_name(file)
        data_file = self._read(file)
        if not _can_replace(target):
            raise FormatError(
                f"{target.name} already exists and was not written by reduce", cure="move it away"
            )
        # A copy may keep the modification time of its original: the time of the copy counts too.
        changed_at = max(stamp[1], data_file.path.lstat().st_ctime_ns)
        if not self.delete and _is_newer(target, changed_at):
            _count(outcome, data_file, stamp, target)
            return 0
        digests: list[str] = []
        extrema: list[Extrema | None] = []
        with open_data_file(data_file.path) as handle:
            check_unchanged(data_file.path, handle, stamp)
            for tensor in data_file.tensors:
                summary = summarize_tensor(data_file.run, tensor, handle, with_extrema=True)
                digests.append(summary.digest)
                extrema.append(summary.extrema)
            check_unchanged(data_file.path, handle, stamp)
        content = _to_npy(extrema[0]) if file.endswith(".npy") else _to_npz(data_file, extrema)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, content)
        if read_whole(target, len(content)) != content:
            raise FormatError(
                f"the content of {target} differs from what was written",
                cure="check the disk, and run the command again",
            )
        _count(outcome, data_file, stamp, target)
        if self.delete:
            self._delete(data_file, stamp, digests)
            outcome.deleted += 1
        return 1

    def _delete(self, data_file: DataFile, stamp: Stamp, digests: list[str]) -> None:
        """Delete a file after a second reading; a FormatError if that gives other digests."""
        with open_data_file(data_file.path) as handle:
            second = [
                summarize_tensor(data_file.run, tensor, handle).digest
                for tensor in data_file.tensors
            ]
            check_unchanged(data_file.path, handle, stamp)
        if second != digests:
            raise FormatError(
                f"{data_file.file} changed while it was being read: two reads returned different"
                " contents",
                cure=CHANGED_FILE_CURE,
            )
        if not remove_unchanged(data_file.path, stamp):
            raise FormatError(f"cannot delete {data_file.file}: permission denied, or it changed")

    def _read(self, file: str) -> DataFile:
        if file.endswith(".npy"):
            return read_npy_file(self.root, file)
        name = parse_device_name(file.rpartition("/")[2])
        if name is None:
            raise FormatError(f"{file} does not have the name of a device file")
        return read_device_op_file(self.root, file, name)

    def _copy_index_files(self) -> None:
        """Copy graphs and other index files, so that the other folder is a dump of its own."""
        if self.out == self.root:
            return
        for file, stamp in walk_files(self.root):
            if not file.endswith(INDEX_SUFFIXES):
                continue
            target = path_inside(self.out, file)
            if not _is_newer(target, stamp[1]):
                content = read_whole(path_inside(self.root, file), MAX_INDEX_BYTES)
                with write_errors(target):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    write_atomically(target, content)


def _reduced_name(file: str) -> str:
    """The name of the reduced file; "" for a file that is not reduced."""
    if file.endswith(".npy"):
        if file.endswith(_REDUCED_SUFFIXES):
            return ""
        return f"{file.removesuffix('.npy')}{MIN_MAX}.npy"
    return f"{file}{MIN_MAX}.npz" if parse_device_name(file.rpartition("/")[2]) is not None else ""


def _count(outcome: Reduced, data_file: DataFile, stamp: Stamp, target: Path) -> None:
    outcome.files += 1
    outcome.tensors += len(data_file.tensors)
    outcome.before += stamp[0]
    outcome.after += target.stat().st_size


def _is_newer(target: Path, changed_at: int) -> bool:
    """Whether a file is not empty and was written at or after a time in nanoseconds."""
    try:
        status = target.lstat()
    except OSError:
        return False
    return status.st_size > 0 and status.st_mtime_ns >= changed_at


def _can_replace(target: Path) -> bool:
    """Whether a reduced file may be written there: nothing else than a reduced file is replaced."""
    if not target.exists():
        return True
    try:
        with np.load(target, mmap_mode="r", allow_pickle=False) as archive:
            return set(archive.files) == {"inputs", "outputs"}
    except (TypeError, AttributeError):  # an array, not an archive
        return bool(np.load(target, mmap_mode="r", allow_pickle=False).shape == (2,))
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return False


def _min_max_row(extrema: Extrema | None) -> list[Any]:
    """[min, max]; NaN for an empty tensor, which has no extrema."""
    if extrema is None:
        return [float("nan"), float("nan")]
    row = []
    for value in (extrema.min, extrema.max):
        array = np.asarray(value)
        if array.dtype.isbuiltin != 1:  # .npy has no dtype for bf16 and similar types
            array = array.astype(np.int8 if array.dtype.name.endswith("int4") else np.float32)
        row.append(array[()])
    return row


def _to_npy(extrema: Extrema | None) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(_min_max_row(extrema)), allow_pickle=False)
    return file.getvalue()


def _to_npz(data_file: DataFile, extrema: list[Extrema | None]) -> bytes:
    rows: dict[Role, list[list[Any]]] = {Role.INPUT: [], Role.OUTPUT: []}
    for tensor, tensor_extrema in zip(data_file.tensors, extrema, strict=True):
        rows[tensor.key.role].append(_min_max_row(tensor_extrema))
    arrays: dict[str, NDArray[Any]] = {
        "inputs": np.array(rows[Role.INPUT]),
        "outputs": np.array(rows[Role.OUTPUT]),
    }
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()
