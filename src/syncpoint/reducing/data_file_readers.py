"""One file of a dump: whether it is whole, the tensors in it, and the bytes that are not theirs.

A file counts as whole when its own format says so: the sizes in its header add up to the size of
the file, or the index at its end is there. How long ago it was written says nothing.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path

from syncpoint.ascend.dumps.device_file import read_device_file
from syncpoint.ascend.dumps.device_folder import file_run
from syncpoint.ascend.dumps.ffts_slices import slice_count
from syncpoint.ascend.dumps.file_names import DeviceName
from syncpoint.ascend.msprobe.pt_file import place
from syncpoint.ascend.msprobe.store import PtStore
from syncpoint.dumps.npy_folder import NpyFolder
from syncpoint.dumps.npy_header import NotNumbers
from syncpoint.dumps.zip_members import data_start
from syncpoint.errors import FormatError, SyncpointError, Unsupported, describe_error
from syncpoint.reducing.file_access import opened
from syncpoint.run.model import OpKey, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import Run

_MAX_PIECES = 16 << 20
"""Bytes of a file beside its tensors; more is not what any of these formats has."""


Place = tuple[int, str, int]
"""Offset of the first byte in its file, element type and number of elements of a tensor."""


class NothingToReduce(SyncpointError):
    """A file that is as it should be and holds no numbers."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A file that is whole."""

    file: str
    """Its name below the source."""
    path: Path
    run: Run
    """Gives the values of its tensors."""
    tensors: tuple[Tensor, ...]
    pieces: tuple[tuple[int, bytes], ...] = ()
    """Where the bytes lie that are not of a tensor, and what they are."""
    removable: bool = True
    """False of a file that others may still come to need."""


def npy_unit(root: Path, file: str) -> Unit:
    """An array in a file of its own."""
    path = root / file
    try:
        run = NpyFolder().open(path)
    except NotNumbers as error:
        raise NothingToReduce("an array of numbers", error.found) from error
    tensor = run.tensors[0]
    size = path.stat().st_size
    if tensor.offset + tensor.nbytes != size:
        raise FormatError(f"{tensor.offset + tensor.nbytes} bytes in {path.name}", f"{size}")
    return Unit(
        file=file,
        path=path,
        run=run,
        tensors=(tensor,),
        pieces=_rest(path, [(tensor.offset, tensor.nbytes)]),
    )


def pt_unit(root: Path, file: str) -> Unit:
    """A tensor that torch saved, in a zip with its directory at the end."""
    path = root / file
    found = place(path)
    key = TensorKey(OpKey(file))
    tensor = Tensor(
        key,
        found.dtype.name,
        found.shape,
        shard=path.name,
        offset=found.offset,
        nbytes=found.dtype.nbytes(prod(found.shape)),
    )
    odd = {} if found.dense else {key: found}
    checksums = {} if found.checksum is None else {key: found.checksum}
    store = PtStore(path.parent, odd, {}, checksums, {})
    run = Run(RunInfo(), [], [tensor], store)
    holes = []
    try:
        with opened(path) as handle, zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if "/data/" in member.filename:
                    start = data_start(handle, member, f"{member.filename[:80]!r} of {path}")
                    holes.append((start, member.compress_size))
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise FormatError(f"a file of torch.save at {path}", describe_error(error)) from error
    return Unit(file=file, path=path, run=run, tensors=(tensor,), pieces=_rest(path, holes))


def device_unit(root: Path, file: str, name: DeviceName) -> Unit:
    """The tensors of one op of a device, behind the header that has their sizes."""
    path = root / file
    header = read_device_file(path)
    if name.slice is not None or name.thread or slice_count(header) != 1:
        raise Unsupported("an op in one file", f"a slice of {name.op}", "it is left as it is")
    if not header.blocks:
        raise NothingToReduce("tensors in the file of an op", "none")
    end = max(block.offset + block.size for block in header.blocks)
    if end > header.size:
        raise FormatError(f"{end} bytes in {path.name}, as its header says", f"{header.size}")
    run = file_run(path, name)
    first = min(block.offset for block in header.blocks)
    return Unit(
        file=file,
        path=path,
        run=run,
        tensors=tuple(run.tensors),
        pieces=_rest(path, [(first, header.size - first)]),
    )


def array_file_unit(open_file: Callable[[Path], Run], path: Path) -> Unit:
    """All tensors of a file that is a dump of its own: .npz or .safetensors."""
    run = open_file(path)
    return Unit(file=path.name, path=path, run=run, tensors=tuple(run.tensors))


def _rest(path: Path, holes: list[tuple[int, int]]) -> tuple[tuple[int, bytes], ...]:
    """The bytes of a file outside of some ranges, which must lie within it."""
    pieces = []
    with opened(path) as handle:
        size = os.fstat(handle).st_size
        at = 0
        for start, length in [*sorted(holes), (size, 0)]:
            if start + length > size or start < at:
                raise FormatError(f"tensors one after another in {path.name}", "others")
            if start - at > _MAX_PIECES:
                raise FormatError(
                    f"at most {_MAX_PIECES} bytes beside the tensors of {path.name}",
                    f"{start - at}",
                )
            if start > at:
                pieces.append((at, os.pread(handle, start - at, at)))
            at = start + length
    return tuple(pieces)
