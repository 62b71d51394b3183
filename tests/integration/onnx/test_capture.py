"""The runtime "onnxruntime": what is captured is what ONNX Runtime computes, and all of it."""

import copy

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import helper

import syncpoint as sp
from helpers.paths import MODELS
from models.cnn import Cnn
from models.onnx_files import NETS, exported, feeds, onnx_file, program, quiet
from syncpoint.run.model import Role, TensorKey

FORMS = [
    ("cnn", "f32"),
    ("resnet", "f32"),
    ("transformer", "f32"),
    ("gpt", "f32"),
    ("cnn", "f16"),
    ("cnn", "qdq"),
    ("transformer", "qdq"),
    ("gpt", "dynamic"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("onnx")
    return {(net, form): onnx_file(folder, net, form) for net, form in FORMS}


def plain_run(model, given, level="ORT_ENABLE_ALL"):
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    settings.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    content = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    session = ort.InferenceSession(content, settings, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, given), strict=True))


def all_values(path, given):
    """Every value of the file's graph, by ONNX Runtime without optimisation."""
    model = onnx.load(path)
    known = {o.name for o in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in known:
                model.graph.output.append(helper.make_empty_tensor_value_info(name))
    return plain_run(model, given, "ORT_DISABLE_ALL")


def final_outputs(run):
    return {t.name: run.values(t) for t in run.tensors if t.key.role is Role.MODEL_OUTPUT}


def outputs_of(run):
    """Values by the name of the op, first outputs only."""
    return {
        str(t.key.op): run.values(t)
        for t in run.tensors
        if t.key.role is Role.OUTPUT and t.key.index == 0
    }


def real(run, tensor):
    values = run.values(tensor).astype(np.float64)
    meaning = tensor.quantization
    if meaning is None:
        return values
    return (values - meaning.zero_point[0]) * meaning.scale[0]


def distance(found, expected):
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape
    norm = np.linalg.norm(expected)
    return np.linalg.norm(found - expected) / norm if norm else np.linalg.norm(found)


@pytest.mark.parametrize(("net", "form"), FORMS)
def test_as_executed_gives_the_bits_of_a_plain_run(files, net, form):
    given = feeds(net, form)
    run = sp.capture(str(files[net, form]), given)
    assert run.info.fusion == "as-executed"
    assert run.info.device == "CPUExecutionProvider"
    assert run.info.observer.equal, run.info.observer.detail
    expected = plain_run(files[net, form], given)
    found = final_outputs(run)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].tobytes() == value.tobytes()


@pytest.mark.parametrize(("net", "form"), [f for f in FORMS if f[1] != "f16"])
def test_unfused_gives_every_value_of_the_file(files, net, form):
    given = feeds(net, form)
    run = sp.capture(str(files[net, form]), given, fusion="unfused")
    assert run.info.fusion == "unfused"
    expected = all_values(files[net, form], given)
    graph = onnx.load(files[net, form]).graph
    made = [node for node in graph.node if node.op_type != "Constant"]
    assert len(run.ops) == len(made)
    seen = 0
    for op, node in zip(run.ops, made, strict=True):
        assert op.type.rpartition(".")[2] == node.op_type
        for index, name in enumerate(node.output):
            if not name:
                continue
            tensor = run.tensor(TensorKey(op.key, Role.OUTPUT, index))
            assert run.values(tensor).tobytes() == expected[name].tobytes(), name
            assert tensor.shape == expected[name].shape
            seen += 1
    assert seen == sum(bool(name) for node in made for name in node.output)
    assert run.info.observer.equal, run.info.observer.detail


@pytest.mark.parametrize("net", [net for net, form in FORMS if form == "f16"])
def test_unfused_in_float16_is_the_graph_with_the_casts_that_are_executed(files, net):
    """Asking for a float16 value that ONNX Runtime keeps in float32 would round it."""
    run = sp.capture(str(files[net, "f16"]), feeds(net, "f16"), fusion="unfused")
    assert run.info.observer.equal, run.info.observer.detail
    graph = onnx.load(files[net, "f16"]).graph
    done = {name.rpartition("InsertedPrecisionFreeCast_")[2] for op in run.ops
            for name in (op.key.op, *op.origins)}  # fmt: skip
    for node in graph.node:
        if node.op_type not in ("Constant", "Cast"):
            assert node.name in done or node.output[0] in done, node.name


@pytest.mark.parametrize("net", NETS)
def test_unfused_values_are_those_of_torch_by_the_name_of_the_node(files, net):
    inputs = NETS[net][1]()
    run = sp.capture(str(files[net, "f32"]), inputs, fusion="unfused")
    double = copy.deepcopy(program(net).module()).double()
    wanted = {}

    class Keep(torch.fx.Interpreter):
        def run_node(self, node):
            wanted[node.name] = result = super().run_node(node)
            return result

    Keep(double).run(*(v.double() if v.is_floating_point() else v for v in inputs))
    found = outputs_of(run)
    common = [n for n in found if isinstance(wanted.get(n), torch.Tensor)]
    assert len(common) >= 0.6 * len(found)
    for name in common:
        expected = wanted[name].detach().numpy()
        if expected.dtype.kind == "f":
            masked = np.isinf(expected)
            assert (np.isinf(found[name]) == masked).all()
            error = distance(np.where(masked, 0, found[name]), np.where(masked, 0, expected))
            assert error < 1e-5, name


def distance_or_inf(found, wanted):
    if found.dtype.kind != "f" or found.size != wanted.size:
        return np.inf
    masked = np.isinf(wanted.reshape(-1))
    return distance(*(np.where(masked, 0, a.reshape(-1)) for a in (found, wanted)))


@pytest.mark.parametrize(("net", "form"), [f for f in FORMS if f[1] in ("f32", "f16")])
def test_as_executed_values_are_those_of_the_file_by_their_origin(files, net, form):
    """Fused, renamed, blocked, reordered: what an op says it is, it is."""
    given = feeds(net, form)
    run = sp.capture(str(files[net, form]), given)
    expected = all_values(files[net, form], given)
    limit = 1e-5 if form == "f32" else 5e-3
    compared = 0
    for op in run.ops:
        tensor = run.tensor(TensorKey(op.key))
        # What it gives has its own name in the file; where that was changed, it is the first of
        # its origins, or the last where it completes an op of the model.
        own = [op.key.op] if op.key.op in expected else [*op.origins[:1], *op.origins[-1:]]
        own = [name for name in own if name in expected]
        if not own:
            continue
        found = run.values(tensor)
        name = min(own, key=lambda n: distance_or_inf(found, expected[n]))
        wanted = expected[name]
        if op.key.op == name:
            assert found.shape == wanted.shape, op.key
        if found.dtype.kind == "f" and found.size == wanted.size:
            masked = np.isinf(wanted.reshape(-1))
            found, wanted = (np.where(masked, 0, a.reshape(-1)) for a in (found, wanted))
            assert distance(found, wanted) < limit, (op.key, name)
            compared += 1
    assert compared >= 0.75 * len(run.ops)


def test_blocked_channels_that_fill_no_block_are_left_out(tmp_path):
    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Conv2d(3, 10, 3)
            self.b = torch.nn.Conv2d(10, 13, 3)
            self.c = torch.nn.Conv2d(13, 13, 1)

        def forward(self, x):
            x = torch.relu(self.b(torch.relu(self.a(x))))
            return torch.nn.functional.max_pool2d(torch.sigmoid(self.c(x)) + x, 2)

    torch.manual_seed(0)
    x = torch.randn(1, 3, 12, 11)
    path = tmp_path / "odd.onnx"
    torch.onnx.export(Odd().eval(), (x,), dynamo=True, verbose=False).save(path)
    run = sp.capture(str(path), (x,))
    assert any("nchwc" in op.type for op in run.ops)
    expected = all_values(path, {"x": x.numpy()})
    found = outputs_of(run)
    common = set(found) & set(expected)
    assert {"relu", "relu_1", "max_pool2d"} <= common
    for name in common:
        assert found[name].shape == expected[name].shape, name
        assert distance(found[name], expected[name]) < 1e-5


@pytest.mark.parametrize("fusion", ["as-executed", "unfused"])
def test_quantized_values_compare_as_real_numbers(files, fusion):
    """Each integer tensor, taken for what it stands for, is near the float it was made from."""
    given = feeds("cnn")
    run = sp.capture(str(files["cnn", "qdq"]), given, fusion=fusion)
    assert "u8" in run.info.precision.split("+")
    expected = all_values(files["cnn", "f32"], given)
    compared = 0
    for op in run.ops:
        tensor = run.tensor(TensorKey(op.key))
        if tensor.dtype != "u8":
            continue
        assert tensor.quantization is not None, op.key
        name = op.key.op.removesuffix("_qlinearadd").removesuffix("_QuantizeLinear_Output")
        if name in expected:
            assert tensor.shape == expected[name].shape
            assert distance(real(run, tensor), expected[name]) < 0.05, op.key
            compared += 1
    assert compared >= 6
    weights = [t for t in run.tensors if t.dtype == "i8" and len(t.shape) == 4]
    assert weights
    assert all(len(t.quantization.scale) == 8 for t in weights)


def test_a_value_with_the_name_of_a_relu_it_did_not_go_through_is_not_called_so(files):
    run = sp.capture(str(files["cnn", "qdq"]), feeds("cnn"), fusion="unfused")
    convolution = next(op for op in run.ops if op.type == "Conv")
    assert convolution.key.op == "relu_conv"
    assert "relu" not in convolution.origins
    twin = next(op for op in run.ops if op.key.op == "relu_DequantizeLinear_Output")
    assert "relu" in twin.origins


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("fusion", ["as-executed", "unfused"])
def test_ops_keep_module_source_and_edges(files, net, fusion):
    run = sp.capture(str(files[net, "f32"]), NETS[net][1](), fusion=fusion)
    modules = dict(NETS[net][0]().named_modules())
    here = str(MODELS)
    names = [op.key for op in run.ops]
    assert len(set(names)) == len(names)
    for op in run.ops:
        assert op.module in modules, op.key
        if op.source:
            assert op.source[-1].file.startswith(here), op.key
            assert op.module_type == type(modules[op.module]).__name__
            assert run.source_text(op.source[-1].file)
        for edge in op.inputs:
            assert run.tensor(TensorKey(edge.op, edge.role, edge.index)) is not None, op.key
    assert sum(bool(op.source) for op in run.ops) >= 0.9 * len(run.ops)


def test_a_fused_op_names_all_it_was_made_from():
    """With as many channels as the blocks of any processor want."""
    with quiet():
        program = torch.export.export(Cnn(32).eval(), NETS["cnn"][1]())
        proto = torch.onnx.export(program, (), dynamo=True, verbose=False).model_proto
    run = sp.capture(proto, feeds("cnn"))
    fused = next(op for op in run.ops if "add" in op.origins)
    assert fused.type == "com.microsoft.nchwc.Conv"
    assert {"relu_2", "add", "getitem_6", "node_relu_2", "node_add"} <= set(fused.origins)


def test_a_parameter_into_which_others_were_folded_does_not_keep_its_name(files):
    run = sp.capture(str(files["cnn", "f32"]), feeds("cnn"), fusion="unfused")
    names = {t.key.op.op for t in run.tensors if t.key.role is Role.PARAMETER}
    assert "conv.weight" not in names
    assert {"conv.weight.folded", "classifier.weight"} <= names


def test_two_captures_have_the_same_content(files):
    first, second = (sp.capture(str(files["gpt", "f32"]), feeds("gpt")) for _ in range(2))
    assert first.digest() == second.digest()


def test_samples_are_parts_of_one_run(files, tmp_path):
    for seed in range(2):
        np.savez(tmp_path / f"{seed}.npz", image=NETS["cnn"][1](seed=seed)[0].numpy())
    run = sp.capture(str(files["cnn", "f32"]), str(tmp_path))
    assert {t.key.part.sample for t in run.tensors if t.key.role is Role.OUTPUT} == {0, 1}
    assert run.info.observer.equal


def test_options_take_effect(files):
    path, given = str(files["cnn", "f32"]), feeds("cnn")
    types = {
        level: {op.type for op in sp.capture(path, given, optimization=level).ops}
        for level in ("all", "extended", "disabled")
    }
    assert "com.microsoft.nchwc.Conv" in types["all"]
    assert "com.microsoft.FusedConv" in types["extended"]
    assert types["disabled"] == {"Conv", "Relu", "MaxPool", "Add", "Reshape", "Gemm"}
    left = sp.capture(path, given, disabled_optimizers="NchwcTransformer, ConvActivationFusion")
    assert "Relu" in {op.type for op in left.ops}
    assert not any("nchwc" in op.type for op in left.ops)
    assert sp.capture(path, given, threads=1).info.options["threads"] == 1


@pytest.mark.parametrize("net", NETS)
def test_ops_come_after_what_they_read_and_in_the_order_of_the_file(files, net):
    run = sp.capture(str(files[net, "f32"]), NETS[net][1]())
    place = {op.key: at for at, op in enumerate(run.ops)}
    for op in run.ops:
        for edge in op.inputs:
            assert edge.role is not Role.OUTPUT or place[edge.op] < place[op.key]
    graph = onnx.load(files[net, "f32"]).graph
    order = {name: at for at, node in enumerate(graph.node) for name in node.output}
    known = [order[op.key.op] for op in run.ops if op.key.op in order]
    assert known == sorted(known)


@pytest.mark.parametrize(("net", "form"), FORMS)
def test_a_parameter_that_keeps_its_name_keeps_its_values(files, net, form):
    run = sp.capture(str(files[net, form]), feeds(net, form))
    own = {i.name: i for i in onnx.load(files[net, form]).graph.initializer}
    compared = 0
    for tensor in run.tensors:
        name = tensor.key.op.op.removesuffix(".folded")
        if tensor.key.role is Role.PARAMETER and name in own:
            expected = onnx.numpy_helper.to_array(own[name])
            assert run.values(tensor).tobytes() == expected.tobytes(), name
            compared += 1
    assert compared


def test_models_in_memory_are_captured_as_their_files_are(files):
    wanted = sp.capture(files["cnn", "f32"], feeds("cnn"))
    live = exported("cnn")
    for model in (live, live.model, live.model_proto):
        run = sp.capture(model, feeds("cnn"))
        assert run.info.observer.equal
        assert [op.key for op in run.ops] == [op.key for op in wanted.ops]
        assert final_outputs(run)["linear"].tobytes() == final_outputs(wanted)["linear"].tobytes()
