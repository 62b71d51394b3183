"""Compiled code against the graph it was compiled from: the compiler itself says who is who."""

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
        """Only between two forms of one graph: names of another graph mean other ops."""
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
                        tensor.key, tensor.key, "given to the graph at this place", confidence=1.0
                    )

    def _pair(self, matching: Matching, op: Op, tensor: Tensor) -> Iterator[SyncPoint]:
        said = op.attributes
        if "kernel" not in said:
            return
        if "value_of" in said:
            maker = OpKey(said["value_of"], op.key.call, op.key.graph)
            key = TensorKey(maker, index=said["output"], part=tensor.key.part)
            other = matching.reference.run.tensor(key)
            if other is not None and other.count == tensor.count:
                evidence = "the compiler says whose value it is"
                yield SyncPoint(
                    tensor.key, key, evidence, confidence=1.0, view=_view(tensor, other)
                )
                return
        detail = f"inside {said['kernel']}; no op has this value"
        reason = Reason(ReasonCode.NO_COUNTERPART, detail)
        if "copy_of" in said:
            detail = f"{said['copy_of']}, bit by bit, in another layout"
            reason = Reason(ReasonCode.EXCLUDED, detail)
        matching.refuse("target", tensor.key, reason)


def _view(tensor: Tensor, other: Tensor) -> View:
    if tensor.shape == other.shape:
        return View()
    return View(f"reshape({','.join(str(n) for n in other.shape)})")
