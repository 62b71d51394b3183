"""Matcher: pairs the buffers of compiled code with the ops of the graph they were compiled from, as
the compiler maps them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from syncpoint.matching.protocol import Matching, SyncPoint
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import Op, OpKey, Role, Tensor, TensorKey


class CompiledMatcher:
    """Pairs buffers of compiled code with the ops whose values they hold."""

    name = "compiled"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Pair two forms of one graph only: in another graph, the same names are other ops."""
        target, reference = matching.target.run, matching.reference.run
        if not (target.info.compiled and reference.info.compiled):
            return
        if target.info.runtime != reference.info.runtime:
            return
        for op in matching.target.ops:
            for tensor in matching.target.outputs[op.key]:
                if tensor.key.role is Role.OUTPUT:
                    yield from self._pair(matching, op, tensor)
                elif reference.tensor(tensor.key) is not None:
                    yield SyncPoint(
                        tensor.key, tensor.key, "graph input at the same position", confidence=1.0
                    )

    def _pair(self, matching: Matching, op: Op, tensor: Tensor) -> Iterator[SyncPoint]:
        attributes = op.attributes
        if "kernel" not in attributes:
            return
        if "value_of" in attributes:
            producer = OpKey(attributes["value_of"], op.key.call, op.key.graph)
            key = TensorKey(producer, index=attributes["output"], part=tensor.key.part)
            reference = matching.reference.run.tensor(key)
            if reference is not None and reference.count == tensor.count:
                evidence = "the compiler names the op of this buffer"
                yield SyncPoint(
                    tensor.key, key, evidence, confidence=1.0, view=_view(tensor, reference)
                )
                return
        detail = f"inside {attributes['kernel']}; no op has this value"
        reason = Reason(ReasonCode.NO_COUNTERPART, detail)
        if "copy_of" in attributes:
            detail = f"a bit-equal copy of {attributes['copy_of']} in another layout"
            reason = Reason(ReasonCode.EXCLUDED, detail)
        matching.refuse("target", tensor.key, reason)


def _view(target: Tensor, reference: Tensor) -> View:
    if target.shape == reference.shape:
        return View()
    return View(f"reshape({','.join(str(n) for n in reference.shape)})")
