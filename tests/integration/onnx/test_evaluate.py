"""Pieces of an ONNX model in double precision: the truth that introduced error is held against."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import syncpoint as sp
from models.onnx_files import NETS, feeds, onnx_file
from syncpoint.errors import InputError, Unsupported
from syncpoint.run.model import Edge, OpKey, Role, TensorKey
from syncpoint.runtimes.options import parse_options
from syncpoint.runtimes.protocol import Declares, Evaluates, Prepares, Region
from syncpoint.runtimes.registry import load_runtime


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("onnx")


def opened(model, **options):
    ours = load_runtime("onnxruntime")
    return ours.open(model, parse_options(ours, options))


def alone(run, op) -> Region:
    outputs = [t.key for t in run.tensors if t.key.op == op.key and t.key.role is Role.OUTPUT]
    inputs = dict.fromkeys(e for e in op.inputs if e.role is not Role.PARAMETER)
    return Region((op.key,), tuple(inputs), tuple(Edge(k.op, k.index) for k in outputs))


def op_by_op(run, dtype="f64"):
    """Every op in its turn on what the ops before it gave, from the model's inputs on."""
    values = {
        Edge(t.key.op, role=Role.MODEL_INPUT): run.values(t)
        for t in run.tensors
        if t.key.role is Role.MODEL_INPUT
    }
    for op in run.ops:
        region = alone(run, op)
        given = {edge: values[edge] for edge in region.inputs}
        for edge, value in zip(
            region.outputs, run.session.evaluate(region, given, dtype), strict=True
        ):
            values[edge] = value
    return values


def in_double(net):
    """The final output of an independent float64 run, by torch."""
    inputs = [v.double() if v.is_floating_point() else v for v in NETS[net][1]()]
    model = NETS[net][0]().double()
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = float(np.float32(module.eps))  # what an attribute of ONNX holds
    with torch.no_grad():
        return model(*inputs).numpy()


@pytest.mark.parametrize("net", NETS)
def test_op_by_op_in_f64_gives_the_double_model(folder, net):
    run = sp.capture(str(onnx_file(folder, net)), NETS[net][1](), fusion="unfused")
    values = op_by_op(run)
    final = values[Edge(run.ops[-1].key)]
    expected = in_double(net)
    assert final.dtype == np.float64
    # The exporter folded batch norms in float32: only without them the parameters are the same.
    limit = 1e-6 if net in ("cnn", "resnet") else 1e-12
    assert np.linalg.norm(final - expected) <= limit * np.linalg.norm(expected)


@pytest.mark.parametrize("net", NETS)
def test_op_by_op_in_f32_gives_the_recorded_bits(folder, net):
    run = sp.capture(str(onnx_file(folder, net)), NETS[net][1](), fusion="unfused")
    for op in run.ops:
        region = alone(run, op)
        given = {e: run.values(run.tensor(TensorKey(e.op, e.role, e.index))) for e in region.inputs}
        found = run.session.evaluate(region, given, "f32")
        for edge, value in zip(region.outputs, found, strict=True):
            recorded = run.values(run.tensor(TensorKey(edge.op, index=edge.index)))
            assert value.dtype == recorded.dtype
            assert value.tobytes() == recorded.tobytes(), (op.key, op.type)


@pytest.mark.parametrize("net", NETS)
def test_fused_ops_are_evaluated_through_the_ops_of_the_file(folder, net):
    """Every op of the executed graph, blocked convolutions and fused products too."""
    run = sp.capture(str(onnx_file(folder, net)), NETS[net][1]())
    assert any("com.microsoft" in op.type for op in run.ops)
    refused = []
    for op in run.ops:
        region = alone(run, op)
        given = {e: run.values(run.tensor(TensorKey(e.op, e.role, e.index))) for e in region.inputs}
        try:
            found = run.session.evaluate(region, given, "f64")
        except Unsupported:
            refused.append(op)
            continue
        for edge, value in zip(region.outputs, found, strict=True):
            recorded = run.values(run.tensor(TensorKey(edge.op, index=edge.index)))
            assert value.shape == recorded.shape, op.key
            masked = np.isinf(recorded)
            left, right = (np.where(masked, 0, a).astype(float) for a in (value, recorded))
            assert np.linalg.norm(left - right) <= 1e-5 * np.linalg.norm(right), op.key
    assert all(op.type.endswith("ReorderOutput") for op in refused), refused


def test_quantized_models_are_evaluated_as_if_they_were_not(folder):
    """QDQ: quantizing is identity, stored weights are dequantized."""
    path = onnx_file(folder, "cnn", "qdq")
    run = sp.capture(str(path), feeds("cnn"), fusion="unfused")
    values = op_by_op(run)
    final = values[Edge(run.ops[-1].key)]
    # The same, by hand: float64 weights out of the stored integers into the double model.
    tensors = {i.name: numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}

    def weight(name):
        stored = tensors[f"{name}_quantized"]
        scale = tensors.get(f"{name}_scale", tensors.get(f"{name}_quantized_scale"))
        scale = scale.astype(np.float64)
        shape = [-1] + [1] * (stored.ndim - 1)
        return torch.from_numpy(stored * scale.reshape(shape))

    x = torch.from_numpy(feeds("cnn")["image"]).double()
    functional = torch.nn.functional
    # The file has no ReLU any more: its effect is in the grids of the quantizers.
    assert "Relu" not in {node.op_type for node in onnx.load(path).graph.node}
    x = functional.conv2d(x, weight("conv.weight"), weight("conv.bias"), padding=1)
    x = functional.max_pool2d(torch.relu(x), 2)
    name = "block.conv{}.weight"
    y = functional.conv2d(x, weight(name.format(1)), weight(name.format(1) + "_bias"), padding=1)
    y = functional.conv2d(
        torch.relu(y), weight(name.format(2)), weight(name.format(2) + "_bias"), padding=1
    )
    x = torch.flatten(torch.relu(x + y), 1)
    x = x @ weight("classifier.weight").T + weight("classifier.bias")
    np.testing.assert_allclose(final, x.numpy(), rtol=1e-10, atol=1e-10)


def test_dynamically_quantized_products_are_evaluated_whole(folder):
    run = sp.capture(str(onnx_file(folder, "gpt", "dynamic")), feeds("gpt"), fusion="unfused")
    product = next(op for op in run.ops if op.type == "MatMulInteger")
    made = {op.key: op for op in run.ops}
    quantizer = made[product.inputs[0].op]
    region = Region((quantizer.key, product.key), quantizer.inputs, (Edge(product.key),))
    x = run.values(run.tensor(TensorKey(quantizer.inputs[0].op)))
    (found,) = run.session.evaluate(region, {quantizer.inputs[0]: x}, "f64")
    weight = next(e for e in product.inputs if e.role is Role.PARAMETER)
    stored = run.values(run.tensor(TensorKey(weight.op, Role.PARAMETER))).astype(np.float64)
    np.testing.assert_allclose(found, x.astype(np.float64) @ stored, rtol=1e-12, atol=1e-9)


def made(nodes, initializers=(), x=TensorProto.FLOAT, opset=21):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", x, ["n"])],
        [helper.make_empty_tensor_value_info(nodes[-1].output[0])],
        [numpy_helper.from_array(v, n) for n, v in initializers],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


X = np.array([0.1, 1.7, -2.3], np.float32)


def evaluated(nodes, x=X, initializers=(), **more):
    session = opened(made(nodes, initializers), fusion="unfused")
    ops = tuple(OpKey(node.output[0]) for node in nodes)
    fed = Edge(OpKey("x"), role=Role.MODEL_INPUT)
    return session.evaluate(Region(ops, (fed,), (Edge(ops[-1]),)), {fed: x}, "f64", **more)[0]


def test_casts_between_floats_are_identity():
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["h"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "third"], ["y"]),
    ]
    third = np.array(1 / 3, np.float32)
    found = evaluated(nodes, initializers=[("third", third)])
    np.testing.assert_array_equal(found, X.astype(np.float64) * third.astype(np.float64))


def test_casts_to_integers_truncate():
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT32)]
    found = evaluated(nodes)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, [0, 1, -2])


def test_parameters_may_be_rounded_first_and_given():
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    weight = np.array([0.1, 0.2, 0.3], np.float32)
    rounded = evaluated(nodes, initializers=[("w", weight)], parameter_dtype="f16")
    np.testing.assert_array_equal(rounded, X.astype(np.float64) * weight.astype(np.float16))
    session = opened(made(nodes, [("w", weight)]), fusion="unfused")
    fed, own = Edge(OpKey("x"), role=Role.MODEL_INPUT), Edge(OpKey("w"), role=Role.PARAMETER)
    region = Region((OpKey("y"),), (fed,), (Edge(OpKey("y")),))
    assert session.parameters_of(region) == [OpKey("w")]
    (found,) = session.evaluate(region, {fed: X, own: 2 * weight}, "f64")
    np.testing.assert_array_equal(found, X.astype(np.float64) * (2 * weight).astype(np.float64))


def test_averages_over_windows_are_those_of_the_reference():
    x = np.random.default_rng(0).normal(size=(1, 2, 7, 6))
    for counted in (0, 1):
        node = helper.make_node(
            "AveragePool", ["x"], ["y"], kernel_shape=[3, 2], strides=[2, 1],
            pads=[1, 0, 1, 1], count_include_pad=counted,
        )  # fmt: skip
        expected = onnx.reference.ReferenceEvaluator(node).run(None, {"x": x})[0]
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
            [helper.make_empty_tensor_value_info("y")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        session = opened(model, fusion="unfused")
        fed = Edge(OpKey("x"), role=Role.MODEL_INPUT)
        region = Region((OpKey("y"),), (fed,), (Edge(OpKey("y")),))
        np.testing.assert_allclose(
            session.evaluate(region, {fed: x}, "f64")[0], expected, rtol=1e-14
        )


def test_what_cannot_be_evaluated_is_refused_with_its_reason():
    random = [
        helper.make_node("RandomNormalLike", ["x"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    with pytest.raises(Unsupported, match="is random"):
        evaluated(random)
    session = opened(made([helper.make_node("Relu", ["x"], ["y"])]), fusion="unfused")
    fed = Edge(OpKey("x"), role=Role.MODEL_INPUT)
    region = Region((OpKey("y"),), (fed,), (Edge(OpKey("y")),))
    with pytest.raises(Unsupported, match="f64 or f32"):
        session.evaluate(region, {fed: X}, "bf16")
    with pytest.raises(InputError, match="is not a floating-point type"):
        session.evaluate(region, {fed: X}, "i32")
    with pytest.raises(InputError, match="the region reads x, but no value"):
        session.evaluate(region, {}, "f64")
    with pytest.raises(Unsupported, match="which the model does not have"):
        session.evaluate(Region((OpKey("nope"),), (), ()), {}, "f64")
    with pytest.raises(Unsupported, match="inside a sub-graph"):
        session.evaluate(Region((OpKey("y", path="a"),), (), ()), {}, "f64")


def test_a_session_follows_the_protocols():
    session = opened(made([helper.make_node("Relu", ["x"], ["y"])]))
    assert isinstance(session, Evaluates)
    assert isinstance(session, Prepares)
    assert isinstance(session, Declares)
    (spec,) = session.inputs()
    assert (spec.name, spec.shape, spec.dtype, spec.required) == ("x", (-1,), "f32", True)
