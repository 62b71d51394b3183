"""Walk a TorchAir dump and sort its folders by name: kind (GE or FX), rank, graph and token; graph
files. The format class that recognises it is in torchair_run.py.

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

from syncpoint.ascend.dumps.file_names import MAPPING, is_hashed, parse_device_name
from syncpoint.ascend.dumps.fx_folder import MIN_MAX, parse_fx_name
from syncpoint.errors import InputError, describe_error

_MAX_DEPTH = 16
_MAX_FOLDERS = 1_000_000
_RANK = re.compile(r"worldsize.*rank([0-9]{1,9})")
_GRAPH_FILE = re.compile(r"dynamo_original_graph_.*\.txt")
_RANK_OF_FILE = re.compile(r"rank_([0-9]{1,9})_")
_TIME = re.compile(r"[0-9]{14}")
_NUMBER = re.compile(r"[0-9]{1,9}")
_REDUCED = f"{MIN_MAX}.npz"


class DumpKind(StrEnum):
    """Who executed the graph."""

    GE = "GE"
    """The device, its ops fused or not."""
    FX = "FX"
    """PyTorch, node by node."""


@dataclass(frozen=True)
class TokenFolder:
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
    kind: DumpKind
    leaves: tuple[TokenFolder, ...]
    graphs: tuple[GraphFile, ...] = ()
    notes: tuple[str, ...] = ()
    strange: int = 0
    """Arrays of an FX dump that are named otherwise, and so not read."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks in order; (-1,) where the folders say none."""
        return tuple(sorted({token_folder.rank for token_folder in self.leaves}))

    def of_rank(self, rank: int) -> Tree:
        """The part of it that one rank wrote."""
        graphs = [g for g in self.graphs if g.rank in (rank, -1) or rank == -1]
        leaves = tuple(token_folder for token_folder in self.leaves if token_folder.rank == rank)
        return replace(self, leaves=leaves, graphs=tuple(graphs))


def reduced_name(file: str) -> str | None:
    """The name that a device's file had before its volume was reduced; None for all others."""
    stem = file.removesuffix(_REDUCED)
    return stem if stem != file and parse_device_name(stem) is not None else None


def find_tree(root: Path, flag: str) -> Tree:
    """Look through the folders below `root`; what is no dump of TorchAir is an InputError."""
    if not root.is_dir():
        state = "is a file" if root.exists() else "does not exist"
        raise InputError(
            f"{flag} takes the folder of a TorchAir dump, but {root} {state}",
            cure=f"give the path of that folder with {flag}",
        )
    folders: dict[DumpKind, list[tuple[str, tuple[str, ...]]]] = {kind: [] for kind in DumpKind}
    graphs: list[GraphFile] = []
    arrays = 0
    for relative, files in _walk(root):
        graphs += [_graph_file(relative, f) for f in files if _GRAPH_FILE.fullmatch(f)]
        arrays += sum(f.endswith(".npy") and parse_fx_name(f) is None for f in files)
        for kind, named in _by_kind(files).items():
            if named:
                folders[kind].append((relative, named))
    if folders[DumpKind.GE] and folders[DumpKind.FX]:
        example = root / folders[DumpKind.GE][0][0].partition("/")[0]
        raise InputError(
            f"{flag} takes one dump, but {root} contains a GE and an FX dump",
            cure=f"give the path of one of them, such as {example}",
        )
    if not folders[DumpKind.GE] and not folders[DumpKind.FX]:
        raise InputError(
            f"{root} ({flag}) has no files of a GE dump (TYPE.OP.TASK.STREAM.TIME) or of an FX dump"
            " (NODE-TARGET.INPUT|OUTPUT.N.TIME.npy)",
            cure=f"give the path of the folder that holds such files with {flag}",
        )
    graphs.sort(key=lambda g: (g.number, g.path))
    if folders[DumpKind.GE]:
        return Tree(
            root=root,
            kind=DumpKind.GE,
            leaves=_ge_leaves(root, folders[DumpKind.GE]),
            graphs=tuple(graphs),
        )
    leaves, notes = _fx_leaves(root, folders[DumpKind.FX])
    if arrays:
        notes = (*notes, f"{arrays} .npy files of other names are not read")
    return Tree(root=root, kind=DumpKind.FX, leaves=leaves, graphs=(), notes=notes, strange=arrays)


def _walk(root: Path) -> list[tuple[str, list[str]]]:
    """Folders with their files; links are not followed."""
    listing: list[tuple[str, list[str]]] = []

    def refuse(error: OSError) -> None:
        raise InputError(
            f"cannot read the folders in {root}: {describe_error(error)}",
            cure="check that you may read them",
        ) from error

    for parent, folders, files in os.walk(root, onerror=refuse):
        relative = Path(parent).relative_to(root).as_posix()
        folders.sort()
        if relative.count("/") >= _MAX_DEPTH or len(listing) >= _MAX_FOLDERS:
            raise InputError(
                f"{root} has more than {_MAX_DEPTH} folders inside each other, or more than"
                f" {_MAX_FOLDERS} in all",
                cure="give the path of the dump itself",
            )
        listing.append(("" if relative == "." else relative, sorted(files)))
    return listing


def _by_kind(files: Sequence[str]) -> dict[DumpKind, tuple[str, ...]]:
    hashed = MAPPING in files
    names = set(files)
    # Whoever reduces a file deletes it last: where both are there, the whole one is used.
    files = [f for f in files if _whole_name(f) not in names]
    ge = [
        f
        for f in files
        if parse_device_name(f) is not None
        or reduced_name(f) is not None
        or (hashed and is_hashed(f) and not f.endswith(".npy"))
    ]
    return {
        DumpKind.GE: tuple(ge),
        DumpKind.FX: tuple(f for f in files if parse_fx_name(f) is not None),
    }


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
    ranks = [int(m[1]) for part in parts if (m := _RANK.fullmatch(part))]
    return ranks[-1] if ranks else -1


def _ge_leaves(root: Path, folders: list[tuple[str, tuple[str, ...]]]) -> tuple[TokenFolder, ...]:
    leaves = []
    devices = []
    for folder, files in folders:
        parts = _parts(root, folder)
        token = int(parts[-1]) if parts and _NUMBER.fullmatch(parts[-1]) else 0
        graph = parts[-2] if len(parts) > 1 and _NUMBER.fullmatch(parts[-2]) else "0"
        leaves.append(TokenFolder(folder, _rank(parts), str(int(graph)), token, files))
        time_index = next((i for i, part in enumerate(parts) if _TIME.fullmatch(part)), None)
        # TIME/DEVICE/NAME/GRAPH/TOKEN
        device = (
            parts[time_index + 1] if time_index is not None and len(parts) == time_index + 5 else ""
        )
        devices.append(int(device) if _NUMBER.fullmatch(device) else -1)
    if (
        all(token_folder.rank < 0 for token_folder in leaves)
        and len(set(devices)) > 1
        and min(devices) >= 0
    ):
        # Several devices wrote below one folder, before the folders named ranks.
        leaves = [replace(lf, rank=d) for lf, d in zip(leaves, devices, strict=True)]
    _refuse_repeats(root, leaves)
    leaves.sort(key=lambda lf: (lf.rank, int(lf.graph), lf.token))
    return tuple(leaves)


def _fx_leaves(
    root: Path, folders: list[tuple[str, tuple[str, ...]]]
) -> tuple[tuple[TokenFolder, ...], tuple[str, ...]]:
    leaves, old = [], []
    for folder, files in folders:
        parts = _parts(root, folder)
        last, before = parts[-1] if parts else "", parts[-2] if len(parts) > 1 else ""
        if _NUMBER.fullmatch(last):
            leaves.append(TokenFolder(folder, _rank(parts), before, int(last), files))
        elif _NUMBER.fullmatch(before):
            old.append(TokenFolder(folder, _rank(parts), last, int(before), files))
        else:
            leaves.append(TokenFolder(folder, _rank(parts), last, 0, files))
    notes = []
    if old and min(token_folder.token for token_folder in old) > 0:
        old = [replace(token_folder, token=token_folder.token - 1) for token_folder in old]
        notes.append("token folders count from 1: the token is one less than the folder's name")
    leaves = _graphs_of(leaves + old)
    _refuse_repeats(root, leaves)
    leaves.sort(key=lambda lf: (lf.rank, lf.graph, lf.token))
    return tuple(leaves), tuple(notes)


def _graphs_of(leaves: list[TokenFolder]) -> list[TokenFolder]:
    """Where no token has two folders, the folders are of one graph whatever their names are: they
    may carry the time of each execution."""
    tokens = Counter((token_folder.rank, token_folder.token) for token_folder in leaves)
    if max(tokens.values(), default=0) > 1:
        return leaves
    return [replace(token_folder, graph="") for token_folder in leaves]


def _refuse_repeats(root: Path, leaves: Sequence[TokenFolder]) -> None:
    places: dict[tuple[int, str, int], list[str]] = defaultdict(list)
    for token_folder in leaves:
        places[token_folder.rank, token_folder.graph, token_folder.token].append(
            token_folder.folder
        )
    for (_, graph, token), folders in places.items():
        if len(folders) > 1:
            what = f"graph {graph}, token {token}" if graph else f"token {token}"
            raise InputError(
                f"{root} has {len(folders)} dumps of {what}: {folders[0]} and {folders[1]}",
                cure="dump each execution into a folder of its own",
            )
