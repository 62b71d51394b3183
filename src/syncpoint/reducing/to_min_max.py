"""Files of arrays and of devices -> the least and the greatest value of each tensor, file by file.

    X.npy       X_min_max.npy    [least, greatest]
    X           X_min_max.npz    `inputs` and `outputs` of an op, a row [least, greatest] a tensor

The reduced file lies beside the other, or in the same place of another folder; `compare --mode
torchair` reads it. It appears whole or not at all, so that it is the record of what was done.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.ascend.dumps.file_names import device_name, is_hashed
from syncpoint.ascend.dumps.fx_folder import MIN_MAX
from syncpoint.dumps.registry import find
from syncpoint.errors import FormatError, InputError, SyncpointError, Unsupported
from syncpoint.files.atomic_writes import write_atomically
from syncpoint.files.untrusted_files import path_inside, read_whole
from syncpoint.files.write_errors import cannot_write, write_errors
from syncpoint.reducing.data_file_readers import NothingToReduce, Unit, device_unit, npy_unit
from syncpoint.reducing.file_access import Stamp, check_unchanged, opened, remove, stamp, walk
from syncpoint.reducing.folder_watch import Progress, Watch
from syncpoint.reducing.result import Reduced, counted
from syncpoint.reducing.sources import INDEX
from syncpoint.reducing.summarize import Ends, measure
from syncpoint.run.model import Role

_REDUCED = (f"{MIN_MAX}.npy", f"{MIN_MAX}.npz")
_OTHER = ("run", "msprobe", "npz", "safetensors", "aimodelintermediates")
_MAX_INDEX = 4 << 30


@dataclass(kw_only=True)
class MinMax:
    """One call of reduce to min-max."""

    path: Path
    out: Path
    """Where the reduced files go; the folder of the dump itself unless another is named."""
    delete: bool
    watch: Watch
    progress: Progress | None = None
    _left: dict[str, str] = field(default_factory=dict)
    _passed: dict[str, str] = field(default_factory=dict)

    def run(self) -> Reduced:
        """Work until there is nothing more to wait for."""
        outcome = Reduced(source=self.path, out=self.out, to="min-max")
        self._check_kind()
        try:
            while self._look(outcome):
                pass
        except KeyboardInterrupt:
            outcome.interrupted = True
        there = self._files()
        outcome.left = {file: why for file, why in self._left.items() if file in there}
        outcome.passed = {file: why for file, why in self._passed.items() if file in there}
        self._check_found(outcome, there)
        return outcome

    @property
    def root(self) -> Path:
        """The folder that names are relative to."""
        return self.path.parent if self.path.is_file() else self.path

    def _check_kind(self) -> None:
        if not self.path.exists():
            if self.watch.on:
                return
            raise InputError("a dump", f"nothing at {self.path}", "check the path")
        found = find(self.path)
        if found is not None and found.name in _OTHER:
            raise Unsupported(
                "a folder of .npy files or of a device's files for min-max",
                f"{self.path} in the format {found.name}",
                "reduce it --to statistics",
            )

    def _check_found(self, outcome: Reduced, there: dict[str, Stamp]) -> None:
        unnamed = sum(is_hashed(file.rpartition("/")[2]) for file, _ in walk(self.root))
        if unnamed:
            outcome.notes.append(
                f"{counted(unnamed, 'file')} known by a number only: not reduced, as the names are"
                " too long"
            )
        earlier = sum(file.endswith(_REDUCED) for file, _ in walk(self.out)) - outcome.files
        if earlier > 0:
            outcome.notes.append(f"{counted(earlier, 'reduced file')} from an earlier call")
        elif not there and not outcome.files and not self.watch.on:
            raise InputError(
                f".npy files, or files of a device (TYPE.OP.TASK.STREAM.TIME), in {self.path}",
                "none",
                "check the path",
            )

    def _files(self) -> dict[str, Stamp]:
        if self.path.is_file():
            return {self.path.name: stamp(self.path.lstat())}
        return {file: seen for file, seen in walk(self.path) if _target(file)}

    def _look(self, outcome: Reduced) -> bool:
        there = self._files()
        fresh = self.watch.fresh(there)
        done = 0
        for file in fresh:
            self._left.pop(file, None)
            try:
                done += self._take(file, there[file], outcome)
            except NothingToReduce as error:
                self._passed[file] = f"{error.found}, not {error.expected}"
            except SyncpointError as error:
                self._left[file] = str(error)
            except OSError as error:
                raise cannot_write(self.out / _target(file), error) from error
            self.watch.looked_into(file, there[file])
        self._copy_indices()
        if done and self.progress is not None:
            self.progress(f"{outcome.files} files reduced, {len(self._left)} left so far")
        return self.watch.goes_on(bool(done), False)

    def _take(self, file: str, seen: Stamp, outcome: Reduced) -> int:
        """Reduce one file; what changes while it is read is not taken."""
        target = self.out / _target(file)
        unit = self._unit(file)
        if not _is_free(target):
            raise FormatError(
                f"nothing, or what reduce wrote, at {target.name}", "another file", "move it away"
            )
        # A copy may keep the time of its original: when it came here counts too.
        since = (seen[0], max(seen[1], unit.path.lstat().st_ctime_ns), seen[2])
        if not self.delete and _is_newer(target, since):
            _count(outcome, unit, seen, target)
            return 0
        digests: list[str] = []
        ends: list[Ends | None] = []
        with opened(unit.path) as handle:
            check_unchanged(unit.path, handle, seen)
            for tensor in unit.tensors:
                found = measure(unit.run, tensor, handle, ends=True)
                digests.append(found.digest)
                ends.append(found.ends)
            check_unchanged(unit.path, handle, seen)
        data = _as_npy(ends[0]) if file.endswith(".npy") else _as_npz(unit, ends)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, data)
        if read_whole(target, len(data)) != data:
            raise FormatError(f"what was written to {target}", "something else")
        _count(outcome, unit, seen, target)
        if self.delete:
            with opened(unit.path) as handle:
                again = [measure(unit.run, t, handle).digest for t in unit.tensors]
                check_unchanged(unit.path, handle, seen)
            if again != digests:
                raise FormatError(f"{file} as it was", "other bytes at a second reading")
            if not remove(unit.path, seen):
                raise FormatError(f"leave to delete {file}", "none")
            outcome.deleted += 1
        return 1

    def _unit(self, file: str) -> Unit:
        if file.endswith(".npy"):
            return npy_unit(self.root, file)
        name = device_name(file.rpartition("/")[2])
        if name is None:
            raise FormatError("a file of a device", file)
        return device_unit(self.root, file, name)

    def _copy_indices(self) -> None:
        """Graphs and the like go along, so that the other folder is a dump of its own."""
        if self.out == self.root:
            return
        for file, seen in walk(self.root):
            if not file.endswith(INDEX):
                continue
            target = path_inside(self.out, file)
            if not _is_newer(target, seen):
                data = read_whole(path_inside(self.root, file), _MAX_INDEX)
                with write_errors(target):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    write_atomically(target, data)


def _target(file: str) -> str:
    """What the reduced file is called; "" for files that are not reduced."""
    if file.endswith(".npy"):
        return "" if file.endswith(_REDUCED) else f"{file.removesuffix('.npy')}{MIN_MAX}.npy"
    return f"{file}{MIN_MAX}.npz" if device_name(file.rpartition("/")[2]) is not None else ""


def _count(outcome: Reduced, unit: Unit, seen: Stamp, target: Path) -> None:
    outcome.files += 1
    outcome.tensors += len(unit.tensors)
    outcome.before += seen[0]
    outcome.after += target.stat().st_size


def _is_newer(target: Path, seen: Stamp) -> bool:
    try:
        found = target.lstat()
    except OSError:
        return False
    return found.st_size > 0 and found.st_mtime_ns >= seen[1]


def _is_free(target: Path) -> bool:
    """Whether a reduced file may be written there: over nothing but one of its kind."""
    if not target.exists():
        return True
    try:
        with np.load(target, mmap_mode="r", allow_pickle=False) as found:  # an archive
            return set(found.files) == {"inputs", "outputs"}
    except (TypeError, AttributeError):
        return bool(np.load(target, mmap_mode="r", allow_pickle=False).shape == (2,))
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return False


def _pair(ends: Ends | None) -> list[Any]:
    """An empty tensor has no ends, which is not to say that they are zero."""
    if ends is None:
        return [float("nan"), float("nan")]
    found = []
    for end in (ends.least, ends.greatest):
        array = np.asarray(end)
        if array.dtype.isbuiltin != 1:  # NumPy's files have no name for bf16 and the like
            array = array.astype(np.int8 if array.dtype.name.endswith("int4") else np.float32)
        found.append(array[()])
    return found


def _as_npy(ends: Ends | None) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(_pair(ends)), allow_pickle=False)
    return file.getvalue()


def _as_npz(unit: Unit, ends: list[Ends | None]) -> bytes:
    rows: dict[Role, list[list[Any]]] = {Role.INPUT: [], Role.OUTPUT: []}
    for tensor, found in zip(unit.tensors, ends, strict=True):
        rows[tensor.key.role].append(_pair(found))
    arrays: dict[str, NDArray[Any]] = {
        "inputs": np.array(rows[Role.INPUT]),
        "outputs": np.array(rows[Role.OUTPUT]),
    }
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()
