"""Positions that the map masks are no part of a diagnosis: neither its findings nor its numbers."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import gelu, leaky_relu, linear

import syncpoint as sp
from syncpoint.comparison.engine import Options, compare
from syncpoint.comparison.sides import Sides
from syncpoint.diagnosis.case import Case, Subject
from syncpoint.diagnosis.experiments.unfused_target import compare_unfused
from syncpoint.diagnosis.findings_by_cause.fusion import Fusion
from syncpoint.matching.matchers.map_file import MapFile
from syncpoint.metrics.limits import preset

GENERATOR = torch.Generator().manual_seed(5)
X = 3 * torch.randn(4, 10, 16, generator=GENERATOR)
PADDING = np.arange(10) >= np.array([[10], [7], [6], [8]])
"""Which places of four sequences do not count."""
COUNTED = torch.from_numpy(~PADDING).float()
MAP = {"mask": {".*": "keep_mask"}}
RUBBISH = (1e3, -1e4, 7.0, np.nan, np.inf)
"""What the padding of each op's result holds."""


class Net(nn.Module):
    """Activations between products, of sequences of several lengths."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 24), nn.Linear(24, 8)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=GENERATOR))

    def forward(self, x, keep_mask):
        return leaky_relu(self.second(gelu(self.first(x))) + 0 * keep_mask[..., None])


NET = Net()
CHANGED = NET.first.weight.detach() + 0.1 * torch.randn(24, 16, generator=GENERATOR)
STEPS = {
    "linear": NET.first,
    "gelu": gelu,
    "linear_1": NET.second,
    "add": lambda x: x + 0 * COUNTED[..., None],
    "leaky_relu": leaky_relu,
}
FAULTS = {
    "gelu": (lambda x: gelu(x, approximate="tanh"), "gelu-tanh"),
    "leaky_relu": (lambda x: leaky_relu(x, 0.13), "leaky-slope"),
    "linear_1": (lambda x: 1.25 * NET.second(x), "scale"),
    "linear": (lambda x: linear(x, CHANGED, NET.first.bias), "changed"),
    "add": (lambda x: x.half().float(), "narrow"),
}
"""Op -> what the target computes in its place, and the kind of the finding."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "reference.run"
    return sp.capture(NET, (X, COUNTED), out=path)


def write_dump(path, fault="", has_rubbish=True):
    """A target that computes one op otherwise, perhaps with rubbish in the padding."""
    steps = STEPS | ({fault: FAULTS[fault][0]} if fault else {})
    values = {}
    x = X
    with torch.no_grad():
        for name, step in steps.items():
            x = step(x)
            values[name] = x.numpy().copy()
    for value, number in zip(values.values(), RUBBISH, strict=True):
        if has_rubbish:
            value[PADDING] = number
    np.savez(path, **values)
    return path


def findings_of(comparison):
    return [(f.cause, f.kind, f.title, f.confidence, f.evidence) for f in comparison.findings]


def causes_of(comparison):
    return [f for f in comparison.findings if f.level != "note"]


def test_difference_in_masked_positions_alone_is_no_finding(tmp_path, reference):
    path = write_dump(tmp_path / "target.npz")
    assert causes_of(sp.compare(path, reference))
    assert not causes_of(sp.compare(path, reference, map=MAP))


@pytest.mark.parametrize("fault", FAULTS)
def test_rubbish_in_masked_positions_changes_no_finding(tmp_path, reference, fault):
    clean, spoilt = (
        sp.compare(write_dump(tmp_path / f"{flag}.npz", fault, flag), reference, map=MAP)
        for flag in (False, True)
    )
    first = clean.findings[0]
    assert (first.kind, first.ops, first.level) == (FAULTS[fault][1], (fault,), "cause")
    assert findings_of(spoilt) == findings_of(clean)


def test_numbers_of_the_evidence_are_those_outside_the_mask(tmp_path, reference):
    comparison = sp.compare(write_dump(tmp_path / "target.npz", "gelu"), reference, map=MAP)
    (words,) = [e for e in comparison.findings[0].evidence if "with this fault" in e]
    before = float(re.search(r"instead of ([\d.e+-]+) \(RMS\)", words)[1])
    with torch.no_grad():
        x = NET.first(X).double()
        error = (gelu(x, approximate="tanh") - gelu(x)).numpy()[~PADDING]
    assert before == pytest.approx(np.sqrt(np.mean(np.square(error))), rel=0.05)


def test_saved_comparison_is_diagnosed_with_its_masks(tmp_path, reference):
    target = sp.open_run(write_dump(tmp_path / "target.npz", "linear_1"))
    comparison = sp.compare(target, reference, map=MAP, out=tmp_path / "masked.cmp")
    opened = sp.open_comparison(tmp_path / "masked.cmp")
    assert [mask.as_entry() for mask in opened.masks] == [{"keep": "keep_mask"}]
    diagnosed = sp.diagnose(tmp_path / "masked.cmp", reference_model=NET)
    assert findings_of(diagnosed)[0] == findings_of(comparison)[0]


def test_diagnosis_reads_through_the_sides_of_the_comparison(tmp_path, reference, monkeypatch):
    built = []
    prepare = Sides.__post_init__
    monkeypatch.setattr(Sides, "__post_init__", lambda sides: (built.append(sides), prepare(sides)))
    sp.compare(write_dump(tmp_path / "target.npz", "gelu"), reference, map=MAP, confirm=False)
    assert len(built) == 1


class Growing(nn.Module):
    """Layers that make errors grow, and what the last rows of the batch hold in the end."""

    def __init__(self, rubbish):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(24))
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=1.6 / 8)
        self.rubbish = rubbish

    def forward(self, x, padding):
        for layer in self.layers:
            x = torch.sin(layer(x))
        return x.masked_fill(padding, self.rubbish)


def test_finer_numbers_are_tried_without_what_is_masked():
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))
    padding = torch.arange(8)[:, None] >= 5
    comparison = sp.compare(
        Growing(rubbish=7.0),
        Growing(rubbish=0.0),
        inputs=(x, padding),
        map={"mask": {".*": "[5:]"}},
        target_options={"dtype": "bf16"},
    )
    first = comparison.findings[0]
    assert (first.cause, first.level) == ("accumulation", "cause")
    assert "in float32 the output's relative error is 0 instead of" in first.text


def case_of(folder, reference, choice="auto"):
    """A fused target that computes GELU otherwise, and right with its ops one by one; its padding
    holds rubbish either way."""
    target = sp.open_run(write_dump(folder / "fused.npz", "gelu"))
    unfused_target = sp.open_run(write_dump(folder / "unfused.npz"))
    result = compare(target, reference, Options(choice=choice, map_file=MapFile.of(MAP)))
    result = replace(result, target={**result.target, "runtime": "onnxruntime", "fusion": ""})
    subject = Subject("fused.onnx", lambda inputs, **options: unfused_target)
    return Case(result, target, reference, subjects={"target": subject})


def test_ops_one_by_one_are_compared_without_what_is_masked(tmp_path, reference):
    (finding,) = Fusion().look(case_of(tmp_path, reference))
    assert (finding.kind, finding.ops, finding.level) == ("fused", ("gelu",), "cause")


def test_experiments_are_judged_by_the_limits_of_the_comparison(tmp_path, reference):
    case = case_of(tmp_path, reference, preset("f16"))
    result = compare_unfused(case)
    assert (result.choice, result.masks) == (preset("f16"), case.result.masks)
