"""A runtime that a stranger writes in 25 lines is compared in full."""

from importlib.metadata import EntryPoint

import numpy as np
import pytest
import torch

import syncpoint as sp
from syncpoint.run.model import Observer, Op, OpKey, Part, Role, RunInfo
from syncpoint.run.reader import Run
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.observer_check import check_outputs
from syncpoint.runtimes.registry import RUNTIMES
from syncpoint.runtimes.session import BaseSession

WEIGHT = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)


class NaiveSession:
    def __init__(self, types):
        self.types = types

    def run(self, inputs, recorder):
        (x,) = (*inputs.args, *inputs.kwargs.values())
        recorder.tensor(OpKey("x"), x, role=Role.MODEL_INPUT, name="x")
        product = np.asarray(x) @ WEIGHT.T
        key = recorder.op(Op(OpKey("step0"), type=self.types[0]))
        recorder.tensor(key, product)
        result = np.maximum(product, 0)
        key = recorder.op(Op(OpKey("step1"), type=self.types[1]))
        recorder.tensor(key, result)
        recorder.tensor(OpKey("y"), result, role=Role.MODEL_OUTPUT, name="y")


class NaiveRuntime:
    API = 1
    name = "naive"
    extra = ""

    def version(self):
        return "1"

    def accepts(self, model):
        return str(model).endswith(".naive")

    def options(self):
        return ()

    def open(self, model, options):
        return NaiveSession(("MatMul", "Relu") if "typed" in str(model) else ("", "engine.Last"))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4, bias=False)
        self.fc.weight.data = torch.tensor(WEIGHT)

    def forward(self, x):
        return torch.relu(self.fc(x))


@pytest.fixture
def naive(add_plugins):
    add_plugins(RUNTIMES, EntryPoint("naive", f"{__name__}:NaiveRuntime", RUNTIMES.group))


@pytest.mark.parametrize("model", ["plain.naive", "typed.naive"])
def test_a_naive_runtime_gets_full_coverage(naive, model):
    x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    comparison = sp.compare(model, Net(), inputs=(x,), diagnose=False)
    assert (comparison.coverage.target, comparison.coverage.reference) == (1.0, 1.0)
    pairs = {str(row.target.key): str(row.reference.key) for row in comparison.rows}
    assert pairs["step1"] == "relu"


def test_a_model_output_is_an_alias_of_the_last_op_that_gave_it(tmp_path):
    value, other = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    with RunWriter(tmp_path / "a.run", RunInfo()) as writer:
        recorder = Recorder(writer)
        for sample in range(2):
            part = recorder.for_part(Part(sample=sample))
            for name in "ab":
                part.tensor(part.op(Op(OpKey(name), type="Relu")), value + sample)
            part.tensor(OpKey("y"), value + sample, role=Role.MODEL_OUTPUT)
            part.tensor(OpKey("z"), other - 3, role=Role.MODEL_OUTPUT)
            reshaped = (value + sample).reshape(2, 2)
            part.tensor(OpKey("r"), reshaped, role=Role.MODEL_OUTPUT)
    run = Run.open(tmp_path / "a.run")
    outputs = [t for t in run.tensors if t.key.role is Role.MODEL_OUTPUT]
    makers = {(t.key.op.op, t.key.part.sample): t.alias_of for t in outputs}
    named = {str(t.key): t.key for t in run.tensors}
    for sample in range(2):
        maker = named[makers["y", sample]]
        assert (maker.op.op, maker.part.sample) == ("b", sample)
        assert makers["z", sample] == makers["r", sample] == ""


def test_the_totals_of_a_run_are_those_of_all_its_samples(tmp_path):
    calls = []

    def check(equal):
        calls.append(equal)
        return Observer(equal, "" if equal else "y: differs")

    session = BaseSession()
    for name in ("a", "b"):
        calls.clear()
        with RunWriter(tmp_path / f"{name}.run", RunInfo()) as writer:
            recorder = Recorder(writer)
            for equal, computed in ((True, {"f32": 3}), (False, {"f16": 9}), (True, {"f32": 1})):
                session.conclude(recorder, computed, lambda equal=equal: check(equal))
        info = Run.open(tmp_path / f"{name}.run").info
        assert info.observer == Observer(False, "y: differs")
        assert info.precision == "f16+f32"
        assert calls == [True, False]


def test_outputs_are_checked_bit_by_bit():
    one = np.ones(3, np.float32)
    assert check_outputs([("y", one, one)]).equal
    assert check_outputs([("y", one, one + 1)]).detail.startswith("y: 3 of 3 elements differ")
    assert check_outputs([("y", None, one)]).detail == "y: not among the captured values"
