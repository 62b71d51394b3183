"""The mode `torchair` against the reports that the tool of these dumps wrote for the same, and
along the commands of its manual."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import syncpoint as sp
from helpers.commands import syncpoint
from helpers.paths import ASCEND_DATA, ROOT
from helpers.torchair_dumps import Dumps, numbers
from helpers.torchair_reports import LABEL, REPORTS, VALUES, alike, compare, known_cells, table
from syncpoint.ascend.dumps.device_folder import DeviceFolder
from syncpoint.comparison.measuring.digest_and_statistics_pairs import is_unproven
from syncpoint.comparison.storage.file_names import JSON_NAME, TABLE_NAME
from syncpoint.files.file_checksums import record_of
from syncpoint.files.sealed_json import seal_json
from syncpoint.run.model import Role

DROPPED = "lines of unlike shapes, of int8 on one side and without a partner are dropped"
NO_CAST = "casts that the other dump does not have are left out"

ADDED = {
    ("torchair_edge", "shape"): DROPPED,
    ("torchair_edge", "int8x"): DROPPED,
    ("torchair_edge", "missing"): DROPPED,
    ("torchair off", "trans_Cast_99"): NO_CAST,
}
"""Ops that have lines here and none there."""


@pytest.mark.parametrize("name", REPORTS)
def test_every_line_is_reproduced_or_listed(name, tmp_path, monkeypatch):
    outcome = compare(name, tmp_path, monkeypatch, dialect="26.2")
    assert re.fullmatch(r"msprobe_cmp_report(_rank0)?_\d{14}\.csv", outcome.report.name)
    assert ("_rank0_" in outcome.report.name) == (name == "torchair_rank")
    wanted = table(ASCEND_DATA / name.split()[0] / REPORTS[name][2])
    got = {row["my_data_path"]: row for row in table(outcome.report)}
    columns = list(wanted[0])
    assert list(next(iter(got.values()))) == [*columns, "Verdict", "Remark"]
    known = {key[1]: cells for key, cells in known_cells().items() if key[0] == name}
    for want in wanted:
        have = got.pop(want["my_data_path"])
        differ = {c for c in columns if not alike(c, want[c], have[c])}
        fact, cells = known.pop(want["my_data_path"], ("", set()))
        assert cells <= differ, f"now agrees: {want['my_data_path']}: {fact}"
        if not fact:
            assert not differ, [(c, want[c], have[c]) for c in differ]
        elif fact == LABEL:
            assert differ == cells
        else:
            assert differ <= {*cells, *VALUES, "cmp_fail_reason"}
    assert not known
    added = {op for report, op in ADDED if report == name}
    assert {re.search(r"/[^/.]+\.(\w+)\.1\.2\.", path)[1] for path in got} == added


def test_lines_and_numbers_of_pairs_are_in_the_same_order(tmp_path, monkeypatch):
    outcome = compare("torchair", tmp_path, monkeypatch, dialect="26.2")
    wanted = [
        (r["token_id"], r["data_id"]) for r in table(ASCEND_DATA / "torchair" / "expected_fx.csv")
    ]
    assert [(r["token_id"], r["data_id"]) for r in table(outcome.report)] == wanted


def edge(out: Path, monkeypatch: pytest.MonkeyPatch, **more: object) -> dict[str, dict[str, str]]:
    rows = table(compare("torchair_edge", out, monkeypatch, **more).report)
    return {row["API Name"]: row for row in rows}


@pytest.mark.parametrize(
    ("name", "result", "verdict", "cells"),
    [
        ("exact.output.0", "PASS", "close", {"Cosine": "1", "EucDist": "0", "MaxRelativeErr": "0"}),
        ("off.output.0", "FAIL", "large", {"One Thousandth Err Ratio": "0.8"}),
        ("goldzero.output.0", "FAIL", "large", {"Cosine": "NaN", "MaxRelativeErr": "inf"}),
        ("myzero.output.0", "FAIL", "large", {"Cosine": "NaN", "MaxRelativeErr": "1"}),
        ("bothzero.output.0", "PASS", "close", {"Cosine": "1", "MaxAbsErr": "0"}),
        ("nanb.output.0", "FAIL", "close", {"Cosine": "NaN", "MaxAbsErr": "NaN"}),
        ("infm.output.0", "FAIL", "large", {"Cosine": "NaN", "MaxAbsErr": "inf"}),
        ("shape.output.0", "FAIL", "none", {"Cosine": "N/A", "EucDist": "N/A"}),
        ("shapeflat.output.0", "FAIL", "none", {"Cosine": "N/A"}),
        ("int8x.output.0", "N/A", "none", {"Cosine": "N/A"}),
        ("int64.output.0", "PASS", "large", {"MaxAbsErr": "1"}),
        ("scalar.output.0", "FAIL", "large", {"Cosine": "N/A", "MaxAbsErr": "5"}),
        ("empty.output.0", "N/A", "none", {"MaxAbsErr": "N/A"}),
        ("bool.output.0", "FAIL", "large", {"MaxAbsErr": "1"}),
        ("many.input.10", "PASS", "close", {"Cosine": "1"}),
        ("missing.output.0", "N/A", "none", {"Cosine": "N/A"}),
        ("nz.output.0", "PASS", "close", {"Cosine": "1"}),
    ],
)
def test_the_columns_of_the_manual(name, result, verdict, cells, tmp_path, monkeypatch):
    row = edge(tmp_path, monkeypatch)[name]
    assert list(row) == [
        *("API Name", "Stack Info", "Data Name", "Cosine", "EucDist", "MaxAbsErr"),
        *("MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandth Err Ratio"),
        *("Requires_grad Consistent", "Result", "Accuracy Reached or Not", "Err_message"),
        *("Token", "Verdict", "Remark"),
    ]
    assert (row["Result"], row["Verdict"]) == (result, verdict), row
    reached = {"PASS": "Yes", "FAIL": "No", "N/A": "N/A"}
    assert row["Accuracy Reached or Not"] == reached[result]
    assert {column: row[column] for column in cells} == cells
    assert row["Stack Info"] == row["Requires_grad Consistent"] == "N/A"
    assert re.fullmatch(r"\[ge/.*, (fx/.*\.npy|N/A)\]", row["Data Name"])
    if result == "N/A" or verdict == "none":
        assert row["Err_message"]


def test_the_sheet_of_26_is_coloured_in_the_same_way(tmp_path, monkeypatch):
    from openpyxl import load_workbook

    found = []
    for dialect in ("seed", "26.2"):
        outcome = compare("torchair_edge", tmp_path, monkeypatch, xlsx=True, dialect=dialect)
        rows = load_workbook(outcome.others[0]).active.iter_rows(min_row=2)
        found.append([row[0].fill.fgColor.rgb for row in rows])
    assert found[0] == found[1]


def test_the_sheet_has_the_lines_in_colours(tmp_path, monkeypatch):
    from openpyxl import load_workbook

    outcome = compare("torchair_edge", tmp_path, monkeypatch, xlsx=True)
    (path,) = outcome.others
    assert path == outcome.report.with_suffix(".xlsx")
    sheet = load_workbook(path).active
    header, *rows = sheet.iter_rows()
    lines = table(outcome.report)
    assert [cell.value for cell in header] == list(lines[0])
    colours = {row[0].value: row[0].fill.fgColor.rgb for row in rows}
    assert len(colours) == len(lines)
    red, yellow, green = "FFFFC7CE", "FFFFEB9C", "FFC6EFCE"
    for name, colour in (
        ("exact", green), ("off", red), ("shape", red), ("int64", red), ("nanb", yellow),
        ("int8x", yellow), ("missing", yellow), ("many", green), ("empty", yellow),
    ):  # fmt: skip
        assert colours[f"{name}.output.0"] == colour, name
    values = {row[0].value: row[5].value for row in rows}
    assert values["off.output.0"] == pytest.approx(0.3, rel=1e-6)
    assert values["shape.output.0"] == "N/A"


def test_the_comparison_beside_it_opens_like_any_other(tmp_path, monkeypatch):
    outcome = compare("torchair", tmp_path, monkeypatch)
    comparison = sp.open_comparison(outcome.comparison)
    assert len(comparison.table) == 18
    (first,) = comparison.first_divergence
    assert str(first.target.key) == "MatMulV2_0@step=0"
    assert {row.target.key.part.step for row in comparison.rows} == {0, 1}
    assert comparison.coverage.target == 1


@pytest.fixture
def dump_path(tmp_path):
    """The folders that the manual speaks of, of all three versions."""
    new, old = ASCEND_DATA / "torchair_rank", ASCEND_DATA / "torchair"
    for version, ge, fx in (
        ("later", new / "msprobe_ge_dump", new / "msprobe_fx_dump"),
        ("7.1.0", old / "msprobe_ge_dump", old / "msprobe_fx_dump"),
        ("earlier", old / "msprobe_ge_dump", None),
    ):
        shutil.copytree(ge, tmp_path / version / "msprobe_ge_dump")
        if fx is not None:
            shutil.copytree(fx, tmp_path / version / "msprobe_fx_dump")
    shutil.copytree(old / "msprobe_fx_dump" / "data_dump", tmp_path / "data_dump")
    shutil.copytree(old / "msprobe_ge_off", tmp_path / "off" / "msprobe_ge_dump")
    return tmp_path


MANUAL = {
    "later": "later/msprobe_fx_dump",
    "7.1.0": "7.1.0/msprobe_fx_dump/data_dump",
    "earlier": "data_dump",
    "fusion off": "off/msprobe_ge_dump",
}


@pytest.mark.parametrize("version", MANUAL)
def test_the_commands_of_the_manual(version, dump_path):
    target = f"{version if version != 'fusion off' else 'earlier'}/msprobe_ge_dump"
    found = syncpoint(
        "compare", "--target_path", target, "--golden_path", MANUAL[version],
        "--mode", "torchair", cwd=dump_path, code=1,
    )  # fmt: skip
    (report,) = dump_path.glob("msprobe_cmp_report*.csv")  # in the current folder
    assert f"report     {report.name}" in found.stdout
    assert report.with_suffix(".cmp").is_dir()
    rows = table(report)
    assert len(rows) == 18 and [r["Token"] for r in rows] == ["0"] * 9 + ["1"] * 9
    inputs = [r for r in rows if ".input." in r["API Name"]]
    # Each op was given the same in both: were the tokens off by one, none of them would be.
    assert {r["Result"] for r in inputs} == {"PASS"} and len(inputs) == 8


def test_the_output_path_is_made(dump_path):
    syncpoint(
        "compare", "--mode", "torchair", "--target_path", "later/msprobe_ge_dump",
        "--golden_path", "later/msprobe_fx_dump", "--output_path", "results/today",
        "--dialect", "26.2", "--xlsx", cwd=dump_path, code=1,
    )  # fmt: skip
    suffixes = sorted(p.suffix for p in (dump_path / "results" / "today").iterdir())
    assert suffixes == [".cmp", ".csv", ".xlsx"]
    assert not list(dump_path.glob("msprobe_cmp_report*"))


def reduce(folder: Path) -> None:
    """What the script of the manual does: keep the least and greatest value and delete the rest."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.suffix == ".npy":
            data = np.load(path)
            np.save(path.with_suffix("").as_posix() + "_min_max", [data.min(), data.max()])
        elif path.suffix not in (".txt", ".npz"):
            run = DeviceFolder().open(path)
            ends = {role: [] for role in (Role.INPUT, Role.OUTPUT)}
            for tensor in run.tensors:
                data = run.values(tensor)
                ends[tensor.key.role].append([data.min(), data.max()])
            np.savez(f"{path}_min_max.npz", inputs=ends[Role.INPUT], outputs=ends[Role.OUTPUT])
        else:
            continue
        path.unlink()


@pytest.mark.parametrize("reduced", ["both", "GE", "FX"])
def test_reduced_dumps_are_compared_by_their_ends_and_say_so(reduced, dump_path, monkeypatch):
    monkeypatch.chdir(dump_path)
    if reduced != "FX":
        reduce(Path("earlier/msprobe_ge_dump"))
    if reduced != "GE":
        reduce(Path("data_dump"))
    whole = sp.compare_torchair(
        ASCEND_DATA / "torchair" / "msprobe_ge_dump",
        ASCEND_DATA / "torchair" / "msprobe_fx_dump",
        dialect="26.2",
    )
    small = sp.compare_torchair("earlier/msprobe_ge_dump", "data_dump", dialect="26.2")
    rows = table(small[0].report)
    assert len(rows) == 18
    for row, like in zip(rows, table(whole[0].report), strict=True):
        if "Cast" not in row["my_data_path"] or reduced != "FX":
            assert row["golden_shape"] == row["my_shape"] == "[2]"
            assert "only the minimum and the maximum" in row["Remark"]
        for column in ("golden_max_value", "golden_min_value", "my_max_value", "my_min_value"):
            assert row[column] == like[column]
    wrong = [r for r in rows if r["Verdict"] == "large"]
    assert {r["my_data_path"].split("/")[-1].split(".")[1] for r in wrong} >= {"MatMulV2_0"}


def test_reduced_dumps_of_an_op_that_ran_twice_are_proven_no_more_than_others(tmp_path):
    """Another note at the pair does not hide that only its ends were compared; and a file that
    was written before the column tells it by the note."""
    dumps = Dumps(tmp_path)
    value = numbers(2, 2)
    for _ in range(2):
        dumps.device("Add", "Add_1", [value])
    dumps.node("add-aten.add.Tensor", [value])
    dumps.op("Add_1", "Add", fx=["add-aten.add.Tensor.OUTPUT.0"])
    reduce(tmp_path / "ge")
    [outcome] = dumps.compare()
    [row] = outcome.result.rows
    assert is_unproven(row) and row.ends_only
    [note] = row.notes
    assert "last of 2 executions" in note and "only the minimum and the maximum" in note
    table_file = outcome.comparison / TABLE_NAME
    columns = pl.read_parquet(table_file)
    assert columns["ends_only"].to_list() == [True]
    older_note = "only the least and the greatest value are known and compared"
    older_notes = pl.Series("notes", [[f"the last of 2 executions; {older_note}"]])
    columns.drop("ends_only").with_columns(older_notes).write_parquet(table_file)
    document = json.loads((outcome.comparison / JSON_NAME).read_text())
    del document["checksum"]
    document["files"][TABLE_NAME] = record_of(table_file.read_bytes()).to_json()
    (outcome.comparison / JSON_NAME).write_bytes(seal_json(json.dumps(document)))
    assert [r.ends_only for r in sp.open_comparison(outcome.comparison).rows] == [True]


def test_a_file_that_was_reduced_and_not_yet_deleted_counts_once(dump_path, monkeypatch):
    monkeypatch.chdir(dump_path)
    whole = {p: p.read_bytes() for d in ("earlier", "data_dump") for p in Path(d).rglob("*.*")
             if p.is_file()}  # fmt: skip
    reduce(Path("earlier/msprobe_ge_dump"))
    reduce(Path("data_dump"))
    for path, data in whole.items():
        path.write_bytes(data)
    rows = table(sp.compare_torchair("earlier/msprobe_ge_dump", "data_dump")[0].report)
    assert len(rows) == 18 and not any("least" in r["Remark"] for r in rows)


def test_reduced_ends_that_differ_are_found(dump_path, monkeypatch):
    monkeypatch.chdir(dump_path)
    reduce(Path("earlier/msprobe_ge_dump"))
    file = next(Path("data_dump/1").rglob("mm_3*OUTPUT*.npy"))
    data = np.load(file)
    data.flat[7] = 100.0
    np.save(file, data)
    rows = table(sp.compare_torchair("earlier/msprobe_ge_dump", "data_dump")[0].report)
    row = next(r for r in rows if r["API Name"] == "MatMulV2_3.output.0" and r["Token"] == "0")
    assert (row["Result"], row["Verdict"]) == ("FAIL", "large")
    assert float(row["MaxAbsErr"]) == pytest.approx(100, rel=0.05)


def test_the_python_of_the_document_runs(tmp_path, monkeypatch):
    page = ROOT / "docs" / "torchair.md"
    for name in ("msprobe_ge_dump", "msprobe_fx_dump"):
        shutil.copytree(ASCEND_DATA / "torchair" / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    exec(compile(code, page.name, "exec"), {})
    assert len(list((tmp_path / "reports").glob("*.csv"))) == 1
