"""The mode `offline_data` against the reports that the tool of these dumps wrote for the same."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

import syncpoint as sp
from helpers.offline_data_sets import FOLDERS, SETS
from helpers.paths import ASCEND_DATA
from syncpoint.ascend.mode.outcome import Outcome

KNOWN = {
    ("offline_mixed", "hif8"): "its decoding of hifloat8 is not the published one: the golden"
    " array holds what the published one gives",
    ("offline_mixed", "shape_flat"): "only the number of elements matters: (2, 3) is not (3, 2)",
    ("offline_mixed", "shape_T"): "only the number of elements matters: (3, 2) is not (2, 3)",
    ("offline_mixed", "badfmt"): "an unsupported layout gives an empty reason",
    ("offline_mixed", "trunc"): "a truncated file is reported as a shape",
    ("offline_mixed", "corrupt"): "a corrupt file is reported as missing",
    ("offline_mixed", "oversize"): "a file with impossible sizes is reported as missing",
}
"""Lines in which that tool is wrong, by set and op, with what is wrong in it. Ours are right, and
the tests below say how."""


def run(name: str, out: Path, monkeypatch: pytest.MonkeyPatch, **more: object) -> list[Outcome]:
    monkeypatch.chdir(ASCEND_DATA / name)
    target, golden = FOLDERS[name]
    return sp.compare_offline(target, golden, out=out, **SETS[name], **more)


def table(path: Path) -> tuple[list[str], list[list[str]]]:
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file))
    return header, rows


def seen(header: list[str], wanted: list[str]) -> list[int]:
    """Where our report has the columns of that tool; two of them may have one name."""
    places, at = [], 0
    for name in wanted:
        at = header.index(name, at)
        places.append(at)
        at += 1
    return places


def lines(name: str, out: Path, monkeypatch: pytest.MonkeyPatch, expected: str, **more: object):
    outcome = run(name, out, monkeypatch, **more)[0]
    wanted_header, wanted = table(ASCEND_DATA / name / expected)
    header, rows = table(outcome.report)
    places = seen(header, wanted_header)
    return wanted_header, wanted, [[row[at] for at in places] for row in rows]


@pytest.mark.parametrize("name", SETS)
def test_every_line_is_reproduced_or_listed(name, tmp_path, monkeypatch):
    header, wanted, got = lines(name, tmp_path, monkeypatch, "expected.csv")
    assert [row[0] for row in got] == [row[0] for row in wanted]
    differ = {}
    for want, have in zip(wanted, got, strict=True):
        if want != have:
            cells = zip(header, want, have, strict=True)
            differ[name, want[2]] = [cell for cell in cells if cell[1] != cell[2]]
    known = {key for key in KNOWN if key[0] == name}
    assert set(differ) == known, {k: v for k, v in differ.items() if k not in known}


def test_overflow_and_advice_are_reproduced(tmp_path, monkeypatch):
    expected = "expected_overflow_advisor.csv"
    more = {"overflow": True, "advisor": True}
    header, wanted, got = lines("offline_mixed", tmp_path, monkeypatch, expected, **more)
    at = header.index("OverFlow")
    exempt = {op for _, op in KNOWN}
    assert [r[at] for r in got if r[2] not in exempt] == [
        r[at] for r in wanted if r[2] not in exempt
    ]
    advice = (ASCEND_DATA / "offline_mixed" / "expected_advisor_summary.txt").read_text()
    assert (tmp_path / "advisor_summary.txt").read_text() == advice


def judged(name: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    outcome = run(name, out, monkeypatch)[0]
    header, rows = table(outcome.report)
    return {row[header.index("NPUDump")]: dict(zip(header, row, strict=True)) for row in rows}


@pytest.mark.parametrize(
    ("op", "verdict", "remark"),
    [
        ("gold_zero", "large", ""),
        ("scalar", "large", "the max absolute error is 5"),
        ("scalar0d", "large", "the max absolute error is 5"),
        ("int32", "large", "the max absolute error is 1"),
        ("int64big", "large", "the max absolute error is 1"),
        ("tiny", "large", "hide"),
        ("nan_my", "large", ""),
        ("inf_my", "large", ""),
        ("shape_T", "none", "shape"),
        ("badfmt", "close", ""),
        ("trunc", "none", "unreadable"),
        ("corrupt", "none", "unreadable"),
        ("oversize", "none", "unreadable"),
        ("exact", "close", ""),
        ("bf16", "close", ""),
        ("hif8", "close", ""),
        ("mm", "close", ""),
    ],
)
def test_our_verdict_stands_where_the_columns_mislead(op, verdict, remark, tmp_path, monkeypatch):
    line = judged("offline_mixed", tmp_path, monkeypatch)[op]
    assert line["Verdict"] == verdict, line
    assert re.search(remark, line["Remark"]), line
