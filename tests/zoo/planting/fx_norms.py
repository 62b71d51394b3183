"""Norms and biases: missing, done twice, with another epsilon or variance."""

import torch

from zoo.planting.registry import planter
from zoo.programs import (
    argument,
    aten,
    call,
    finish,
    ops,
    parameter_name,
    refresh,
    replace,
    skip,
)
from zoo.work import NoSite, pick

NORMS = (aten.layer_norm.default, aten.batch_norm.default)


@planter("program")
def bias_missing(work):
    found = [
        n
        for n in ops(work.program, aten.conv2d.default, aten.linear.default)
        if argument(n, 2) is not None
    ]
    node = pick(work, found, "no bias")
    work.blame(node.name, parameter_name(work.program, node.args[2]))
    work.said = f"{node.name} without its bias"
    args = list(node.args)
    args[2] = None
    node.args = tuple(args)
    finish(work.program)


@planter("program")
def norm_missing(work):
    node = pick(work, ops(work.program, aten.batch_norm.default), "no batch norm")
    work.blame(node.name, node.args[0].name)
    work.said = f"{node.name} is left out"
    skip(work.program, node)


@planter("program")
def norm_twice(work):
    node = pick(work, ops(work.program, aten.batch_norm.default), "no batch norm")
    work.blame(node.name)
    work.said = f"{node.name} is done twice"
    following = next(iter(node.users))
    made = call(work.program, following, node.target, node, *node.args[1:], **node.kwargs)
    node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)
    work.program.graph_signature.replace_all_uses(node.name, made.name)
    work.blame(following.name)
    finish(work.program)


def _epsilon(node):
    return 7 if node.target is aten.batch_norm.default else 4


@planter("program")
def norm_epsilon(work, epsilon):
    added = [
        n
        for n in ops(work.program, aten.add.Tensor)
        if isinstance(argument(n, 1), float) and n.args[1] < 1e-3
    ]
    node = pick(work, [*ops(work.program, *NORMS), *added], "no norm")
    work.blame(node.name)
    work.said = f"{node.name} with epsilon {epsilon:.2g}"
    args = list(node.args)
    if node.target is aten.add.Tensor:
        args[1] = epsilon
        work.blame(*(user.name for user in node.users))
    else:
        while len(args) <= _epsilon(node):
            args.append((None, None, None, None, 1e-5)[len(args)])
        args[_epsilon(node)] = epsilon
    node.args = tuple(args)
    refresh(node)
    finish(work.program)


def _taken_apart(work, node, unbiased=False, outside=0.0):
    """A layer norm in plain ops, as converters write it."""
    x, form, weight, bias = (argument(node, at) for at in range(4))
    if len(form) != 1:
        raise NoSite("a norm over several axes")
    epsilon = argument(node, 4, 1e-5)
    mean = call(work.program, node, aten.mean.dim, x, [-1], True)
    centred = call(work.program, node, aten.sub.Tensor, x, mean)
    square = call(work.program, node, aten.mul.Tensor, centred, centred)
    variance = call(work.program, node, aten.mean.dim, square, [-1], True)
    if unbiased:
        variance = call(work.program, node, aten.mul.Tensor, variance, form[0] / (form[0] - 1))
    if outside:
        root = call(work.program, node, aten.sqrt.default, variance)
        root = call(work.program, node, aten.add.Tensor, root, outside)
    else:
        variance = call(work.program, node, aten.add.Tensor, variance, epsilon)
        root = call(work.program, node, aten.sqrt.default, variance)
    made = call(work.program, node, aten.div.Tensor, centred, root)
    if weight is not None:
        made = call(work.program, node, aten.mul.Tensor, made, weight)
    if bias is not None:
        made = call(work.program, node, aten.add.Tensor, made, bias)
    work.blame(node.name)
    replace(work.program, node, made)


@planter("program")
def epsilon_outside(work, epsilon):
    node = pick(work, ops(work.program, aten.layer_norm.default), "no layer norm")
    work.said = f"{node.name} adds {epsilon:.2g} to the root instead of under it"
    _taken_apart(work, node, outside=epsilon)


@planter("program")
def variance_unbiased(work):
    node = pick(work, ops(work.program, aten.layer_norm.default), "no layer norm")
    work.said = f"{node.name} divides the variance by n - 1"
    _taken_apart(work, node, unbiased=True)


@planter("program")
def dropout_scaled(work, share):
    """What a dropout gives is multiplied as if it were still training."""
    node = pick(work, ops(work.program, aten.dropout.default), "no dropout")
    work.blame(node.name, *(user.name for user in node.users))
    work.said = f"{node.name} scales by {1 - share:.2f}"
    replace(work.program, node, call(work.program, node, aten.mul.Tensor, node.args[0], 1 - share))


@planter("program")
def residual_missing(work):
    found = [
        n
        for n in ops(work.program, aten.add.Tensor)
        if isinstance(argument(n, 1), torch.fx.Node)
        and n.args[0].op == n.args[1].op == "call_function"
    ]
    node = pick(work, found, "no sum")
    work.blame(node.name)
    work.said = f"{node.name} leaves out {node.args[0].name}"
    skip(work.program, node, node.args[1])
