"""Values, statistics and digests of every runtime, in every combination and in every report.

One small net is captured whole and with one fault planted; the figures are held against NumPy,
the digests against hashlib and zlib. A digest finds every fault, statistics all but the one that
keeps them: elements that changed places.
"""

import csv
import hashlib
import json
import zlib
from functools import cache

import numpy as np
import pytest
import torch
import xxhash
from typer.testing import CliRunner

import syncpoint as sp
from models.mlp import make_mlp, mlp_inputs
from syncpoint.cli.app import app
from syncpoint.comparison.storage.comparison_folder import load
from syncpoint.metrics.verdict import Verdict
from syncpoint.reports.terminal_report import as_text
from syncpoint.reports.verdict_line import headline
from syncpoint.run.model import Kept, Role

RUNTIMES = ("export", "dispatch", "inductor", "onnxruntime", "coreai", "record")
RECORDS = ("values", "statistics", "digest")
FAULTS = ("clean", "weight", "overflow", "nan", "places")
INPUTS = mlp_inputs()


def net(fault):
    """The net; its faults are in the last layer but one, and in the order of the last's rows."""
    model = make_mlp()
    with torch.no_grad():
        if fault == "weight":
            model[2].weight *= 1.5
        elif fault == "overflow":
            model[2].weight[3] = 3e38
        elif fault == "nan":
            model[2].weight[3, 5] = torch.nan
        elif fault == "places":
            order = torch.arange(10).roll(1)
            model[4].weight.copy_(model[4].weight[order].clone())
            model[4].bias.copy_(model[4].bias[order].clone())
    return model


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """Runs by runtime, fault and what is recorded, each made once."""
    folder = tmp_path_factory.mktemp("bases")

    @cache
    def exported(fault):
        from helpers.onnx_exports import export

        return export(net(fault), INPUTS)

    @cache
    def asset(fault):
        pytest.importorskip("coreai")
        from models.coreai_files import decomposed, save

        return save(folder / f"{fault}.aimodel", {"main": decomposed(net(fault), INPUTS)})

    @cache
    def captured(runtime, fault, record):
        path = folder / f"{runtime}-{fault}-{record}.run"
        if runtime == "record":
            with sp.record(path, record=record) as rec:
                model = net(fault)
                rec.tensor("x", INPUTS[0], role="model-input")
                rec.attach(model)
                model(*INPUTS)
            return sp.open_run(path)
        ways = {
            "export": (lambda: net(fault), {}),
            "dispatch": (lambda: net(fault), {"capture": "dispatch"}),
            "inductor": (lambda: net(fault), {"runtime": "inductor"}),
            "onnxruntime": (lambda: exported(fault), {}),
            "coreai": (lambda: asset(fault), {}),
        }
        make, options = ways[runtime]
        given = tuple(x.numpy() for x in INPUTS) if runtime == "onnxruntime" else INPUTS
        return sp.capture(make(), given, out=path, record=record, **options)

    return captured


def figures(values):
    wide = np.asarray(values, np.float64).ravel()
    good = wide[np.isfinite(wide)]
    sums = (np.nan,) * 5
    if good.size:
        sums = (good.min(), good.max(), good.mean(), good.std(), np.linalg.norm(good))
    return (*sums, np.isnan(wide).sum(), np.isinf(wide).sum())


@pytest.mark.parametrize("fault", ["clean", "nan"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_is_recorded_is_what_numpy_and_hashlib_say(captured, runtime, fault):
    whole, less, least = (captured(runtime, fault, record) for record in RECORDS)
    assert [str(t.key) for t in whole.tensors] == [str(t.key) for t in less.tensors]
    for tensor in whole.tensors:
        values = np.ascontiguousarray(whole.values(tensor))
        raw = values.tobytes()
        small, smaller = less.tensor(tensor.key), least.tensor(tensor.key)
        if tensor.key.role is Role.MODEL_INPUT:
            assert {small.kept, smaller.kept} == {Kept.VALUES}
        else:
            assert (small.kept, smaller.kept) == (Kept.STATISTICS, Kept.DIGEST)
            said = small.statistics
            found = (said.min, said.max, said.mean, said.std, said.l2, said.nan, said.inf)
            assert found == pytest.approx(figures(values), rel=1e-12, nan_ok=True)
            assert (said.count, smaller.statistics) == (values.size, None)
        digest = xxhash.xxh3_128_hexdigest(raw)
        assert {t.digest for t in (tensor, small, smaller)} == {digest}
        computed = {kind: whole.digests(tensor, kind) for kind in ("crc32", "md5", "sha256")}
        assert computed == {
            "crc32": {f"{zlib.crc32(raw):08x}"},
            "md5": {hashlib.md5(raw).hexdigest()},
            "sha256": {hashlib.sha256(raw).hexdigest()},
        }


def basis(*kept):
    if set(kept) == {"values"}:
        return "values"
    return "digest" if "digest" in kept else "statistics"


def computed(found):
    return [r for r in found.rows if r.target.key.role in (Role.OUTPUT, Role.MODEL_OUTPUT)]


@pytest.mark.parametrize("reference", RECORDS)
@pytest.mark.parametrize("target", RECORDS)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_combination_says_what_it_can_and_no_more(captured, runtime, target, reference):
    def compared(fault, target=target, reference=reference):
        # Two compiled graphs have no names in common, so that is held against the model.
        against = "export" if runtime == "inductor" else runtime
        runs = captured(runtime, fault, target), captured(against, "clean", reference)
        return sp.compare(*runs, introduced="off")

    on = basis(target, reference)
    clean = compared("clean")
    assert (clean.verdict, clean.exit_code()) == (Verdict.CLOSE, 0)
    assert {r.basis for r in computed(clean)} == {on}
    assert clean.coverage.target == 1.0
    assert all(r.reason == ("" if on == "values" else "same bytes") for r in computed(clean))
    assert "as far as" not in headline(clean)  # the bytes are known to be the same

    for fault in ("weight", "overflow", "nan"):
        found = compared(fault)
        assert (found.verdict, found.exit_code()) == (Verdict.LARGE, 1)
        order = found.first_divergence[0].target.order
        off = [r.target.order for r in computed(found) if r.verdict is not Verdict.CLOSE]
        assert order == min(off) > 0, "what lies before the fault is as it was"
        broken = [r.target.key for r in found.rows if r.first_non_finite]
        if on != "digest":
            by_values = compared(fault, "values", "values")
            assert broken == [r.target.key for r in by_values.rows if r.first_non_finite]
            assert broken or fault != "overflow"

    moved = compared("places")
    off = [r for r in computed(moved) if r.reason not in ("", "same bytes")]
    assert off and min(r.target.order for r in off) > len({r.target.order for r in off})
    if on == "statistics":
        assert (moved.verdict, moved.exit_code()) == (Verdict.CLOSE, 0)
        assert all("bytes" in r.reason for r in off)
        assert headline(moved).startswith("● close as far as statistics tell: ")
        assert "can prove a difference, but not equality" in headline(moved)
    else:
        assert (moved.verdict, moved.exit_code()) == (Verdict.LARGE, 1)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("record", RECORDS)
def test_every_report_has_the_basis(captured, tmp_path, record, fault):
    runs = (captured("export", fault, record), captured("export", "clean", record))
    found = sp.compare(*runs, out=tmp_path / "a.cmp")
    found.to_csv(tmp_path / "a.csv")
    found.to_json(tmp_path / "a.json")
    with (tmp_path / "a.csv").open() as file:
        table = list(csv.DictReader(file))
    said = json.loads((tmp_path / "a.json").read_text())
    rows = {r["target"]["op"] + r["target"]["role"]: r for r in said["sync_points"]}
    assert sum(said["bases"].values()) == sum(r["verdict"] != "none" for r in table)
    assert found.bases == said["bases"]
    for line in table:
        row = rows[line["target_op"] + line["target_role"]]
        expected = "values" if line["target_role"] == "model-input" else record
        assert (line["basis"], row["basis"]) == (expected, expected)
        assert (line["reason"] or None) == row["reason"]
        if record == "statistics" and expected == record:
            tensor = runs[0].tensor(next(t.key for t in runs[0].tensors if _is(t, line)))
            kept = tensor.statistics
            if np.isnan(kept.l2):  # not a finite element, so that there is no figure
                assert (line["target_l2"], row["metrics"]["target_mean"]) == ("", None)
            else:
                assert float(line["target_l2"]) == kept.l2
                assert row["metrics"]["target_mean"] == kept.mean
            assert row["metrics"]["target_nan"] == kept.nan
    text = as_text(load(tmp_path / "a.cmp"), rows=0)
    assert text == as_text(found, rows=0), "a saved comparison says the same"
    first = next(line for line in text.splitlines() if " target " in line)
    assert ("basis" in first) is (record != "values")
    if fault == "places" and record == "statistics":
        assert "● close by statistics" in text
    again = CliRunner().invoke(app, ["report", str(tmp_path / "a.cmp"), "--rows", "0"])
    assert again.stdout.splitlines()[-1] == text.splitlines()[-1]


def _is(tensor, line):
    return (tensor.key.op.op, tensor.key.role) == (line["target_op"], line["target_role"])


@pytest.mark.parametrize("record", ["statistics", "digest"])
def test_two_runtimes_agree_by_statistics_and_never_by_bytes(captured, record):
    """Rounding is not the same in both."""

    def compared(fault, kind=record):
        return sp.compare(captured("onnxruntime", fault, kind), captured("export", "clean", kind))

    found = compared("clean")
    outputs = found.outputs
    assert {r.basis for r in outputs} == {record}
    same = captured("onnxruntime", "clean", "values")
    assert found.coverage.target == compared("clean", "values").coverage.target == 1.0
    if record == "statistics":
        assert (found.verdict, found.exit_code()) == (Verdict.CLOSE, 0)
        assert "as far as statistics tell" in headline(found)
        assert compared("weight").exit_code() == 1
        first = compared("weight").first_divergence
        assert [r.reference.key.op.op for r in first] == ["relu_1"], "which is fused with its Gemm"
    else:
        assert found.exit_code() == 1
        assert all("cannot tell by how much" in r.reason for r in outputs), same


@pytest.mark.parametrize("record", ["statistics", "digest"])
def test_half_precision_against_float32(captured, tmp_path, record):
    """Statistics compare numbers; digests of other types say nothing, which is no pass."""
    half = sp.capture(net("clean"), INPUTS, record=record, dtype="f16")
    found = sp.compare(half, captured("export", "clean", record))
    if record == "statistics":
        assert (found.verdict, found.exit_code()) == (Verdict.CLOSE, 0)
        return
    assert (found.verdict, found.exit_code()) == (Verdict.NONE, 3)
    assert {r.reason for r in computed(found)} == {
        "incomparable: digests of different dtypes, f16 and f32"
    }
    result = CliRunner().invoke(
        app,
        ["compare", str(half.path), str(captured("export", "clean", record).path)],
    )
    assert result.exit_code == 3
    assert "digests of different dtypes, f16 and f32" in result.stderr + result.stdout


@pytest.mark.parametrize("record", ["statistics", "digest"])
def test_who_is_guilty_needs_values_and_that_is_said(captured, record):
    reference = captured("export", "clean", "values")
    found = sp.compare(
        captured("export", "weight", record), reference, reference_model=net("clean")
    )
    assert all(r.introduced is None for r in found.rows)
    assert [r.target.key.op.op for r in found.first_divergence] == ["linear_1"]
    assert any("record values to find out which ops are guilty" in w for w in found.warnings)


def test_a_budget_that_runs_out_mixes_values_and_statistics(captured, tmp_path):
    mixed = sp.capture(net("weight"), INPUTS, max_bytes=20_000)
    found = sp.compare(mixed, captured("export", "clean", "values"))
    assert found.bases["values"] and found.bases["statistics"]
    assert found.exit_code() == 1
    moved = sp.capture(net("places"), INPUTS, max_bytes=1)
    assert {t.kept for t in moved.tensors if t.key.role is Role.OUTPUT} == {Kept.STATISTICS}
    found = sp.compare(moved, captured("export", "clean", "values"))
    assert "as far as statistics tell" in headline(found)


@pytest.mark.parametrize("record", RECORDS)
def test_inspect_shows_what_was_kept(captured, record):
    run = captured("export", "nan", record)
    listed = CliRunner().invoke(app, ["inspect", str(run.path)])
    assert f"recorded   {record}" in listed.stdout
    shown = CliRunner().invoke(app, ["inspect", str(run.path), "linear_1"]).stdout
    assert f"  {record}" in shown
    assert "xxh3-128" in shown
    assert ("nan 8" in shown) is (record != "digest")


def test_what_has_no_values_is_not_said_to_be_converted(captured, tmp_path):
    run = captured("export", "clean", "statistics")
    words = ["convert", str(run.path), str(tmp_path / "a.npz"), "--to", "npz"]
    found = CliRunner().invoke(app, words)
    assert "a.npz: 1 tensors as npz" in found.stdout
    assert f"left out {len(run.tensors) - 1} tensors that have no values" in found.stderr


def test_ends_in_place_of_tensors_are_said_to_be_no_more(tmp_path):
    for side in ("target", "reference"):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / "relu_min_max.npy", np.array([0.0, 3.5], np.float32))
    found = CliRunner().invoke(
        app, ["compare", str(tmp_path / "target"), str(tmp_path / "reference")]
    )
    assert "hold only the minimum and maximum of a tensor" in found.stdout


def test_pairs_without_values_are_said_to_rest_on_less(captured):
    mine, theirs = captured("onnxruntime", "clean", "digest"), captured("export", "clean", "values")
    assert any("no values of the target" in w for w in sp.compare(mine, theirs).warnings)
    same = sp.compare(captured("export", "clean", "digest"), theirs)
    assert not any("no values of the target" in w for w in same.warnings)
