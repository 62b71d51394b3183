"""How compiled buffers differ from the tensors of eager ops in type, shape, strides and device."""

from __future__ import annotations

from syncpoint.comparison.result import Result
from syncpoint.run.model import Role, Tensor
from syncpoint.run.reader import Run


def differences(tensor: Tensor, other: Tensor | None) -> tuple[str, ...]:
    """How the metadata of two tensors differ, as `stride (1, 2), eager (2, 1)`."""
    if other is None:
        return ()
    pairs = (
        ("dtype", tensor.dtype, other.dtype),
        ("shape", tensor.shape, other.shape),
        ("stride", _strides(tensor), _strides(other)),
        ("device", tensor.device, other.device),
    )
    return tuple(f"{name} {a}, eager {b}" for name, a, b in pairs if a != b)


def metadata(result: Result, compiled: Run, graph: Run) -> dict[str, tuple[str, ...]]:
    """Differences of type, shape, strides and device at every pair, by the target's label."""
    found = {}
    for row in result.rows:
        if row.target.key.role is not Role.OUTPUT or row.view:
            continue
        mine, theirs = compiled.tensor(row.target.key), graph.tensor(row.reference.key)
        if mine is not None and theirs is not None and (said := differences(mine, theirs)):
            found[row.target.label] = said
    return found


def _strides(tensor: Tensor) -> tuple[int, ...]:
    """Strides where they mean something: an axis of one element has none."""
    return tuple(s for s, n in zip(tensor.strides or (), tensor.shape, strict=False) if n > 1)
