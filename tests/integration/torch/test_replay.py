"""The ops of an exported program, on other values than their predecessors gave."""

import numpy as np
import pytest
import torch
from torch import nn

import syncpoint as sp
from models.transformer import make_transformer, transformer_inputs
from syncpoint.errors import Unsupported
from syncpoint.run.model import Edge, OpKey, Role, RunInfo, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.inputs.read_inputs import read_recorded_inputs


class Net(nn.Module):
    """Two layers, one of which may be wrong."""

    def __init__(self, wrong=False):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 4)
        self.wrong = wrong

    def forward(self, x):
        low, high = torch.relu(self.one(x)).chunk(2, dim=1)
        joined = torch.cat([high, low], dim=1)
        return self.two(joined * (1.5 if self.wrong else 1.0))


X = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))


def replayed(run, value, path):
    with RunWriter(path, RunInfo()) as writer:
        assert run.session.replay(read_recorded_inputs(run)[0], value, Recorder(writer)) == {}
    return Run.open(path)


def output(run):
    (found,) = (t for t in run.tensors if t.key.role is Role.MODEL_OUTPUT)
    return run.values(found)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("net", ["layers", "transformer"])
def test_with_its_own_values_it_gives_the_same_bits_again(net, dtype, tmp_path):
    model, given = (
        (Net().eval(), (X,)) if net == "layers" else (make_transformer(), transformer_inputs())
    )
    run = sp.capture(model, given, dtype=dtype)
    again = replayed(run, lambda key, _: run.values(run.tensor(key)), tmp_path / "a.run")
    made = [t for t in run.tensors if t.key.role in (Role.OUTPUT, Role.MODEL_OUTPUT)]
    assert len(made) > 4
    assert [t.key for t in made if again.tensor(t.key).digest != t.digest] == []


def test_all_that_read_a_value_read_the_one_given(tmp_path):
    net = Net().eval()
    run = sp.capture(net, (X,))
    zeros = TensorKey(OpKey("relu"))
    again = replayed(
        run, lambda key, shape: np.zeros(shape) if key == zeros else None, tmp_path / "a.run"
    )
    np.testing.assert_array_equal(again.values(again.tensor(zeros)), run.values(run.tensor(zeros)))
    np.testing.assert_array_equal(output(again), np.tile(net.two.bias.detach().numpy(), (5, 1)))


def test_one_of_several_results_is_replaced(tmp_path):
    net = Net().eval()
    run = sp.capture(net, (X,))
    (cat,) = (op for op in run.ops if "cat" in op.type)
    edge: Edge = cat.inputs[0]
    key = TensorKey(edge.op, edge.role, edge.index)
    again = replayed(
        run, lambda k, shape: np.ones(shape, np.float32) if k == key else None, tmp_path / "a.run"
    )
    joined = again.values(again.tensor(TensorKey(cat.key)))
    kept = run.values(run.tensor(TensorKey(cat.key)))
    np.testing.assert_array_equal(joined[:, :8], 1.0)
    np.testing.assert_array_equal(joined[:, 8:], kept[:, 8:])


def test_what_an_op_introduces_is_found_by_feeding_it_the_reference():
    comparison = sp.compare(Net(True).eval(), Net().eval(), inputs=(X,), introduced="replay")
    assert comparison.verdict == "large"
    guilty = [row.target.label for row in comparison.rows if row.guilty]
    assert guilty == ["mul"] and [r.target.label for r in comparison.first_divergence] == ["mul"]
    sound = sp.compare(
        Net().eval(),
        Net().eval(),
        inputs=(X,),
        introduced="replay",
        target_options={"dtype": "f16"},
    )
    assert sound.verdict == "close"
    known = [row.introduced for row in sound.rows if row.introduced is not None]
    assert len(known) >= 4 and all(one.ratio < 4 for one in known)


def test_what_is_recorded_while_it_runs_cannot_be_fed():
    options = {"capture": "dispatch"}
    with pytest.raises(Unsupported, match="introduced local"):
        sp.compare(
            Net().eval(), Net().eval(), inputs=(X,), introduced="replay", target_options=options
        )
