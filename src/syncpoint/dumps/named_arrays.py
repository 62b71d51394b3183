"""What formats without a graph have in common: names and arrays become ops with one output."""

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


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One array of a file."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    file: str
    offset: int
    nbytes: int

    def __post_init__(self) -> None:
        # A file's name in another encoding; every table and report is UTF-8.
        if not self.name.isascii():
            object.__setattr__(self, "name", make_encodable(self.name))

    def tensor(self, key: TensorKey) -> Tensor:
        """The tensor that the array is the values of."""
        return Tensor(
            key,
            self.dtype.name,
            self.shape,
            shard=self.file,
            offset=self.offset,
            nbytes=self.nbytes,
        )


def flat_run(path: Path, format: str, entries: Iterable[Entry], store: Store) -> Run:
    """Each entry as output 0 of an op of its name, in the order given."""
    ops, tensors = [], []
    for entry in entries:
        key = OpKey(entry.name)
        ops.append(Op(key, type=""))
        tensors.append(entry.tensor(TensorKey(key)))
    reduced = sum(t.key.op.op.endswith("_min_max") and t.shape == (2,) for t in tensors)
    said: tuple[str, ...] = ()
    if reduced:
        said = (
            f"{reduced} of {len(tensors)} arrays hold no more than the ends of a tensor"
            " (_min_max): that they are close says little of the tensors",
        )
    info = RunInfo(model=path.name, options={"format": format}, notes=said)
    return Run(info, ops, tensors, store, path=path)


def named_values(run: Run) -> list[tuple[str, Tensor]]:
    """The tensors that can be saved, each with the text of its key, made unique."""
    used: dict[str, int] = {}
    found = []
    for tensor in run.tensors:
        if tensor.kept is not Kept.VALUES:
            continue
        name = text = str(tensor.key)
        while name in used:
            used[text] += 1
            name = f"{text}~{used[text]}"
        used[name] = 1
        found.append((name, tensor))
    if not found:
        raise InputError("a run with recorded values", "none in it", "record it with values")
    return found


_WINDOW = 1 << 22
"""Elements copied at once; even, so that packed elements never straddle two windows."""


def chunks(run: Run, tensor: Tensor) -> Iterator[Bytes]:
    """The dense bytes of a tensor, a window at a time."""
    for start in range(0, tensor.count, _WINDOW):
        values = run.window(tensor, start, min(start + _WINDOW, tensor.count))
        yield to_bytes(values, DTYPES[tensor.dtype])
