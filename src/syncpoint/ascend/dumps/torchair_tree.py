"""The folders of a TorchAir dump: which of them holds which rank, graph and token.

    GE    [worldsizeN_global_rankR/]TIME/DEVICE/NAME/GRAPH/TOKEN/files
    FX    worldsizeN_global_rankR/NAME/TOKEN/files          tokens from 0
          [data_dump/]TOKEN/NAME/files                      tokens from 1 in old versions

Only names are looked at. The graphs, `dynamo_original_graph_*.txt`, lie anywhere in a GE dump.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from syncpoint.ascend.dumps.file_names import MAPPING, device_name, is_hashed
from syncpoint.ascend.dumps.fx_folder import MIN_MAX, fx_name
from syncpoint.errors import InputError, describe_error

_MAX_DEPTH = 16
_MAX_FOLDERS = 1_000_000
_RANK = re.compile(r"worldsize.*rank([0-9]{1,9})")
_GRAPH_FILE = re.compile(r"dynamo_original_graph_.*\.txt")
_RANK_OF_FILE = re.compile(r"rank_([0-9]{1,9})_")
_TIME = re.compile(r"[0-9]{14}")
_NUMBER = re.compile(r"[0-9]{1,9}")
_REDUCED = f"{MIN_MAX}.npz"


class Kind(StrEnum):
    """Who executed the graph."""

    GE = "GE"
    """The device, its ops fused or not."""
    FX = "FX"
    """PyTorch, node by node."""


@dataclass(frozen=True)
class Leaf:
    """A folder of dump files."""

    folder: str
    """Relative to the tree; "" where it is the tree itself."""
    rank: int
    """-1 where the folders say none."""
    graph: str
    token: int
    files: tuple[str, ...]


@dataclass(frozen=True)
class GraphFile:
    """A graph beside the dump."""

    path: str
    rank: int
    """-1 where its name says none."""
    number: int
    """The first number of its name, by which they are in order."""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A dump of a whole model."""

    root: Path
    kind: Kind
    leaves: tuple[Leaf, ...]
    graphs: tuple[GraphFile, ...] = ()
    notes: tuple[str, ...] = ()
    strange: int = 0
    """Arrays of an FX dump that are named otherwise, and so not read."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks in order; (-1,) where the folders say none."""
        return tuple(sorted({leaf.rank for leaf in self.leaves}))

    def of_rank(self, rank: int) -> Tree:
        """The part of it that one rank wrote."""
        graphs = [g for g in self.graphs if g.rank in (rank, -1) or rank == -1]
        leaves = tuple(leaf for leaf in self.leaves if leaf.rank == rank)
        return replace(self, leaves=leaves, graphs=tuple(graphs))


def reduced_name(file: str) -> str | None:
    """The name that a device's file had before its volume was reduced; None for all others."""
    stem = file.removesuffix(_REDUCED)
    return stem if stem != file and device_name(stem) is not None else None


def find_tree(root: Path, flag: str) -> Tree:
    """Look through the folders below `root`; what is no dump of TorchAir is an InputError."""
    if not root.is_dir():
        found = "a file" if root.exists() else "nothing there"
        raise InputError(f"a folder of a TorchAir dump for {flag}", f"{root}: {found}")
    folders: dict[Kind, list[tuple[str, tuple[str, ...]]]] = {kind: [] for kind in Kind}
    graphs: list[GraphFile] = []
    arrays = 0
    for relative, files in _walk(root):
        graphs += [_graph_file(relative, f) for f in files if _GRAPH_FILE.fullmatch(f)]
        arrays += sum(f.endswith(".npy") and fx_name(f) is None for f in files)
        for kind, named in _by_kind(files).items():
            if named:
                folders[kind].append((relative, named))
    if folders[Kind.GE] and folders[Kind.FX]:
        raise InputError(
            f"one dump for {flag}",
            f"a GE and an FX dump in {root}",
            f"name one of them, such as {root / folders[Kind.GE][0][0].partition('/')[0]}",
        )
    if not folders[Kind.GE] and not folders[Kind.FX]:
        raise InputError(
            f"files of a GE dump (TYPE.OP.TASK.STREAM.TIME) or an FX dump"
            f" (NODE-TARGET.INPUT|OUTPUT.N.TIME.npy) for {flag}",
            f"neither in {root}",
            "check the path",
        )
    graphs.sort(key=lambda g: (g.number, g.path))
    if folders[Kind.GE]:
        return Tree(
            root=root, kind=Kind.GE, leaves=_ge_leaves(root, folders[Kind.GE]), graphs=tuple(graphs)
        )
    leaves, notes = _fx_leaves(root, folders[Kind.FX])
    if arrays:
        notes = (*notes, f"{arrays} .npy files of other names are not read")
    return Tree(root=root, kind=Kind.FX, leaves=leaves, graphs=(), notes=notes, strange=arrays)


def _walk(root: Path) -> list[tuple[str, list[str]]]:
    """Folders with their files; links are not followed."""
    found: list[tuple[str, list[str]]] = []

    def refuse(error: OSError) -> None:
        raise InputError(f"readable folders in {root}", describe_error(error)) from error

    for parent, folders, files in os.walk(root, onerror=refuse):
        relative = Path(parent).relative_to(root).as_posix()
        folders.sort()
        if relative.count("/") >= _MAX_DEPTH or len(found) >= _MAX_FOLDERS:
            raise InputError(
                f"at most {_MAX_DEPTH} folders inside each other in {root}, and {_MAX_FOLDERS} in"
                " all",
                "more",
                "name the folder of the dump",
            )
        found.append(("" if relative == "." else relative, sorted(files)))
    return found


def _by_kind(files: Sequence[str]) -> dict[Kind, tuple[str, ...]]:
    hashed = MAPPING in files
    there = set(files)
    # Whoever reduces a file deletes it last: where both are there, the whole one is used.
    files = [f for f in files if _whole_name(f) not in there]
    ge = [
        f
        for f in files
        if device_name(f) is not None
        or reduced_name(f) is not None
        or (hashed and is_hashed(f) and not f.endswith(".npy"))
    ]
    return {Kind.GE: tuple(ge), Kind.FX: tuple(f for f in files if fx_name(f) is not None)}


def _whole_name(file: str) -> str | None:
    """What a reduced file was made of."""
    if file.endswith(f"{MIN_MAX}.npy"):
        return f"{file.removesuffix(f'{MIN_MAX}.npy')}.npy"
    return file.removesuffix(_REDUCED) if file.endswith(_REDUCED) else None


def _graph_file(folder: str, file: str) -> GraphFile:
    path = f"{folder}/{file}" if folder else file
    rank = _RANK_OF_FILE.search(file)
    number = re.search(r"[0-9]{1,30}", file)
    # A name may have the rank only: then that is its first number, as good as any.
    return GraphFile(path, -1 if rank is None else int(rank[1]), int(number[0]) if number else 0)


def _parts(root: Path, folder: str) -> list[str]:
    """Names of the folders down to this one; those above the root may tell too."""
    above = root.absolute().parts[1:]
    return [*above, *(folder.split("/") if folder else ())]


def _rank(parts: Sequence[str]) -> int:
    found = [int(m[1]) for part in parts if (m := _RANK.fullmatch(part))]
    return found[-1] if found else -1


def _ge_leaves(root: Path, folders: list[tuple[str, tuple[str, ...]]]) -> tuple[Leaf, ...]:
    leaves = []
    devices = []
    for folder, files in folders:
        parts = _parts(root, folder)
        token = int(parts[-1]) if parts and _NUMBER.fullmatch(parts[-1]) else 0
        graph = parts[-2] if len(parts) > 1 and _NUMBER.fullmatch(parts[-2]) else "0"
        leaves.append(Leaf(folder, _rank(parts), str(int(graph)), token, files))
        at = next((i for i, part in enumerate(parts) if _TIME.fullmatch(part)), None)
        # TIME/DEVICE/NAME/GRAPH/TOKEN
        device = parts[at + 1] if at is not None and len(parts) == at + 5 else ""
        devices.append(int(device) if _NUMBER.fullmatch(device) else -1)
    if all(leaf.rank < 0 for leaf in leaves) and len(set(devices)) > 1 and min(devices) >= 0:
        # Several devices wrote below one folder, before the folders named ranks.
        leaves = [replace(lf, rank=d) for lf, d in zip(leaves, devices, strict=True)]
    _refuse_repeats(root, leaves)
    leaves.sort(key=lambda lf: (lf.rank, int(lf.graph), lf.token))
    return tuple(leaves)


def _fx_leaves(
    root: Path, folders: list[tuple[str, tuple[str, ...]]]
) -> tuple[tuple[Leaf, ...], tuple[str, ...]]:
    leaves, old = [], []
    for folder, files in folders:
        parts = _parts(root, folder)
        last, before = parts[-1] if parts else "", parts[-2] if len(parts) > 1 else ""
        if _NUMBER.fullmatch(last):
            leaves.append(Leaf(folder, _rank(parts), before, int(last), files))
        elif _NUMBER.fullmatch(before):
            old.append(Leaf(folder, _rank(parts), last, int(before), files))
        else:
            leaves.append(Leaf(folder, _rank(parts), last, 0, files))
    notes = []
    if old and min(leaf.token for leaf in old) > 0:
        old = [replace(leaf, token=leaf.token - 1) for leaf in old]
        notes.append("token folders count from 1: the token is one less than the folder's name")
    leaves = _graphs_of(leaves + old)
    _refuse_repeats(root, leaves)
    leaves.sort(key=lambda lf: (lf.rank, lf.graph, lf.token))
    return tuple(leaves), tuple(notes)


def _graphs_of(leaves: list[Leaf]) -> list[Leaf]:
    """Where no token has two folders, the folders are of one graph whatever their names are: they
    may carry the time of each execution."""
    tokens = Counter((leaf.rank, leaf.token) for leaf in leaves)
    if max(tokens.values(), default=0) > 1:
        return leaves
    return [replace(leaf, graph="") for leaf in leaves]


def _refuse_repeats(root: Path, leaves: Sequence[Leaf]) -> None:
    places: dict[tuple[int, str, int], list[str]] = defaultdict(list)
    for leaf in leaves:
        places[leaf.rank, leaf.graph, leaf.token].append(leaf.folder)
    for (_, graph, token), folders in places.items():
        if len(folders) > 1:
            what = f"graph {graph}, token {token}" if graph else f"token {token}"
            raise InputError(
                f"one dump of {what} in {root}",
                f"{len(folders)}: {folders[0]} and {folders[1]}",
                "dump each execution into a folder of its own",
            )
