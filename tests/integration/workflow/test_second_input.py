"""Pairs that values alone speak for must agree on a second input too."""

import numpy as np
import pytest
import torch

import syncpoint as sp
from helpers.commands import syncpoint
from models.relu_forms import Turned
from syncpoint.errors import InputError
from syncpoint.run.model import Role
from syncpoint.runtimes.inputs.perturbed import perturb_array, perturb_inputs
from syncpoint.runtimes.protocol import Inputs
from syncpoint.workflow.resolve_sides import ResolvedSide
from syncpoint.workflow.second_input import prepare_second_runs

POSITIVE = np.random.default_rng(0).random((6, 7)).astype(np.float32) + np.float32(0.1)
MIXED = POSITIVE - np.float32(0.6)


def pairs(comparison):
    rows = (r for r in comparison.rows if r.target.key.role is Role.OUTPUT)
    return {r.target.key.op.op: (r.reference.key.op.op, r.evidence) for r in rows}


def captured(how, x):
    return sp.capture(Turned(how), (torch.as_tensor(x),))


def test_an_accident_of_the_first_input_is_no_pair():
    runs = captured("relu", POSITIVE), captured("abs", POSITIVE)
    assert pairs(sp.compare(*runs, confirm=False))["relu"] == ("abs_1", "equal values")
    comparison = sp.compare(*runs)
    assert "relu" not in pairs(comparison)
    said = {(u.side, u.op): (u.reason, u.detail) for u in comparison.unmatched}
    assert said["target", "relu"] == ("ambiguous", "agreed on the first input only")
    assert said["reference", "abs_1"] == ("ambiguous", "agreed on the first input only")
    assert comparison.coverage.target < 1


@pytest.mark.parametrize("x", [POSITIVE, MIXED], ids=["positive", "mixed"])
def test_what_is_equal_on_both_inputs_is_a_pair(x):
    comparison = sp.compare(captured("relu", x), captured("clamp", x))
    assert pairs(comparison)["relu"] == ("clamp_min", "equal values, on a second input too")
    assert comparison.verdict == "close" and not comparison.warnings


def counted(run):
    calls = []
    plain = run.session.run

    def run_and_count(inputs, recorder):
        calls.append(recorder.part)
        plain(inputs, recorder)

    run.session.run = run_and_count
    return calls


def test_models_are_run_again_only_when_values_alone_speak_for_a_pair():
    runs = captured("relu", MIXED), captured("relu", MIXED)
    calls = [counted(run) for run in runs]
    sp.compare(*runs)
    assert calls == [[], []]
    runs = captured("relu", MIXED), captured("clamp", MIXED)
    calls = [counted(run) for run in runs]
    sp.compare(*runs, confirm=False)
    assert calls == [[], []]
    sp.compare(*runs)
    assert [len(c) for c in calls] == [1, 1]


def test_several_samples_are_run_again_each(tmp_path):
    for number, x in enumerate((POSITIVE, 2 * POSITIVE)):
        np.savez(tmp_path / f"{number}.npz", x=x)
    comparison = sp.compare(Turned("relu"), Turned("abs"), inputs=str(tmp_path))
    assert "relu" not in pairs(comparison)


def test_recordings_cannot_be_run_again(tmp_path):
    for name in ("relu", "abs"):
        sp.capture(Turned(name), (torch.as_tensor(POSITIVE),), out=tmp_path / f"{name}.run")
    comparison = sp.compare(tmp_path / "relu.run", tmp_path / "abs.run")
    assert pairs(comparison)["relu"] == ("abs_1", "equal values")


class Careful(Turned):
    def forward(self, x):
        if (x < 0).any():
            raise ValueError("negative")
        return super().forward(x)


def test_a_model_that_does_not_bear_another_input_is_compared_all_the_same():
    x = (torch.as_tensor(POSITIVE),)
    comparison = sp.compare(sp.capture(Careful("relu"), x), sp.capture(Careful("abs"), x))
    assert pairs(comparison)["relu"] == ("abs_1", "equal values")
    assert any("not confirmed on a second input" in w for w in comparison.warnings)


def test_the_first_inputs_are_not_forgotten():
    """What each op introduced is still found by the program of the first run."""
    runs = captured("relu", MIXED), captured("clamp", MIXED)
    rows = {r.target.key.op.op: r for r in sp.compare(*runs).rows if r.introduced}
    alone = {r.target.key.op.op: r for r in sp.compare(*runs, confirm=False).rows if r.introduced}
    assert {k: r.introduced for k, r in rows.items()} == {k: r.introduced for k, r in alone.items()}


def test_models_by_name_are_opened_again_where_their_runs_were_kept(tmp_path):
    """A comparison that is resumed reads its runs from disk, and must come to the same pairs."""
    names = {}
    for side, how in (("target", "relu"), ("reference", "abs")):
        text = f"from models.relu_forms import Turned\nmodel = Turned({how!r})\n"
        (tmp_path / f"{side}.py").write_text(text)
        names[side] = f"{tmp_path / side}.py:model"
        sp.capture(names[side], (POSITIVE,), out=tmp_path / f"{side}.run")
    runs = [sp.open_run(tmp_path / f"{side}.run") for side in ("target", "reference")]
    sides = [ResolvedSide(s, run, {}, names[s]) for s, run in zip(names, runs, strict=True)]
    again = prepare_second_runs(*sides).record_runs()
    for run, first in zip(again, runs, strict=True):
        assert {t.key.op for t in run.tensors} == {t.key.op for t in first.tensors}
    inputs = [next(t for t in r.tensors if t.key.role is Role.MODEL_INPUT) for r in again]
    assert inputs[0].digest == inputs[1].digest
    assert (again[0].values(inputs[0]) < 0).any()


def test_the_command_line(tmp_path):
    for how in ("relu", "abs"):
        text = f"from models.relu_forms import Turned\nmodel = Turned({how!r})\n"
        (tmp_path / f"{how}_net.py").write_text(text)
    np.savez(tmp_path / "x.npz", x=POSITIVE)
    command = ("compare", "relu_net.py:model", "abs_net.py:model", "--inputs", "x.npz")
    syncpoint(*command, "--json", "a.json", cwd=tmp_path, code=0)
    syncpoint(*command, "--no-confirm", "--json", "b.json", cwd=tmp_path, code=0)
    assert "agreed on the first input only" in (tmp_path / "a.json").read_text()
    assert "agreed on the first input only" not in (tmp_path / "b.json").read_text()


def test_numbers_are_others_in_the_same_range():
    found = perturb_array(MIXED, signs=False)
    assert found.dtype == MIXED.dtype and found.shape == MIXED.shape
    assert (found != MIXED).mean() > 0.9
    assert found.min() >= MIXED.min() and found.max() <= MIXED.max()
    assert (perturb_array(POSITIVE, signs=False) > 0).all()
    assert 0.2 < (perturb_array(POSITIVE, signs=True) < 0).mean() < 0.8
    assert np.array_equal(found, perturb_array(MIXED, signs=False))
    ids = np.random.default_rng(1).integers(5, 500, (2, 9))
    assert sorted(perturb_array(ids, True).flat) == sorted(ids.flat)
    assert not np.array_equal(perturb_array(ids, True), ids)


@pytest.mark.parametrize(
    "array",
    [
        np.array([[1.0, 1.0, 0.0]]),
        np.array([True, False]),
        np.array([0.0, -np.inf]),
        np.array(7),
        np.zeros((0, 3), np.float32),
        np.array([1 + 2j]),
    ],
)
def test_what_a_model_may_break_on_stays(array):
    assert perturb_array(array, signs=True).tobytes() == array.tobytes()


def test_both_sides_get_the_same_numbers_each_in_its_own_type_and_order():
    ids = np.arange(10).reshape(2, 5)
    target = Inputs(kwargs={"b": ids.astype(np.int32), "a": POSITIVE.astype(np.float16)})
    reference = Inputs((POSITIVE, {"ids": ids}))
    (mine,), (theirs,) = perturb_inputs([target], [reference], signs=True)
    assert mine.kwargs["a"].dtype == np.float16 and mine.kwargs["b"].dtype == np.int32
    assert np.array_equal(mine.kwargs["a"], theirs.args[0].astype(np.float16))
    assert np.array_equal(mine.kwargs["b"], theirs.args[1]["ids"])
    with pytest.raises(InputError, match="same inputs"):
        perturb_inputs([Inputs((POSITIVE + 1,))], [reference], signs=True)
