"""Ops of the graph that fusion hides: no buffer of the compiled code holds their results."""

from __future__ import annotations

from syncpoint.run.reader import Run


def fused_ops(compiled: Run) -> dict[str, str]:
    """Ops of the graph that have no buffer of their own -> the kernels that compute them."""
    own: set[str] = set()
    found: dict[str, str] = {}
    for op in compiled.ops:
        said = op.attributes
        prefix = f"{op.key.graph}/" if op.key.graph else ""
        if "value_of" in said:
            own.add(prefix + said["value_of"])
        for name in said.get("computes", ()):
            found.setdefault(prefix + name, said["kernel"])
    return {name: kernel for name, kernel in found.items() if name not in own}
