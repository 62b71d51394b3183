"""Cells that a spreadsheet would run are written as text; numbers stay numbers, and what Python
reads back is what was written."""

import csv
import io

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl import load_workbook

from helpers.commands import run_command
from helpers.msprobe_dumps import figures, tensor, write
from helpers.small_runs import run
from syncpoint.api import Comparison
from syncpoint.ascend.msprobe.write_table import write_msprobe_csv, write_msprobe_xlsx
from syncpoint.ascend.sheets import Colour, write_sheet
from syncpoint.comparison.engine import compare
from syncpoint.dumps.open_dump import open_dump
from syncpoint.spreadsheet_text import CsvWriter, escape_cell

FORMULAS = [
    "=cmd|' /C calc'!A0",
    "+1+cmd",
    "-2+3",
    "@SUM(1)",
    "%x",
    "\t=1",
    "\r=1",
    "\n=1",
    "'=1",
    "＝1+1",
    "-1_0+x",
]
ODD = ['quote "x"', "a,b", "line\nbreak", "car\rriage", "semi;colon", "'quoted'", "", " lead"]
NUMBERS = ["-1", "+2.5", "-1e-9", "1", ".5", "-12.5%", "-inf", "nan", "-", "1e+30"]
RUNS = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")


def by_hand(names, sign):
    x = np.linspace(-1, 1, 6, dtype=np.float32)
    ops = [(name, name, name, ("x",), x * sign) for name in names]
    return run(*ops, inputs=[("x", x)])


def test_the_table_of_a_comparison(tmp_path):
    names = [*FORMULAS, *(name for name in ODD if name), "plain"]
    made = Comparison.of(compare(by_hand(names, 1.0), by_hand(names, -1.0)))
    path = made.to_csv(tmp_path / "a.csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    shown = {row["target_op"] for row in rows}
    assert {escape_cell(name) for name in names} <= shown
    for row in rows:
        for cell in row.values():
            assert not cell.startswith(RUNS) or _is_number(cell), cell
    frame = pl.read_csv(path.read_bytes())
    floats = [name for name, kind in made.table.schema.items() if kind == pl.Float64]
    for name in ("psnr", "max_abs", "cosine"):
        assert name in floats and frame.schema[name] == pl.Float64
    worst = frame.filter(pl.col("target_op") == "plain")["cosine"].item()
    assert worst == pytest.approx(-1.0)


def _is_number(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_gets_an_apostrophe_that_can_be_taken_away(text):
    assert escape_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", [*NUMBERS, *ODD, "name", "a=b", "x-1", "'a"])
def test_numbers_and_ordinary_text_stay_as_they_are(text):
    assert escape_cell(text) == text


@given(st.lists(st.text(st.sampled_from("=+-@'%\t\r\n 1e.,;\"a＝")), max_size=5))
def test_no_two_texts_become_one_cell_and_csv_keeps_each(texts):
    cells = [escape_cell(text) for text in texts]
    assert len(set(cells)) == len(set(texts))
    out = io.StringIO(newline="")
    CsvWriter(out).writerow([*cells, "end"])
    assert out.getvalue().endswith("end\n")
    assert next(csv.reader(io.StringIO(out.getvalue(), newline=""))) == [*cells, "end"]
    for cell in cells:
        assert not cell.startswith(RUNS) or _is_number(cell.rstrip("%")) or cell in ("-", "%")


def test_a_sheet_has_text_and_numbers_but_no_formula_and_no_error(tmp_path):
    texts = [*FORMULAS, *NUMBERS, "#N/A", "#DIV/0!", "\x1b[2J", "\ud800", "x" * 40_000, "TRUE"]
    write_sheet(tmp_path / "a.xlsx", ["Name"], ((Colour.RED, [text]) for text in texts))
    (_, *body) = load_workbook(tmp_path / "a.xlsx").active.iter_rows()
    kinds = {text: row[0].data_type for text, row in zip(texts, body, strict=True)}
    values = {text: row[0].value for text, row in zip(texts, body, strict=True)}
    assert set(kinds.values()) <= {"s", "n"}
    assert [values[text] for text in ("-1", "+2.5", "-1e-9")] == [-1, 2.5, -1e-9]
    assert values["#N/A"] == "#N/A" and kinds["#N/A"] == "s"
    assert values["=cmd|' /C calc'!A0"] == "'=cmd|' /C calc'!A0"
    assert values["\x1b[2J"] == "\\x1b[2J"


def test_the_table_of_another_tool_changes_in_names_alone(tmp_path):
    entry = {"input_args": [], "output": [tensor([2], **figures(-1.0, -2.0, -1.5, 1.0))]}
    folders = [
        write(tmp_path / side, {"=1+1.f.0.forward": entry, "Torch.f.0.forward": entry})
        for side in ("t", "r")
    ]
    runs = [open_dump(folder) for folder in folders]
    with write_msprobe_csv(*runs, tmp_path / "x.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["NPU Name"].startswith("'=1+1.f.0.forward")
    assert [rows[1][f"NPU {name}"] for name in ("max", "min", "mean")] == ["-1.0", "-2.0", "-1.5"]
    (_, *body) = load_workbook(write_msprobe_xlsx(*runs, tmp_path / "x.xlsx")).active.iter_rows()
    assert {cell.data_type for row in body for cell in row} <= {"s", "n"}


def test_half_a_character_in_another_tools_names_is_one_line(tmp_path):
    entry = {"input_args": [], "output": [tensor([2], **figures(1.0, 0.0, 0.5, 1.0))]}
    folders = [write(tmp_path / side, {"Torch.\ud800.0.forward": entry}) for side in ("t", "r")]
    found = run_command("compare", *folders, "--msprobe-csv", tmp_path / "x.csv", cwd=tmp_path)
    assert found.returncode == 2 and found.stderr.count(b"\n") == 1
