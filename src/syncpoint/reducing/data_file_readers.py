"""Read one data file of a dump (.npy, .pt, device file, .npz, safetensors): whether it is complete,
its tensors, the bytes between them.

A file is complete when its own format says so: the sizes in its header add up to the size of the
file, or the index at its end is there. Its age is not a criterion.
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
from syncpoint.ascend.msprobe.pt_file import PtStore, locate_tensor
from syncpoint.dumps.npy_folder import NpyFolder
from syncpoint.dumps.npy_header import NotNumbers
from syncpoint.dumps.zip_members import find_data_start
from syncpoint.errors import FormatError, SyncpointError, Unsupported, describe_error
from syncpoint.reducing.file_access import open_data_file
from syncpoint.run.model import OpKey, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import Run

_MAX_OTHER_BYTES = 16 << 20
"""Bytes of a file outside of its tensors; files of these formats have far fewer."""

Place = tuple[int, str, int]
"""Offset in the file, dtype and number of elements of a tensor."""


class NothingToReduce(SyncpointError):
    """A file is valid and holds no numbers."""


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A complete file of a dump."""

    file: str
    """Its name below the source."""
    path: Path
    run: Run
    """Reads the values of its tensors."""
    tensors: tuple[Tensor, ...]
    pieces: tuple[tuple[int, bytes], ...] = ()
    """The bytes outside of the tensors, with their offsets."""
    removable: bool = True
    """False for a file that another process may still need."""


def read_npy_file(root: Path, file: str) -> DataFile:
    """Open a .npy file."""
    path = root / file
    try:
        run = NpyFolder().open(path)
    except NotNumbers as error:
        raise NothingToReduce(error.problem) from error
    tensor = run.tensors[0]
    size = path.stat().st_size
    if tensor.offset + tensor.nbytes != size:
        raise FormatError(
            f"the file has {size} bytes, but its header describes {tensor.offset + tensor.nbytes}",
            cure="copy the file again, or dump it again",
        )
    return DataFile(
        file=file,
        path=path,
        run=run,
        tensors=(tensor,),
        pieces=_bytes_outside(path, [(tensor.offset, tensor.nbytes)]),
    )


def read_pt_file(root: Path, file: str) -> DataFile:
    """Open a tensor of torch.save: a ZIP file with its directory at the end."""
    path = root / file
    stored = locate_tensor(path)
    key = TensorKey(OpKey(file))
    tensor = Tensor(
        key,
        stored.dtype.name,
        stored.shape,
        shard=path.name,
        offset=stored.offset,
        nbytes=stored.dtype.nbytes(prod(stored.shape)),
    )
    strided = {} if stored.dense else {key: stored}
    checksums = {} if stored.checksum is None else {key: stored.checksum}
    store = PtStore(path.parent, strided, {}, checksums, {})
    run = Run(RunInfo(), [], [tensor], store)
    value_ranges = []
    try:
        with open_data_file(path) as handle, zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if "/data/" in member.filename:
                    start = find_data_start(handle, member, f"{member.filename[:80]!r} of {path}")
                    value_ranges.append((start, member.compress_size))
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise FormatError(
            f"the file was not written by torch.save: {describe_error(error)}",
            cure="copy the file again, or dump it again",
        ) from error
    return DataFile(
        file=file,
        path=path,
        run=run,
        tensors=(tensor,),
        pieces=_bytes_outside(path, value_ranges),
    )


def read_device_op_file(root: Path, file: str, name: DeviceName) -> DataFile:
    """Open the file of one op of a device: a header with the sizes, then the tensors."""
    path = root / file
    header = read_device_file(path)
    if name.slice is not None or name.thread or slice_count(header) != 1:
        raise Unsupported(
            f"{path.name} holds a slice of {name.op}; reduce takes only ops in one file",
            cure="leave it as it is",
        )
    if not header.blocks:
        raise NothingToReduce(f"{path.name} holds no tensors")
    end = max(block.offset + block.size for block in header.blocks)
    if end > header.size:
        raise FormatError(
            f"the file is cut off: it should end at byte {end}, and has {header.size} bytes",
            cure="copy the file again, or dump it again",
        )
    run = file_run(path, name)
    first = min(block.offset for block in header.blocks)
    return DataFile(
        file=file,
        path=path,
        run=run,
        tensors=tuple(run.tensors),
        pieces=_bytes_outside(path, [(first, header.size - first)]),
    )


def read_array_archive(open_file: Callable[[Path], Run], path: Path) -> DataFile:
    """Open a file that is a whole dump: .npz or .safetensors."""
    run = open_file(path)
    return DataFile(file=path.name, path=path, run=run, tensors=tuple(run.tensors))


def _bytes_outside(path: Path, ranges: list[tuple[int, int]]) -> tuple[tuple[int, bytes], ...]:
    """The bytes of a file outside of some ranges (offset, length), with their offsets."""
    pieces = []
    with open_data_file(path) as handle:
        size = os.fstat(handle).st_size
        position = 0
        for start, length in [*sorted(ranges), (size, 0)]:
            if start + length > size or start < position:
                raise FormatError(f"the tensors in {path.name} overlap or exceed its {size} bytes")
            if start - position > _MAX_OTHER_BYTES:
                raise FormatError(
                    f"{path.name} has {start - position} bytes outside of its tensors, more than"
                    f" {_MAX_OTHER_BYTES}"
                )
            if start > position:
                pieces.append((position, os.pread(handle, start - position, position)))
            position = start + length
    return tuple(pieces)
