"""Runs and comparisons of schema 1, written before files had checksums, open and say the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import syncpoint as sp
from helpers.paths import OLDER_DATA
from syncpoint.cli.app import app
from syncpoint.comparison.storage.comparison_folder import save_diagnosis
from syncpoint.errors import FormatError
from syncpoint.metrics.limits import PRESETS
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.overview import build_overview
from syncpoint.reports.json_report import as_json
from syncpoint.reports.terminal_report import as_text
from syncpoint.run.model import Kept
from syncpoint.server.allowed_files import AllowedFolders
from syncpoint.server.past_comparisons import PastList

RUNS = json.loads((OLDER_DATA / "runs.json").read_text())
PAIR = json.loads((OLDER_DATA / "pair.json").read_text())


@pytest.fixture
def older(tmp_path) -> Path:
    """A copy that may be changed."""
    return shutil.copytree(OLDER_DATA, tmp_path / "older")


def is_said_again(before: object, now: object) -> bool:
    """Whether `now` has all that was said before; later versions may say more."""
    if isinstance(before, dict):
        return isinstance(now, dict) and all(
            is_said_again(value, now.get(key)) for key, value in before.items()
        )
    if isinstance(before, list):
        return (
            isinstance(now, list)
            and len(before) == len(now)
            and all(map(is_said_again, before, now))
        )
    return before == now


@pytest.mark.parametrize("name", RUNS)
def test_an_older_run_opens_with_the_same_ops_tensors_and_values(name):
    run, before = sp.open_run(OLDER_DATA / f"{name}.run"), RUNS[name]
    assert run.digest() == before["digest"]
    assert run.info.complete == before["complete"]
    assert [str(op.key) for op in run.ops] == before["ops"]
    for tensor in run.tensors:
        facts = before["tensors"][str(tensor.key)]
        assert (tensor.dtype, list(tensor.shape)) == (facts["dtype"], facts["shape"])
        assert tensor.digest == facts["digest"]
        if tensor.kept is Kept.VALUES:
            assert run.values(tensor).astype(np.float64).sum() == facts["sum"]
        else:
            assert tensor.statistics.mean == facts["mean"]


def test_an_older_run_is_unverified_unless_its_journal_has_checksums():
    for name in ("values", "statistics"):
        assert "before files had checksums" in sp.open_run(OLDER_DATA / f"{name}.run").unverified
    assert sp.open_run(OLDER_DATA / "journal.run").unverified == ""
    said = CliRunner().invoke(app, ["inspect", str(OLDER_DATA / "values.run")]).stdout
    assert "unverified it was written before files had checksums" in said


def test_an_older_comparison_says_what_it_said():
    comparison = sp.open_comparison(OLDER_DATA / "pair.cmp")
    assert comparison.target["path"].endswith("older/values.run")
    now = as_json(comparison)
    for side in ("target", "reference"):  # the path is where the test finds it
        now[side]["path"] = PAIR[side]["path"]
    for key, value in PAIR.items():
        if key not in ("exit_code", "exit_code_f16", "schema"):
            assert is_said_again(value, now[key]), key
    # Its reference is a run whose writer died. That passed then, and does no longer.
    assert PAIR["exit_code"] == PAIR["exit_code_f16"] == 0
    assert comparison.exit_code() == comparison.rejudged(PRESETS["f16"]).exit_code() == 3


def test_an_older_comparison_is_called_unverified_wherever_it_is_shown(older):
    path = older / "pair.cmp"
    comparison = sp.open_comparison(path)
    line = "this comparison is unverified: it was written before files had checksums"
    assert line in as_text(comparison)
    assert as_json(comparison)["unverified"] == "it was written before files had checksums"
    assert line in build_overview(OpenComparison(path)).warnings
    assert line in comparison._repr_html_()
    for arguments in (["report", str(path)], ["report", str(path), "-q"]):
        assert line in CliRunner().invoke(app, arguments).stdout
    # A copy with checksums does not become more trustworthy than what it was made from.
    assert line in as_text(sp.open_comparison(comparison.save(older / "copy.cmp")))
    listed = PastList(AllowedFolders([older]), older / "out").list_all().comparisons
    assert {one.name: one.problem for one in listed} == {"pair": None, "copy": None}


def test_a_diagnosis_kept_in_an_older_comparison_gives_it_no_checksum(older):
    path = older / "pair.cmp"
    comparison = sp.open_comparison(path)
    assert save_diagnosis(comparison, path)
    again = sp.open_comparison(path)
    assert again.unverified
    assert as_json(again) == as_json(comparison)


def test_comparing_an_older_run_says_that_it_is_unverified(older):
    made = sp.compare(older / "values.run", older / "journal.run", diagnose=False)
    line = "the target run is unverified: it was written before files had checksums"
    assert line in made.warnings
    assert line in as_text(made)
    psnr = {row.target.label: row.numbers["psnr"] for row in made.rows}
    before = {p["target"]["name"] or p["target"]["op"]: p["metrics"] for p in PAIR["sync_points"]}
    assert psnr["gelu"] == before["gelu"]["psnr"]
    assert psnr["linear_1"] == before["linear_1"]["psnr"]


def test_a_copy_of_an_older_run_remembers_that_it_was_unverified(older):
    run = CliRunner().invoke(
        app, ["convert", str(older / "values.run"), str(older / "copy.run"), "--to", "run"]
    )
    assert run.exit_code == 0
    copy = sp.open_run(older / "copy.run")
    assert copy.unverified == ""
    assert any("copied from a run that was unverified" in note for note in copy.info.notes)


def test_a_column_that_the_older_schema_did_not_have_is_null(older, monkeypatch):
    """As it will be when a later schema adds one."""
    import syncpoint.comparison.storage.sync_point_table as storage

    monkeypatch.setitem(storage.COLUMNS, "later", pl.Float64())
    with pytest.raises(FormatError, match="damaged: it has no column 'later'"):
        sp.open_comparison(older / "pair.cmp")
    monkeypatch.setitem(storage.ADDED_COLUMNS, "later", 2)
    assert sp.open_comparison(older / "pair.cmp").rows
    frame = OpenComparison(older / "pair.cmp").table.frame
    assert frame["later"].null_count() == frame.height


def test_a_column_missing_from_the_schema_that_has_it_is_damage(older):
    path = older / "pair.cmp" / "syncpoints.parquet"
    pl.read_parquet(path).drop("psnr").write_parquet(path)
    with pytest.raises(FormatError, match="damaged: it has no column 'psnr'"):
        sp.open_comparison(older / "pair.cmp")
