"""The environment is a cause where numbers show it, and else only told."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import syncpoint as sp
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.numerics.fast_math import find_approximate_functions
from syncpoint.diagnosis.numerics.tf32 import round_to_tf32
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
    target = recorded(reference, passed(lambda v: round_to_tf32(v, cut)))
    first = sp.compare(target, reference).findings[0]
    assert (first.cause, first.kind, first.level) == ("environment", "tf32", "cause")
    assert first.confidence >= 0.9 and len(first.ops) == 2


class Attentive(nn.Module):
    """Linear layers around an attention, whose two products nobody sees."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(24, 24) for _ in range(4))

    def forward(self, x):
        attended = functional.scaled_dot_product_attention(*(f(x) for f in self.layers[:3]))
        return self.layers[3](attended)

    def passed(self, x, round_to):
        """What each op gives where all products read rounded numbers."""

        def linear(layer, given):
            return functional.linear(round_to(given), round_to(layer.weight), layer.bias)

        query, key, value = made = [linear(layer, x) for layer in self.layers[:3]]
        scores = round_to(query) @ round_to(key).transpose(-1, -2) / 24**0.5
        attended = round_to(torch.softmax(scores, -1)) @ round_to(value)
        return [*made, attended, linear(self.layers[3], attended)]


def test_an_attention_among_products_of_rounded_inputs_does_not_hide_tf32():
    def rounded(value):
        return torch.from_numpy(round_to_tf32(value.numpy(), truncate=False).astype(np.float32))

    model = Attentive().eval()
    whole = sp.capture(model, (X[None],))
    with torch.no_grad():
        target = recorded(whole, [v.numpy() for v in model.passed(X[None], rounded)])
    first, *others = sp.compare(target, whole).findings
    assert (first.cause, first.kind, first.level) == ("environment", "tf32", "cause")
    assert first.confidence >= 0.9 and len(first.ops) >= 4
    assert "scaled_dot_product_attention" in first.ops
    assert [f.title for f in others if f.level != "note"] == []


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


class Steep(nn.Module):
    """Two steep functions, each behind a layer."""

    def __init__(self, first, last):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(24, 32), nn.Linear(32, 16)])
        self.functions = (first, last)

    def steps(self, x, wrong=lambda y: y):
        for layer, function in zip(self.layers, self.functions, strict=True):
            yield (given := layer(x))
            yield (x := wrong(function(given)))

    def forward(self, x):
        return list(self.steps(x))[-1]


def from_tables(y):
    """Right to ten bits wherever it is, and to either side."""
    return y * (1 + 2.0**-10 * torch.sin(37 * torch.log2(y.abs())))


def with_values(model, wrong=lambda y: y, functions=None):
    """What a model would have left whose functions are wrong or others, and the model's own run."""
    whole = sp.capture(model.eval(), (X,))
    model.functions = functions or model.functions
    with torch.no_grad():
        return recorded(whole, [v.numpy() for v in model.steps(X, wrong)]), whole


def test_steep_functions_that_are_right_to_some_bits_are_fast_mathematics():
    model = Steep(torch.sigmoid, lambda x: torch.softmax(x, -1))
    first = sp.compare(*with_values(model, from_tables)).findings[0]
    assert (first.cause, first.kind, first.level) == ("environment", "fast-math", "cause")
    assert first.ops == ("sigmoid", "softmax") and "10 bits" in first.title


def found_in(target, reference):
    """What is found where no other cause is asked before."""
    return find_approximate_functions(Case(sp.compare(target, reference), target, reference))


def test_another_form_of_a_function_is_no_fast_mathematics():
    """Two GELUs by tanh: as far off, but where they curve."""
    exact, other = functional.gelu, partial(functional.gelu, approximate="tanh")
    target, reference = with_values(Steep(exact, exact), functions=(other, other))
    assert found_in(target, reference) is None
    first = sp.compare(target, reference).findings[0]
    assert (first.cause, first.kind) == ("implementation", "gelu-tanh")


def one_sided(y):
    return y * (1 + 2.0**-10 * (1 + 0.5 * torch.sin(37 * torch.log2(y.abs()))))


def uneven(y):
    return y + 2.0**-12 * torch.sin(1e5 * y)


def far_off(y):
    return y * (1 + 2.0**-4 * torch.sin(37 * torch.log2(y.abs())))


@pytest.mark.parametrize(
    ("function", "wrong", "told"),
    [
        (torch.tanh, from_tables, True),
        (torch.sigmoid, from_tables, True),
        (torch.sigmoid, one_sided, False),
        (torch.tanh, one_sided, False),
        (torch.tanh, uneven, False),
        (torch.tanh, far_off, False),
    ],
)
def test_only_errors_to_either_side_and_alike_at_all_elements_count(function, wrong, told):
    model = Steep(function, function)
    assert (found_in(*with_values(model, wrong)) is not None) is told


def test_fast_mathematics_is_in_all_ops_of_a_kind():
    functions = (lambda x: from_tables(torch.tanh(x)), torch.tanh)
    target, reference = with_values(Steep(torch.tanh, torch.tanh), functions=functions)
    assert found_in(target, reference) is None


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


@pytest.mark.parametrize(
    ("device", "fell_back"),
    [("CPUExecutionProvider", True), ("CUDAExecutionProvider+CPUExecutionProvider", False)],
)
def test_a_provider_that_did_not_execute_the_model_is_told(reference, device, fell_back):
    """By what was asked for and what executed it, not by the words of a note."""
    target = recorded(
        reference,
        passed(lambda x: (x * 1.01).astype(np.float64)),
        options={"provider": "CUDAExecutionProvider"},
        device=device,
        notes=("no fallback was needed",),
    )
    comparison = sp.compare(target, reference)
    findings = [f for f in comparison.findings if f.kind == "fallback"]
    title = "the target ran on CPUExecutionProvider instead of the requested CUDAExecutionProvider"
    assert [f.title for f in findings] == [title] * fell_back
