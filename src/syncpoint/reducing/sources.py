"""Which files of the source hold data and which are complete, for each kind of source: run, folder,
msProbe dump, .npz, intermediates; why to keep one."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from syncpoint.ascend.dumps.file_names import (
    find_full_name,
    parse_device_name,
    parse_golden_name,
    read_mapping,
)
from syncpoint.ascend.dumps.fx_folder import parse_fx_name
from syncpoint.ascend.dumps.training_tree import find_step_folders, is_tree
from syncpoint.dumps.aimodelintermediates.format import AimodelIntermediates
from syncpoint.dumps.aimodelintermediates.save_folder import METADATA
from syncpoint.dumps.npy_header import MAGIC
from syncpoint.dumps.npz import NpzFile
from syncpoint.dumps.open_dump import open_as
from syncpoint.dumps.registry import find_format, get_format
from syncpoint.dumps.run_folder import RunFolder
from syncpoint.dumps.safetensors import SafetensorsFile
from syncpoint.errors import FormatError, InputError, SyncpointError, Unsupported
from syncpoint.files.untrusted_files import read_whole
from syncpoint.files.untrusted_json import parse_json
from syncpoint.files.writer_lock import is_locked
from syncpoint.reducing.data_file_readers import (
    DataFile,
    Place,
    read_array_archive,
    read_device_op_file,
    read_npy_file,
    read_pt_file,
)
from syncpoint.reducing.file_access import Stamp, read_signature, stamp_of, walk_files
from syncpoint.run.model import Kept, Tensor
from syncpoint.run.reader import Run
from syncpoint.run.storage.journal import JOURNAL
from syncpoint.run.storage.run_json import RUN_JSON
from syncpoint.run.storage.shards import partial_name
from syncpoint.run.value_store import FileStore

INDEX_SUFFIXES = (".json", ".txt", ".csv")
"""Files beside the data that describe it. They are small and never deleted."""
MAX_INDEX_BYTES = 4 << 30
_VALUES_NAME = re.compile(rb'"data_name"\s*:\s*"((?:[^"\\]|\\.)*)"')


class DumpSource(ABC):
    """A run or a dump whose files appear one after the other."""

    format = ""
    """Name of the dump's format."""
    is_single_file = False
    """Whether it is one file, which must stay until the reduced run is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """The folder that file names are relative to."""

    @abstractmethod
    def files(self) -> dict[str, Stamp]:
        """The files with tensors, complete or not, and their stamps."""

    @abstractmethod
    def read(self, file: str) -> DataFile:
        """Open one of the files; a FormatError if it is not complete."""

    def indexed_tensors(self, file: str) -> set[Place] | None:
        """The tensors of a file by the index; None if the file itself describes them."""
        return None

    def reason_to_keep(self, file: str) -> str:
        """Why a reduced file must not be deleted; "" if it may be."""
        return ""

    def structure(self) -> Run | None:
        """The run without its values; None if the files are needed for it, as some of them may be
        deleted."""
        return None

    def is_finished(self) -> bool:
        """Whether the dump itself says that no more files will come."""
        return False

    def index_files(self) -> Iterator[str]:
        """The files that describe the data."""
        for file, _ in walk_files(self.path):
            if file.endswith(INDEX_SUFFIXES):
                yield file


class FolderSource(DumpSource):
    """A folder of files that describe themselves."""

    def __init__(self, path: Path, format: str) -> None:
        super().__init__(path)
        self.format = format
        if format == "ascend" and is_tree(path) and len(find_step_folders(path)) > 1:
            steps = find_step_folders(path)
            raise InputError(
                f"{path} holds the dumps of {len(steps)} steps, but reduce takes one",
                cure=f"give the path of one step, such as {steps[0].path}",
            )

    def files(self) -> dict[str, Stamp]:
        """The files that the reader of the format opens."""
        return {file: stamp for file, stamp in walk_files(self.path) if self._is_data(file)}

    def read(self, file: str) -> DataFile:
        """Open an array, or the tensors of an op."""
        if file.endswith(".npy"):
            return read_npy_file(self.path, file)
        name = parse_device_name(self._full_name(file))
        if name is None:
            raise FormatError(
                f"mapping.csv has no row for {file}, so its original file name is unknown",
                cure="copy the dump again, with its mapping.csv",
            )
        return read_device_op_file(self.path, file, name)

    def _is_data(self, file: str) -> bool:
        name = file.rpartition("/")[2]
        if self.format == "npy":
            return name.endswith(".npy")
        if self.format == "ascend-golden":
            golden = parse_golden_name(self._full_name(file))
            return "/" not in file and golden is not None and golden.suffix == "npy"
        if self.format == "ascend":
            return parse_device_name(self._full_name(file)) is not None
        fx = parse_fx_name(name)
        return parse_device_name(self._full_name(file)) is not None or (
            fx is not None and not fx.reduced
        )

    def _full_name(self, file: str) -> str:
        folder, _, name = file.rpartition("/")
        if not name.removesuffix(".npy").isdecimal():
            return name
        try:
            return find_full_name(name, read_mapping(self.path / folder))
        except FormatError:
            return name


class MsprobeSource(DumpSource):
    """Tensors of torch, named by a dump.json that is rewritten while the dump grows.

    A tensor that dump.json does not name yet can be reduced, but must not be deleted: if the writer
    dies first, nothing else says what the tensor is.
    """

    format = "msprobe"

    def __init__(self, path: Path) -> None:
        super().__init__(path if path.is_dir() else path.parent)
        self.named_path = path
        self._names_by_index: dict[Path, tuple[Stamp, frozenset[str]]] = {}

    def files(self) -> dict[str, Stamp]:
        """The files of tensors in folders beside a dump.json."""
        stamps = {}
        for file, stamp in walk_files(self.path):
            folder = (self.path / file).parent.parent
            if file.endswith(".pt") and (folder / "dump.json").is_file():
                stamps[file] = stamp
        return stamps

    def read(self, file: str) -> DataFile:
        """Open the tensor of a file."""
        return read_pt_file(self.path, file)

    def reason_to_keep(self, file: str) -> str:
        """A file that dump.json does not name is kept."""
        path = self.path / file
        names = self._names(path.parent.parent / "dump.json")
        return "" if path.name in names else "dump.json does not name it"

    def _names(self, index: Path) -> frozenset[str]:
        try:
            stamp = stamp_of(index.stat())
            cached = self._names_by_index.get(index)
            if cached is not None and cached[0] == stamp:
                return cached[1]
            text = read_whole(index, MAX_INDEX_BYTES)
            parse_json(text, str(index))  # a half-written file is not valid JSON
        except (OSError, SyncpointError):
            return frozenset()
        names = frozenset(
            parse_json(b'"' + name + b'"', "a name") for name in _VALUES_NAME.findall(text)
        )
        self._names_by_index[index] = (stamp, names)
        return names


class FileSource(DumpSource):
    """A file that is a whole dump."""

    is_single_file = True

    def __init__(self, path: Path, format: str) -> None:
        super().__init__(path.parent)
        self.format = format
        self.file = path

    def files(self) -> dict[str, Stamp]:
        """The file, as long as it exists."""
        try:
            return {self.file.name: stamp_of(self.file.lstat())}
        except OSError:
            return {}

    def read(self, file: str) -> DataFile:
        """Open the file with all its tensors."""
        if self.format == "npy":
            return read_npy_file(self.path, file)
        name = parse_device_name(file)
        if name is not None and self.format == "ascend":
            return read_device_op_file(self.path, file, name)
        file_format = NpzFile if self.format == "npz" else SafetensorsFile
        return read_array_archive(file_format().open, self.file)

    def structure(self) -> Run | None:
        """The run, as long as the file exists."""
        return open_as(get_format(self.format), self.file) if self.file.exists() else None

    def index_files(self) -> Iterator[str]:
        """None."""
        return iter(())


class _IndexedSource(DumpSource):
    """A source whose index says which tensors each file has."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._stamp: object = None
        self._run: Run | None = None
        self._by_file: dict[str, list[Tensor]] = {}

    def run(self) -> Run:
        """The run by the present index."""
        stamp = self._index_stamp()
        if self._run is None or stamp != self._stamp:
            self._run = self._open()
            self._stamp = stamp
            self._by_file = {}
            for tensor in self._run.tensors:
                if tensor.kept is Kept.VALUES and tensor.nbytes:
                    self._by_file.setdefault(tensor.shard, []).append(tensor)
        return self._run

    def tensors(self, file: str) -> list[Tensor]:
        """The tensors of a file."""
        self.run()
        return self._by_file.get(file, [])

    def indexed_tensors(self, file: str) -> set[Place] | None:
        """The tensors of a file by the index."""
        return {(t.offset, t.dtype, t.count) for t in self.tensors(file)}

    def _index_stamp(self) -> object:
        raise NotImplementedError

    def _open(self) -> Run:
        raise NotImplementedError


class RunSource(_IndexedSource):
    """A run: its shards, as soon as they have their final names.

    Equal content is stored once, so a later tensor may refer to a shard that is complete. Shards
    are therefore kept until the writer has finished.
    """

    format = "run"

    def files(self) -> dict[str, Stamp]:
        """The shards; an unfinished one only if its writer is gone."""
        try:
            self.run()
        except FormatError:
            if not self.is_finished():
                return {}  # the writer is replacing the journal by tables
            raise
        stamps = {}
        for name in self._by_file:
            try:
                stamps[name] = stamp_of(self._path(name).lstat())
            except OSError:
                continue
        return stamps

    def read(self, file: str) -> DataFile:
        """Open a shard; its header and the index of the run must agree."""
        path = self._path(file)
        tensors = self.tensors(file)
        is_final = path.name == file
        if not is_final and not self.is_finished():
            raise FormatError(
                f"{file} is still being written",
                cure="wait until the recording has finished, then try again",
            )
        if is_final:
            offsets = {tensor.offset for tensor in tensors}
            stored = SafetensorsFile().open(path).tensors
            unknown = [t.key.op.op for t in stored if t.nbytes and t.offset not in offsets]
            if unknown:
                raise FormatError(f"the index of the run has no tensor {unknown[0][:80]} of {file}")
        size = path.stat().st_size
        truncated = [tensor for tensor in tensors if tensor.offset + tensor.nbytes > size]
        if truncated:
            raise FormatError(f"{file} is truncated: it ends inside {truncated[0].key}")
        run = Run(self.run().info, [], tensors, _ShardStore(path))
        return DataFile(file=file, path=path, run=run, tensors=tuple(tensors), removable=is_final)

    def reason_to_keep(self, file: str) -> str:
        """Every file is kept while the run is being written."""
        return "" if self.is_finished() else "the run is still being written"

    def structure(self) -> Run:
        """The run."""
        return self.run()

    def is_finished(self) -> bool:
        """Whether its writer has finished or died."""
        return (self.path / RUN_JSON).exists() or not is_locked(self.path)

    def index_files(self) -> Iterator[str]:
        """None: its structure is read in place."""
        return iter(())

    def _path(self, shard: str) -> Path:
        final, partial = self.path / shard, self.path / partial_name(shard)
        return partial if not final.exists() and partial.exists() else final

    def _index_stamp(self) -> object:
        stamps: list[Stamp | None] = []
        for name in (RUN_JSON, JOURNAL):
            try:
                stamps.append(stamp_of((self.path / name).stat()))
            except OSError:
                stamps.append(None)
        return tuple(stamps)

    def _open(self) -> Run:
        return open_as(RunFolder(), self.path)


class _ShardStore(FileStore):
    """One shard, under its final or its temporary name. Reads are checked against the digest, so no
    check is needed before."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.parent)
        self._file = path

    def path(self, tensor: Tensor) -> Path:
        """The shard."""
        return self._file


class IntermediatesSource(_IndexedSource):
    """Arrays whose names, dtypes and roles are in metadata.json, which is written last."""

    format = "aimodelintermediates"

    def files(self) -> dict[str, Stamp]:
        """The arrays, once the index exists."""
        try:
            self.run()
        except SyncpointError:
            if os.path.lexists(self.path / METADATA):
                raise
            return {}
        stamps = {}
        for name in self._by_file:
            try:
                stamps[name] = stamp_of((self.path / name).lstat())
            except OSError:
                continue
        return stamps

    def read(self, file: str) -> DataFile:
        """Open an array, with its dtype and role by the index."""
        array = read_npy_file(self.path, file)
        tensors = tuple(self.tensors(file))
        return DataFile(file=file, path=array.path, run=self.run(), tensors=tensors)

    def reason_to_keep(self, file: str) -> str:
        """Every file is kept."""
        return "the index of Core AI's intermediates needs all its files"

    def structure(self) -> Run:
        """The run."""
        return self.run()

    def _index_stamp(self) -> object:
        return stamp_of((self.path / METADATA).stat())

    def _open(self) -> Run:
        return open_as(AimodelIntermediates(), self.path)


def find_source(path: Path, known_format: str = "") -> DumpSource | None:
    """The source at `path`; None while its format cannot be recognised. `known_format` is the
    format that was recognised earlier."""
    recognized = None if known_format else find_format(path)
    name = known_format or (recognized.name if recognized is not None else "")
    if not name or (name == "npy" and not known_format and not _has_array(path)):
        return None
    if name == "run":
        return RunSource(path)
    if name == "aimodelintermediates":
        return IntermediatesSource(path)
    if name == "msprobe":
        return MsprobeSource(path)
    if name in ("npz", "safetensors") or (path.is_file() and name in ("npy", "ascend")):
        return FileSource(path, name)
    if name in ("npy", "ascend", "ascend-golden", "torchair"):
        return FolderSource(path, name)
    raise Unsupported(
        f"reduce does not support dumps in the format {name}",
        cure=f"convert it first: syncpoint convert {path} NAME.run --to run",
    )


def _has_array(path: Path) -> bool:
    """Whether an array exists. Before its first bytes are written, a .npy file may belong to a
    dump of another format."""
    files = (
        [path]
        if path.is_file()
        else [path / file for file, _ in walk_files(path) if file.endswith(".npy")]
    )
    for file in files:
        with suppress(OSError, FormatError):
            if read_signature(file) == MAGIC:
                return True
    return False
