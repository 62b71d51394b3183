"""What was recorded is suspected before the model: buffers, names, observers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import syncpoint as sp
from models.cnn import cnn_inputs, make_cnn
from syncpoint.run.model import Observer, OpKey, TensorKey
from syncpoint.run.reader import Run, in_memory


@pytest.fixture(scope="module")
def reference():
    return sp.capture(make_cnn(), cnn_inputs())


def edited(run: Run, changes, **facts) -> Run:
    """The run with other values recorded for some ops, and other facts."""
    values = []
    for tensor in run.tensors:
        array = np.array(run.values(tensor))
        if tensor.key in changes:
            array = np.asarray(changes[tensor.key], array.dtype).reshape(array.shape)
        values.append((replace(tensor, digest="", digest_kind=""), array))
    return in_memory(replace(run.info, **facts), run.ops, values)


def values(run, op):
    return np.array(run.values(run.tensor(TensorKey(OpKey(op)))))


def key(op):
    return TensorKey(OpKey(op))


def test_a_buffer_with_the_values_of_a_later_tensor_is_stale(reference):
    changed = {key("conv2d_1"): values(reference, "batch_norm_2")}
    found = sp.compare(edited(reference, changed), reference).findings
    assert (found[0].cause, found[0].kind) == ("capture", "stale-buffer")
    assert found[0].ops[0] == "conv2d_1" and found[0].confidence >= 0.9
    assert len([f for f in found if f.level == "cause"]) == 1


def test_uninitialised_memory_is_named(reference):
    junk = np.random.default_rng(0).integers(0, 2**32, values(reference, "conv2d_2").size)
    junk = junk.astype(np.uint32).view(np.float32)
    junk = np.where(np.isfinite(junk), junk, 0)
    found = sp.compare(edited(reference, {key("conv2d_2"): junk}), reference).findings
    assert (found[0].cause, found[0].ops[0]) == ("capture", "conv2d_2")
    assert len([f for f in found if f.level == "cause"]) == 1


def test_shuffled_names_are_told_from_wrong_ops(reference):
    changed = {
        key("conv2d_1"): values(reference, "conv2d_2"),
        key("conv2d_2"): values(reference, "conv2d_1"),
    }
    found = sp.compare(edited(reference, changed), reference).findings
    assert (found[0].cause, found[0].kind) == ("capture", "names-shuffled")
    assert set(found[0].ops) == {"conv2d_1", "conv2d_2"}


class Scores(nn.Module):
    """Two layers of one shape, whose results are multiplied."""

    def __init__(self, exchanged=False):
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key = nn.Linear(16, 24), nn.Linear(16, 24)
        if exchanged:
            self.query, self.key = self.key, self.query

    def forward(self, x):
        return torch.tanh(self.query(x)) @ torch.sigmoid(self.key(x)).T


def test_weights_that_were_exchanged_are_no_shuffled_names():
    """What is computed from the two is off as well: they were read so."""
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    found = sp.compare(Scores(True).eval(), Scores().eval(), inputs=(x,)).findings
    assert {f.cause for f in found if f.level == "cause"} == {"weights"}
    # A weight proves it only together with its bias.
    assert found[0].kind == "swapped" and found[0].confidence >= 0.9


def test_an_observer_effect_and_a_broken_off_run_are_told(reference):
    odd = edited(reference, {}, observer=Observer(False, "out: 3 of 20 differ"), complete=False)
    found = sp.compare(odd, reference).findings
    assert {f.kind for f in found} >= {"observer", "incomplete"}
    assert all(f.level == "note" for f in found)


def test_an_op_that_does_nothing_is_no_artefact(reference):
    model = make_cnn()
    model.bn.forward = lambda x: x
    found = sp.compare(model, reference, inputs=cnn_inputs()).findings
    assert not [f for f in found if f.cause == "capture"]


def dumps(folder, wrong=(), count=8):
    """Two dumps that do not say what reads what, some tensors of one of them wrong."""
    rng = np.random.default_rng(0)
    good = {f"op{at}": rng.standard_normal((3, 5)).astype("f4") for at in range(count)}
    bad = {name: rng.standard_normal((3, 5)).astype("f4") for name in wrong}
    np.savez(folder / "good.npz", **good)
    np.savez(folder / "bad.npz", **{**good, **bad})
    return sp.compare(folder / "bad.npz", folder / "good.npz").findings[0]


def test_a_tensor_that_is_off_alone_among_dumps_may_be_recorded_wrongly(tmp_path):
    found = dumps(tmp_path, ["op3"])
    assert (found.cause, found.kind, found.ops) == ("capture", "alone", ("op3",))
    assert found.confidence < 0.6
    assert "all 4 tensors recorded after it" in found.text


@pytest.mark.parametrize("wrong", [["op3", "op5"], ["op6"]])
def test_with_others_off_or_little_after_it_nothing_is_suspected(tmp_path, wrong):
    assert dumps(tmp_path, wrong).cause != "capture"
