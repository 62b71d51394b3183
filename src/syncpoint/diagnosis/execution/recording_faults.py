"""Signs that a recorded tensor is not what its op gave: its readers are right, or it holds the
values of another tensor, or what memory holds before it is written."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.weights.relations import distance
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Edge, Role, TensorKey

Values = NDArray[np.float64]

_NEAR = 1e-5
_MOST = 400
_FEW = 3
"""Tensors that must have been recorded after one that is off alone."""
_TINY = 1e-30
_HUGE = 1e30


def readers(case: Case, row: Row) -> list[Row]:
    """Rows of what the ops that read this tensor gave: the target's, or those that the reference
    has in their place where the target does not say what reads what."""
    if case.target is None:
        return []
    key = row.target.key
    if not has_edges(case, "target"):
        return _readers_there(case, row)
    found = []
    for other in case.computed:
        if other.target.key.role is not Role.OUTPUT or other.target.key.part != key.part:
            continue
        op = case.op("target", other.target.key.op)
        if op is None:
            continue
        if any(e.op == key.op and e.index == key.index and e.role is key.role for e in op.inputs):
            found.append(other)
    return found


def _readers_there(case: Case, row: Row) -> list[Row]:
    key = row.reference.key
    found = []
    for op in case.readers.get(Edge(key.op, key.index, key.role), ()):
        made = case.by_reference.get(TensorKey(op.key, part=key.part))
        if made is None:
            return []  # what nobody compared may have read it
        found.append(made)
    return found


def has_edges(case: Case, side: str) -> bool:
    """Whether a run says what its ops read."""
    if f"edges of {side}" not in case.memory:
        run = case.run(side)
        case.memory[f"edges of {side}"] = run is not None and any(op.inputs for op in run.ops)
    return bool(case.memory[f"edges of {side}"])


def alone(case: Case, row: Row) -> str:
    """The weakest sign, in words, for dumps that do not say what reads what: of all tensors this
    one alone is off, and there are some after it. "" where that is not so."""
    if has_edges(case, "target") or has_edges(case, "reference"):
        return ""
    known = [r for r in case.computed if r.verdict is not Verdict.NONE]
    after = [r for r in known if r.target.order > row.target.order]
    off = [r for r in known if not _agrees(r)]
    if off != [row] or len(after) < _FEW:
        return ""
    return f"all {len(after)} tensors recorded after it and all before it agree with the reference"


def unread(case: Case, row: Row) -> str:
    """The strongest sign, in words: everything computed from the tensor is as in the reference,
    so nothing read these values. "" where that is not so or not known."""
    if row.verdict not in (Verdict.LARGE, Verdict.MODERATE):
        return ""
    after = readers(case, row)
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
    names = ", ".join(r.target.label for r in after[:3])
    return f"the ops that read it ({names}) agree with the reference: they read other values"


def was_read(case: Case, row: Row) -> bool:
    """Whether something is off that was computed from the tensor; where it is not known what was,
    whether an output is."""
    after = [r for r in readers(case, row) if r.verdict is not Verdict.NONE]
    if after:
        return not all(_agrees(r) for r in after)
    return any(r.verdict.severity > 0 for r in case.result.outputs)


def _agrees(row: Row) -> bool:
    """Whether the total error is within the limits, whatever was introduced: where a reader is
    right and its recorded input is wrong, it seems to introduce what it never had."""
    numbers = row.numbers or {}
    gap = numbers.get("rel_l2")
    limit = {"f16": 1e-2, "bf16": 5e-2, "int8": 8e-2, "fp8": 8e-2, "int4": 0.2}
    return gap is not None and gap <= limit.get(row.preset, 1e-4) and not numbers.get("mismatched")


def _would_show(case: Case, row: Row) -> bool:
    """Whether the recorded input, had it been read, would have changed this reader."""
    return row.guilty or row.introduced is None


def holder(case: Case, row: Row, ours: Values) -> Row | None:
    """Another sync point whose reference has the values that the target shows here."""
    reference = case.reference
    if reference is None or ours.size < 4 or np.ptp(ours) == 0 or case.is_sampled(row):
        return None
    straight = _upstream(case, row)
    tried = 0
    size = float(np.linalg.norm(ours.ravel()))
    for other in case.computed:
        key = other.reference.key
        if other is row or key.role is not Role.OUTPUT or other.reference.shape != ours.shape:
            continue
        if other.target.key.op in straight or key.op == row.reference.key.op:
            continue
        norm = (other.numbers or {}).get("reference_l2")
        if norm is not None and abs(norm - size) > 0.01 * size:
            continue
        tried += 1
        if tried > _MOST:
            return None
        theirs = case.values("reference", other)
        if theirs is not None and distance(ours, theirs) <= _NEAR:
            return other
    return None


def _upstream(case: Case, row: Row) -> set[object]:
    """Ops that this one reads: an op that does nothing gives what it was given, and that is a
    fault of the op, not of the recording. So are the ops behind them."""
    found: set[object] = set()
    waiting = [row.target.key.op]
    for _ in range(4):
        following = []
        for key in waiting:
            op = case.op("target", key)
            for edge in op.inputs if op is not None else ():
                if edge.role is Role.OUTPUT and edge.op not in found:
                    found.add(edge.op)
                    following.append(edge.op)
        waiting = following
    return found


def garbage(ours: Values, theirs: Values) -> str:
    """What memory looks like before it is written, in words: denormals and numbers of absurd
    size side by side; "" where it does not."""
    finite = ours[np.isfinite(ours)]
    if not finite.size or not theirs.size:
        return ""
    sizes = np.abs(finite[finite != 0])
    if not sizes.size:
        return ""
    top = float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0))
    huge = int((sizes > max(_HUGE, 1e6 * top)).sum())
    tiny = int((sizes < _TINY).sum())
    known = int((np.abs(theirs[theirs != 0]) < _TINY).sum())
    if huge and top < _HUGE and (tiny > known or len(finite) < ours.size):
        return f"{tiny:,} of its elements are below 1e-30 in size and {huge:,} above 1e30"
    if tiny > 0.05 * ours.size and known == 0:
        return f"{tiny:,} of its elements are below 1e-30 in size, none in the reference"
    return ""
