"""Compare the metadata of compiled buffers and eager tensors (dtype, shape, strides, device); list
the fused ops that have no buffer.

They may differ in dtype, shape, strides and device. Fusion hides ops: no buffer holds their values.
"""

from __future__ import annotations

from syncpoint.comparison.result import Result
from syncpoint.run.model import Role, Tensor
from syncpoint.run.reader import Run


def differences(tensor: Tensor, eager: Tensor | None) -> tuple[str, ...]:
    """How the metadata of two tensors differ, such as `stride (1, 2), eager (2, 1)`."""
    if eager is None:
        return ()
    pairs = (
        ("dtype", tensor.dtype, eager.dtype),
        ("shape", tensor.shape, eager.shape),
        ("stride", _strides(tensor), _strides(eager)),
        ("device", tensor.device, eager.device),
    )
    return tuple(f"{name} {a}, eager {b}" for name, a, b in pairs if a != b)


def metadata_differences(result: Result, compiled: Run, graph: Run) -> dict[str, tuple[str, ...]]:
    """Differences of dtype, shape, strides and device at every pair, by the label of the target."""
    differences_by_label = {}
    for row in result.rows:
        if row.target.key.role is not Role.OUTPUT or row.view:
            continue
        tensor, eager = compiled.tensor(row.target.key), graph.tensor(row.reference.key)
        if tensor is not None and (texts := differences(tensor, eager)):
            differences_by_label[row.target.label] = texts
    return differences_by_label


def _strides(tensor: Tensor) -> tuple[int, ...]:
    """The strides of axes with more than one element; those of other axes mean nothing."""
    return tuple(s for s, n in zip(tensor.strides or (), tensor.shape, strict=False) if n > 1)


def fused_ops(compiled: Run) -> dict[str, str]:
    """The ops of the graph without a buffer of their own, and the kernels that compute them."""
    stored: set[str] = set()
    kernels: dict[str, str] = {}
    for op in compiled.ops:
        attributes = op.attributes
        prefix = f"{op.key.graph}/" if op.key.graph else ""
        if "value_of" in attributes:
            stored.add(prefix + attributes["value_of"])
        for name in attributes.get("computes", ()):
            kernels.setdefault(prefix + name, attributes["kernel"])
    return {name: kernel for name, kernel in kernels.items() if name not in stored}
