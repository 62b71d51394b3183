"""Shared by formats without a graph: build a run in which each named array is an op with one
output; list values to save under unique names, in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from syncpoint.errors import InputError
from syncpoint.foreign_text import make_encodable
from syncpoint.run.array_bytes import Bytes, to_bytes
from syncpoint.run.dtypes import DTYPES, DType
from syncpoint.run.model import Kept, Op, OpKey, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.value_store import Store

_WINDOW_ELEMENTS = 1 << 22
"""Elements copied at once; even, so that packed elements never straddle two windows."""


@dataclass(frozen=True, kw_only=True)
class ArrayEntry:
    """One array of a file: its name, type and shape, and where its bytes are."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    file: str
    offset: int
    nbytes: int

    def __post_init__(self) -> None:
        # The name of a file may be in another encoding; every table and report is UTF-8.
        if not self.name.isascii():
            object.__setattr__(self, "name", make_encodable(self.name))

    def tensor(self, key: TensorKey) -> Tensor:
        """Describe the array as a tensor with this key."""
        return Tensor(
            key,
            self.dtype.name,
            self.shape,
            shard=self.file,
            offset=self.offset,
            nbytes=self.nbytes,
        )


def build_flat_run(path: Path, format: str, entries: Iterable[ArrayEntry], store: Store) -> Run:
    """Build a run in which each entry is output 0 of an op of its name, in the order given."""
    ops, tensors = [], []
    for entry in entries:
        key = OpKey(entry.name)
        ops.append(Op(key, type=""))
        tensors.append(entry.tensor(TensorKey(key)))
    reduced = sum(t.key.op.op.endswith("_min_max") and t.shape == (2,) for t in tensors)
    notes: tuple[str, ...] = ()
    if reduced:
        notes = (
            f"{reduced} of {len(tensors)} arrays hold only the minimum and maximum of a tensor"
            " (_min_max): if these are close, the tensors may still differ",
        )
    info = RunInfo(model=path.name, options={"format": format}, notes=notes)
    return Run(info, ops, tensors, store, path=path)


def list_named_values(run: Run) -> list[tuple[str, Tensor]]:
    """List the tensors that have values, each with the text of its key, made unique."""
    uses: dict[str, int] = {}
    named_tensors = []
    for tensor in run.tensors:
        if tensor.kept is not Kept.VALUES:
            continue
        name = text = str(tensor.key)
        while name in uses:
            uses[text] += 1
            name = f"{text}~{uses[text]}"
        uses[name] = 1
        named_tensors.append((name, tensor))
    if not named_tensors:
        raise InputError("the run has no recorded values", cure="record it with --record values")
    return named_tensors


def iter_chunks(run: Run, tensor: Tensor) -> Iterator[Bytes]:
    """Yield the dense bytes of a tensor, one window at a time."""
    for start in range(0, tensor.count, _WINDOW_ELEMENTS):
        values = run.window(tensor, start, min(start + _WINDOW_ELEMENTS, tensor.count))
        yield to_bytes(values, DTYPES[tensor.dtype])
