"""The manual of the mode `torchair`, command by command and column by column.

What a sentence of the manual promises is asked of the program here, on the dumps of the data set,
and the numbers are found again with NumPy and a reader of device files of its own. How a dump is
reduced has tests of its own; here it counts that what is left of one is compared.
"""

from __future__ import annotations

import csv
import re
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest

import syncpoint as sp
from helpers.ascend_column_oracle import device_tensors
from helpers.commands import syncpoint
from helpers.msprobe_dumps import real
from helpers.paths import ASCEND_DATA
from helpers.torchair_dumps import Dumps, numbers
from syncpoint.ascend.mode.torchair.report_manual import ColumnsSeed
from syncpoint.errors import InputError

FIRST = ("API Name", "Stack Info", "Data Name")
METRICS = {
    "values": (
        *("Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr"),
        *("One Thousandth Err Ratio", "Five Thousandth Err Ratio", "Requires_grad Consistent"),
    ),
    "statistics": (
        *("Max diff", "Min diff", "Mean diff", "L2norm diff"),
        *("MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"),
    ),
    "md5": ("NPU MD5", "BENCH MD5"),
}
LAST = ("Result", "Accuracy Reached or Not", "Err_message")
OURS = ("Token", "Verdict", "Remark")
COLOURS = {"FFFFC7CE": "red", "FFFFEB9C": "yellow", "FFC6EFCE": "green"}
REACHED = {"PASS": "Yes", "FAIL": "No", "N/A": "N/A"}


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def dump_path(tmp_path: Path) -> Path:
    """The folders that the commands name, of the three versions and of both GE dumps."""
    new, old = ASCEND_DATA / "torchair_rank", ASCEND_DATA / "torchair"
    for version, source in (("later", new), ("7.1.0", old), ("earlier", old)):
        shutil.copytree(source / "msprobe_ge_dump", tmp_path / version / "msprobe_ge_dump")
    shutil.copytree(new / "msprobe_fx_dump", tmp_path / "later" / "msprobe_fx_dump")
    shutil.copytree(old / "msprobe_fx_dump", tmp_path / "7.1.0" / "msprobe_fx_dump")
    shutil.copytree(old / "msprobe_fx_dump" / "data_dump", tmp_path / "earlier" / "data_dump")
    for name, source in (("off", old), ("off_rank", new)):
        shutil.copytree(source / "msprobe_ge_off", tmp_path / name / "msprobe_ge_dump")
    return tmp_path


COMMANDS = {
    "later": ("later/msprobe_ge_dump", "later/msprobe_fx_dump"),
    "7.1.0": ("7.1.0/msprobe_ge_dump", "7.1.0/msprobe_fx_dump/data_dump"),
    "earlier": ("earlier/msprobe_ge_dump", "earlier/data_dump"),
    "fusion off": ("7.1.0/msprobe_ge_dump", "off/msprobe_ge_dump"),
    "fusion off, ranks": ("later/msprobe_ge_dump", "off_rank/msprobe_ge_dump"),
}


def run(cwd: Path, target: str, golden: str, *more: str, code: int | None = None) -> Path:
    """The command of the manual; its report."""
    before = set(cwd.rglob("*.csv"))
    syncpoint(
        "compare", "--target_path", target, "--golden_path", golden, *more, "--mode", "torchair",
        cwd=cwd, code=code,
    )  # fmt: skip
    (report,) = set(cwd.rglob("*.csv")) - before
    return report


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_writes_its_result_into_the_current_folder(command, dump_path):
    report = run(dump_path, *COMMANDS[command], code=1)
    assert report.parent == dump_path
    assert re.fullmatch(r"msprobe_cmp_report(_rank0)?_\d{14}\.csv", report.name)
    rows = table(report)
    assert list(rows[0]) == [*FIRST, *METRICS["values"], *LAST, *OURS]
    # The tokens are those of the device, whatever the folders of the other side are called: what
    # each op was given is the same on both sides, and would not be in another token.
    assert [row["Token"] for row in rows] == ["0"] * 9 + ["1"] * 9
    given = [row for row in rows if ".input." in row["API Name"]]
    assert len(given) == 8 and {row["Result"] for row in given} == {"PASS"}
    token = {"later": 0, "7.1.0": 1, "earlier": 1}.get(command)
    for row in given if token is not None else ():
        # Before 7.1.0 and in it a folder of the FX side is called one more than its token.
        parts = Path(row["Data Name"].rpartition(", ")[2]).parts
        place = -2 if command == "later" else -3
        assert int(parts[place]) == int(row["Token"]) + token


@pytest.mark.parametrize("command", ["later", "fusion off"])
def test_the_output_path_holds_the_result_where_it_is_given(command, dump_path):
    report = run(dump_path, *COMMANDS[command], "--output_path", "results/today", code=1)
    assert report.parent == dump_path / "results" / "today"
    assert not list(dump_path.glob("msprobe_cmp_report*"))


@pytest.mark.parametrize("kind", ["GE", "FX"])
def test_two_dumps_in_one_path_are_refused(kind, tmp_path):
    """The manual asks for different paths: nothing tells which file is of which execution."""
    dumps = Dumps(tmp_path)
    x = numbers(4, 8)
    dumps.op("Relu_1", "Relu", [], ["relu-aten.relu.default.OUTPUT.0"])
    dumps.device("Relu", "Relu_1", [x])
    dumps.node("relu-aten.relu.default", [x])
    if kind == "GE":
        dumps.device("Relu", "Relu_1", [x], folder="ge/20240101010102/0/graph_1/1")
    else:
        dumps.node("relu-aten.relu.default", [x], folder="fx/1/gm_2")
    with pytest.raises(InputError, match="dump each execution"):
        dumps.compare()


def sides(row: dict[str, str], cwd: Path) -> list[np.ndarray]:
    """The arrays that a line names, by readers that share nothing with the program's."""
    found = []
    for name in re.fullmatch(r"\[(.*), (.*)\]", row["Data Name"]).groups():
        path, *place = name.split(",")
        if not place:
            found.append(np.load(cwd / path))
            continue
        _, array = device_tensors(cwd / path)[place[0].removesuffix("s"), int(place[1])]
        found.append(array)
    return found


def values(mine: np.ndarray, golden: np.ndarray) -> list[float]:
    x, y = (side.astype(np.float64).ravel() for side in (mine, golden))
    relative = np.abs(x - y) / np.abs(y)
    return [
        x @ y / np.linalg.norm(x) / np.linalg.norm(y),
        np.linalg.norm(x - y),
        np.abs(x - y).max(),
        relative.max(),
        np.mean(relative < 0.001),
        np.mean(relative < 0.005),
    ]


def statistics(mine: np.ndarray, golden: np.ndarray) -> list[float]:
    pairs = []
    for figure in (np.max, np.min, np.mean, lambda a: np.linalg.norm(a.ravel())):
        x, y = (float(figure(side.astype(np.float64))) for side in (mine, golden))
        pairs.append((x - y, abs((x - y) / y)))
    return [*(p[0] for p in pairs), *(p[1] for p in pairs)]


@pytest.mark.parametrize("command", ["later", "earlier", "fusion off"])
@pytest.mark.parametrize("mode", METRICS)
def test_every_column_of_every_line(command, mode, dump_path):
    rows = table(run(dump_path, *COMMANDS[command], "--summary_mode", mode))
    assert list(rows[0]) == [*FIRST, *METRICS[mode], *LAST, *OURS]
    assert len(rows) == 18
    results = set()
    for row in rows:
        assert re.fullmatch(r"\w+\.(input|output)\.0", row["API Name"])
        assert row["Stack Info"] == "N/A"
        assert row["Err_message"] == "" or "float16 against float32" in row["Err_message"]
        mine, golden = sides(row, dump_path)
        found = [row[name] for name in METRICS[mode]]
        if mode == "values":
            assert found.pop() == "N/A"  # such a dump knows of no gradients
            wanted = values(mine, golden)
            assert list(map(float, found)) == pytest.approx(wanted, rel=1e-9, abs=1e-12)
            passed = wanted[0] >= 0.99 and wanted[3] < 0.01
        elif mode == "statistics":
            wanted = statistics(mine, golden)
            assert list(map(float, found)) == pytest.approx(wanted, rel=1e-5, abs=1e-8)
            size = np.sqrt(np.mean(golden.astype(np.float64) ** 2))
            # A mean near zero is no measure of itself.
            figures = [golden.max(), golden.min(), golden.mean()]
            scales = [max(abs(float(figure)), size) for figure in figures]
            scales.append(size * np.sqrt(golden.size))
            passed = all(abs(d) < s / 100 for d, s in zip(wanted[:4], scales, strict=True))
        else:
            assert found == [f"{zlib.crc32(side.tobytes()):08x}" for side in (mine, golden)]
            passed = found[0] == found[1]
        assert row["Result"] == ("PASS" if passed else "FAIL")
        assert row["Accuracy Reached or Not"] == REACHED[row["Result"]]
        results.add(row["Result"])
    assert results == ({"PASS"} if mode == "statistics" else {"PASS", "FAIL"})


def one_op(tmp_path: Path, mine: np.ndarray, golden: np.ndarray, **more: str) -> dict[str, str]:
    dumps = Dumps(tmp_path)
    dumps.device("Relu", "Relu_1", [mine])
    dumps.node("relu-aten.relu.default", [golden])
    dumps.op("Relu_1", "Relu", [], ["relu-aten.relu.default.OUTPUT.0"])
    return dumps.lines(**more)["Relu_1.output.0"]


@pytest.mark.parametrize(
    ("factor", "result"), [(1.0, "PASS"), (1.0099, "PASS"), (1.01, "FAIL"), (1.0101, "FAIL")]
)
def test_real_data_passes_below_a_relative_error_of_a_hundredth(factor, result, tmp_path):
    golden = np.full(8, 100.0)
    row = one_op(tmp_path, golden * factor, golden)
    assert float(row["MaxRelativeErr"]) == pytest.approx(factor - 1, abs=1e-9)
    assert (row["Result"], row["Accuracy Reached or Not"]) == (result, REACHED[result])


def test_real_data_passes_from_a_cosine_of_099_on():
    # No two arrays have this cosine and so small an error, so the rule is asked itself.
    for cosine, passed in ((0.99, True), (0.9899999, False), (1.0, True)):
        assert ColumnsSeed((cosine, 0.1, 0.1, 0.009, 1.0, 1.0)).passed is passed
    assert ColumnsSeed((0.99, 0.1, 0.1, 0.01, 1.0, 1.0)).passed is False


def test_a_direction_that_is_off_fails(tmp_path):
    angle = np.arccos(0.98)
    golden, mine = np.array([1.0, 0.0]), np.array([np.cos(angle), np.sin(angle)])
    row = one_op(tmp_path, mine, golden)
    assert float(row["Cosine"]) == pytest.approx(0.98) and row["Result"] == "FAIL"


@pytest.mark.parametrize(("factor", "result"), [(1.009, "PASS"), (1.011, "FAIL")])
def test_statistics_pass_while_no_figure_is_a_hundredth_off(factor, result, tmp_path):
    row = one_op(tmp_path, numbers(4, 8) * factor, numbers(4, 8), summary="statistics")
    assert row["Result"] == result


def test_checksums_pass_where_they_are_equal(tmp_path):
    x = numbers(4, 8)
    row = one_op(tmp_path / "same", x, x, summary="md5")
    assert row["NPU MD5"] == row["BENCH MD5"] and row["Result"] == "PASS"
    row = one_op(tmp_path / "other", np.nextafter(x, np.float32(9)), x, summary="md5")
    assert row["NPU MD5"] != row["BENCH MD5"] and row["Result"] == "FAIL"


SPECIAL = {
    "shape.output.0": ("N/A", "N/A"),
    "missing.output.0": ("N/A", "N/A"),
    "nanb.output.0": ("NaN", "NaN"),
    "goldzero.output.0": ("NaN", "inf"),
    "infm.output.0": ("NaN", "inf"),
}


def test_special_values_are_said_and_never_pass(dump_path):
    shutil.copytree(ASCEND_DATA / "torchair_edge", dump_path / "edge")
    rows = {row["API Name"]: row for row in table(run(dump_path, "edge/ge", "edge/fx"))}
    for name, cells in SPECIAL.items():
        row = rows[name]
        assert (row["Cosine"], row["MaxRelativeErr"]) == cells, name
        assert row["Result"] != "PASS" and row["Accuracy Reached or Not"] != "Yes"
        assert row["Err_message"] or name == "goldzero.output.0"
    report = run(dump_path, "edge/ge", "edge/fx", "--summary_mode", "statistics")
    rows = {row["API Name"]: row for row in table(report)}
    assert (rows["goldzero.output.0"]["MaxRelativeErr"], rows["nanb.output.0"]["Max diff"]) == (
        "inf",
        "NaN",
    )
    for name in SPECIAL:
        assert rows[name]["Result"] != "PASS", name
    assert rows["off.output.0"]["Result"] == "FAIL"


@pytest.mark.parametrize("mode", METRICS)
def test_the_sheet_marks_lines_in_three_colours(mode, dump_path):
    from openpyxl import load_workbook

    shutil.copytree(ASCEND_DATA / "torchair_edge", dump_path / "edge")
    report = run(dump_path, "edge/ge", "edge/fx", "--xlsx", "--summary_mode", mode)
    header, *body = load_workbook(report.with_suffix(".xlsx")).active.iter_rows()
    rows = table(report)
    assert [cell.value for cell in header] == list(rows[0])
    colours = set()
    for row, cells in zip(rows, body, strict=True):
        (fill,) = {cell.fill.fgColor.rgb for cell in cells}
        colour = COLOURS[fill]
        colours.add(colour)
        failing = row["Remark"].startswith(("unreadable", "shape"))
        if row["Verdict"] == "large" or failing:
            assert colour == "red", row
        elif row["Verdict"] == "close" and row["Result"] == "PASS":
            assert colour == "green", row
        else:
            assert colour == "yellow", row
    assert colours == {"red", "yellow", "green"}


def test_a_table_of_msprobe_says_whether_gradients_are_asked_for_alike(tmp_path):
    """TorchAir's dumps cannot know; those of PrecisionDebugger do."""
    for task in ("tensor", "statistics", "md5"):
        target, reference = (str(real(f"{task}_{side}")) for side in ("target", "reference"))
        syncpoint("compare", target, reference, "--msprobe-csv", f"{task}.csv", cwd=tmp_path)
        rows = table(tmp_path / f"{task}.csv")
        assert {row["Requires_grad Consistent"] for row in rows} == {"True"}


@pytest.mark.parametrize("mode", METRICS)
def test_reduced_dumps_are_compared_in_every_mode(mode, dump_path):
    target, golden = COMMANDS["earlier"]
    whole = table(run(dump_path, target, golden, "--summary_mode", mode))
    for path in (dump_path / golden).rglob("*.npy"):
        data = np.load(path)
        np.save(path.with_name(f"{path.stem}_min_max.npy"), [data.min(), data.max()])
        path.unlink()
    rows = table(run(dump_path, target, golden, "--summary_mode", mode))
    assert [row["API Name"] for row in rows] == [row["API Name"] for row in whole]
    for row, like in zip(rows, whole, strict=True):
        if "Cast" in row["API Name"]:
            assert row == like  # its own input was not reduced
            continue
        assert "only the minimum and the maximum are known" in row["Remark"]
        if mode == "statistics":
            for name in ("Max diff", "Min diff", "MaxRelativeErr", "MinRelativeErr"):
                assert float(row[name]) == pytest.approx(float(like[name]), rel=1e-5, abs=1e-7)
            for name in ("Mean diff", "L2norm diff", "MeanRelativeErr", "NormRelativeErr"):
                assert row[name] == "N/A"
        elif mode == "md5":
            assert (row["NPU MD5"], row["Result"]) == ("N/A", "N/A")


def test_modes_that_do_not_exist_are_told_in_one_line(dump_path):
    for more, said in (
        (("--summary_mode", "sha"), "use values or statistics or md5"),
        (("--summary_mode", "md5", "--dialect", "26.2"), "the dialect seed"),
    ):
        found = syncpoint(
            "compare", "-m", "torchair", "-tp", COMMANDS["later"][0], "-gp", COMMANDS["later"][1],
            *more, cwd=dump_path, code=2,
        )  # fmt: skip
        assert said in found.stderr and len(found.stderr.splitlines()) == 1
    with pytest.raises(InputError, match="use one of: values, statistics, md5"):
        sp.compare_torchair("a", "b", summary="sha")
