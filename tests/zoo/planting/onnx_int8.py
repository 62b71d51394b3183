"""Integers that stand for other numbers than they should: scales, zero points, clipping."""

import numpy as np
from onnx import numpy_helper

from zoo.planting.registry import planter
from zoo.work import NoSite


def _node_named(work, name):
    return next((n for n in work.program.graph.nodes if n.name == name), None)


def _values(work):
    """Quantized activations: the name of the value, who quantizes it and who makes it real again,
    where the value is that of a node of the program."""
    graph = work.proto.graph
    found = []
    for quantize in graph.node:
        if quantize.op_type != "QuantizeLinear" or "getitem" in quantize.input[0]:
            continue
        node = _node_named(work, quantize.input[0])
        back = [
            n
            for n in graph.node
            if n.op_type == "DequantizeLinear" and n.input[0] == quantize.output[0]
        ]
        if node is not None and node.op == "call_function" and len(back) == 1:
            found.append((node, quantize, back[0]))
    if not found:
        raise NoSite("no quantized value")
    return found


def _constant(work, name):
    return next(i for i in work.proto.graph.initializer if i.name == name)


def _another(work, node, place, value, mark):
    """Gives an op a constant of its own."""
    name = f"{node.input[place]}_{mark}"
    work.proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    node.input[place] = name


def _blame(work, node):
    work.blame(node.name, *(user.name for user in node.users))


def _choose(work):
    node, quantize, back = work.rng.choice(_values(work))
    scale = numpy_helper.to_array(_constant(work, quantize.input[1]))
    zero = numpy_helper.to_array(_constant(work, quantize.input[2]))
    _blame(work, node)
    return node, quantize, back, scale, zero


@planter("onnx")
def scale_mismatched(work, factor):
    """Made real again with another scale than it was quantized with."""
    node, _, back, scale, _ = _choose(work)
    _another(work, back, 1, (scale * factor).astype(scale.dtype), "other")
    work.said = f"{node.name} is dequantized with {factor:.2f} times its scale"


@planter("onnx")
def zero_point_mismatched(work, steps):
    node, _, back, _, zero = _choose(work)
    moved = np.clip(int(zero) + steps, 0, 255).astype(zero.dtype)
    if abs(int(moved) - int(zero)) < 4:
        moved = np.clip(int(zero) - steps, 0, 255).astype(zero.dtype)
    _another(work, back, 2, moved, "other")
    work.said = f"{node.name} is dequantized with zero point {int(moved)} for {int(zero)}"


def _rescaled(work, factor, said):
    """Another scale on both sides, the zero point moved with it."""
    node, quantize, back, scale, zero = _choose(work)
    moved = np.clip(round(int(zero) / factor), 0, 255).astype(zero.dtype)
    if 0 < int(zero) < 255 and factor < 1:
        moved = zero
    for op in (quantize, back):
        _another(work, op, 1, (scale * factor).astype(scale.dtype), "new")
        _another(work, op, 2, moved, "new")
    work.said = f"{node.name} {said} {factor:.2f} times the scale"


@planter("onnx")
def range_clipped(work, factor):
    _rescaled(work, factor, "is clipped:")


@planter("onnx")
def range_wasted(work, factor):
    _rescaled(work, factor, "wastes its range:")


def _weights(work):
    found = []
    for node in work.proto.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0].endswith("weight_quantized"):
            found.append((node, node.input[0].removesuffix("_quantized")))
    if not found:
        raise NoSite("no quantized weight")
    return found


def _blame_weight(work, name):
    from zoo.programs import readers

    work.blame(name, *(node.name for node in readers(work.program, name)))
    for node in readers(work.program, name):
        # A batch norm after it is folded into it.
        work.blame(*(user.name for user in node.users if "batch_norm" in user.name))


@planter("onnx")
def weight_scale_wrong(work, factor):
    """The scale of one weight is off."""
    node, name = work.rng.choice(_weights(work))
    scale = numpy_helper.to_array(_constant(work, node.input[1]))
    _another(work, node, 1, (scale * factor).astype(scale.dtype), "other")
    _blame_weight(work, name)
    work.said = f"{name} has {factor:.2f} times its scale"


def _rescale_bias(work, weight, factor):
    """Quantizers give a bias the scale of its weight times that of the input."""
    for user in work.proto.graph.node:
        if weight.output[0] not in user.input or len(user.input) < 3:
            continue
        for back in work.proto.graph.node:
            if back.output[0] == user.input[2] and back.op_type == "DequantizeLinear":
                whole = numpy_helper.to_array(_constant(work, back.input[0])).astype(np.float64)
                scale = numpy_helper.to_array(_constant(work, back.input[1]))
                _another(work, back, 0, np.round(whole / factor).astype(np.int32), "clipped")
                _another(work, back, 1, (scale * factor).astype(scale.dtype), "clipped")


@planter("onnx")
def weight_clipped(work, factor):
    """A weight quantized with too small a scale: its large elements are all the same."""
    node, name = work.rng.choice(_weights(work))
    scale = numpy_helper.to_array(_constant(work, node.input[1]))
    whole = numpy_helper.to_array(_constant(work, node.input[0])).astype(np.float64)
    top = np.abs(whole).max()
    clipped = np.clip(np.round(whole / factor), -top, top).astype(np.int8)
    _another(work, node, 0, clipped, "clipped")
    _another(work, node, 1, (scale * factor).astype(scale.dtype), "clipped")
    _rescale_bias(work, node, factor)
    _blame_weight(work, name)
    work.said = f"{name} is clipped to {factor:.2f} of its range"


@planter("onnx")
def weight_per_tensor(work, size):
    """One scale for a weight of which one channel is much larger than the others."""
    import torch

    from zoo import lowering
    from zoo.programs import export

    modules = dict(work.net.model.named_modules())
    names = [
        n
        for n, m in modules.items()
        if isinstance(m, torch.nn.Conv2d | torch.nn.Linear) and m.weight.shape[0] >= 8
    ]
    name = work.rng.choice(names)
    with torch.no_grad():
        weight = modules[name].weight
        weight[work.rng.randrange(len(weight))] *= size
    work.program = export(work.net.model, work.net.inputs, work.dtype)
    work.proto = lowering.onnx_of(work, per_channel=False)
    step = weight.abs().max() / 64
    usual = weight.detach().abs().flatten(1).amax(1).median()
    work.change = float(step / usual)
    _blame_weight(work, f"{name}.weight")
    work.said = f"{name}.weight has one channel {size:.0f} times as large and one scale"
