"""Ops that a converter fused by itself, and got wrong; and attributes of single ones."""

from onnx import helper, numpy_helper

from zoo.planting.registry import planter
from zoo.work import pick

CONTRIB = "com.microsoft"


def _with_contrib(proto):
    if all(o.domain != CONTRIB for o in proto.opset_import):
        proto.opset_import.append(helper.make_opsetid(CONTRIB, 1))


def _readers(proto, name):
    return [n for n in proto.graph.node if name in n.input]


def _results(proto):
    return {o.name for o in proto.graph.output}


def _maker(proto, name):
    return next((n for n in proto.graph.node if name in n.output), None)


def _constant(proto, name):
    found = next((i for i in proto.graph.initializer if i.name == name), None)
    return None if found is None else numpy_helper.to_array(found)


def _alone(proto, node):
    """Whoever reads what a node gives, where that is one op and nobody else needs it."""
    readers = _readers(proto, node.output[0])
    if len(readers) == 1 and node.output[0] not in _results(proto):
        return readers[0]
    return None


def _followed(proto, kind, next_kinds):
    """Ops of a kind with their only reader, where that is of one of these kinds."""
    pairs = [(n, _alone(proto, n)) for n in proto.graph.node if n.op_type == kind]
    return [(n, after) for n, after in pairs if after is not None and after.op_type in next_kinds]


def _fuse(work, old, new):
    """Puts a fused op where the last of the old ones was."""
    graph = work.proto.graph
    at = max(list(graph.node).index(node) for node in old)
    new.name = f"fused_{new.output[0]}"
    for key, value in ((m.key, m.value) for m in old[-1].metadata_props):
        new.metadata_props.add(key=key, value=value)
    graph.node.insert(at + 1, new)
    for node in old:
        graph.node.remove(node)
    _with_contrib(work.proto)
    work.blame(*(node.output[0] for node in old))


def _attributes(node):
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


@planter("onnx")
def fused_convolution(work):
    """A convolution with the wrong activation inside."""
    found = _followed(work.proto, "Conv", ("Relu", "LeakyRelu"))
    conv, after = pick(work, found, "no convolution before a relu")
    said = {k: v for k, v in _attributes(conv).items() if k != "auto_pad"}
    kinds = {"Relu": [("LeakyRelu", [0.1]), ("Tanh", [])], "LeakyRelu": [("LeakyRelu", [0.5])]}
    kinds["LeakyRelu"].append(("Relu", []))
    activation, parameters = work.rng.choice(kinds[after.op_type])
    more = {"activation_params": parameters} if parameters else {}
    new = helper.make_node(
        *("FusedConv", list(conv.input), list(after.output)),
        domain=CONTRIB,
        activation=activation,
        **more,
        **said,
    )
    work.said = f"{conv.output[0]} is fused with {activation} for {after.op_type}"
    _fuse(work, [conv, after], new)


@planter("onnx")
def fused_product(work, factor):
    """Scores with the scale inside the product, and the scale wrong."""
    found = []
    for node, after in _followed(work.proto, "MatMul", ("Div",)):
        size = _constant(work.proto, after.input[1])
        if size is not None and size.size == 1:
            found.append((node, after, float(size.reshape(-1)[0])))
    product, scale, size = pick(work, found, "no scaled product")
    alpha = factor / size
    new = helper.make_node(
        "FusedMatMul", list(product.input), list(scale.output), domain=CONTRIB, alpha=alpha
    )
    work.said = f"{product.output[0]} and {scale.output[0]} are one, times {alpha:.3f}"
    _fuse(work, [product, scale], new)


@planter("onnx")
def fused_skip_norm(work, epsilon):
    """A sum and a layer norm in one, with another epsilon."""
    found = []
    for node in work.proto.graph.node:
        before = _maker(work.proto, node.input[0]) if node.op_type == "LayerNormalization" else None
        if before is not None and before.op_type == "Add" and len(node.input) == 3:
            parts = [_maker(work.proto, name) for name in before.input]
            if all(part is not None for part in parts):
                found.append((before, node))
    total, norm = pick(work, found, "no layer norm of a sum")
    new = helper.make_node(
        "SkipLayerNormalization",
        [*total.input, *norm.input[1:]],
        [norm.output[0], "", "", total.output[0]],
        domain=CONTRIB,
        epsilon=epsilon,
    )
    work.said = f"{total.output[0]} and {norm.output[0]} are one, epsilon {epsilon:.2g}"
    _fuse(work, [total, norm], new)


@planter("onnx")
def fused_gelu(work, form):
    """A bias and a GELU in one, and the GELU is another."""
    found = []
    for node in work.proto.graph.node:
        before = _maker(work.proto, node.input[0]) if node.op_type == "Gelu" else None
        if before is None or before.op_type != "Add" or _alone(work.proto, before) is None:
            continue
        bias = _constant(work.proto, before.input[1])
        if bias is not None and bias.ndim == 1:
            found.append((before, node))
    total, gelu = pick(work, found, "no bias before a gelu")
    if form == "FastGelu":
        new = helper.make_node("FastGelu", list(total.input), list(gelu.output), domain=CONTRIB)
        work.said = f"{total.output[0]} and {gelu.output[0]} are one, by tanh"
        _fuse(work, [total, gelu], new)
        return
    alpha = 1.702
    new = helper.make_node(
        "QuickGelu", [total.output[0]], list(gelu.output), domain=CONTRIB, alpha=alpha
    )
    work.said = f"{gelu.output[0]} is a QuickGelu"
    work.blame(total.output[0])
    _fuse(work, [gelu], new)


@planter("onnx")
def fused_gemm(work):
    """A Gemm with its activation inside, which is another."""
    found = _followed(work.proto, "Gemm", ("Tanh", "Clip"))
    gemm, after = pick(work, found, "no gemm before an activation")
    activation = "Sigmoid" if after.op_type == "Tanh" else "Relu"
    new = helper.make_node(
        *("FusedGemm", list(gemm.input), list(after.output)),
        domain=CONTRIB,
        activation=activation,
        **_attributes(gemm),
    )
    work.said = f"{gemm.output[0]} is fused with {activation} for {after.op_type}"
    _fuse(work, [gemm, after], new)


@planter("onnx")
def resize_coordinates(work, form):
    """Where the pixels of a resize lie."""
    nodes = [n for n in work.proto.graph.node if n.op_type == "Resize"]
    node = pick(work, nodes, "no resize")
    mode = _attributes(node)["mode"].decode()
    name, value = ("coordinate_transformation_mode", form)
    if mode == "nearest":
        name, value = "nearest_mode", "ceil"
    for attribute in list(node.attribute):
        if attribute.name == name:
            node.attribute.remove(attribute)
    node.attribute.append(helper.make_attribute(name, value))
    work.blame(node.output[0])
    work.said = f"{node.output[0]} has {name} {value}"


@planter("onnx")
def opset_softmax(work):
    """A softmax along the axis that the older operator set means."""
    nodes = [n for n in work.proto.graph.node if n.op_type == "Softmax"]
    node = pick(work, nodes, "no softmax")
    for attribute in list(node.attribute):
        if attribute.name == "axis":
            node.attribute.remove(attribute)
    node.attribute.append(helper.make_attribute("axis", 1))
    work.blame(node.output[0])
    work.said = f"{node.output[0]} along axis 1"
