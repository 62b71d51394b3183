"""What the map masks does not count; what is masked wholly is no pass."""

import numpy as np
import pytest
import torch
from torch import nn

import syncpoint as sp
from helpers.small_runs import run
from syncpoint.comparison.engine import Options
from syncpoint.comparison.engine import compare as compare_runs
from syncpoint.errors import InputError
from syncpoint.matching.matchers.map_file import MapFile
from syncpoint.metrics import Pair, measure
from syncpoint.metrics.pair import operand
from syncpoint.run.model import Quantization, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import in_memory

GENERATOR = np.random.default_rng(0)
REFERENCE = GENERATOR.standard_normal((2, 6, 4)).astype(np.float32)
LENGTHS = np.arange(6) < np.array([[4], [6]])
"""Which of six places of two sequences are no padding."""


def spoilt(values, where, by=100.0):
    return np.where(where, values + np.asarray(by, values.dtype), values)


def compared(target, reference, mask, inputs=(), **more):
    runs = (run(("a", "", "", (), v), inputs=inputs, **more) for v in (target, reference))
    return compare_runs(*runs, Options(map_file=MapFile.of({"mask": mask})))


def row_of(result, op="a"):
    return next(r for r in result.rows if r.target.key.op.op == op)


@pytest.mark.parametrize(
    ("mask", "kept"),
    [
        ({"a": "[:, 4:]"}, np.arange(6) < 4),
        ({"a": "[0]"}, np.array([[False], [True]])),
        ({".*": "[..., -1]"}, None),
        ({"a": {"keep": "[:, :4]"}}, np.arange(6) < 4),
        ({"a": "lengths"}, LENGTHS),
        ({"a": {"drop": "padding"}}, LENGTHS),
        ({"a": {"keep": "turned", "axes": [1, 0]}}, LENGTHS),
        ({"a": "lengths", "[a-c]": "[:, 2:3]"}, LENGTHS & (np.arange(6) != 2)),
    ],
)
def test_the_numbers_are_those_of_what_is_left(mask, kept):
    """Against the kernel on the elements that count, taken out by hand."""
    if kept is None:
        kept = np.broadcast_to(np.arange(4) < 3, REFERENCE.shape)
    else:
        kept = np.broadcast_to(np.broadcast_to(kept, (2, 6))[..., None], REFERENCE.shape)
    target = spoilt(REFERENCE, ~kept) + np.float32(1e-3) * REFERENCE[::-1]
    inputs = [("lengths", LENGTHS), ("padding", ~LENGTHS), ("turned", LENGTHS.T.astype(np.int64))]
    row = row_of(compared(target, REFERENCE, mask, inputs))
    expected = measure([Pair(operand(target[kept]), operand(REFERENCE[kept]))])[0].as_dict()
    at = np.abs(np.where(kept, target - REFERENCE, 0)).argmax()
    assert row.numbers["max_abs_index"] == at
    same = {k: v for k, v in row.numbers.items() if k != "max_abs_index" and k in expected}
    assert same == {k: v for k, v in expected.items() if k != "max_abs_index"}
    out = REFERENCE.size - kept.sum()
    assert f"{out} of 48 positions masked by the map" in row.notes


def test_an_error_in_a_masked_place_is_passed_over_and_one_beside_it_is_not():
    hidden = spoilt(REFERENCE, ~LENGTHS[..., None])
    hidden[0, 5, 0] = np.nan
    result = compared(hidden, REFERENCE, {"a": "lengths"}, [("lengths", LENGTHS)])
    assert row_of(result).verdict == "close"
    assert "the map masks 8 of 48 positions at 1 sync points" in result.warnings
    shown = spoilt(REFERENCE, np.arange(48).reshape(2, 6, 4) == 8)
    found = compared(shown, REFERENCE, {"a": "lengths"}, [("lengths", LENGTHS)])
    assert row_of(found).verdict == "large"
    assert row_of(found).numbers["max_abs_index"] == 8
    assert row_of(compared(hidden, REFERENCE, {"b": "[0]"})).verdict == "large"


def test_what_is_masked_wholly_or_by_what_does_not_fit_is_no_pass():
    result = compared(REFERENCE, REFERENCE, {"a": "[:]"}, outputs=[("a", REFERENCE)])
    assert (
        row_of(result).verdict == "none"
        and row_of(result).reason == "masked: every position is masked"
    )
    assert result.exit_code() == 3
    odd = [("odd", np.ones((2, 5), np.bool_))]
    row = row_of(compared(REFERENCE, REFERENCE, {"a": "odd"}, odd))
    assert row.verdict == "none" and "odd 2x5 does not fit the shape 2x6x4" in row.reason
    assert "5 slices" in row_of(compared(REFERENCE, REFERENCE, {"a": "[:,:,:,:,1]"})).reason


def test_a_mask_that_is_none_is_refused():
    with pytest.raises(InputError, match="no tensor for the mask 'nobody'"):
        compared(REFERENCE, REFERENCE, {"a": "nobody"})
    with pytest.raises(InputError, match="0 and 1"):
        compared(REFERENCE, REFERENCE, {"a": "bias"}, [("bias", np.array([0.0, -1e9]))])


def test_statistics_cannot_be_masked(tmp_path):
    for side in ("target", "reference"):
        with sp.record(tmp_path / f"{side}.run", record="statistics") as rec:
            rec.tensor("a", REFERENCE)
    result = sp.compare(
        tmp_path / "target.run", tmp_path / "reference.run", map={"mask": {"a": "[0]"}}
    )
    assert row_of(result).reason == "masked: a mask needs values; only statistics kept"


@pytest.mark.parametrize("axis", [None, 2])
def test_integers_keep_their_scales(axis):
    stored = GENERATOR.integers(-100, 100, (2, 6, 4)).astype(np.int8)
    scale = (0.5, 0.25, 1.0, 2.0) if axis else (0.5,)
    meaning = Quantization(scale, (0,), axis)
    reference = stored * np.asarray(scale)
    wrong = np.where(LENGTHS[..., None], stored, 0).astype(np.int8)
    key = TensorKey(run(("a", "", "", (), stored)).ops[0].key)
    ops = run(("a", "", "", (), stored)).ops
    tensor = Tensor(key, "i8", stored.shape, nbytes=stored.nbytes, quantization=meaning)
    target = in_memory(RunInfo(), list(ops), [(tensor, wrong)])
    theirs = run(("a", "", "", (), reference), inputs=[("lengths", LENGTHS)])
    said = MapFile.of({"mask": {"a": "lengths"}})
    row = row_of(compare_runs(target, theirs, Options(map_file=said)))
    assert row.numbers["max_abs"] == 0 and row.verdict == "close"


class Padded(nn.Module):
    def __init__(self, spoil):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.spoil = spoil

    def forward(self, x, attention_mask):
        x = self.first(x)
        if self.spoil:
            x = torch.where(attention_mask[..., None] == 0, x + 7.0, x)
        return self.second(torch.relu(x))


def test_masked_positions_do_not_count_in_introduced_error_either():
    inputs = (torch.randn(2, 6, 8), torch.as_tensor(LENGTHS.astype(np.int64)))
    models = []
    for spoil in (True, False):
        torch.manual_seed(0)
        models.append(Padded(spoil))
    said = {"mask": {".*": "attention_mask"}}
    runs = [sp.capture(model, inputs) for model in models]
    assert sp.compare(*runs).verdict == "large"
    masked = sp.compare(*runs, map=said)
    assert masked.verdict == "close"
    with torch.no_grad():
        models[0].second.weight.mul_(1.5)
    broken = sp.compare(sp.capture(models[0], inputs), runs[1], map=said)
    assert [r.target.type for r in broken.rows if r.guilty] == ["aten.linear.default"]
