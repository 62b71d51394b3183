"""TorchScript, as an object and as a file, is recorded from its interpreter."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import syncpoint as sp
from helpers.torch_captures import assert_evaluates_to_its_bits, captured, opened
from models.mlp import make_mlp, mlp_inputs
from models.resnet import make_small_resnet, small_resnet_inputs
from syncpoint.errors import InputError
from syncpoint.run.model import Role
from syncpoint.runtimes.protocol import Inputs

HERE = str(Path(__file__))


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x):
        y = torch.relu(self.up(x))
        return self.down(y)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Inner()
        self.layers = nn.ModuleList([Inner(), Inner()])
        self.norm = nn.LayerNorm(8)

    def forward(self, x, scale: float = 2.0):
        x = self.first(x)
        for layer in self.layers:
            x = x + layer(x)
        if bool(x.sum() > 0):
            x = x * scale
        else:
            x = torch.tanh(x)
        return {"out": self.norm(x), "raw": x}


def made(seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Outer().eval()


X = torch.linspace(-1, 1, 24).reshape(3, 8)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "net.pt"
    torch.jit.save(torch.jit.script(made()), path)
    return path


def test_a_script_has_the_ops_modules_and_lines_of_its_module(tmp_path, saved):
    wanted, _ = captured(tmp_path / "a.run", made(), (X,), capture="dispatch")
    modules = {name: type(module).__name__ for name, module in made().named_modules()}
    for number, model in enumerate((torch.jit.script(made()), saved)):
        run, session = captured(tmp_path / f"{number}.run", model, (X,))
        assert run.info.observer.equal, run.info.observer.detail
        assert len(run.info.notes) == 1
        assert run.info.notes[0].startswith("captured by dispatch from the TorchScript interpreter")
        for ours, theirs in zip(run.ops, wanted.ops, strict=True):
            # TorchScript gives numbers as such, eager mode as tensors of one.
            assert ours.type.split(".")[1] == theirs.type.split(".")[1]
            assert (ours.module, ours.module_type) == (theirs.module, theirs.module_type)
            assert modules[ours.module] == ours.module_type
            assert ours.source[-1].file == HERE
            assert ours.source[-1].line == theirs.source[-1].line
            assert ours.inputs == theirs.inputs
        assert {(str(t.key), t.digest) for t in run.tensors} == {
            (str(t.key), t.digest) for t in wanted.tensors
        }
        for op in run.ops:
            assert_evaluates_to_its_bits(session, op, run)


def test_a_bf16_script_is_compared_with_a_module_and_a_fault_is_found(tmp_path):
    reference = sp.capture(made(), (X,), capture="dispatch")
    good = sp.compare(sp.capture(torch.jit.script(made()), (X,), dtype="bf16"), reference)
    assert good.coverage.target == good.coverage.reference == 1.0
    assert good.verdict != "large"
    assert not good.first_divergence
    introduced = [row.introduced.ratio for row in good.rows if row.introduced is not None]
    assert len(introduced) >= 20
    assert max(introduced) < 4
    broken = made()
    with torch.no_grad():
        broken.layers[1].down.bias += 1
    path = tmp_path / "broken.ts"
    torch.jit.save(torch.jit.script(broken), path)
    bad = sp.compare(str(path), reference, inputs=(X,), target_options={"dtype": "bf16"})
    assert bad.verdict == "large"
    assert {row.target.module for row in bad.first_divergence} == {"layers.1.down"}


def test_traced_and_frozen_modules_are_captured_too(tmp_path):
    args = mlp_inputs()
    model = make_mlp()
    traced = torch.jit.trace(model, args)
    run, _ = captured(tmp_path / "a.run", traced, args)
    assert run.info.observer.equal
    wanted, _ = captured(tmp_path / "b.run", model, args, capture="dispatch")
    assert [op.type for op in run.ops] == [op.type for op in wanted.ops]
    assert [op.module for op in run.ops] == [op.module for op in wanted.ops]
    frozen = torch.jit.freeze(torch.jit.script(model))
    run, _ = captured(tmp_path / "c.run", frozen, args)
    assert run.info.observer.equal


def test_two_modules_of_one_class_on_one_line_are_not_guessed(tmp_path):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = nn.Linear(4, 4)

        def forward(self, x):
            return self.b(self.a(x))

    run, _ = captured(tmp_path / "a.run", torch.jit.script(Twice().eval()), (torch.ones(2, 4),))
    told = [op.module for op in run.ops]
    assert told == ["a", "a", "b", "b"] or (
        told == ["", "", "", ""] and "the module of 4 of 4 ops is unknown" in run.info.notes[1]
    )


def test_nothing_of_the_given_script_changes(tmp_path):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    script = torch.jit.script(Counts().train())
    before = torch._C._get_graph_executor_optimize()
    run, _ = captured(tmp_path / "a.run", script, (torch.ones(2),))
    assert run.info.observer.equal
    assert float(script.calls) == 0.0
    assert script.training
    assert torch._C._get_graph_executor_optimize() == before
    assert any("training mode" in note for note in run.info.notes)
    (state,) = (t for t in run.tensors if t.key.role is Role.STATE)
    assert float(np.asarray(run.values(state))) == 1.0


def test_what_goes_wrong_with_a_script_is_told_in_one_line(tmp_path, saved, capfd):
    with pytest.raises(InputError, match=r"do not fit Outer.forward\(x, scale=2.0\)") as told:
        captured(tmp_path / "a.run", str(saved), (torch.ones(2, 5),))
    assert "\n" not in str(told.value)
    with pytest.raises(InputError, match="TorchScript cannot be captured with capture=export"):
        opened(str(saved), capture="export")
    (tmp_path / "broken.pt").write_bytes(saved.read_bytes()[:-100])
    with pytest.raises(InputError, match="not a ZIP file, or a damaged one"):
        opened(str(tmp_path / "broken.pt"))
    assert capfd.readouterr() == ("", "")
    assert "torch" in sys.modules


def test_a_scripted_resnet_gives_the_bits_of_the_plain_one(tmp_path):
    script = torch.jit.script(make_small_resnet())
    run, _ = captured(tmp_path / "a.run", script, small_resnet_inputs())
    assert run.info.observer.equal
    modules = {name for name, _ in make_small_resnet().named_modules()}
    assert all(op.module in modules for op in run.ops)
    convolutions = [op.module for op in run.ops if op.type == "aten.convolution.default"]
    assert len(convolutions) == len(set(convolutions)) == 20


def test_states_in_attributes_are_recorded_and_every_run_starts_from_the_first_ones(tmp_path):
    class Remembers(nn.Module):
        """Its state is no buffer, so that neither named_buffers() nor state_dict() has it."""

        def __init__(self):
            super().__init__()
            self.state = torch.zeros(3)
            self.calls = 0

        def forward(self, x):
            self.state = self.state * 0.5 + x
            self.calls += 1
            return self.state * self.calls

    script = torch.jit.script(Remembers().eval())
    sample = Inputs((torch.tensor([1.0, 2.0, 3.0]),))
    run = sp.capture(script, [sample, sample], out=tmp_path / "a.run")
    assert run.info.observer.equal
    states = [t for t in run.tensors if t.key.role is Role.STATE]
    assert [t.key.op.op for t in states] == ["state", "state"]
    assert [t.alias_of for t in states] == ["add@sample=0", "add@sample=1"]
    for tensor in states:
        np.testing.assert_array_equal(run.values(tensor), [1, 2, 3])
    assert (script.calls, script.state.tolist()) == (0, [0, 0, 0])
