"""The precision each tensor of a run went through: what the `auto` preset assumes.

The coarsest of the op's own output, its parameters and everything upstream. Integers that are
not quantized values carry no precision of their own and pass on none.
"""

from __future__ import annotations

from syncpoint.metrics.limits import coarsest, preset_of
from syncpoint.run.model import OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run


class Precisions:
    """Precision by op of one run, found in one walk along the execution order."""

    def __init__(self, run: Run, other: Run) -> None:
        """`other` is the run it is compared with: what both were given in the same type
        carries no rounding of either."""
        given = (Role.MODEL_INPUT, Role.PARAMETER, Role.STATE)
        types = {(t.key, t.dtype) for t in other.tensors if t.key.role in given}
        same = {t.key for t in run.tensors if (t.key, t.dtype) in types}
        self._own: dict[tuple[OpKey, Role], list[str]] = {}
        for tensor in run.tensors:
            if tensor.key in same:
                continue
            own = preset_of(tensor.dtype, tensor.quantization is not None)
            known = self._own.setdefault((tensor.key.op, tensor.key.role), [])
            if own not in known:
                known.append(own)
        self._through: dict[OpKey, str] = {}
        self._parameters: dict[OpKey, str] = {}
        for op in run.ops:
            parameters: list[str] = []
            upstream: list[str] = []
            for edge in op.inputs:
                if edge.role is Role.OUTPUT:
                    upstream.append(self._through.get(edge.op, "exact"))
                else:
                    own_presets = self._own.get((edge.op, edge.role), [])
                    upstream += own_presets
                    if edge.role is Role.PARAMETER:
                        parameters += own_presets
            self._parameters[op.key] = coarsest(parameters)
            own_outputs = self._own.get((op.key, Role.OUTPUT), [])
            self._through[op.key] = coarsest([*own_outputs, *upstream])

    def of(self, tensor: Tensor) -> str:
        """The preset for a tensor of this run; `exact` for plain integers and bools."""
        own = preset_of(tensor.dtype, tensor.quantization is not None)
        if own == "exact":
            return own
        if tensor.key.role in (Role.OUTPUT, Role.MODEL_OUTPUT):
            return coarsest([own, self._through.get(tensor.key.op, "exact")])
        return own

    def local(self, key: TensorKey, dtype: str, quantized: bool) -> str:
        """The precision of one op by itself: its output and its parameters."""
        own = preset_of(dtype, quantized)
        return coarsest([own, self._parameters.get(key.op, "exact")])

    def through(self, op: OpKey) -> str:
        """The coarsest precision on the way to an op, whatever the type of its own output."""
        return self._through.get(op, "exact")

    def parameters(self, op: OpKey) -> str:
        """The coarsest precision among an op's parameters; `exact` if it has none."""
        return self._parameters.get(op, "exact")
