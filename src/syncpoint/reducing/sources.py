"""What is to be reduced, seen as files: which of them are data, and which are whole by now."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from syncpoint.ascend.dumps.batch_tree import is_tree, leaves
from syncpoint.ascend.dumps.file_names import device_name, full_name, golden_name, read_mapping
from syncpoint.ascend.dumps.fx_folder import fx_name
from syncpoint.dumps.aimodelintermediates.folder_writer import METADATA
from syncpoint.dumps.aimodelintermediates.format import AimodelIntermediates
from syncpoint.dumps.npy_header import MAGIC
from syncpoint.dumps.npz import NpzFile
from syncpoint.dumps.open_dump import open_as
from syncpoint.dumps.registry import find, named
from syncpoint.dumps.run_folder import RunFolder
from syncpoint.dumps.safetensors import SafetensorsFile
from syncpoint.errors import FormatError, InputError, SyncpointError, Unsupported
from syncpoint.files.untrusted_files import read_whole
from syncpoint.files.untrusted_json import parse_json
from syncpoint.files.writer_lock import is_locked
from syncpoint.reducing.data_file_readers import (
    Place,
    Unit,
    array_file_unit,
    device_unit,
    npy_unit,
    pt_unit,
)
from syncpoint.reducing.file_access import Stamp, first_bytes, stamp, walk
from syncpoint.run.model import Kept, Tensor
from syncpoint.run.reader import Run
from syncpoint.run.storage.journal import JOURNAL
from syncpoint.run.storage.run_json import RUN_JSON
from syncpoint.run.storage.shards import partial_name
from syncpoint.run.value_store import FileStore

INDEX = (".json", ".txt", ".csv")
"""Files beside the data that say what it is. They are small, and never removed."""
_MAX_INDEX = 4 << 30
_VALUES_NAME = re.compile(rb'"data_name"\s*:\s*"((?:[^"\\]|\\.)*)"')


class Source(ABC):
    """A run or a dump whose files come one by one."""

    format = ""
    """Name of the dump's format."""
    alone = False
    """Whether it is one file, which must stay until the reduced run is there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """The folder that the names of files are relative to."""

    @abstractmethod
    def files(self) -> dict[str, Stamp]:
        """The files that hold tensors by now, whole or not, with what they look like."""

    @abstractmethod
    def unit(self, file: str) -> Unit:
        """One of the files; a FormatError where it is not whole."""

    def told(self, file: str) -> set[Place] | None:
        """The tensors that an index says are in a file; None where the file itself says it."""
        return None

    def may_go(self, file: str) -> str:
        """Why a file that was reduced must stay all the same; "" where it need not."""
        return ""

    def structure(self) -> Run | None:
        """All that is known of the run beside its values; None where that takes the files, of
        which some may be deleted by now."""
        return None

    def finished(self) -> bool:
        """Whether it says itself that nothing more will come."""
        return False

    def indices(self) -> Iterator[str]:
        """Files that say what the data is."""
        for file, _ in walk(self.path):
            if file.endswith(INDEX):
                yield file


class FolderSource(Source):
    """A folder of files each of which tells what is in it."""

    def __init__(self, path: Path, format: str) -> None:
        super().__init__(path)
        self.format = format
        if format == "ascend" and is_tree(path) and len(leaves(path)) > 1:
            names = [leaf.name for leaf in leaves(path)]
            raise InputError(
                f"the dump of one step at {path}", f"{len(names)} of them", f"name one: {names[0]}"
            )

    def files(self) -> dict[str, Stamp]:
        """Those that the dump's own reader takes."""
        return {file: found for file, found in walk(self.path) if self._takes(file)}

    def unit(self, file: str) -> Unit:
        """An array, or the tensors of an op."""
        if file.endswith(".npy"):
            return npy_unit(self.path, file)
        name = device_name(self._full(file))
        if name is None:
            raise FormatError(f"a name for {file} in mapping.csv", "none")
        return device_unit(self.path, file, name)

    def _takes(self, file: str) -> bool:
        name = file.rpartition("/")[2]
        if self.format == "npy":
            return name.endswith(".npy")
        if self.format == "ascend-golden":
            found = golden_name(self._full(file))
            return "/" not in file and found is not None and found.suffix == "npy"
        if self.format == "ascend":
            return device_name(self._full(file)) is not None
        fx = fx_name(name)
        return device_name(self._full(file)) is not None or (fx is not None and not fx.reduced)

    def _full(self, file: str) -> str:
        folder, _, name = file.rpartition("/")
        if not name.removesuffix(".npy").isdecimal():
            return name
        try:
            return full_name(name, read_mapping(self.path / folder))
        except FormatError:
            return name


class MsprobeSource(Source):
    """Tensors of torch, named by the dump.json that is written anew as the dump goes on.

    A tensor that it does not name yet can be reduced, but must stay: should the writer die first,
    nobody else would know what it was.
    """

    format = "msprobe"

    def __init__(self, path: Path) -> None:
        super().__init__(path if path.is_dir() else path.parent)
        self.named = path
        self._known: dict[Path, tuple[Stamp, frozenset[str]]] = {}

    def files(self) -> dict[str, Stamp]:
        """Files of tensors in folders beside a dump.json."""
        found = {}
        for file, seen in walk(self.path):
            folder = (self.path / file).parent.parent
            if file.endswith(".pt") and (folder / "dump.json").is_file():
                found[file] = seen
        return found

    def unit(self, file: str) -> Unit:
        """The tensor of a file."""
        return pt_unit(self.path, file)

    def may_go(self, file: str) -> str:
        """Whether dump.json names it."""
        path = self.path / file
        names = self._names(path.parent.parent / "dump.json")
        return "" if path.name in names else "dump.json does not name it"

    def _names(self, index: Path) -> frozenset[str]:
        try:
            seen = stamp(index.stat())
            known = self._known.get(index)
            if known is not None and known[0] == seen:
                return known[1]
            text = read_whole(index, _MAX_INDEX)
            parse_json(text, str(index))  # while it is being written it is no JSON
        except (OSError, SyncpointError):
            return frozenset()
        names = frozenset(
            parse_json(b'"' + name + b'"', "a name") for name in _VALUES_NAME.findall(text)
        )
        self._known[index] = (seen, names)
        return names


class FileSource(Source):
    """A file that is a dump of its own."""

    alone = True

    def __init__(self, path: Path, format: str) -> None:
        super().__init__(path.parent)
        self.format = format
        self.file = path

    def files(self) -> dict[str, Stamp]:
        """The file, as long as it is there."""
        try:
            return {self.file.name: stamp(self.file.lstat())}
        except OSError:
            return {}

    def unit(self, file: str) -> Unit:
        """All its tensors."""
        if self.format == "npy":
            return npy_unit(self.path, file)
        name = device_name(file)
        if name is not None and self.format == "ascend":
            return device_unit(self.path, file, name)
        opener = NpzFile if self.format == "npz" else SafetensorsFile
        return array_file_unit(opener().open, self.file)

    def structure(self) -> Run | None:
        """The run, as long as the file is there."""
        return open_as(named(self.format), self.file) if self.file.exists() else None

    def indices(self) -> Iterator[str]:
        """None."""
        return iter(())


class _Indexed(Source):
    """The tensors of each file are those that the index says."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._seen: object = None
        self._run: Run | None = None
        self._by_file: dict[str, list[Tensor]] = {}

    def run(self) -> Run:
        """The run as its index has it by now."""
        seen = self._index_stamp()
        if self._run is None or seen != self._seen:
            self._run = self._opened()
            self._seen = seen
            self._by_file = {}
            for tensor in self._run.tensors:
                if tensor.kept is Kept.VALUES and tensor.nbytes:
                    self._by_file.setdefault(tensor.shard, []).append(tensor)
        return self._run

    def tensors(self, file: str) -> list[Tensor]:
        """Those in a file."""
        self.run()
        return self._by_file.get(file, [])

    def told(self, file: str) -> set[Place] | None:
        """As the index has it."""
        return {(t.offset, t.dtype, t.count) for t in self.tensors(file)}

    def _index_stamp(self) -> object:
        raise NotImplementedError

    def _opened(self) -> Run:
        raise NotImplementedError


class RunSource(_Indexed):
    """A run of ours: its shards, as soon as they have their final names.

    Equal content is stored once, so that a tensor to come may lie in a shard that is whole by now.
    Shards therefore stay until the writer is done.
    """

    format = "run"

    def files(self) -> dict[str, Stamp]:
        """Shards; the unfinished one only if nobody will finish it."""
        try:
            self.run()
        except FormatError:
            if not self.finished():
                return {}  # its writer is just about to put tables in the journal's place
            raise
        found = {}
        for name in self._by_file:
            path = self._path(name)
            try:
                found[name] = stamp(path.lstat())
            except OSError:
                continue
        return found

    def unit(self, file: str) -> Unit:
        """A shard; its own header and the run's index must tell the same."""
        path = self._path(file)
        tensors = self.tensors(file)
        final = path.name == file
        if not final and not self.finished():
            raise FormatError(f"{file} under its final name", "it is still being written")
        if final:
            known = {tensor.offset for tensor in tensors}
            entries = SafetensorsFile().open(path).tensors
            strange = [t.key.op.op for t in entries if t.nbytes and t.offset not in known]
            if strange:
                raise FormatError(f"tensors of {file} in the index of the run", strange[0][:80])
        places = [t for t in tensors if t.offset + t.nbytes > path.stat().st_size]
        if places:
            raise FormatError(f"all bytes of {places[0].key} in {file}", "a shorter file")
        run = Run(self.run().info, [], tensors, _ShardStore(path))
        return Unit(file=file, path=path, run=run, tensors=tuple(tensors), removable=final)

    def may_go(self, file: str) -> str:
        """Nothing goes while the run is being written."""
        return "" if self.finished() else "the run is still being written"

    def structure(self) -> Run:
        """The run."""
        return self.run()

    def finished(self) -> bool:
        """Whether its writer finished, or died."""
        return (self.path / RUN_JSON).exists() or not is_locked(self.path)

    def indices(self) -> Iterator[str]:
        """None: its structure is read where it lies."""
        return iter(())

    def _path(self, shard: str) -> Path:
        final, partial = self.path / shard, self.path / partial_name(shard)
        return partial if not final.exists() and partial.exists() else final

    def _index_stamp(self) -> object:
        found: list[Stamp | None] = []
        for name in (RUN_JSON, JOURNAL):
            try:
                found.append(stamp((self.path / name).stat()))
            except OSError:
                found.append(None)
        return tuple(found)

    def _opened(self) -> Run:
        return open_as(RunFolder(), self.path)


class _ShardStore(FileStore):
    """One shard, whatever its name is by now. What is read is held against its digest here, so
    that it need not be beforehand."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.parent)
        self._file = path

    def path(self, tensor: Tensor) -> Path:
        """The shard."""
        return self._file


class IntermediatesSource(_Indexed):
    """Arrays that metadata.json, which is written last, gives names, types and roles."""

    format = "aimodelintermediates"

    def files(self) -> dict[str, Stamp]:
        """The arrays, once there is an index."""
        try:
            self.run()
        except SyncpointError:
            if os.path.lexists(self.path / METADATA):
                raise
            return {}
        found = {}
        for name in self._by_file:
            try:
                found[name] = stamp((self.path / name).lstat())
            except OSError:
                continue
        return found

    def unit(self, file: str) -> Unit:
        """An array with the types and roles that the index gives it."""
        plain = npy_unit(self.path, file)
        return Unit(file=file, path=plain.path, run=self.run(), tensors=tuple(self.tensors(file)))

    def may_go(self, file: str) -> str:
        """Nothing goes."""
        return "the index of Core AI's intermediates is of no use without all its files"

    def structure(self) -> Run:
        """The run."""
        return self.run()

    def _index_stamp(self) -> object:
        return stamp((self.path / METADATA).stat())

    def _opened(self) -> Run:
        return open_as(AimodelIntermediates(), self.path)


def recognised(path: Path, known: str = "") -> Source | None:
    """The source at `path`; None where nothing tells yet what it is. `known` is the format where
    that was found out earlier."""
    found = known or (f.name if (f := find(path)) is not None else "")
    if not found or (found == "npy" and not known and not _has_array(path)):
        return None
    if found == "run":
        return RunSource(path)
    if found == "aimodelintermediates":
        return IntermediatesSource(path)
    if found == "msprobe":
        return MsprobeSource(path)
    if found in ("npz", "safetensors") or (path.is_file() and found in ("npy", "ascend")):
        return FileSource(path, found)
    if found in ("npy", "ascend", "ascend-golden", "torchair"):
        return FolderSource(path, found)
    raise Unsupported(
        "a dump that can be reduced",
        f"one in the format {found}",
        f"convert it first: syncpoint convert {path} NAME.run --to run",
    )


def _has_array(path: Path) -> bool:
    """Whether there is an array by now: before its first bytes are there, a file with the name of
    one may turn out to be of a dump that is known by more than names."""
    files = [path] if path.is_file() else [path / f for f, _ in walk(path) if f.endswith(".npy")]
    for file in files:
        with suppress(OSError, FormatError):
            if first_bytes(file) == MAGIC:
                return True
    return False
