"""Overflow that a rewriting brings in."""

import math

import torch

from zoo.planting.registry import planter
from zoo.programs import OUTPUT, aten, call, export, finish, ops, replace, values_of
from zoo.work import NoSite, pick


@planter("program")
def softmax_plain(work, size):
    """exp(x) / sum(exp(x)) without taking the maximum away, in a model whose scores are sharp."""
    with torch.no_grad():
        for name, value in work.net.model.named_parameters():
            if ".query." in name:
                value.mul_(size)
    work.program = export(work.net.model, work.net.inputs, work.dtype)
    node = pick(work, ops(work.program, aten.softmax.int), "no softmax")
    work.blame(node.name)
    work.said = f"{node.name} without its maximum"
    powers = call(work.program, node, aten.exp.default, node.args[0])
    total = call(work.program, node, aten.sum.dim_IntList, powers, [-1], True)
    replace(work.program, node, call(work.program, node, aten.div.Tensor, powers, total))
    _must_break(work)


def _must_break(work):
    clean = values_of(
        export(work.net.model, work.net.inputs, work.dtype), work.net.inputs, work.dtype
    )
    found = values_of(work.program, work.net.inputs, work.dtype)
    if torch.isfinite(found[OUTPUT]).all() or not torch.isfinite(clean[OUTPUT]).all():
        raise NoSite("nothing overflows, or all of it")
    work.change = math.inf


@planter("program")
def mask_all_infinite(work):
    """-inf where the model has a large number: a row that is masked wholly is NaN."""
    keep = work.net.inputs[-1].clone()
    keep[work.rng.randrange(len(keep))] = 0
    work.net.inputs = work.target_inputs = (work.net.inputs[0], keep)
    node = pick(work, ops(work.program, aten.masked_fill.Scalar), "no mask")
    work.blame(node.name, *(user.name for user in node.users))
    work.said = f"{node.name} fills with -inf"
    node.args = (*node.args[:2], -math.inf)
    finish(work.program)
    _must_break(work)


@planter("program")
def saturated(work, bound):
    """A cast that saturates: everything beyond a bound is the bound."""
    kinds = (aten.conv2d.default, aten.linear.default)
    node = pick(work, ops(work.program, *kinds), "no product")
    most = float(bound * _largest(work, node.name))
    following = next(iter(node.users))
    made = call(work.program, following, aten.clamp.default, node, -most, most)
    work.blame(node.name, *(user.name for user in node.users if user is not made))
    work.said = f"{node.name} saturates at {most:.3g}"
    node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)
    work.program.graph_signature.replace_all_uses(node.name, made.name)
    finish(work.program)


def _largest(work, name):
    return values_of(work.program, work.net.inputs, work.dtype)[name].abs().max()
