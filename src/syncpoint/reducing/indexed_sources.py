"""Sources whose files mean nothing without their index: runs, and Core AI's intermediates."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from syncpoint.dumps.aimodelintermediates.folder_writer import METADATA
from syncpoint.dumps.aimodelintermediates.format import AimodelIntermediates
from syncpoint.dumps.open_dump import open_as
from syncpoint.dumps.run_folder import RunFolder
from syncpoint.dumps.safetensors import SafetensorsFile
from syncpoint.errors import FormatError, SyncpointError
from syncpoint.files.writer_lock import is_locked
from syncpoint.reducing.data_files import Place, Stamp, Unit, npy_unit, stamp
from syncpoint.reducing.source_files import Source
from syncpoint.run.model import Kept, Tensor
from syncpoint.run.reader import Run
from syncpoint.run.storage.journal import JOURNAL
from syncpoint.run.storage.run_json import RUN_JSON
from syncpoint.run.storage.shards import partial_name
from syncpoint.run.value_store import FileStore


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
