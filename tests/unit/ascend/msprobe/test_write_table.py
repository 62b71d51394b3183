"""msProbe's own table: every row of the tables that it wrote, and the odd cases by hand."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from helpers.msprobe_dumps import REAL, edited, figures, real, tensor, write
from syncpoint.ascend.msprobe.write_table import write_msprobe_csv, write_msprobe_xlsx
from syncpoint.dumps.open_dump import open_dump
from syncpoint.errors import InputError

DISAGREE: dict[tuple[str, str, str], str] = {}
"""(task, row, column) -> the fact that explains why it is not as the tool has it."""


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(target: Path, reference: Path, path: Path) -> list[dict[str, str]]:
    return rows(write_msprobe_csv(open_dump(target), open_dump(reference), path))


def same(mine: str, theirs: str) -> bool:
    if mine == theirs:
        return True
    try:
        a, b = (float(cell.removesuffix("%")) for cell in (mine, theirs))
    except ValueError:
        return False
    return mine.endswith("%") == theirs.endswith("%") and math.isclose(
        a, b, rel_tol=1e-5, abs_tol=1e-6
    )


@pytest.mark.parametrize("task", ["tensor", "statistics", "md5"])
def test_every_row_of_the_tool_is_reproduced(task, tmp_path):
    found = table(real(f"{task}_target"), real(f"{task}_reference"), tmp_path / "x.csv")
    expected = rows(REAL / f"expected_{task}.csv")
    assert len(found) == len(expected) == 119
    assert list(found[0]) == list(expected[0])
    unlike = {
        (task, theirs["NPU Name"], column)
        for mine, theirs in zip(found, expected, strict=True)
        for column in theirs
        if not same(mine[column], theirs[column])
    }
    assert unlike == {key for key in DISAGREE if key[0] == task}


def one(folder: Path, output: dict[str, object], given: object = None) -> Path:
    entry = {"input_args": [] if given is None else [given], "output": [output]}
    return write(folder, {"Torch.f.0.forward": entry})


def pair(tmp_path: Path, mine: np.ndarray, theirs: np.ndarray) -> dict[str, str]:
    """The row of one tensor with values on both sides."""
    torch = pytest.importorskip("torch")
    folders = []
    for side, array in (("t", mine), ("r", theirs)):
        value = torch.from_numpy(array)
        said = tensor(list(array.shape), str(value.dtype).removeprefix("torch."), data_name="x.pt")
        folders.append(one(tmp_path / side, said))
        (folders[-1] / "dump_tensor_data").mkdir(exist_ok=True)
        torch.save(value, folders[-1] / "dump_tensor_data" / "x.pt")
    return table(*folders, tmp_path / "x.csv")[0]


NUMBERS = ("Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr")
RATIOS = ("One Thousandth Err Ratio", "Five Thousandths Err Ratio")


def cells(row: dict[str, str]) -> list[str]:
    return [row[name] for name in (*NUMBERS, *RATIOS)]


def test_numbers_are_those_of_the_formulas(tmp_path):
    random = np.random.default_rng(1)
    bench = random.standard_normal(5000).astype(np.float32)
    mine = bench * (1 + random.standard_normal(5000).astype(np.float32) * np.float32(0.003))
    row = pair(tmp_path, mine, bench)
    x, y = mine.astype(np.float64), bench.astype(np.float64)
    relative = np.abs((mine - bench) / bench)
    expected = [
        round(x @ y / np.linalg.norm(x) / np.linalg.norm(y), 6),
        np.linalg.norm(x - y),
        np.abs(x - y).max(),
        relative.max(),
        np.mean(relative < 0.001),
        np.mean(relative < 0.005),
    ]
    assert [float(cell) for cell in cells(row)] == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_a_zero_of_the_bench_is_moved_out_of_the_way(tmp_path):
    row = pair(tmp_path, np.array([2.0, 1.0]), np.array([0.0, 1.0]))
    assert float(row["MaxRelativeErr"]) == pytest.approx(2 / np.finfo(np.float64).eps, rel=1e-6)
    assert float(row["MaxRelativeErr"]) == pytest.approx(9.0e15, rel=0.01)


def test_odd_values_are_shown_as_the_tool_shows_them(tmp_path):
    inf, nan = np.inf, np.nan
    row = pair(tmp_path, np.array([inf, nan, 1.0]), np.array([-inf, nan, 1.0]))
    assert cells(row) == ["1.0", "0.0", "0.0", "0.0", "1.0", "1.0"]
    row = pair(tmp_path, np.array([inf, 1.0]), np.array([1.0, 1.0]))
    assert cells(row) == ["N/A"] * 6
    assert "position of inf or nan" in row["Err_message"]
    assert cells(pair(tmp_path, np.zeros(3), np.zeros(3)))[0] == "1.0"
    assert cells(pair(tmp_path, np.ones(3), np.zeros(3)))[0] == "Nan"
    assert cells(pair(tmp_path, np.ones(1), np.ones(1)))[0] == "unsupported"
    assert cells(pair(tmp_path, np.ones((2, 3)), np.ones((3, 2)))) == ["shape unmatched"] * 6
    assert cells(pair(tmp_path, np.ones(0), np.ones(0))) == ["unsupported"] * 6
    scalar = cells(pair(tmp_path, np.array(3.0), np.array(4.0)))
    assert scalar == ["unsupported", "unsupported", "1.0", "0.25", "unsupported", "unsupported"]
    assert cells(pair(tmp_path, np.array([True, False]), np.array([True, True])))[2] == "1.0"
    assert cells(pair(tmp_path, np.array([1, 4]), np.array([1, 5])))[3] == "0.2"


def test_values_that_cannot_be_read_are_said_to_be_so(tmp_path):
    pair(tmp_path, np.ones(3), np.ones(3))
    (tmp_path / "t" / "dump_tensor_data" / "x.pt").write_bytes(b"no zip")
    row = table(tmp_path / "t", tmp_path / "r", tmp_path / "x.csv")[0]
    assert cells(row) == ["unsupported"] * 6
    assert "is not a ZIP file of torch.save" in row["Err_message"]


@pytest.mark.parametrize(
    ("mine", "theirs", "diff", "relative"),
    [
        (3.0, 2.0, "1.0", "50.0%"),
        (1.0, 2.0, "-1.0", "50.0%"),
        (3.0, 0.0, "3.0", "inf"),
        (2.0, 2.0, "0", "0"),
        (math.nan, math.nan, "0", "0"),
        (math.nan, 2.0, "Nan", "Nan"),
        (math.inf, math.inf, "0", "0"),
        (math.inf, 2.0, "inf", "inf"),
        (2.0, math.inf, "-inf", "-inf"),
        (True, False, "Diff", "Diff"),
    ],
)
def test_differences_of_figures(tmp_path, mine, theirs, diff, relative):
    folders = [
        one(tmp_path / side, tensor([2], **figures(value, 0.0, 0.0, 1.0)))
        for side, value in (("t", mine), ("r", theirs))
    ]
    row = table(*folders, tmp_path / "x.csv")[0]
    assert (row["Max diff"], row["MaxRelativeErr"]) == (diff, relative)
    assert row["NPU max"] == str(mine)


def result(tmp_path: Path, mine: object, theirs: object, given: tuple = (None, None)) -> tuple:
    folders = [
        one(tmp_path / side, output, argument)
        for side, output, argument in (("t", mine, given[0]), ("r", theirs, given[1]))
    ]
    row = table(*folders, tmp_path / "x.csv")[-1 if given[0] is None else 0]
    return row["Result"], json.loads(row["Err_message"])


def test_rows_are_called_by_the_rules_of_the_tool(tmp_path):
    plain = tensor([2], **figures(1.0, 0.0, 0.5, 1.0))
    assert result(tmp_path, plain, plain) == ("pass", [])
    odd = tensor([2], **figures(math.inf, 0.0, 0.5, 1.0))
    assert result(tmp_path, odd, plain) == (
        "error",
        ["error: There is nan/inf/-inf in the maximum or minimum value of NPU."],
    )
    assert result(tmp_path, odd, odd)[0] == "pass"
    grad = {**plain, "requires_grad": True}
    assert result(tmp_path, grad, plain)[1] == [
        "error: The Required_Grad of NPU and Bench are inconsistent"
    ]
    assert result(tmp_path, {**plain, "dtype": "torch.float16"}, plain)[1] == [
        "error: The dtype of NPU and Bench are inconsistent."
    ]
    assert result(tmp_path, {**plain, "shape": [1, 2]}, plain)[1] == [
        "error: The shape of NPU and Bench are inconsistent."
    ]
    scalars = [{"type": "float", "value": v} for v in (1e-5, 1e-6)]
    assert result(tmp_path, plain, plain, tuple(scalars))[1] == [
        "error: The scalar parameters of NPU and Bench are inconsistent."
    ]


def test_an_output_that_is_worse_than_the_inputs_is_an_error(tmp_path):
    def dump(folder: Path, norm: float, before: float, api: str = "f") -> Path:
        given = tensor([2], **figures(2.0, 0.0, 1.0, before))
        entry = {"input_args": [given], "output": [tensor([2], **figures(2.0, 0.0, 1.0, norm))]}
        return write(folder, {f"Torch.{api}.0.forward": entry})

    def called(norm: float, before: float, api: str = "f") -> tuple[str, list[str]]:
        folders = dump(tmp_path / "t", norm, before, api), dump(tmp_path / "r", 1.0, 1.0, api)
        row = table(*folders, tmp_path / "x.csv")[-1]
        return row["Result"], json.loads(row["Err_message"])

    norm = "error: The NormRelativeErr of output is greater than 0.5."
    times = "warning: The norm relative error of output is 10 times that of input."
    assert called(1.6, 1.0) == ("error", [norm, times])
    assert called(1.2, 1.0) == ("warning", [times])
    assert called(1.2, 1.1) == ("pass", [])
    assert called(1.6, 1.0, "empty_like") == ("pass", [])
    assert called(1.6, 1.0, "_all_gather_base") == ("pass", [])


def test_what_only_the_target_has_is_kept_and_said(tmp_path):
    target = real("statistics_target")
    reference = edited(
        "statistics_reference",
        tmp_path / "r",
        lambda data: {n: v for n, v in data.items() if "gelu" not in n},
    )
    found = table(target, reference, tmp_path / "x.csv")
    assert len(found) == 119
    lonely = [row for row in found if row["Bench Name"] == "N/A"]
    assert len(lonely) == 8
    for row in lonely:
        assert json.loads(row["Err_message"]) == ["No bench data matched."]
        assert (row["Result"], row["Max diff"], row["Bench max"]) == ("N/A", "N/A", "N/A")


def test_a_missing_sum_is_a_warning(tmp_path):
    folders = one(tmp_path / "t", tensor([2], md5="00000001")), one(tmp_path / "r", tensor([2]))
    row = table(*folders, tmp_path / "x.csv")[0]
    assert "NPU MD5" not in row  # only what both have decides the columns
    both = {"a": tensor([2], md5="00000001"), "b": tensor([2], md5="00000002")}
    entries = [{"input_args": [], "output": [both["a"], mine]} for mine in (both["b"], tensor([2]))]
    for side, entry in zip("tr", entries, strict=True):
        write(tmp_path / side, {"Torch.f.0.forward": entry})
    row = table(tmp_path / "t", tmp_path / "r", tmp_path / "x.csv")[1]
    assert (row["NPU MD5"], row["BENCH MD5"], row["Result"]) == ("00000002", "N/A", "warning")


def test_a_run_that_was_kept_gives_the_same_table(tmp_path):
    from syncpoint.dumps.save_dump import save_dump

    runs = []
    for name in ("target", "reference"):
        save_dump(open_dump(real(f"statistics_{name}")), tmp_path / f"{name}.run", "run")
        runs.append(tmp_path / f"{name}.run")
    again = table(*runs, tmp_path / "x.csv")
    assert again == rows(REAL / "expected_statistics.csv")


def test_other_runs_have_no_such_table(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.ones(3))
    run = open_dump(tmp_path / "x.npz")
    with pytest.raises(InputError, match="two dumps of msProbe"):
        write_msprobe_csv(run, run, tmp_path / "x.csv")
    for rank in (0, 1):
        one(tmp_path / "t" / "step0" / f"rank{rank}", tensor([2]))
    run = open_dump(tmp_path / "t")
    with pytest.raises(InputError, match="one step and one rank"):
        write_msprobe_csv(run, run, tmp_path / "x.csv")
    assert not (tmp_path / "x.csv").exists()


FILLS = {"FFFFC7CE": "red", "FFFFEB9C": "yellow", "FFC6EFCE": "green"}


def sheet(target: Path, reference: Path, path: Path) -> tuple[list[str], list[list], list[str]]:
    """Header, values and colours of the sheet, read back."""
    from openpyxl import load_workbook

    write_msprobe_xlsx(open_dump(target), open_dump(reference), path)
    header, *body = load_workbook(path).active.iter_rows()
    for row in body:
        assert len({cell.fill.fgColor.rgb for cell in row}) == 1
    values = [[cell.value for cell in row] for row in body]
    return [c.value for c in header], values, [FILLS[row[0].fill.fgColor.rgb] for row in body]


def wanted_colour(row: dict[str, str], task: str) -> str:
    """By the tool's own cells: its result, and the rule of its manual."""
    if row["Result"] in ("error", "warning"):
        return {"error": "red", "warning": "yellow"}[row["Result"]]
    if task == "md5":
        return "green" if row["NPU MD5"] == row["BENCH MD5"] else "yellow"
    if "torch" not in row["NPU Dtype"]:  # no tensor
        return "green" if row["NPU max"] == row["Bench max"] else "yellow"
    if task == "tensor":
        one_element = row["Cosine"] == "unsupported"
        good = (one_element or float(row["Cosine"]) >= 0.99) and float(row["MaxRelativeErr"]) < 0.01
    else:
        errors = [row[f"{n}RelativeErr"] for n in ("Max", "Min", "Mean", "Norm")]
        good = all(e == "N/A" or float(e.removesuffix("%")) < 1 for e in errors)
    return "green" if good else "yellow"


@pytest.mark.parametrize("task", ["tensor", "statistics", "md5"])
def test_the_sheet_has_the_rows_of_the_table_in_colours(task, tmp_path):
    sides = real(f"{task}_target"), real(f"{task}_reference")
    header, values, colours = sheet(*sides, tmp_path / "x.xlsx")
    expected = rows(REAL / f"expected_{task}.csv")
    assert header == list(expected[0]) and len(values) == 119
    assert colours == [wanted_colour(row, task) for row in expected]
    guilty = next(
        at for at, row in enumerate(expected)
        if row["NPU Name"] == "Functional.linear.1.forward.output.0"
    )  # fmt: skip
    assert colours[guilty] == ("red" if task == "md5" else "yellow")
    assert colours.count("green") == {"tensor": 48, "statistics": 48, "md5": 48}[task]
    if task == "tensor":
        at = header.index("Cosine")
        assert values[guilty][at] == pytest.approx(0.936, abs=1e-3)


def test_infinities_are_never_green(tmp_path):
    torch = pytest.importorskip("torch")
    folders = []
    for side, array in (("t", [math.inf, 1.0]), ("r", [-math.inf, 1.0])):
        said = tensor([2], data_name="x.pt", **figures(max(array), min(array), math.nan, math.inf))
        folders.append(one(tmp_path / side, said))
        (folders[-1] / "dump_tensor_data").mkdir()
        torch.save(torch.tensor(array), folders[-1] / "dump_tensor_data" / "x.pt")
    header, values, colours = sheet(*folders, tmp_path / "x.xlsx")
    assert values[0][header.index("Cosine")] == 1.0
    assert colours != ["green"]


def test_a_name_like_a_formula_is_text_in_the_sheet(tmp_path):
    entry = {"input_args": [], "output": [tensor([2], **figures(1.0, 0.0, 0.5, 1.0))]}
    folders = [write(tmp_path / side, {"=1+1.f.0.forward": entry}) for side in ("t", "r")]
    _, values, _ = sheet(*folders, tmp_path / "x.xlsx")
    assert values[0][0].startswith("'=1+1.f.0.forward")
