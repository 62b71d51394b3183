"""Tensors that a dump holds more than once: what an op gives is what the next one is given.

Both are in the dump and should equal the same tensor of the original model. Where their bytes are
the same, so is everything that can be measured, and one of them is enough.
"""

from __future__ import annotations

from xxhash import xxh3_128_hexdigest

from syncpoint.ascend.matching.plan import Entry, Plan
from syncpoint.errors import SyncpointError
from syncpoint.files.byte_ranges import map_bytes
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.reader import Run


def repeats(stored: Run, plan: Plan) -> dict[TensorKey, TensorKey]:
    """Tensors whose bytes are those of another that is laid over the same reference."""
    alike: dict[object, list[Tensor]] = {}
    for entry in plan.entries:
        if entry.reason is None and entry.target is not None and entry.reference is not None:
            alike.setdefault(_form(entry, entry.target), []).append(entry.target)
    found: dict[TensorKey, TensorKey] = {}
    for tensors in alike.values():
        first: dict[str, TensorKey] = {}
        for tensor in tensors if len(tensors) > 1 else ():
            digest = _digest(stored, tensor)
            if digest:
                known = first.setdefault(digest, tensor.key)
                if known is not tensor.key:
                    found[tensor.key] = known
    return found


def _form(entry: Entry, tensor: Tensor) -> object:
    assert entry.reference is not None
    return (entry.reference.key, entry.view, tensor.dtype, tensor.shape, tensor.layout)


def _digest(run: Run, tensor: Tensor) -> str:
    """Of the bytes as they lie; "" where they cannot be read, which is told elsewhere."""
    stored = run.tensor(tensor.key)
    try:
        path = run.dense_file(stored) if stored is not None else None
        if stored is None or path is None or not stored.nbytes:
            return ""
        return xxh3_128_hexdigest(map_bytes(path, stored.offset, stored.nbytes).data)
    except SyncpointError:
        return ""
