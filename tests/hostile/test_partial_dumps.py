"""Dumps that lost tensors on the way: never close without a word, never exit code 0."""

import json
import random

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

import syncpoint as sp
from helpers.partial_runs import arrays, chain, named
from syncpoint.cli.app import app
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.overview import build_overview

NAMES = named(chain())


def lost(kind):
    """Names that are lost. The output is kept where only a share is: that is the harder case."""
    if kind == "tail":
        return set(NAMES[len(NAMES) // 2 :])
    if kind == "all but one":
        return set(NAMES) - {"relu_5"}
    if kind == "all but the output":
        return set(NAMES) - {"head"}
    if kind == "the output":
        return {"head"}
    return set(random.Random(3).sample(NAMES[:-1], round(len(NAMES) * kind)))


def write(folder, form, kind=0.0):
    """What is left of the tensors, in a form that knows nothing but names."""
    run = arrays(chain(), lost(kind))
    values = {t.key.op.op: np.ascontiguousarray(run.values(t)) for t in run.tensors}
    path = folder / f"target.{form}"
    if form == "npz":
        np.savez(path, **values)
    elif form == "safetensors":
        save_file(values, path)
    else:
        path.mkdir()
        for name, value in values.items():
            np.save(path / f"{name}.npy", value)
    return path


KINDS = (0.3, 0.5, 0.9, "tail", "all but one", "all but the output", "the output")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["npz", "npy", "safetensors"])
def test_a_dump_that_lost_tensors_is_not_close(tmp_path, form, kind):
    comparison = sp.compare(write(tmp_path, form, kind), chain(), diagnose=False)
    assert comparison.verdict == "close"
    assert comparison.exit_code() == 3
    assert "close as far as compared" in repr(comparison)


@pytest.mark.parametrize("form", ["npz", "npy", "safetensors"])
def test_a_whole_dump_is(tmp_path, form):
    comparison = sp.compare(write(tmp_path, form), chain(), diagnose=False)
    assert comparison.exit_code(min_coverage=1.0) == 0
    assert "<Comparison close:" in repr(comparison)


def test_a_tenth_that_is_lost_is_said(tmp_path):
    comparison = sp.compare(write(tmp_path, "npz", 0.08), chain(), diagnose=False)
    assert comparison.exit_code() == 0
    assert "close as far as compared" in str(comparison)


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_the_reference_lost_is_no_pass_either(tmp_path, kind):
    comparison = sp.compare(chain(), write(tmp_path, "npz", kind), diagnose=False)
    assert comparison.exit_code() == 3


def test_assert_parity_does_not_pass_on_one_tensor_of_many(tmp_path):
    path = write(tmp_path, "npz", "all but one")
    with pytest.raises(AssertionError, match=r"close as far as compared.*\n.*only 2.* of the ref"):
        sp.assert_parity(path, chain(), diagnose=False)
    with pytest.raises(AssertionError, match="model output"):
        sp.assert_parity(path, chain(), diagnose=False, min_coverage=0.0)


def test_every_report_qualifies_the_verdict_and_names_what_is_missing(tmp_path):
    whole = tmp_path / "whole.npz"
    run = arrays(chain())
    np.savez(whole, **{t.key.op.op: run.values(t) for t in run.tensors})
    half = write(tmp_path, "npy", 0.5)
    out, found = tmp_path / "a.cmp", tmp_path / "a.json"
    words = ["compare", half, whole, "--no-diagnose", "-o", out, "--json", found]
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == 3
    first = next(n for n in NAMES if n in lost(0.5))
    assert "close as far as compared" in result.stdout
    assert first in result.stderr and "--map" in result.stderr
    body = json.loads(found.read_text())
    assert "close as far as compared" in body["headline"]
    assert body["coverage"]["reference_missing"] >= len(lost(0.5))
    assert body["coverage"]["reference_covered"] < 0.6 < body["coverage"]["target"]
    assert {u["account"] for u in body["unmatched"]} == {"missing"}
    page = build_overview(OpenComparison(out))
    assert page.verdict_text == "close as far as compared"
    assert page.exit_code == 3 and first in page.uncovered
    assert CliRunner().invoke(app, ["report", str(out)]).exit_code == 3
    assert CliRunner().invoke(app, ["report", str(out), "--min-coverage", "0.4"]).exit_code == 0
