"""A chain of ops with residuals as a complete run, a fused run, and what is left of either."""

from dataclasses import replace

import numpy as np

from helpers.small_runs import run
from syncpoint.run.model import Edge, Op, OpKey, Role, RunInfo, TensorKey
from syncpoint.run.reader import in_memory

DEPTH = 12


def chain(side=False):
    """`linear_k`, `relu_k` and `add_k` for each layer, `head` at the end; with `side` a branch
    that nothing reads. Each op has values of its own."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 6)).astype(np.float32)
    ops, last, value = [], "x", x
    for k in range(DEPTH):
        linear = value @ rng.standard_normal((6, 6)).astype(np.float32)
        relu = np.maximum(linear, 0)
        ops.append((f"linear_{k}", "aten.linear.default", f"layers.{k}", (last,), linear))
        ops.append((f"relu_{k}", "aten.relu.default", f"layers.{k}", (f"linear_{k}",), relu))
        total = relu + value
        ops.append((f"add_{k}", "aten.add.Tensor", "", (f"relu_{k}", last), total))
        last, value = f"add_{k}", total / 4
    if side:
        aux = np.tanh(value)
        ops.append(("tanh_0", "aten.tanh.default", "aux", (last,), aux))
        ops.append(("exp_0", "aten.exp.default", "aux", ("tanh_0",), np.exp(aux)))
    head = value @ rng.standard_normal((6, 3)).astype(np.float32)
    ops.append(("head", "aten.linear.default", "head", (last,), head))
    return run(*ops, inputs=[("x", x)], outputs=[("head", head)])


def fused(whole):
    """The run of a compiler that computes a layer in one op: `add_k` and `head` are left, each
    reads what the last of them gave."""
    made, inputs = [], whole.ops[0].inputs
    for op in whole.ops:
        if op.key.op.startswith(("add_", "head")):
            made.append(Op(op.key, "FusedLayer", inputs, module=op.module))
            inputs = (Edge(op.key),)
    kept = {op.key for op in made}
    return rebuilt(whole, made, lambda t: t.key.op in kept or t.key.role is not Role.OUTPUT)


def rebuilt(source, ops, keeps):
    """The run with these ops and those of its tensors that are kept."""
    values = [(t, source.values(t)) for t in source.tensors if keeps(t)]
    return in_memory(source.info, ops, values)


def without_values(source, lost, with_ops=False):
    """What is left where the values of these ops were lost, and with `with_ops` the ops too."""

    def keeps(tensor):
        return tensor.key.op.op not in lost or tensor.key.role is Role.MODEL_INPUT

    ops = [op for op in source.ops if not with_ops or op.key.op not in lost]
    return rebuilt(source, ops, keeps)


def arrays(source, lost=()):
    """The outputs of the ops as nothing but names with arrays, as .npz has them."""
    values = []
    for tensor in source.tensors:
        if tensor.key.role is Role.OUTPUT and tensor.key.op.op not in lost:
            key = TensorKey(OpKey(str(tensor.key)))
            values.append((replace(tensor, key=key), source.values(tensor)))
    info = RunInfo(model="arrays", options={"format": "npz"})
    return in_memory(info, [Op(t.key.op, "") for t, _ in values], values)


def named(source):
    """Names of the computed tensors in order."""
    return [t.key.op.op for t in source.tensors if t.key.role is Role.OUTPUT]
