"""The runtime "torch": what is captured is what the model computes, and all of it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import syncpoint as sp
from helpers.paths import MODELS, TESTS
from helpers.torch_captures import alone, assert_evaluates_to_its_bits, captured, opened, tensor_at
from models.zoo import NETS
from syncpoint.errors import CaptureError, InputError, Unsupported
from syncpoint.run.model import Edge, Part, Role, RunInfo
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.open_run import open_run
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.inputs.read_inputs import as_inputs, read_inputs
from syncpoint.runtimes.protocol import Region


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("net", NETS)
def test_capture_gives_the_bits_of_the_plain_model(tmp_path, net, dtype):
    make, inputs = NETS[net]
    run, _ = captured(tmp_path / "a.run", make(), inputs(), dtype=dtype)
    assert run.info.observer is not None
    assert run.info.observer.equal, run.info.observer.detail
    assert dtype in run.info.precision.split("+")
    assert run.info.device == "cpu"


@pytest.mark.parametrize("net", NETS)
def test_every_op_has_a_source_line_and_a_module(tmp_path, net):
    make, inputs = NETS[net]
    model = make()
    run, _ = captured(tmp_path / "a.run", model, inputs())
    modules = dict(model.named_modules())
    here = str(MODELS)
    for op in run.ops:
        assert op.source, op.key
        assert op.source[-1].file.startswith(here), (op.key, op.source)
        line = Path(op.source[-1].file).read_text().splitlines()[op.source[-1].line - 1]
        assert line.strip()
        assert op.module in modules, op.module
        assert op.module_type == type(modules[op.module]).__name__
        assert run.source_text(op.source[-1].file)


@pytest.mark.parametrize("net", NETS)
def test_every_edge_leads_to_a_recorded_tensor(tmp_path, net):
    make, inputs = NETS[net]
    run, session = captured(tmp_path / "a.run", make(), inputs())
    known = {op.key for op in run.ops}
    program = next(iter(session._programs.values()))
    for op in run.ops:
        for edge in op.inputs:
            assert tensor_at(run, edge) is not None, (op.key, edge)
        read = [
            n
            for n in program.nodes[op.key.op].all_input_nodes
            if isinstance(n.meta.get("val"), torch.Tensor) or n.op == "get_attr"
        ]
        assert len(set(op.inputs)) == len(read)
    for tensor in run.tensors:
        if tensor.key.role is Role.OUTPUT:
            assert tensor.key.op in known


@pytest.mark.parametrize("net", NETS)
def test_two_captures_have_the_same_content(tmp_path, net):
    make, inputs = NETS[net]
    first, _ = captured(tmp_path / "a.run", make(), inputs())
    second, _ = captured(tmp_path / "b.run", make(), inputs())
    assert first.digest() == second.digest()


@pytest.mark.parametrize("net", NETS)
def test_evaluating_in_f32_reproduces_the_recorded_bits(tmp_path, net):
    make, inputs = NETS[net]
    run, session = captured(tmp_path / "a.run", make(), inputs())
    for op in run.ops:
        assert_evaluates_to_its_bits(session, op, run)


VIEWS = (
    "view",
    "reshape",
    "transpose",
    "permute",
    "unsqueeze",
    "slice",
    "select",
    "split",
    "chunk",
)


@pytest.mark.parametrize("net", NETS)
def test_evaluating_op_by_op_in_f64_reproduces_a_double_model(tmp_path, net):
    make, inputs = NETS[net]
    run, session = captured(tmp_path / "a.run", make(), inputs())
    values = {}
    for tensor in run.tensors:
        if tensor.key.role is Role.MODEL_INPUT:
            values[Edge(tensor.key.op, role=Role.MODEL_INPUT)] = run.values(tensor)
    for op in run.ops:
        region = alone(op, run)
        results = session.evaluate(region, {e: values[e] for e in region.inputs}, "f64")
        for edge, value in zip(region.outputs, results, strict=True):
            assert value.dtype not in (np.float32, np.float16), op.key
            values[edge] = value
            if op.type.split(".")[1] in VIEWS and region.inputs:
                assert np.isin(value, values[region.inputs[0]].astype(value.dtype)).all(), op.key
    wanted = _casts_in_double(make(), *inputs()) if net == "casts" else _doubled(make(), inputs())
    program = next(iter(session._programs.values()))
    finals = next(n for n in program.module.graph.nodes if n.op == "output").args[0]
    for node, expected in zip(finals, wanted, strict=True):
        if not isinstance(expected, np.ndarray):
            continue
        found = values[program.edges.edge_of(node)]
        error = np.linalg.norm((found - expected).astype(float))
        assert error <= 1e-12 * np.linalg.norm(expected.astype(float)), node


def _doubled(model, inputs):
    """The flattened outputs of an independent float64 run."""
    given = as_inputs(inputs)
    args, kwargs = pytree.tree_map(
        lambda v: v.double() if v.is_floating_point() else v, (given.args, given.kwargs)
    )
    with torch.no_grad():
        leaves = pytree.tree_leaves(model.double()(*args, **kwargs))
    return [v.numpy() if isinstance(v, torch.Tensor) else v for v in leaves]


def _casts_in_double(model, x):
    """The net of casts by hand in NumPy: `.double()` leaves parts of it in float32."""
    weight = model.weight.detach().numpy().astype(np.float64)
    x = x.numpy().astype(np.float64)
    length = x.shape[1]
    inverse = 1.0 / (100.0 ** (np.arange(0, 16, 2) / 16))
    angles = np.arange(length)[:, None] * inverse[None, :]
    rotary = np.concatenate([np.sin(angles), np.cos(angles)], -1)
    x = weight * (x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)) + rotary
    projected = x @ model.proj.weight.detach().numpy().astype(np.float64).T
    projected = projected + model.proj.bias.detach().numpy().astype(np.float64)
    query, key, value = np.split(projected, 3, -1)
    mixed = _softmax(query @ key.swapaxes(-1, -2) / 4.0 + 0.5) @ value
    total = _softmax(mixed).cumsum(-1) + mixed.sum(-1, keepdims=True)
    return [total * (np.arange(1, length + 1) / length)[:, None] + 1.0]


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_the_f64_result_of_a_bf16_model_is_wide_everywhere(tmp_path):
    for net, (make, inputs) in NETS.items():
        run, session = captured(tmp_path / f"{net}.run", make(), inputs(), dtype="bf16")
        for op in run.ops:
            region = alone(op, run)
            given = {e: run.values(tensor_at(run, e)) for e in region.inputs}
            for value in session.evaluate(region, given, "f64"):
                assert value.dtype.kind in "ib" or value.dtype == np.float64, op.key


def test_parameters_are_recorded_once_and_known_by_their_first_name(tmp_path):
    make, inputs = NETS["reused"]
    run, session = captured(tmp_path / "a.run", make(), inputs())
    names = [t.key.op.op for t in run.tensors if t.key.role is Role.PARAMETER]
    assert len(names) == len(set(names))
    assert "embed.weight" in names
    assert "head.weight" not in names
    region = Region(tuple(op.key for op in run.ops), (), ())
    assert sorted(key.op for key in session.parameters_of(region)) == sorted(names)


def test_a_reused_module_keeps_its_path_on_every_call(tmp_path):
    make, inputs = NETS["reused"]
    run, _ = captured(tmp_path / "a.run", make(), inputs())
    assert sum(op.module == "norm" for op in run.ops) == 4
    assert sum(op.module == "step.0" and op.module_type == "Linear" for op in run.ops) == 3


def test_inputs_and_outputs_have_the_paths_a_user_knows(tmp_path):
    make, inputs = NETS["nested"]
    run, _ = captured(tmp_path / "a.run", make(), inputs())
    fed = [t.name for t in run.tensors if t.key.role is Role.MODEL_INPUT]
    assert fed == ["x", 'extra["mask"]']
    given = {t.key.index: t.name for t in run.tensors if t.key.role is Role.MODEL_OUTPUT}
    assert given == {
        0: 'out["logits"][0]',
        1: 'out["logits"][1]',
        2: 'out["aux"]["right"]',
        5: 'out["same"]',
    }


def test_an_input_that_is_no_tensor_is_noted(tmp_path):
    make, inputs = NETS["nested"]
    args, kwargs = inputs()
    run, _ = captured(tmp_path / "a.run", make(), (args, {**kwargs, "scale": 2.0}))
    assert "the input scale is not a tensor and was not recorded: 2.0" in run.info.notes
    assert run.info.observer.equal


def test_a_run_can_be_fed_again_from_its_own_inputs(tmp_path):
    make, inputs = NETS["nested"]
    first, _ = captured(tmp_path / "a.run", make(), inputs())
    again = read_inputs(tmp_path / "a.run")
    assert len(again) == 1
    second, _ = captured(tmp_path / "b.run", make(), again[0])
    assert first.digest() == second.digest()


def test_recorded_inputs_are_never_stale(tmp_path):
    make, inputs = NETS["inplace"]
    model = make()
    run, _ = captured(tmp_path / "a.run", model, inputs())
    assert "in-place ops were made functional before capture" in run.info.notes
    assert not any(op.type.split(".")[1].endswith("_") for op in run.ops)
    assert float(model.calls) == 0.0
    state = [t for t in run.tensors if t.key.role is Role.STATE]
    assert [(t.key.op.op, float(run.values(t))) for t in state] == [("calls", 1.0)]
    relu = next(op for op in run.ops if op.type == "aten.relu.default")
    assert "relu_" in relu.origins


def test_attributes_carry_the_names_of_the_schema(tmp_path):
    make, inputs = NETS["transformer"]
    run, _ = captured(tmp_path / "a.run", make(), inputs())
    by_type = {op.type: op for op in run.ops}
    norm = by_type["aten.layer_norm.default"].attributes
    assert norm["normalized_shape"] == [64]
    assert norm["eps"] == 1e-5
    assert by_type["aten.masked_fill.Scalar"].attributes["value"] == "-inf"
    assert by_type["aten.gelu.default"].attributes["approximate"] == "none"
    assert by_type["aten.ones.default"].attributes["dtype"] == "bool"


def test_options_take_effect_and_leave_the_model_as_it_was(tmp_path):
    make, inputs = NETS["cnn"]
    model = make().train()
    model.block.eval()
    modes = [module.training for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    threads = torch.get_num_threads()
    before = torch.random.get_rng_state()
    run, _ = captured(tmp_path / "a.run", model, inputs(), mode="train", seed=5, threads=1)
    assert run.info.observer.equal
    assert run.info.environment["threads"] == "1"
    assert [op.random for op in run.ops].count(True) == 1
    other, _ = captured(tmp_path / "b.run", model, inputs(), mode="train", seed=6, threads=1)
    assert run.digest() != other.digest()
    evaluated, _ = captured(tmp_path / "c.run", model, inputs())
    assert any("training mode" in note for note in evaluated.info.notes)
    assert not any(op.random for op in evaluated.ops)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), before)


def test_parts_share_parameters_and_keep_the_worst_observer(tmp_path):
    make, inputs = NETS["transformer"]
    session = opened(make())
    with RunWriter(tmp_path / "a.run", RunInfo()) as writer:
        recorder = Recorder(writer)
        for sample, length in enumerate((16, 9)):
            fed = as_inputs(inputs(length=length))
            session.run(fed, recorder.for_part(Part(sample=sample)))
    run = open_run(tmp_path / "a.run")
    parts = {t.key.part for t in run.tensors if t.key.role is Role.PARAMETER}
    assert parts == {Part()}
    assert {t.key.part.sample for t in run.tensors if t.key.role is Role.OUTPUT} == {0, 1}
    assert run.info.observer.equal
    # Each sample is evaluated with the graph of its own shapes.
    for sample in (0, 1):
        for op in run.ops:
            region = alone(op, run, Part(sample=sample))
            given = {e: run.values(tensor_at(run, e, Part(sample=sample))) for e in region.inputs}
            results = session.evaluate(region, given, "f32")
            for edge, value in zip(region.outputs, results, strict=True):
                recorded = run.values(tensor_at(run, edge, Part(sample=sample)))
                assert value.tobytes() == recorded.tobytes(), op.key
    ones = next(op for op in run.ops if op.type == "aten.ones.default")
    with pytest.raises(Unsupported, match="2 samples of different shapes; choose one part"):
        session.evaluate(alone(ones, run), {}, "f32")


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4, 8)

    def forward(self, ids):
        doubled = ids * 2
        return self.table(doubled)


class Raises(nn.Module):
    def forward(self, x):
        raise ValueError("no\ngood")


LINEAR = nn.Linear(4, 4).eval()


@pytest.mark.parametrize(
    ("model", "inputs", "error", "message"),
    [
        (Raises(), (torch.ones(2),), CaptureError, r"ValueError: no good \(at .*capture.py:\d+\)"),
        (
            LINEAR,
            (torch.ones(2, 5),),
            InputError,
            r"f32\[2, 5\] do not fit Linear.forward\(input: ",
        ),
        (
            LINEAR,
            (np.ones((2, 4)),),
            InputError,
            r"computes in f32, but the input is input f64\[2, 4\]",
        ),
        (
            LINEAR,
            (torch.ones(4), torch.ones(4)),
            InputError,
            "takes at most 1 inputs by position, not 2",
        ),
        (
            LINEAR,
            {"a": 1, "b": 2},
            InputError,
            "inputs a, b do not fit .*; use the names that it takes: input",
        ),
        (Broken(), (torch.tensor([3]),), InputError, r"in the op embedding .*capture.py:\d+"),
    ],
)
def test_what_goes_wrong_is_told_in_one_line(tmp_path, capfd, model, inputs, error, message):
    with pytest.raises(error, match=message) as raised:
        captured(tmp_path / "a.run", model, inputs)
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


def test_what_was_recorded_before_a_failure_stays(tmp_path):
    with pytest.raises(InputError):
        captured(tmp_path / "a.run", Broken(), (torch.tensor([3]),))
    run = open_run(tmp_path / "a.run")
    assert not run.info.complete
    assert [op.key.op for op in run.ops] == ["mul", "embedding"]
    assert [t.key.op.op for t in run.tensors if t.key.role is Role.OUTPUT] == ["mul"]


class Contexts(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        with torch.no_grad():
            scale = torch.arange(8) / 4
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = self.inner(x)
        loop = torch.cond(x.sum() > 0, lambda v: v.sin() + 1, lambda v: v.cos(), (x,))
        return low * scale, loop


def test_contexts_are_unfolded_and_sub_graphs_are_recorded(tmp_path):
    torch.manual_seed(0)
    run, session = captured(tmp_path / "a.run", Contexts().eval(), (torch.ones(2, 8),))
    assert run.info.observer.equal
    assert run.info.precision == "f32+bf16"
    linear = next(op for op in run.ops if op.type == "aten.linear.default")
    assert linear.module == "inner"
    assert tensor_at(run, Edge(linear.key)).dtype == "bf16"
    inside = [op for op in run.ops if op.key.path]
    assert [op.key.op for op in inside] == ["sin", "add"]
    for op in run.ops:
        assert op.source
        assert all(tensor_at(run, edge) is not None for edge in op.inputs)
    with pytest.raises(Unsupported, match="inside a sub-graph"):
        session.evaluate(alone(inside[0], run), {}, "f64")
    given = {e: run.values(tensor_at(run, e)) for e in alone(linear, run).inputs}
    assert session.evaluate(alone(linear, run), given, "f64")[0].dtype == np.float64


def test_a_model_is_named_in_code(tmp_path, monkeypatch):
    monkeypatch.chdir(TESTS)
    run, _ = captured(tmp_path / "a.run", "models/cnn.py:make_cnn", NETS["cnn"][1]())
    assert run.info.observer.equal
    with pytest.raises(
        InputError, match=r"not a model; give an nn.Module, .*, or a function that returns one"
    ):
        opened("models/cnn.py:cnn_inputs")


def test_the_module_of_an_exported_program_is_captured_in_the_mode_it_was_exported_in():
    """Its train() and eval() refuse."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).eval()
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    program = torch.export.export(model, (x,)).module()
    comparison = sp.compare(program, model, inputs=x)
    assert comparison.exit_code() == 0 and comparison.coverage.target == 1.0
