"""Models that torch.export does not take are recorded while they run."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import syncpoint as sp
from helpers.paths import MODELS
from helpers.torch_captures import alone, assert_evaluates_to_its_bits, captured, opened, tensor_at
from models.branches import (
    branches_inputs,
    make_branches,
    make_steps,
    make_writes,
    steps_inputs,
    writes_inputs,
)
from models.gpt import gpt_inputs, make_gpt, make_small_gpt, small_gpt_inputs
from models.resnet import (
    make_resnet,
    make_small_resnet,
    resnet_inputs,
    small_resnet_inputs,
)
from models.zoo import NETS
from syncpoint.errors import CaptureError, InputError, Unsupported
from syncpoint.run.model import Edge, Kept, OpKey, Part, Role, RunInfo
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.open_run import open_run
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.inputs.read_inputs import as_inputs
from syncpoint.runtimes.protocol import Inputs

OPEN = {
    "branches": (make_branches, branches_inputs),
    "steps": (make_steps, steps_inputs),
    "writes": (make_writes, writes_inputs),
}
"""Nets that cannot be exported."""
ALL = (
    NETS
    | OPEN
    | {
        "gpt": (make_small_gpt, small_gpt_inputs),
        "resnet": (make_small_resnet, small_resnet_inputs),
    }
)


def names_of(model):
    return {name: type(module).__name__ for name, module in model.named_modules()}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("net", ALL)
def test_recording_gives_the_bits_of_the_plain_model_and_leaves_it_as_it_was(tmp_path, net, dtype):
    make, inputs = ALL[net]
    model = make()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    run, _ = captured(tmp_path / "a.run", model, inputs(), capture="dispatch", dtype=dtype)
    assert run.info.observer.equal, run.info.observer.detail
    assert dtype in run.info.precision.split("+")
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not torch.nn.modules.module._global_forward_hooks


@pytest.mark.parametrize("net", ALL)
def test_every_op_has_source_module_and_edges_to_recorded_tensors(tmp_path, net):
    make, inputs = ALL[net]
    model = make()
    run, _ = captured(tmp_path / "a.run", model, inputs(), capture="dispatch")
    modules = names_of(model)
    here = str(MODELS)
    for op in run.ops:
        assert op.source[-1].file.startswith(here), (op.key, op.source)
        line = Path(op.source[-1].file).read_text().splitlines()[op.source[-1].line - 1]
        assert line.strip()
        assert modules[op.module] == op.module_type
        assert not op.type.startswith("aten.detach")
        for edge in op.inputs:
            assert tensor_at(run, edge) is not None, (op.key, edge)


@pytest.mark.parametrize("net", ALL)
def test_evaluating_each_op_reproduces_the_recorded_bits(tmp_path, net):
    """Which fails if a recorded input is the value from before a later write."""
    make, inputs = ALL[net]
    run, session = captured(tmp_path / "a.run", make(), inputs(), capture="dispatch")
    evaluated = 0
    for op in run.ops:
        if op.random:
            continue
        region = assert_evaluates_to_its_bits(session, op, run)
        if not region.outputs:
            continue
        evaluated += len(region.outputs)
        given = {e: run.values(tensor_at(run, e)) for e in region.inputs}
        for value in session.evaluate(region, given, "f64"):
            assert value.dtype.kind in "ib" or value.dtype == np.float64, op.key
    assert evaluated >= 5


@pytest.mark.parametrize("net", ["cnn", "transformer", "several", "reused", "gpt", "resnet"])
def test_both_ways_agree_where_their_ops_coincide(tmp_path, net):
    make, inputs = ALL[net]
    runs = [
        captured(tmp_path / f"{way}.run", make(), inputs(), capture=way)[0]
        for way in ("export", "dispatch")
    ]
    kinds = [[(op.module, op.type.split(".")[1]) for op in run.ops] for run in runs]
    shared = set(kinds[0]) & set(kinds[1])
    assert shared
    compared = 0
    for kind in shared:
        pairs = [
            [op for op, found in zip(run.ops, told, strict=True) if found == kind]
            for run, told in zip(runs, kinds, strict=True)
        ]
        if len(pairs[0]) != len(pairs[1]):
            continue
        for left, right in zip(*pairs, strict=True):
            a, b = (tensor_at(r, Edge(o.key)) for r, o in zip(runs, (left, right), strict=True))
            assert runs[0].values(a).tobytes() == runs[1].values(b).tobytes(), kind
            # Export leaves out the frames of generator expressions.
            assert right.source[: len(left.source)] == left.source
            compared += 1
    assert compared >= 4
    finals = [
        [run.values(t).tobytes() for t in run.tensors if t.key.role is Role.MODEL_OUTPUT]
        for run in runs
    ]
    assert finals[0] == finals[1]
    fed = [
        {(str(t.key), t.name) for t in run.tensors if t.key.role is Role.MODEL_INPUT}
        for run in runs
    ]
    assert fed[0] == fed[1]
    parameters = [
        {str(t.key): t.digest for t in run.tensors if t.key.role is Role.PARAMETER} for run in runs
    ]
    assert parameters[0] == parameters[1]


@pytest.mark.parametrize("way", ["export", "dispatch"])
@pytest.mark.parametrize(("make", "inputs"), [(make_resnet, resnet_inputs), (make_gpt, gpt_inputs)])
def test_nets_of_full_size_are_captured_to_the_bit(tmp_path, make, inputs, way):
    model = make()
    modules = names_of(model)
    session = opened(model, capture=way)
    with RunWriter(tmp_path / "a.run", RunInfo()) as writer:
        session.run(as_inputs(inputs()), Recorder(writer, record=Kept.DIGEST))
    run = open_run(tmp_path / "a.run")
    assert run.info.observer.equal, run.info.observer.detail
    for op in run.ops:
        assert op.source, op.key
        assert modules[op.module] == op.module_type, op.key


def test_a_model_that_runs_but_cannot_be_exported_falls_back(tmp_path, capfd):
    run, _ = captured(tmp_path / "a.run", make_branches(), branches_inputs())
    assert run.info.observer.equal
    assert len(run.info.notes) == 1
    note = run.info.notes[0]
    assert note.startswith("captured by dispatch, since torch.export raised ")
    assert "data-dependent" in note
    assert "below autograd" in note
    assert "\n" not in note
    with pytest.raises(CaptureError, match=r"its export raised .*; use capture=auto"):
        captured(tmp_path / "b.run", make_branches(), branches_inputs(), capture="export")
    assert capfd.readouterr() == ("", "")


def test_buffers_that_are_written_are_states_and_plain_attributes_are_parameters(tmp_path):
    run, _ = captured(tmp_path / "a.run", make_branches(), branches_inputs())
    states = [t for t in run.tensors if t.key.role is Role.STATE]
    assert [(t.key.op.op, float(run.values(t))) for t in states] == [("calls", 1.0)]
    parameters = {t.key.op.op: t for t in run.tensors if t.key.role is Role.PARAMETER}
    assert float(run.values(parameters["calls"])) == 0.0
    assert "scale" in parameters
    assert run.op(OpKey("mul")).inputs[1] == Edge(OpKey("scale"), role=Role.PARAMETER)


def test_what_is_read_after_a_write_through_another_view_is_recorded_anew(tmp_path):
    run, session = captured(tmp_path / "a.run", make_writes(), writes_inputs())
    anew = [op for op in run.ops if op.type == "syncpoint.reread.default"]
    assert len(anew) == 5
    in_place = run.op(OpKey("relu_"))
    hidden = run.values(tensor_at(run, in_place.inputs[0]))
    assert (hidden < 0).any(), "what an in-place op reads is the value before it wrote"
    given = {t.name: run.values(t) for t in run.tensors if t.key.role is Role.MODEL_OUTPUT}
    final = np.maximum(hidden, 0)
    final[:, 0] = 1.0
    final[:, 3] *= 0.5
    np.testing.assert_array_equal(given["out[2]"], final[:, -4:] + 1)
    final[:, -4:] *= 0.25
    np.testing.assert_array_equal(given["out[1]"], final.T)
    np.testing.assert_array_equal(given["out[3]"], final[:, -4:])
    read = run.op(OpKey("add_1"))
    np.testing.assert_array_equal(run.values(tensor_at(run, read.inputs[0])), final)
    np.testing.assert_array_equal(run.values(tensor_at(run, read.inputs[1])), np.ones((4, 16)))
    (empty,) = (op for op in run.ops if op.type == "aten.empty_like.default")
    assert empty.random, "uninitialised memory is not expected to agree"
    with pytest.raises(Unsupported, match="uninitialised memory"):
        session.evaluate(alone(empty, run), {}, "f64")


def test_nested_outputs_keyword_inputs_and_rounds_of_one_module(tmp_path):
    run, _ = captured(tmp_path / "a.run", make_steps(), (steps_inputs(), {"limit": 1.0}))
    assert run.info.observer.equal
    assert "the input limit is not a tensor and was not recorded: 1.0" in run.info.notes
    given = {t.key.index: t.name for t in run.tensors if t.key.role is Role.MODEL_OUTPUT}
    assert given == {0: 'out["low"]', 1: 'out["pair"][0]', 2: 'out["pair"][1]'}
    rounds = sum(op.type == "aten.addmm.default" and op.module == "step.0" for op in run.ops)
    assert rounds >= 2
    (split,) = (op for op in run.ops if op.type == "aten.split.Tensor")
    assert [t.key.index for t in run.tensors if t.key.op == split.key][:2] == [0, 1]
    assert all(
        t.alias_of for t in run.tensors if t.key.op == split.key and t.key.role is Role.OUTPUT
    )


def test_samples_that_take_other_branches_do_not_share_ops(tmp_path):
    session = opened(make_branches())
    with RunWriter(tmp_path / "a.run", RunInfo()) as writer:
        recorder = Recorder(writer)
        for sample, sign in enumerate((1.0, -1.0, 1.0)):
            fed = as_inputs(branches_inputs(sign, seed=sample))
            session.run(fed, recorder.for_part(Part(sample=sample)))
    run = open_run(tmp_path / "a.run")
    assert run.info.observer.equal
    ops = {
        sample: {t.key.op for t in run.tensors if t.key.role is Role.OUTPUT and t.key.part == part}
        for sample, part in enumerate(Part(sample=n) for n in range(3))
    }
    assert ops[0] == ops[2]
    shared = {run.op(key).type for key in ops[0] & ops[1]}
    assert "aten.addmm.default" in shared
    assert "aten.native_layer_norm.default" not in shared, "it reads another op in each branch"
    for sample in range(3):
        for op in run.ops:
            assert_evaluates_to_its_bits(session, op, run, Part(sample=sample))


@pytest.mark.parametrize("net", ["branches", "writes"])
def test_a_bf16_copy_has_introduced_errors_and_a_planted_fault_is_found(net):
    make, inputs = OPEN[net]
    reference = sp.capture(make(), inputs())
    good = sp.compare(sp.capture(make(), inputs(), dtype="bf16"), reference)
    assert good.verdict == "close"
    assert good.coverage.reference == 1.0
    rows = [row for row in good.rows if row.introduced is not None]
    kinds = {row.target.type for row in rows}
    assert "aten.addmm.default" in kinds
    assert max(row.introduced.ratio for row in rows) < 4
    broken = make()
    with torch.no_grad():
        broken.second.bias[3] += 1.0
    bad = sp.compare(sp.capture(broken, inputs(), dtype="bf16"), reference)
    assert bad.verdict == "large"
    assert [row.target.module for row in bad.first_divergence] == ["second"]


def test_random_numbers_are_drawn_from_the_seed_and_marked(tmp_path):
    class Drops(nn.Module):
        def forward(self, x):
            return nn.functional.dropout(x + 1, 0.5) if x.sum() > 0 else x

    run, _ = captured(tmp_path / "a.run", Drops(), (torch.ones(64),), seed=3, mode="train")
    again, _ = captured(tmp_path / "b.run", Drops(), (torch.ones(64),), seed=3, mode="train")
    other, _ = captured(tmp_path / "c.run", Drops(), (torch.ones(64),), seed=4, mode="train")
    assert run.info.observer.equal
    assert any(op.random for op in run.ops)
    drawn, same, unlike = (
        [r.values(t).tobytes() for t in r.tensors if t.key.role is Role.MODEL_OUTPUT]
        for r in (run, again, other)
    )
    assert drawn == same != unlike


def test_running_statistics_that_an_op_updates_are_outputs_and_states(tmp_path):
    class Learns(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x):
            first = self.norm(x)
            return self.norm(first) if x.sum() > 0 else first

    model = Learns()
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)) + 1
    run, _ = captured(tmp_path / "a.run", model, (x,), mode="train")
    assert run.info.observer.equal
    assert float(model.norm.num_batches_tracked) == 0
    expected = Learns().train()
    expected(x)
    states = {t.key.op.op: run.values(t) for t in run.tensors if t.key.role is Role.STATE}
    np.testing.assert_array_equal(states["norm.running_mean"], expected.norm.running_mean)
    assert int(states["norm.num_batches_tracked"]) == 2
    second = [op for op in run.ops if op.type == "aten.native_batch_norm.default"][1]
    means = [e for e in second.inputs if e.index == 3]
    assert means, "the second call reads the statistics that the first wrote"


def test_an_error_of_an_op_is_told_with_its_place(tmp_path):
    class Fails(nn.Module):
        def forward(self, ids):
            try:
                ids.reshape(5)
            except RuntimeError:
                ids = ids * 2
            if ids.sum() > 0:
                ids = ids + 1
            return nn.functional.embedding(ids, torch.ones(4, 2))

    with pytest.raises(InputError, match=r"in the op embedding .*test_dispatch.py:\d+"):
        captured(tmp_path / "a.run", Fails(), (torch.tensor([3]),), capture="dispatch")
    run = open_run(tmp_path / "a.run")
    assert not run.info.complete
    assert [op.key.op for op in run.ops][-1] == "embedding"


def test_numbers_that_went_into_python_are_noted(tmp_path):
    class Reads(nn.Module):
        def forward(self, x):
            return x * x.max().item()

    run, _ = captured(tmp_path / "a.run", Reads(), (torch.ones(3),), capture="dispatch")
    assert any(
        note.startswith("the model read 1 numbers from tensors into Python")
        for note in run.info.notes
    )


def test_pieces_can_be_evaluated_without_a_recording():
    session = opened(make_branches())
    x = branches_inputs()[0]
    session.prepare(Inputs((x,)))
    program = next(iter(session._programs.values()))
    region = alone_in(program, "relu")
    found = session.evaluate(region, {region.inputs[0]: -np.ones((4, 16), np.float32)}, "f64")
    np.testing.assert_array_equal(found[0], np.zeros((4, 16)))


def alone_in(program, name):
    from syncpoint.runtimes.protocol import Region

    node = program.nodes[name]
    return Region((OpKey(name),), program.edges.inputs_of(node), (Edge(OpKey(name)),))
