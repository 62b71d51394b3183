"""Whoever watches a comparison is told of every stage, in order, with counts that add up."""

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

import syncpoint as sp
from syncpoint.comparison.events import Stage
from syncpoint.errors import SyncpointError


def net(scale=1.0):
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh()).eval()
    with torch.no_grad():
        made[2].weight *= scale
    return made


INPUTS = (torch.ones(2, 8),)


def steps_of(*sides, **options):
    steps = []
    comparison = sp.compare(*sides, watch=steps.append, **options)
    return comparison, steps


def test_every_stage_is_told_of_in_order_and_finished():
    comparison, steps = steps_of(net(2.0), net(), inputs=INPUTS)
    finished = [step for step in steps if step.finished]
    assert [step.stage for step in finished] == list(Stage)
    assert finished[0].done == finished[1].done == len(sp.capture(net(), INPUTS).ops)
    assert "captured" in finished[0].text
    assert finished[2].text.startswith(f"{len(comparison.rows)} pairs (")
    assert finished[3].done == finished[3].total == len(comparison.rows)
    looked = [s for s in steps if s.stage is Stage.INTRODUCED and s.total and not s.finished]
    assert [s.done for s in looked] == list(range(looked[0].total))
    assert comparison.findings
    assert finished[-1].done == finished[-1].total == len(comparison.findings)
    assert [s.finished for s in steps if s.stage is Stage.DIAGNOSIS] == [False, True]


def test_a_comparison_without_a_diagnosis_has_no_such_stage():
    _, steps = steps_of(net(2.0), net(), inputs=INPUTS, diagnose=False)
    assert Stage.DIAGNOSIS not in [step.stage for step in steps]


def test_ops_are_counted_in_the_stage_of_their_side():
    _, steps = steps_of(net(), net(), inputs=INPUTS)
    ops = len(sp.capture(net(), INPUTS).ops)
    for stage in (Stage.REFERENCE, Stage.TARGET):
        counts = [step.done for step in steps if step.stage is stage and not step.finished]
        assert sorted(set(counts)) == list(range(ops + 1))


@pytest.mark.parametrize("name", ["progress", "events"])
def test_options_of_a_side_cannot_replace_its_listeners(name):
    with pytest.raises(SyncpointError, match=name):
        steps_of(net(), net(), inputs=INPUTS, target_options={name: 3})


def test_the_counts_while_measuring_are_those_of_the_total_error():
    comparison, steps = steps_of(net(2.0), net(), inputs=INPUTS, introduced="off")
    counts = [step.counts for step in steps if step.counts][-1]
    found = comparison.table["verdict"].value_counts()
    assert counts == dict(found.iter_rows())
    assert counts["large"] >= 1
    assert Stage.INTRODUCED not in [step.stage for step in steps]


def test_recordings_are_opened_not_captured(tmp_path):
    for side in ("target", "reference"):
        np.savez(tmp_path / f"{side}.npz", a=np.ones(4, np.float32))
    _, steps = steps_of(tmp_path / "target.npz", tmp_path / "reference.npz")
    opened = [step for step in steps if step.stage in (Stage.TARGET, Stage.REFERENCE)]
    finished = [step for step in opened if step.finished]
    assert {step.stage for step in finished} == {Stage.TARGET, Stage.REFERENCE}
    assert len(finished) == 2
    assert all(step.text.startswith("opened") for step in finished)


def test_a_stage_begins_before_what_may_fail_in_it(tmp_path):
    np.savez(tmp_path / "reference.npz", a=np.ones(4, np.float32))
    (tmp_path / "target.npz").write_bytes(b"PK\x03\x04 no archive")
    for target, stage in ((tmp_path / "target.npz", Stage.TARGET), (net(), Stage.TARGET)):
        steps = []
        with pytest.raises(SyncpointError):
            sp.compare(target, tmp_path / "reference.npz", watch=steps.append)
        assert steps[-1].stage is stage
        assert not steps[-1].finished
    with pytest.raises(SyncpointError):
        sp.compare(
            tmp_path / "reference.npz",
            tmp_path / "reference.npz",
            reference_model=net(),
            watch=steps.append,
        )
    assert (steps[-1].stage, steps[-1].finished) == (Stage.REFERENCE, False)


def test_capture_says_how_many_ops_it_has_seen():
    seen = []
    run = sp.capture(net(), INPUTS, progress=seen.append)
    assert seen[-1] == len(run.ops)
    assert seen == sorted(seen)


def test_statistics_of_a_side_are_recorded_where_the_options_say_so(tmp_path):
    comparison, _ = steps_of(
        net(),
        net(),
        inputs=INPUTS,
        target_options={"record": "statistics", "steps": False},
        store=tmp_path,
    )
    assert "statistics" in comparison.table["basis"].to_list()


def test_the_drift_while_measuring_is_that_of_the_table():
    comparison, steps = steps_of(net(2.0), net(), inputs=INPUTS, introduced="off")
    drift = [step.drift for step in steps if step.drift][-1]
    computed = comparison.table.filter(pl.col("target_order") >= 0)
    ops = len(sp.capture(net(), INPUTS).ops)
    assert len(drift.levels) == len(drift.psnr) == ops
    for order in range(ops):
        here = computed.filter(pl.col("target_order") == order)
        if not here.height:
            assert (drift.levels[order], drift.psnr[order]) == (".", -1)
            continue
        ranks = ["large", "moderate", "close", "none"]
        worst = min(here["verdict"].to_list(), key=ranks.index)
        assert drift.levels[order] == worst[0]
        assert drift.psnr[order] == round(min(max(here["psnr"].min(), 0), 120))
