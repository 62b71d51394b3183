"""Tensors that live at the same time and share bytes, by the addresses that a run recorded."""

from __future__ import annotations

from collections.abc import Iterator

from syncpoint.run.model import OpKey, Role, Tensor
from syncpoint.run.reader import Run

_MOST = 20_000
"""Tensors with addresses that are looked at."""


def find_overlaps(run: Run) -> dict[OpKey, tuple[OpKey, str]]:
    """Ops whose output is written over while it is still to be read -> by which op."""
    placed = [t for t in run.tensors if t.address and t.nbytes and t.key.role is Role.OUTPUT]
    if not placed or len(placed) > _MOST:
        return {}
    order = {op.key: at for at, op in enumerate(run.ops)}
    last: dict[OpKey, int] = {}
    for at, op in enumerate(run.ops):
        for edge in op.inputs:
            last[edge.op] = at
    return dict(_pairs(placed, order, last))


def _pairs(
    placed: list[Tensor], order: dict[OpKey, int], last: dict[OpKey, int]
) -> Iterator[tuple[OpKey, tuple[OpKey, str]]]:
    placed.sort(key=lambda t: t.address or 0)
    for at, one in enumerate(placed):
        end = (one.address or 0) + one.nbytes
        for other in placed[at + 1 :]:
            if (other.address or 0) >= end:
                break
            if _is_alias(one, other) or one.key.part != other.key.part:
                continue
            early, late = sorted((one, other), key=lambda t: order.get(t.key.op, -1))
            written = order.get(late.key.op, -1)
            # An op may write over what it reads itself if nobody reads that afterwards.
            if order.get(early.key.op, -1) < written < last.get(early.key.op, -1):
                shared = min(end, (other.address or 0) + other.nbytes) - (other.address or 0)
                words = f"{early.key.op} and {late.key.op} share {shared:,} bytes while both live"
                yield early.key.op, (late.key.op, words)


def _is_alias(one: Tensor, other: Tensor) -> bool:
    """Whether they are said to share memory, with each other or with a third."""
    names = {str(one.key), str(other.key)}
    same = bool(one.alias_of) and one.alias_of == other.alias_of
    return same or one.alias_of in names or other.alias_of in names
