"""Reasons of a comparison of schema 2, which were one text each, open as code, detail and cure."""

from __future__ import annotations

import json
import shutil

import polars as pl
import pytest

import syncpoint as sp
from helpers.paths import DATA
from syncpoint.comparison.storage.comparison_folder import save_diagnosis
from syncpoint.comparison.storage.comparison_json import SCHEMA, read_comparison_json
from syncpoint.comparison.storage.older_schemas import split_reason, upgrade_table
from syncpoint.metrics.limits import PRESETS
from syncpoint.metrics.verdict import NO_REASON, Reason, ReasonCode, Verdict
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.overview import build_overview
from syncpoint.reports.json_report import as_json

OLDER = DATA / "schema2"
BEFORE = json.loads((OLDER / "pair.json").read_text())
DAMAGE = "the bytes of the target's hurt in memory are not those that were recorded"
READ_AGAIN = "copy the file again or record the run again"
REASONS = {
    "turned": Reason(ReasonCode.SHAPE, "3x4 against 5x3"),
    "hurt": Reason(ReasonCode.DAMAGED, DAMAGE, READ_AGAIN),
    "nans": Reason(ReasonCode.ALL_NAN),
    "infinities": Reason(ReasonCode.ALL_INFINITE),
    "nothing": Reason(ReasonCode.EMPTY),
    "padding": Reason(ReasonCode.MASKED, "every position"),
    "hashed": Reason(ReasonCode.INCOMPARABLE, "digests of unlike kind, md5 against sha1"),
    "dropout": Reason(ReasonCode.RANDOM, "draws random numbers"),
    "broken": Reason(
        ReasonCode.UNREADABLE,
        "expected statistics of the 12 elements of broken; found of 7, 0 NaN and 0 infinite",
    ),
}
SEVERAL = "several ops of this kind, and order does not tell which"


@pytest.fixture(scope="module")
def comparison():
    return sp.open_comparison(OLDER / "pair.cmp")


def test_the_file_is_of_the_schema_before_reasons_had_parts():
    assert read_comparison_json(OLDER / "pair.cmp").schema == 2 < SCHEMA


def test_a_row_without_a_verdict_has_code_detail_and_cure(comparison):
    rows = {row.target.label: row for row in comparison.rows}
    assert {name: rows[name].why for name in REASONS} == REASONS
    unmeasured = {name: rows[name].unmeasured for name in REASONS}
    measured = dict.fromkeys(("nans", "infinities", "nothing"), NO_REASON)
    assert unmeasured == {**REASONS, **measured}


def test_an_explained_verdict_has_no_code(comparison):
    off = [row for row in comparison.rows if row.verdict is Verdict.LARGE]
    assert off and all(row.why.code is None and "dB below" in row.why.detail for row in off)
    (large,) = (row for row in off if row.target.label == "large")
    assert large.unknown == Reason(detail="the reference's op gives no tensor here")


def test_a_tensor_without_a_partner_has_code_detail_cure_and_the_op_it_is_inside(comparison):
    alone = {u.op: u for u in comparison.unmatched if u.side == "target"}
    pinned = Reason(ReasonCode.AMBIGUOUS, SEVERAL, "pin them with a map")
    assert alone["twin_1"].why == alone["twin_2"].why == pinned
    assert alone["ignored"].why == Reason(ReasonCode.EXCLUDED, "ignored by 'ignored'")
    assert alone["piece"].why == Reason(ReasonCode.NO_COUNTERPART, "inside joined")
    assert alone["piece"].inside == "joined"
    assert alone["extra"].why == Reason(ReasonCode.NO_COUNTERPART) and not alone["extra"].inside


def test_a_failure_of_the_diagnosis_is_told_from_what_was_not_looked_at(comparison):
    line = "diagnosis failed: overflow: ValueError: no such op"
    other = "weights: the reference is not at hand"
    assert comparison.diagnosis.failures == (line,)
    assert comparison.diagnosis.troubles == (other, line)
    assert comparison.diagnosis.trouble_lines == [f"not examined: {other}", line]


def test_json_says_all_that_it_said_and_the_parts_besides(comparison):
    now = as_json(comparison)
    for part, before in zip(now["sync_points"], BEFORE["sync_points"], strict=True):
        assert {**part, **before} == part
    for part, before in zip(now["unmatched"], BEFORE["unmatched"], strict=True):
        assert {**part, **before} == part
    (hurt,) = (p for p in now["sync_points"] if p["target"]["op"] == "hurt")
    assert hurt["reason"] == f"damaged: {DAMAGE}; {READ_AGAIN}"
    parts = [hurt[f"reason_{part}"] for part in ("code", "detail", "cure")]
    assert parts == ["damaged", DAMAGE, READ_AGAIN]


def test_the_table_has_the_parts_as_columns(comparison):
    table = OpenComparison(OLDER / "pair.cmp").table.frame
    assert table.equals(comparison.table)
    codes = dict(zip(table["target_op"], table["reason_code"], strict=True))
    assert {name: codes[name] for name in REASONS} == {
        name: reason.code for name, reason in REASONS.items()
    }
    assert table.select(pl.col("^reason.*$").null_count()).row(0) == (0, 0, 0, 0)


def test_the_page_tells_of_the_damage():
    found = build_overview(OpenComparison(OLDER / "pair.cmp"))
    assert found.summary == f"1 tensor is damaged: {READ_AGAIN}."
    assert [card.title for card in found.findings][-3:] == [
        "1 tensor with another shape",
        "1 tensor cannot be read",
        f"1 tensor damaged: {READ_AGAIN}",
    ]


def test_it_is_judged_again_as_it_was(comparison):
    again = comparison.rejudged("auto")
    assert [row.why for row in again.rows] == [row.why for row in comparison.rows]
    assert comparison.rejudged(PRESETS["f16"]).exit_code() == comparison.exit_code() == 1


def test_a_copy_has_the_newest_schema_and_says_the_same(comparison, tmp_path):
    copy = comparison.save(tmp_path / "copy.cmp")
    assert read_comparison_json(copy).schema == SCHEMA
    again = sp.open_comparison(copy)
    assert again.rows == comparison.rows and again.unmatched == comparison.unmatched
    assert again.diagnosis == comparison.diagnosis


def test_a_diagnosis_can_be_kept_in_it(comparison, tmp_path):
    path = shutil.copytree(OLDER / "pair.cmp", tmp_path / "pair.cmp")
    assert save_diagnosis(comparison, path)
    again = sp.open_comparison(path)
    assert again.unmatched == comparison.unmatched and again.diagnosis == comparison.diagnosis


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", NO_REASON),
        ("empty", Reason(ReasonCode.EMPTY)),
        (
            "unreadable: expected a; found b; do c",
            Reason(ReasonCode.UNREADABLE, "expected a; found b", "do c"),
        ),
        ("no such code: x", Reason(detail="no such code: x")),
    ],
)
def test_a_text_is_split_by_the_code_in_front_of_it(text, reason):
    assert split_reason(text) == reason
    assert str(reason) == text


def test_a_note_says_what_is_nearer_to_float64_where_the_column_is_missing():
    notes = [[], ["compiled is nearer to float64 than eager"], ["some note"]]
    columns = {"notes": notes, "ends_only": [False] * 3, "nearer_to_float64": [None] * 3}
    kinds = {"notes": pl.List(pl.String), "ends_only": pl.Boolean, "nearer_to_float64": pl.Boolean}
    upgraded = upgrade_table(pl.DataFrame(columns, schema=kinds), 3)
    assert upgraded["nearer_to_float64"].to_list() == [False, True, False]


def test_rows_of_schema_2_are_not_nearer_to_float64(comparison):
    assert {row.nearer_to_float64 for row in comparison.rows} == {False}
