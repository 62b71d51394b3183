"""Ops of an ONNX graph one by one, on other values than their predecessors gave."""

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

import syncpoint as sp
from helpers.commands import syncpoint
from helpers.onnx_graphs import branching, info, model_of
from models.onnx_files import NETS, feeds, onnx_file
from syncpoint.run.model import OpKey, Role, RunInfo, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.inputs.read_inputs import read_recorded_inputs

FORMS = (
    *(("cnn", "f32"), ("resnet", "f32"), ("gpt", "f32"), ("cnn", "f16"), ("transformer", "f16")),
    *(("cnn", "qdq"), ("resnet", "qdq"), ("transformer", "qdq"), ("gpt", "dynamic")),
)
"""Net and form. How many ops a graph has as executed depends on the processor."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("replay")


def replayed(run, value, path):
    with RunWriter(path, RunInfo()) as writer:
        refused = run.session.replay(read_recorded_inputs(run)[0], value, Recorder(writer))
    return Run.open(path), refused


def own_values(run):
    return lambda key, shape: run.values(t) if (t := run.tensor(key)) is not None else None


def count_of(run):
    """Results that the ops of a run are known to have, be they recorded or not."""
    read = {(e.op, e.index) for op in run.ops for e in op.inputs if e.role is Role.OUTPUT}
    return len(read | {(op.key, 0) for op in run.ops})


def unlike(run, again):
    """How many outputs there are, and those that do not have the same bits again."""
    made = [t for t in run.tensors if t.key.role is Role.OUTPUT]
    twins = [again.tensor(t.key) for t in made]
    return len(made), [
        str(t.key)
        for t, twin in zip(made, twins, strict=True)
        if twin is None
        or (twin.digest, twin.shape, twin.dtype, twin.quantization)
        != (t.digest, t.shape, t.dtype, t.quantization)
    ]


@pytest.mark.parametrize(("net", "form"), FORMS)
def test_an_op_on_its_own_recorded_inputs_gives_the_recorded_bits(folder, tmp_path, net, form):
    run = sp.capture(str(onnx_file(folder, net, form)), feeds(net, form))
    again, refused = replayed(run, own_values(run), tmp_path / "again.run")
    assert not refused
    assert unlike(run, again) == (count_of(run), [])
    assert count_of(run) >= 7


@pytest.mark.parametrize("form", ["f32", "f16", "qdq", "dynamic"])
def test_so_does_an_op_of_the_file(folder, tmp_path, form):
    run = sp.capture(str(onnx_file(folder, "gpt", form)), feeds("gpt", form), fusion="unfused")
    again, _ = replayed(run, own_values(run), tmp_path / "again.run")
    count, wrong = unlike(run, again)
    assert count > 60 and not wrong


def test_without_other_values_the_ops_together_give_what_the_whole_gives(folder, tmp_path):
    run = sp.capture(str(onnx_file(folder, "resnet")), feeds("resnet"))
    again, _ = replayed(run, lambda key, shape: None, tmp_path / "again.run")
    assert unlike(run, again)[1] == []


@pytest.mark.parametrize("channels", [16, 12, 5])
def test_channels_in_blocks_are_put_in_blocks_again(tmp_path, channels):
    """The next convolution works on the values put in, whether they fill their blocks or not."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, channels, 3), torch.nn.ReLU(), torch.nn.Conv2d(channels, 8, 3)
    ).eval()
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "w1", "b1"], ["y"]),
    ]
    weights = zip(("w0", "b0", "w1", "b1"), net.parameters(), strict=True)
    model = model_of(
        nodes,
        [info("x", shape=[1, 3, 9, 9])],
        [info("y")],
        [(name, value.detach().numpy()) for name, value in weights],
    )
    model = onnx.shape_inference.infer_shapes(model)
    run = sp.capture(model, {"x": np.ones((1, 3, 9, 9), np.float32)})
    assert any("nchwc" in op.type for op in run.ops)
    other = torch.randn(1, channels, 7, 7)

    def value(key, shape):
        if key.op.op != "r":
            return None
        assert shape == other.shape
        return other.numpy()

    again, _ = replayed(run, value, tmp_path / "again.run")
    with torch.no_grad():
        expected = net[2](other).numpy()
    final = next(t for t in again.tensors if t.key.role is Role.MODEL_OUTPUT)
    np.testing.assert_allclose(again.values(final), expected, rtol=1e-4, atol=1e-5)


def test_real_numbers_are_put_on_the_grid_of_the_integers_they_replace(tmp_path):
    scale, zero = ("s", np.float32(0.5)), ("z", np.uint8(10))
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    model = model_of(nodes, [info("x")], [info("y")], [scale, zero])
    run = sp.capture(model, {"x": np.zeros(5, np.float32)}, fusion="unfused")
    wanted = np.array([0.2, 0.3, -1.26, 400.0, -400.0])
    again, _ = replayed(
        run, lambda key, shape: wanted if key.op.op == "q" else None, tmp_path / "again.run"
    )
    read = again.values(again.tensor(TensorKey(OpKey("y"))))
    assert read.tolist() == [0.0, 0.5, -1.5, 122.5, -5.0]


def test_what_has_a_graph_of_its_own_is_refused_and_the_rest_goes_on(tmp_path):
    model = branching()
    names = [i.name for i in model.graph.input]
    given = {n: np.array(True) if n == "cond" else np.ones((2, 3), np.float32) for n in names}
    run = sp.capture(model, given, fusion="unfused")
    again, refused = replayed(run, own_values(run), tmp_path / "again.run")
    holder = next(n.output[0] for n in model.graph.node if n.op_type == "If")
    assert refused == {OpKey(holder): "If has a sub-graph"}
    missing = {t.key.op for t in run.tensors if t.key.role is Role.OUTPUT} - {
        t.key.op for t in again.tensors
    }
    assert {key.op for key in missing if not key.path} == {holder}
    reader = [op for op in run.ops if not op.key.path and holder in {e.op.op for e in op.inputs}]
    assert reader and all(again.tensor(TensorKey(op.key)) is not None for op in reader)
    comparison = sp.compare(run, sp.capture(model, given, fusion="unfused"), introduced="replay")
    row = next(r for r in comparison.rows if r.target.key == TensorKey(OpKey(holder)))
    assert "If has a sub-graph" in row.unknown.detail


def test_sequences_and_scalars_are_handed_on(tmp_path):
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Mul", ["x", "total"], ["scaled"]),
        helper.make_node("SplitToSequence", ["scaled"], ["rows"], axis=0),
        helper.make_node("ConcatFromSequence", ["rows"], ["y"], axis=0),
    ]
    model = model_of(nodes, [info("x")], [info("y")])
    run = sp.capture(model, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}, fusion="unfused")
    again, refused = replayed(run, own_values(run), tmp_path / "again.run")
    assert not refused
    assert unlike(run, again) == (3, [])


def broken_copy(path, out, kind, factor=1.5):
    """The same file with one weight wrong; gives the first value of the op that reads it."""
    model = onnx.load(path)
    weights = {i.name: i for i in model.graph.initializer if len(i.dims) > 1}
    nodes = [n for n in model.graph.node if n.op_type == kind and n.input[1] in weights]
    node = nodes[len(nodes) // 2]
    weight = weights[node.input[1]]
    array = numpy_helper.to_array(weight) * np.float32(factor)
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    onnx.save(model, out)
    return node


@pytest.mark.parametrize(("net", "kind"), [("cnn", "Conv"), ("resnet", "Conv"), ("gpt", "MatMul")])
def test_a_planted_fault_is_blamed_and_nothing_else(folder, net, kind):
    make, inputs = NETS[net]
    path = onnx_file(folder, net)
    reference = sp.capture(make(), inputs())
    sound = sp.compare(sp.capture(str(path), feeds(net)), reference, introduced="replay")
    assert sound.verdict == "close" and not [r for r in sound.rows if r.guilty]
    node = broken_copy(path, folder / f"{net}.broken.onnx", kind)
    target = sp.capture(str(folder / f"{net}.broken.onnx"), feeds(net))
    comparison = sp.compare(target, reference, introduced="replay")
    guilty = [r for r in comparison.rows if r.guilty]
    assert len(guilty) == 1
    op = next(op for op in target.ops if op.key == guilty[0].target.key.op)
    made_from = {op.key.op, *op.origins}
    assert made_from & {node.output[0], *readers(path, node.output[0])}
    later = [r for r in comparison.rows if r.introduced and r.target.order > guilty[0].target.order]
    assert later and all(r.introduced_verdict == "close" for r in later)


def readers(path, name):
    """What is made of a value by the ops that follow it and may be fused with it."""
    found = [name]
    for node in onnx.load(path).graph.node:
        if set(node.input) & set(found) and node.op_type in ("Add", "Relu", "BatchNormalization"):
            found.append(node.output[0])
    return found


def test_several_samples_are_replayed_each_by_itself(folder):
    make, inputs = NETS["cnn"]
    path = onnx_file(folder, "cnn")
    broken_copy(path, folder / "samples.onnx", "Conv")
    name = next(iter(feeds("cnn")))
    samples = [{name: inputs(seed=s)[0].numpy()} for s in (1, 2)]
    for number, sample in enumerate(samples):
        (folder / "several").mkdir(exist_ok=True)
        np.savez(folder / "several" / f"{number}.npz", **sample)
    comparison = sp.compare(
        str(folder / "samples.onnx"),
        make(),
        inputs=str(folder / "several"),
        introduced="replay",
    )
    guilty = [r for r in comparison.rows if r.guilty]
    assert [r.target.key.part.sample for r in guilty] == [0, 1]
    assert len({r.target.key.op for r in guilty}) == 1


def test_the_command_line(folder):
    """`compare --introduced replay` names the op whose weight is wrong."""
    path = onnx_file(folder, "cnn")
    broken_copy(path, folder / "wrong.onnx", "Conv")
    (folder / "net.py").write_text("from models.cnn import make_cnn\nmodel = make_cnn()\n")
    np.savez(folder / "x.npz", **feeds("cnn"))
    command = ("--inputs", "x.npz", "--introduced", "replay")
    syncpoint("compare", path.name, "net.py:model", *command, cwd=folder, code=0)
    found = syncpoint("compare", "wrong.onnx", "net.py:model", *command, cwd=folder, code=1)
    assert "relu_2" in found.stdout


def test_a_bool_that_is_put_in_is_a_bool(tmp_path):
    nodes = [
        helper.make_node("Greater", ["x", "nought"], ["mask"]),
        helper.make_node("Where", ["mask", "x", "nought"], ["y"]),
    ]
    model = model_of(nodes, [info("x")], [info("y")], [("nought", np.float32(0))])
    x = np.array([-1, 2, -3], np.float32)
    run = sp.capture(model, {"x": x}, fusion="unfused")
    again, _ = replayed(
        run,
        lambda key, shape: np.array([1, 0, 1]) if key.op.op == "mask" else None,
        tmp_path / "again.run",
    )
    assert again.values(again.tensor(TensorKey(OpKey("y")))).tolist() == [-1, 0, -3]
