"""Find tensors that a dump holds more than once (output of one op, input of the next), to measure
them once.

Both are in the dump and should equal the same tensor of the original model. If their bytes are the
same, so are all metrics, and one of them needs to be measured only.
"""

from __future__ import annotations

from xxhash import xxh3_128_hexdigest

from syncpoint.ascend.matching.plan import ComparisonPlan, PlanEntry
from syncpoint.errors import SyncpointError
from syncpoint.files.byte_ranges import map_bytes
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.reader import Run


def find_repeated_tensors(stored: Run, plan: ComparisonPlan) -> dict[TensorKey, TensorKey]:
    """Tensors with the same bytes, view and reference as an earlier tensor, which is the value."""
    candidates: dict[object, list[Tensor]] = {}
    for entry in plan.entries:
        if entry.reason is None and entry.target is not None and entry.reference is not None:
            candidates.setdefault(_comparison_key(entry, entry.target), []).append(entry.target)
    repeated: dict[TensorKey, TensorKey] = {}
    for tensors in candidates.values():
        first_by_digest: dict[str, TensorKey] = {}
        for tensor in tensors if len(tensors) > 1 else ():
            digest = _digest(stored, tensor)
            if digest:
                first = first_by_digest.setdefault(digest, tensor.key)
                if first is not tensor.key:
                    repeated[tensor.key] = first
    return repeated


def _comparison_key(entry: PlanEntry, tensor: Tensor) -> object:
    assert entry.reference is not None
    return (entry.reference.key, entry.view, tensor.dtype, tensor.shape, tensor.layout)


def _digest(run: Run, tensor: Tensor) -> str:
    """The digest of the stored bytes; "" if they cannot be read, which is reported elsewhere."""
    stored = run.tensor(tensor.key)
    try:
        path = run.dense_file(stored) if stored is not None else None
        if stored is None or path is None or not stored.nbytes:
            return ""
        return xxh3_128_hexdigest(map_bytes(path, stored.offset, stored.nbytes).data)
    except SyncpointError:
        return ""
