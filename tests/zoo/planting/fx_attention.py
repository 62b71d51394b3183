"""Attention: its scale, its mask, its rotary positions."""

import math

from zoo.planting.registry import planter
from zoo.programs import (
    aten,
    call,
    finish,
    ops,
    refresh,
    replace,
    set_argument,
    shape,
)
from zoo.work import pick


@planter("program")
def attention_scale(work):
    """Divided by the root of another size, or not at all."""
    found = [n for n in ops(work.program, aten.div.Tensor) if isinstance(n.args[1], float)]
    found += ops(work.program, aten.scaled_dot_product_attention.default)
    node = pick(work, found, "no scale")
    work.blame(node.name)
    if node.target is aten.div.Tensor:
        other = work.rng.choice((1.0, node.args[1] ** 2, node.args[1] * 2))
        work.said = f"{node.name} by {other:.3f}"
        work.blame(*(user.name for user in node.users))
        set_argument(work.program, node, 1, other)
        return
    size = shape(node)[-1]
    node.kwargs = {**node.kwargs, "scale": work.rng.choice((1.0, 1 / size, 0.5 / math.sqrt(size)))}
    work.said = f"{node.name} with scale {node.kwargs['scale']:.3f}"
    refresh(node)
    finish(work.program)


@planter("program")
def mask_orientation(work):
    node = pick(work, ops(work.program, aten.triu.default), "no causal mask")
    work.blame(node.name, *_masked(node))
    work.said = f"{node.name} is lower"
    replace(work.program, node, call(work.program, node, aten.tril.default, node.args[0], -1))


@planter("program")
def mask_off_by_one(work):
    node = pick(work, ops(work.program, aten.triu.default), "no causal mask")
    work.blame(node.name, *_masked(node))
    work.said = f"{node.name} lets one token more be seen"
    set_argument(work.program, node, 1, 2)


def _masked(node):
    """The ops down to the softmax: the mask itself is a constant that nobody may compare."""
    found, left = [], list(node.users)
    while left:
        user = left.pop()
        found.append(user.name)
        if user.target is not aten.softmax.int:
            left.extend(user.users)
    return found


@planter("program")
def mask_missing(work):
    found = ops(work.program, aten.masked_fill.Scalar)
    node = pick(work, found, "no mask")
    work.blame(node.name, *_masked(node))
    work.said = f"{node.name} is left out"
    replace(work.program, node, call(work.program, node, aten.clone.default, node.args[0]))


def _rotations(work):
    """Concatenations of a negated and a plain half."""
    return [
        n
        for n in ops(work.program, aten.cat.default)
        if len(n.args[0]) == 2 and n.args[0][0].target is aten.neg.default
    ]


@planter("program")
def rotary_sign(work):
    """Turned the other way."""
    node = pick(work, _rotations(work), "no rotary positions")
    negated, plain = node.args[0]
    work.blame(node.name, negated.name, *_onwards(node))
    work.said = f"{node.name} negates the other half"
    other = call(work.program, node, aten.neg.default, plain)
    node.args = ([negated.args[0], other], *node.args[1:])
    finish(work.program)


@planter("program")
def rotary_interleaved(work):
    """Neighbours are turned together, not halves."""
    node = pick(work, _rotations(work), "no rotary positions")
    whole = node.args[0][1].args[0].args[0]
    form = list(shape(whole))
    work.blame(node.name, *_onwards(node))
    work.said = f"{node.name} turns neighbours"
    even = call(work.program, node, aten.slice.Tensor, whole, -1, 0, form[-1], 2)
    odd = call(work.program, node, aten.slice.Tensor, whole, -1, 1, form[-1], 2)
    pair = [call(work.program, node, aten.neg.default, odd), even]
    stacked = call(work.program, node, aten.stack.default, pair, -1)
    replace(work.program, node, call(work.program, node, aten.reshape.default, stacked, form))


def _onwards(node):
    """The product with the sine and the sum after it."""
    return [user.name for user in node.users] + [
        after.name for user in node.users for after in user.users
    ]
