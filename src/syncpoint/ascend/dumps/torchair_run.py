"""The dump format of TorchAir (GE or FX), or of one rank: recognise its folders (`sniff`), read it
as a run; tokens are steps, reduced files give extrema."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from syncpoint.ascend.dumps.device_folder import open_device_folder
from syncpoint.ascend.dumps.file_names import parse_device_name
from syncpoint.ascend.dumps.folder_listing import UNREADABLE
from syncpoint.ascend.dumps.fx_folder import group_fx_calls, read_fx_tensor
from syncpoint.ascend.dumps.min_max_files import narrowed, read_ends
from syncpoint.ascend.dumps.torchair_tree import (
    DumpKind,
    TokenFolder,
    Tree,
    find_tree,
    reduced_name,
)
from syncpoint.dumps.array_store import ArrayStore, StoredLayout
from syncpoint.dumps.protocol import API
from syncpoint.errors import SyncpointError
from syncpoint.files.untrusted_files import path_inside
from syncpoint.run.dtypes import from_numpy
from syncpoint.run.model import Op, OpKey, Part, Role, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.value_store import FileStore


@dataclass(frozen=True)
class TreeRun:
    """A rank of a dump."""

    tree: Tree
    run: Run
    reduced: frozenset[TensorKey] = frozenset()
    """Tensors of which only the least and the greatest value were kept."""

    def file(self, tensor: Tensor) -> str:
        """The path of the file that holds a tensor, as a user would type it."""
        return str(self.tree.root / tensor.shard)


def op_facts(op: Op, part: Part) -> dict[str, Any]:
    """What a dump says of one execution of an op."""
    facts_by_part = op.attributes.get("parts", {})
    return dict(facts_by_part.get(str(part), {}))


class TorchairFolders:
    """The folders of a GE or FX dump, all ranks and tokens of it in one run."""

    API = API
    name = "torchair"
    priority = 800

    def sniff(self, path: Path) -> bool:
        """A folder with folders of such files in it, and with no other arrays."""
        if not path.is_dir():
            return False
        try:
            tree = find_tree(path, "the dump")
        except (OSError, SyncpointError):
            return False
        return any(folder.folder for folder in tree.leaves) and not tree.strange

    def open(self, path: Path) -> Run:
        """Reads the headers only. A file that cannot be used is named as damage of its op."""
        return tree_run(find_tree(path, "the dump")).run


def tree_run(tree: Tree, rank: int | None = None) -> TreeRun:
    """Read the headers of all files of a rank, or of all. A file that cannot be used is named as
    damage of its op."""
    rank_tree = tree if rank is None else tree.of_rank(rank)
    builder = _TreeRunBuilder(
        tree=rank_tree, named=len({folder.graph for folder in rank_tree.leaves}) > 1
    )
    for folder in rank_tree.leaves:
        if tree.kind is DumpKind.GE:
            builder.device(folder)
        else:
            builder.nodes(folder)
    return builder.finished()


@dataclass(kw_only=True)
class _TreeRunBuilder:
    tree: Tree
    named: bool
    """Whether there are several graphs, so that ops say theirs."""
    types: dict[OpKey, str] = field(default_factory=dict)
    facts: dict[OpKey, dict[str, Any]] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    odd: dict[TensorKey, StoredLayout] = field(default_factory=dict)
    extrema: dict[TensorKey, NDArray[Any]] = field(default_factory=dict)
    places: dict[TensorKey, str] = field(default_factory=dict)
    """Files of those that are held."""
    reduced: set[TensorKey] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def finished(self) -> TreeRun:
        """The run of all that was added."""
        ops = [
            Op(key, type, attributes={"parts": self.facts[key]}) for key, type in self.types.items()
        ]
        self.extrema, facts_by_part = narrowed(self.extrema)
        self.tensors += [
            _extrema_tensor(key, ends, self.places[key]) for key, ends in self.extrema.items()
        ]
        self.notes += [facts_by_part] if facts_by_part else []
        store: FileStore = FileStore(self.tree.root)
        if self.odd or self.extrema:
            store = _TreeStore(self.tree.root, self.odd, self.extrema)
        info = RunInfo(
            model=self.tree.root.name,
            runtime="ascend" if self.tree.kind is DumpKind.GE else "torch",
            options={"format": f"torchair-{self.tree.kind.lower()}"},
            notes=tuple(dict.fromkeys([*self.tree.notes, *self.notes])),
        )
        run = Run(info, ops, self.tensors, store, path=self.tree.root)
        return TreeRun(self.tree, run, frozenset(self.reduced))

    def _op(self, folder: TokenFolder, key: OpKey, type: str, facts: dict[str, Any]) -> OpKey:
        if self.named:
            key = replace(key, graph=folder.graph)
        self.types.setdefault(key, type)
        self.facts.setdefault(key, {})[str(_part(folder))] = facts
        return key

    def device(self, folder: TokenFolder) -> None:
        """A folder of the device."""
        small = [f for f in folder.files if reduced_name(f) is not None]
        calls: dict[str, int] = {}
        if len(small) < len(folder.files):
            # Reduced files are read below, and each line says which execution it is of.
            fx_tensor = open_device_folder(
                self.tree.root / folder.folder, read_elsewhere=set(small), note_repeats=False
            )
            for op in fx_tensor.ops:
                facts = {**op.attributes, "file": _path(folder, str(op.attributes["file"]))}
                self._op(folder, op.key, op.type, facts)
                calls[op.key.op] = op.key.call + 1
            for tensor in fx_tensor.tensors:
                key = self._tensor_key(folder, tensor.key)
                shard = _path(folder, tensor.shard)
                self.tensors.append(replace(tensor, key=key, shard=shard))
            self.notes += [f"{folder.folder}: {note}" for note in fx_tensor.info.notes]
        for file in sorted(small, key=_time_of_reduced):
            self._small(folder, file, calls)

    def _tensor_key(self, folder: TokenFolder, key: TensorKey) -> TensorKey:
        op = replace(key.op, graph=folder.graph) if self.named else key.op
        return TensorKey(op, key.role, key.index, _part(folder))

    def _small(self, folder: TokenFolder, file: str, calls: dict[str, int]) -> None:
        """A file with the least and greatest value of each tensor."""
        name = parse_device_name(reduced_name(file) or "")
        assert name is not None
        key = OpKey(name.op, calls.get(name.op, 0))
        calls[name.op] = key.call + 1
        path = _path(folder, file)
        facts: dict[str, Any] = {"file": path, "timestamp": name.timestamp, "escaped": name.op}
        rows: list[tuple[Role, int, NDArray[Any]]] = []
        try:
            rows = list(read_ends(path_inside(self.tree.root, path)))
        except SyncpointError as error:
            facts["damage"] = str(error)
        self._op(folder, key, name.type, facts)
        for role, index, ends in rows:
            tensor_key = self._tensor_key(folder, TensorKey(key, role, index))
            self.extrema[tensor_key] = ends
            self.places[tensor_key] = path
            self.reduced.add(tensor_key)

    def nodes(self, folder: TokenFolder) -> None:
        """A folder of the FX graph."""
        calls: dict[str, int] = {}
        other = 0
        for call in group_fx_calls(folder.files):
            key = OpKey(call.op, calls.get(call.op, 0))
            calls[call.op] = key.call + 1
            damage = []
            facts: dict[str, Any] = {"node": call.node, "escaped": call.op}
            key = self._op(folder, key, call.target, facts)
            for role, index, file, name in call.indexed():
                tensor_key = TensorKey(key, role, index, _part(folder))
                fx_tensor = read_fx_tensor(self.tree.root, _path(folder, file), tensor_key)
                if fx_tensor.tensor is None:
                    other += not fx_tensor.damage
                    if fx_tensor.damage:
                        damage.append(f"{role} {index}: {fx_tensor.damage}")
                        facts.setdefault(UNREADABLE, [role, index])
                    continue
                self.tensors.append(fx_tensor.tensor)
                if fx_tensor.layout is not None:
                    self.odd[tensor_key] = fx_tensor.layout
                if name.reduced:
                    self.reduced.add(tensor_key)
                facts.setdefault("timestamp", name.time)
            if damage:
                facts["damage"] = "; ".join(damage[:3])
        if other:
            self.notes.append(f"{folder.folder}: {other} arguments are no numbers, not read")


class _TreeStore(ArrayStore):
    """Files of the tree, and the few numbers that were kept of reduced ones."""

    def __init__(
        self, root: Path, odd: dict[TensorKey, StoredLayout], extrema: dict[TensorKey, NDArray[Any]]
    ) -> None:
        super().__init__(root, odd)
        self._extrema = extrema

    def read(self, tensor: Tensor) -> NDArray[Any]:
        """All elements."""
        extrema = self._extrema.get(tensor.key)
        return super().read(tensor) if extrema is None else extrema

    def window(self, tensor: Tensor, start: int, stop: int) -> NDArray[Any]:
        """Some elements of the row-major order."""
        extrema = self._extrema.get(tensor.key)
        return super().window(tensor, start, stop) if extrema is None else extrema[start:stop]

    def dense_file(self, tensor: Tensor) -> Path | None:
        """The file of a tensor that is read from there."""
        return super().dense_file(tensor) if tensor.key not in self._extrema else None


def _part(folder: TokenFolder) -> Part:
    return Part(step=folder.token, rank=folder.rank)


def _path(folder: TokenFolder, file: str) -> str:
    return f"{folder.folder}/{file}" if folder.folder else file


def _time_of_reduced(file: str) -> tuple[int, str]:
    name = parse_device_name(reduced_name(file) or "")
    return (name.timestamp if name is not None else 0, file)


def _extrema_tensor(key: TensorKey, ends: NDArray[Any], path: str) -> Tensor:
    return Tensor(key, from_numpy(ends.dtype).name, ends.shape, shard=path, nbytes=ends.nbytes)
