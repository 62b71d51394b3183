"""The environment is a cause where numbers show it, and else only told."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import syncpoint as sp
from syncpoint.diagnosis.causes.environment import ten_bits
from syncpoint.errors import FormatError
from syncpoint.run.model import Role
from syncpoint.run.reader import in_memory


def net():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 8)).eval()


X = torch.randn(6, 24, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def reference():
    return sp.capture(net(), (X,))


def recorded(reference, made, **facts):
    """The run with the values that another machine would have given its ops, in order."""
    ops = iter(made)
    values = {}
    for op in reference.ops:
        values[op.key] = next(ops)
    kept = []
    for tensor in reference.tensors:
        array = np.array(reference.values(tensor))
        if tensor.key.role is Role.OUTPUT:
            array = values[tensor.key.op].astype(np.float32)
        elif tensor.key.role is Role.MODEL_OUTPUT:
            array = made[-1].astype(np.float32)
        kept.append((replace(tensor, digest="", digest_kind=""), array))
    return in_memory(replace(reference.info, **facts), reference.ops, kept)


def passed(round_to):
    model = net()
    weights = [p.detach().numpy().astype(np.float64) for p in model.parameters()]
    first = round_to(X.numpy()) @ round_to(weights[0]).T + weights[1]
    first = first.astype(np.float32)
    second = np.maximum(first, 0)
    last = round_to(second) @ round_to(weights[2]).T + weights[3]
    return [first, second, last.astype(np.float32)]


@pytest.mark.parametrize("cut", [False, True])
def test_products_of_rounded_inputs_are_tf32(reference, cut):
    target = recorded(reference, passed(lambda v: ten_bits(v, cut)))
    first = sp.compare(target, reference).findings[0]
    assert (first.cause, first.kind, first.level) == ("environment", "tf32", "cause")
    assert first.confidence >= 0.9 and len(first.ops) == 2


def test_other_errors_of_products_are_not_tf32(reference):
    target = recorded(reference, passed(lambda v: v * (1 + 3e-4 * np.sin(1e3 * v))))
    found = sp.compare(target, reference).findings
    assert not [f for f in found if f.kind == "tf32"]


def test_subnormals_that_became_zero_are_named():
    class Small(nn.Module):
        def forward(self, x):
            return x * 1e-39

    whole = sp.capture(Small(), (X,))
    flushed = recorded(whole, [np.zeros(X.shape)])
    found = sp.compare(flushed, whole).findings
    assert (found[0].cause, found[0].kind) == ("environment", "flush-to-zero")


def test_a_new_version_is_a_suspect_and_an_unknown_one_a_note(reference):
    wrong = [v * 1.01 for v in passed(lambda v: v)]
    newer = {**reference.info.environment, "torch": "9.9", "python": "9.9"}
    target = recorded(reference, wrong, environment=newer)
    said = [f for f in sp.compare(target, reference).findings if f.cause == "environment"]
    assert [f.level for f in said] == ["suspect"] and "9.9" in said[0].title
    assert not any("python" in e for e in said[0].evidence)
    unknown = recorded(reference, wrong, environment={})
    said = [f for f in sp.compare(unknown, reference).findings if f.cause == "environment"]
    assert [(f.level, f.kind) for f in said] == [("note", "unknown")]


def test_a_clean_run_elsewhere_is_no_finding(reference):
    exact = [np.array(reference.values(t)) for t in reference.tensors if t.key.role is Role.OUTPUT]
    target = recorded(reference, exact, environment={"torch": "9.9"})
    assert sp.compare(target, reference).findings == ()


def test_runs_say_what_changes_their_numbers(reference):
    said = reference.info.environment
    assert said["float32_matmul"] == "highest" and said["subnormals"] == "kept"
    assert "cpu_flags" in said


def test_a_dump_has_the_environment_that_is_laid_beside_it(tmp_path):
    np.savez(tmp_path / "dump.npz", a=np.ones(4, np.float32))
    (tmp_path / "dump.env.json").write_text('{"cann": "8.0", "threads": 8}')
    assert sp.open_run(tmp_path / "dump.npz").info.environment["cann"] == "8.0"
    (tmp_path / "dump.env.json").write_text('["no object"]')
    with pytest.raises(FormatError, match="plain values"):
        sp.open_run(tmp_path / "dump.npz")
