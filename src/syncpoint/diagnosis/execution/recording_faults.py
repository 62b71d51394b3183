"""Signs that a tensor was recorded wrongly: its readers are right, it is off alone, it holds
another tensor's values or uninitialized memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.weights.relations import distance
from syncpoint.metrics.judge_values import judge_introduced
from syncpoint.metrics.limits import PRESETS
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Edge, Role, TensorKey

Values = NDArray[np.float64]

_MAX_DISTANCE = 1e-5
"""Relative distance up to which two tensors hold the same values."""
_MAX_CANDIDATES = 400
_MIN_TENSORS_AFTER = 3
"""Tensors that must be recorded after one that is the only one off."""
_TINY = 1e-30
_HUGE = 1e30


def find_readers(case: Case, row: Row) -> list[Row]:
    """Return the rows of the ops that read this tensor: by the target's graph, or by the
    reference's if the target does not record edges."""
    if case.target is None:
        return []
    key = row.target.key
    if not has_edges(case, "target"):
        return _reference_readers(case, row)
    readers = []
    for other in case.computed:
        if other.target.key.role is not Role.OUTPUT or other.target.key.part != key.part:
            continue
        op = case.op("target", other.target.key.op)
        if op is None:
            continue
        if any(e.op == key.op and e.index == key.index and e.role is key.role for e in op.inputs):
            readers.append(other)
    return readers


def _reference_readers(case: Case, row: Row) -> list[Row]:
    key = row.reference.key
    readers = []
    for op in case.readers.get(Edge(key.op, key.index, key.role), ()):
        reader = case.by_reference.get(TensorKey(op.key, part=key.part))
        if reader is None:
            return []  # an op that is not compared may have read it
        readers.append(reader)
    return readers


def has_edges(case: Case, side: str) -> bool:
    """Whether a run recorded the edges of its ops."""
    if f"edges of {side}" not in case.cache:
        run = case.run(side)
        case.cache[f"edges of {side}"] = run is not None and any(op.inputs for op in run.ops)
    return bool(case.cache[f"edges of {side}"])


def describe_lone_error(case: Case, row: Row) -> str:
    """Describe the weakest sign, for dumps without edges: this tensor is the only one that is off,
    and others follow it. "" if that is not so."""
    if has_edges(case, "target") or has_edges(case, "reference"):
        return ""
    measured = [r for r in case.computed if r.verdict is not Verdict.NONE]
    after = [r for r in measured if r.target.order > row.target.order]
    off = [r for r in measured if not _agrees(r)]
    if off != [row] or len(after) < _MIN_TENSORS_AFTER:
        return ""
    return f"all {len(after)} tensors recorded after it and all before it agree with the reference"


def describe_unread(case: Case, row: Row) -> str:
    """Describe the strongest sign: everything computed from the tensor agrees with the reference,
    so nothing read these values. "" if that is not so or not known."""
    if row.verdict not in (Verdict.LARGE, Verdict.MODERATE):
        return ""
    after = find_readers(case, row)
    if not after or any(r.verdict is Verdict.NONE for r in after):
        return ""
    if not all(_agrees(r) for r in after):
        return ""
    gap = (row.numbers or {}).get("rel_l2")
    # A small error may drown on the way on, as in a ReLU that cuts it off.
    if gap is not None and gap < 0.01:
        return ""
    if not any(_would_show(case, r) for r in after):
        return ""
    names = [r.target.label for r in after[:3]]
    if len(after) > len(names):
        names.append(f"{len(after) - len(names)} more")
    reads, gives = "which reads it, gives the right result, so it", "must have read other values"
    if len(after) > 1:
        names = [", ".join(names[:-1]) + f" and {names[-1]}"]
        reads = "which read it, give the right results, so they"
    return f"the recording is wrong, not the model: {names[0]}, {reads} {gives} than those recorded"


def was_read(case: Case, row: Row) -> bool:
    """Whether something computed from the tensor is off; if its readers are not known, whether an
    output is."""
    after = [r for r in find_readers(case, row) if r.verdict is not Verdict.NONE]
    if after:
        return not all(_agrees(r) for r in after)
    return any(r.verdict.severity > 0 for r in case.result.outputs)


def _agrees(row: Row) -> bool:
    """Whether the total error is within the limits. Introduced error does not count: a right reader
    of a wrongly recorded input seems to introduce error."""
    numbers = row.numbers or {}
    gap = numbers.get("rel_l2")
    limit = {"f16": 1e-2, "bf16": 5e-2, "int8": 8e-2, "fp8": 8e-2, "int4": 0.2}
    return gap is not None and gap <= limit.get(row.preset, 1e-4) and not numbers.get("mismatched")


def _would_show(case: Case, row: Row) -> bool:
    """Whether the recorded input would have changed this reader if it had been read."""
    if row.introduced is None or row.guilty:
        return True
    # The verdict may have excused the reader, since its result agrees.
    limits = PRESETS[row.introduced.preset]
    return judge_introduced(row.introduced.ratio, limits).severity > 0


def find_holder(case: Case, row: Row, target: Values) -> Row | None:
    """Find another sync point whose reference has the values that the target recorded here."""
    reference = case.reference
    if reference is None or target.size < 4 or np.ptp(target) == 0 or case.is_sampled(row):
        return None
    upstream = _list_upstream(case, row)
    tried = 0
    size = float(np.linalg.norm(target.ravel()))
    for other in case.computed:
        key = other.reference.key
        if other is row or key.role is not Role.OUTPUT or other.reference.shape != target.shape:
            continue
        if other.target.key.op in upstream or key.op == row.reference.key.op:
            continue
        norm = (other.numbers or {}).get("reference_l2")
        if norm is not None and abs(norm - size) > 0.01 * size:
            continue
        tried += 1
        if tried > _MAX_CANDIDATES:
            return None
        reference_values = case.values("reference", other)
        if reference_values is not None and distance(target, reference_values) <= _MAX_DISTANCE:
            return other
    return None


def _list_upstream(case: Case, row: Row) -> set[object]:
    """Return the ops that this one depends on. An op that does nothing returns its input: that is
    an error of the op, not of the recording."""
    upstream: set[object] = set()
    waiting = [row.target.key.op]
    for _ in range(4):
        following = []
        for key in waiting:
            op = case.op("target", key)
            for edge in op.inputs if op is not None else ():
                if edge.role is Role.OUTPUT and edge.op not in upstream:
                    upstream.add(edge.op)
                    following.append(edge.op)
        waiting = following
    return upstream


def describe_garbage(target: Values, reference_values: Values) -> str:
    """Describe values that look like uninitialized memory: denormals and absurdly large numbers
    side by side. "" if they do not."""
    finite = target[np.isfinite(target)]
    if not finite.size or not reference_values.size:
        return ""
    sizes = np.abs(finite[finite != 0])
    if not sizes.size:
        return ""
    top = float(np.abs(reference_values[np.isfinite(reference_values)]).max(initial=0.0))
    huge = int((sizes > max(_HUGE, 1e6 * top)).sum())
    tiny = int((sizes < _TINY).sum())
    measured = int((np.abs(reference_values[reference_values != 0]) < _TINY).sum())
    if huge and top < _HUGE and (tiny > measured or len(finite) < target.size):
        return f"{tiny:,} recorded values are below 1e-30 in magnitude and {huge:,} above 1e30"
    if tiny > 0.05 * target.size and measured == 0:
        return f"{tiny:,} recorded values are below 1e-30 in magnitude, none in the reference"
    return ""
