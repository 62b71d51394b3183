"""A comparison comes back from disk as it was, and what is damaged says so."""

import csv
import json
from math import inf

import numpy as np
import pytest

import syncpoint as sp
from helpers.reseal_checksums import reseal
from helpers.small_runs import run
from syncpoint.api import Comparison
from syncpoint.comparison.engine import compare
from syncpoint.comparison.storage.sync_point_table import COLUMNS
from syncpoint.errors import FormatError, InputError
from syncpoint.metrics import METRIC_IDS
from syncpoint.metrics.limits import PRESETS
from syncpoint.reports.json_report import as_json


@pytest.fixture
def comparison():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 5)).astype(np.float32)
    bad = x.copy()
    bad[0, 0] = np.nan
    reference = run(
        ("a", "t", "m", ("x",), x),
        ("b", "u", "m", ("a",), x),
        ("c", "v", "m", ("b",), np.zeros(3, np.float32)),
        ("alone", "w", "m", ("c",), x),
        inputs=[("x", x)],
        outputs=[("c", np.zeros(3, np.float32))],
    )
    target = run(
        ("a", "t", "m", ("x",), x * np.float32(1.01)),
        ("b", "u", "m", ("a",), bad),
        ("c", "v", "m", ("b",), np.zeros(4, np.float32)),
        inputs=[("x", x)],
        outputs=[("c", np.zeros(3, np.float32))],
    )
    return Comparison.of(compare(target, reference))


def test_a_saved_comparison_comes_back_equal(comparison, tmp_path):
    path = comparison.save(tmp_path / "a.cmp")
    again = sp.open_comparison(path)
    assert as_json(again) == as_json(comparison)
    assert again.edges == comparison.edges
    assert again.first_divergence == comparison.first_divergence
    assert again.rejudged(PRESETS["int4"]).verdict == comparison.rejudged(PRESETS["int4"]).verdict


def test_limits_are_kept_with_the_comparison(comparison, tmp_path):
    path = comparison.rejudged(PRESETS["f16"]).save(tmp_path / "a.cmp")
    assert sp.open_comparison(path).preset_name == "f16"


def test_the_table_has_the_metric_ids_as_columns(comparison):
    assert set(METRIC_IDS) <= set(comparison.table.columns)
    assert comparison.table.columns == list(COLUMNS)
    assert comparison.table.height == len(comparison.rows)


def test_json_is_strict_and_says_what_cannot_be_computed(comparison, tmp_path):
    path = comparison.to_json(tmp_path / "a.json")

    def refuse(constant):
        raise AssertionError(constant)

    data = json.loads(path.read_text(), parse_constant=refuse)
    assert data["schema"] == 1 and data["verdict"] == "large"
    points = {(p["target"]["op"], p["target"]["role"]): p for p in data["sync_points"]}
    assert points["c", "model-output"]["metrics"]["psnr"] == "inf"
    assert points["c", "model-output"]["metrics"]["cosine"] is None
    assert points["c", "output"]["metrics"] is None
    assert points["c", "output"]["reason"] == "shape: 4 against 3"
    assert [u["op"] for u in data["unmatched"]] == ["alone"]


def test_csv_has_every_column_and_row(comparison, tmp_path):
    path = comparison.to_csv(tmp_path / "a.csv")
    rows = list(csv.DictReader(path.open()))
    assert set(rows[0]) == set(COLUMNS)
    assert len(rows) == len(comparison.rows)
    by_op = {(r["target_op"], r["target_role"]): r for r in rows}
    assert by_op["c", "output"]["target_shape"] == "4"
    assert by_op["a", "output"]["target_shape"] == "4x5"
    assert float(by_op["c", "model-output"]["psnr"]) == inf
    assert by_op["c", "model-output"]["cosine"] == ""
    assert next(iter(rows[0])) == "verdict"


def test_another_comparison_is_not_overwritten(comparison, tmp_path):
    comparison.save(tmp_path / "a.cmp")
    with pytest.raises(InputError):
        comparison.save(tmp_path / "a.cmp")
    comparison.save(tmp_path / "a.cmp", overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(InputError):
        comparison.save(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "x"
    assert not list(tmp_path.glob(".*"))


def _json(change):
    def damage(path):
        file = path / "comparison.json"
        about = json.loads(file.read_text())
        change(about)
        file.write_text(json.dumps(about))
        reseal(path)

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda p: (p / "comparison.json").write_text("{"),
        lambda p: (p / "comparison.json").write_text("[]"),
        lambda p: (p / "syncpoints.parquet").write_bytes(b"PAR1"),
        lambda p: (p / "syncpoints.parquet").unlink(),
        _json(lambda a: a.update(schema=99)),
        _json(lambda a: a.pop("edges")),
        _json(lambda a: a.update(unmatched=[{"no": 1}])),
        _json(lambda a: a.update(limits={"name": "x", "nonsense": 1})),
    ],
)
def test_a_damaged_comparison_is_one_line(comparison, tmp_path, damage):
    path = comparison.save(tmp_path / "a.cmp")
    damage(path)
    with pytest.raises(FormatError) as caught:
        sp.open_comparison(path)
    assert "\n" not in str(caught.value)


def test_no_comparison_at_all(tmp_path):
    with pytest.raises(InputError):
        sp.open_comparison(tmp_path)
