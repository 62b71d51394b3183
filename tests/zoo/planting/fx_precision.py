"""One op in a coarser precision than the rest, or with coarser weights."""

import torch

from zoo.planting.registry import planter
from zoo.programs import (
    argument,
    aten,
    call,
    ops,
    parameter,
    parameter_name,
    replace,
    set_parameter,
)
from zoo.work import pick

KINDS = {"f16": torch.float16, "bf16": torch.bfloat16}
PRODUCTS = (aten.conv2d.default, aten.linear.default, aten.matmul.default)


@planter("program")
def op_rounded(work, to):
    """A product done in 16 bits, cast before and after."""
    node = pick(work, ops(work.program, *PRODUCTS), "no product")
    _in_precision(work, node, to)


@planter("program")
def soft_op_rounded(work, to):
    """A norm or a softmax done in 16 bits."""
    kinds = (aten.softmax.int, aten.layer_norm.default)
    node = pick(work, ops(work.program, *kinds), "no norm or softmax")
    _in_precision(work, node, to)


def _in_precision(work, node, to):
    work.blame(node.name)
    work.said = f"{node.name} in {to}"

    def narrowed(item):
        if not isinstance(item, torch.fx.Node):
            return item
        return call(work.program, node, aten.to.dtype, item, KINDS[to])

    args = tuple(narrowed(item) for item in node.args)
    made = call(work.program, node, node.target, *args, **node.kwargs)
    kind = node.meta["val"].dtype
    replace(work.program, node, call(work.program, node, aten.to.dtype, made, kind))


@planter("program")
def weight_few_bits(work, bits):
    """A weight rounded to a few levels for the whole tensor."""
    node = pick(work, ops(work.program, aten.conv2d.default, aten.linear.default), "no weight")
    name = parameter_name(work.program, argument(node, 1))
    weight = parameter(work.program, name)
    top = 2 ** (bits - 1) - 1
    scale = weight.abs().max() / top
    work.blame(node.name, name)
    work.said = f"{name} in {bits} bits"
    set_parameter(work.program, name, (weight / scale).round().clamp(-top - 1, top) * scale)
