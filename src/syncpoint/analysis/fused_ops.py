"""Ops of the graph that fusion hides: no buffer of the compiled code holds their values."""

from __future__ import annotations

from syncpoint.run.reader import Run


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
