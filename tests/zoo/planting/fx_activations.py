"""Activations that are missing, added, moved, or of another kind."""

from zoo.planting.registry import planter
from zoo.programs import (
    aten,
    call,
    ops,
    refresh,
    replace,
    set_argument,
    skip,
)
from zoo.work import pick

ACTIVATIONS = (
    *(aten.relu.default, aten.silu.default, aten.gelu.default, aten.leaky_relu.default),
    *(aten.hardswish.default, aten.relu6.default, aten.sigmoid.default, aten.tanh.default),
)
PRODUCTS = (aten.conv2d.default, aten.linear.default)


@planter("program")
def activation_missing(work):
    node = pick(work, ops(work.program, *ACTIVATIONS), "no activation")
    work.blame(node.name)
    work.said = f"{node.name} is left out"
    skip(work.program, node)


@planter("program")
def activation_added(work):
    found = [
        n
        for n in ops(work.program, *PRODUCTS, aten.batch_norm.default, aten.layer_norm.default)
        if not any(user.target in ACTIVATIONS for user in n.users)
    ]
    node = pick(work, found, "every op is followed by an activation")
    made = call(work.program, next(iter(node.users)), aten.relu.default, node)
    work.blame(node.name, *(user.name for user in node.users if user is not made))
    work.said = f"a relu after {node.name}"
    name = node.name
    node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)
    work.program.graph_signature.replace_all_uses(name, made.name)
    work.program.graph_module.recompile()


@planter("program")
def activation_other(work):
    others = {
        aten.relu.default: (aten.relu6.default, aten.silu.default, aten.leaky_relu.default),
        aten.silu.default: (aten.gelu.default, aten.hardswish.default, aten.relu.default),
        aten.gelu.default: (aten.silu.default, aten.relu.default),
        aten.hardswish.default: (aten.silu.default, aten.relu6.default),
        aten.relu6.default: (aten.relu.default,),
        aten.sigmoid.default: (aten.hardsigmoid.default,),
    }
    node = pick(work, ops(work.program, *others), "no activation")
    other = work.rng.choice(others[node.target])
    work.blame(node.name)
    work.said = f"{node.name} is {other}"
    replace(work.program, node, call(work.program, node, other, node.args[0]))


@planter("program")
def activation_moved(work):
    """The activation after a sum is done to one of its terms instead."""
    found = [
        n
        for n in ops(work.program, aten.relu.default, aten.silu.default, aten.gelu.default)
        if n.args[0].target is aten.add.Tensor and len(n.args[0].users) == 1
    ]
    node = pick(work, found, "no activation after a sum")
    total = node.args[0]
    inner = call(work.program, total, node.target, total.args[1])
    total.args = (total.args[0], inner)
    work.blame(node.name, total.name)
    work.said = f"{node.name} before {total.name}"
    skip(work.program, node)


@planter("program")
def leaky_slope(work, factor):
    node = pick(work, ops(work.program, aten.leaky_relu.default), "no leaky relu")
    slope = node.args[1] * factor
    work.blame(node.name)
    work.said = f"{node.name} has slope {slope:.3f}"
    set_argument(work.program, node, 1, slope)


@planter("program")
def clamp_bounds(work, factor):
    found = ops(work.program, aten.clamp.default, aten.relu6.default)
    node = pick(work, found, "no clamp")
    work.blame(node.name)
    if node.target is aten.relu6.default:
        work.said = f"{node.name} has no upper bound"
        replace(work.program, node, call(work.program, node, aten.relu.default, node.args[0]))
        return
    low, high = node.args[1] * factor, node.args[2] * factor
    node.args = (node.args[0], low, high)
    refresh(node)
    work.program.graph_module.recompile()
    work.said = f"{node.name} clamps to {low:.2f} .. {high:.2f}"


@planter("program")
def gelu_form(work, form):
    """GELU by tanh, or by a sigmoid of 1.702 x."""
    node = pick(work, ops(work.program, aten.gelu.default), "no gelu")
    work.blame(node.name)
    work.said = f"{node.name} by {form}"
    x = node.args[0]
    if form == "tanh":
        made = call(work.program, node, aten.gelu.default, x, approximate="tanh")
    else:
        scaled = call(work.program, node, aten.mul.Tensor, x, 1.702)
        gate = call(work.program, node, aten.sigmoid.default, scaled)
        made = call(work.program, node, aten.mul.Tensor, x, gate)
    replace(work.program, node, made)
