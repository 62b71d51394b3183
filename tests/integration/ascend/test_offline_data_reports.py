"""What the mode `offline_data` writes, says and refuses."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import syncpoint as sp
from helpers.offline_data_cases import Case, numbers, run, table
from syncpoint.errors import InputError


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_memory_that_is_written_too_early_is_flagged(case: Case) -> None:
    x, y, z = (numbers(64, seed=seed) for seed in range(3))
    case.rule("x", "Data")
    case.rule("y", "Abs", ["x:0"])
    case.rule("z", "Add", ["x:0", "y:0"])
    case.device("Data", "x", [x], addresses=(0x1000,))
    case.device("Abs", "y", [y], [x], addresses=(0x10F0,))
    case.device("Add", "z", [z], [y, y], addresses=(0x2000,))
    for name, array in (("x", x), ("y", y), ("z", z)):
        case.golden(name, array)
    outcome = case.compare()
    lines = table(outcome.report)
    assert lines["x:output:0"]["Address"] == str(0x1000)
    said = "y writes into x at 0x1000 before z reads it; what was read is not what was written"
    assert said in lines["x:output:0"]["Remark"]
    assert said in lines["z:input:0"]["Remark"]
    assert said in outcome.result.warnings
    assert "writes into" not in lines["y:output:0"]["Remark"]


def test_memory_that_is_used_again_when_nobody_reads_it_is_no_fault(case: Case) -> None:
    x, y, z = (numbers(64, seed=seed) for seed in range(3))
    case.rule("x", "Data")
    case.rule("y", "Abs", ["x:0"])
    case.rule("z", "Neg", ["y:0"])
    case.device("Data", "x", [x], addresses=(0x1000,))
    case.device("Abs", "y", [y], addresses=(0x1000,))  # in place
    case.device("Neg", "z", [z], addresses=(0x1000,))
    for name, array in (("x", x), ("y", y), ("z", z)):
        case.golden(name, array)
    assert not any("writes into" in line["Remark"] for line in case.lines().values())


def test_the_elements_of_one_op_are_written_with_the_worst_of_them(case: Case) -> None:
    golden = numbers(3, 5)
    target = golden.copy()
    target[1, 2] += 4
    target[2, 0] *= 100
    case.rule("net/r")
    case.device("Relu", "net/r", [target])
    case.golden("net/r", golden)
    outcome = case.compare(op="net/r", top=2)
    every, absolute, relative = outcome.others
    rows = list(csv.reader(every.open()))
    assert rows[0] == ["Index", "Position", *rows[0][2:]]
    assert len(rows) == 16
    assert [float(v) for v in rows[8][2:4]] == [target[1, 2], golden[1, 2]]
    assert rows[8][1] == "1 2"
    errors = np.abs(target.astype(float) - golden.astype(float)).ravel()
    worst = [int(r[0]) for r in list(csv.reader(absolute.open()))[1:]]
    assert worst == np.argsort(-errors)[:2].tolist()
    worst = [int(r[0]) for r in list(csv.reader(relative.open()))[1:]]
    assert worst == np.argsort(-errors / np.abs(golden.ravel()))[:2].tolist()


def test_a_name_that_is_no_op_is_answered_with_the_nearest(case: Case) -> None:
    case.rule("conv1")
    case.device("Conv2D", "conv1", [numbers(4)])
    case.golden("conv1", numbers(4))
    with pytest.raises(InputError, match="similar names: conv1"):
        case.compare(op="conv2")


def test_a_name_that_looks_like_a_formula_is_written_as_text(case: Case) -> None:
    case.rule("=cmd|' /C calc'!A0", originals=["+x"], origins=["+x"])
    case.device("Relu", "other", [numbers(4)])
    case.golden("other", numbers(4))
    (line,) = case.lines().values()
    assert (line["NPUDump"], line["GroundTruth"]) == ("'=cmd|' /C calc'!A0", "'+x")


def test_without_the_rule_file_the_error_says_how_to_make_it(case: Case) -> None:
    case.device("Relu", "r", [numbers(4)])
    case.golden("r", numbers(4))
    code, said = run("-m", "offline_data", "-tp", case.root / "npu", "-gp", case.root / "golden")
    assert code == 2
    assert "atc --mode=1 --om=MODEL.om --json=MODEL.json" in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-tp", "{npu}", "-gp", "{npu}", "-fr", "{rules}"], "give -cfr too, or leave -fr out"),
        (["-tp", "{golden}", "-gp", "{npu}"], "swap them"),
        (["-tp", "{golden}", "-gp", "{golden}"], "-qfr alone"),
        (["-tp", "{npu}", "-gp", "{golden}", "-cfr", "{rules}"], "-cfr does not apply"),
        (["-tp", "{npu}"], "-gp"),
        (["-gp", "{npu}"], "-tp"),
        (["-tp", "{npu}/nothing", "-gp", "{golden}", "-fr", "{rules}"], "no such folder"),
        (["-tp", "{npu}", "-gp", "{golden}", "-fr", "{rules}.none"], "rule file"),
        (["one", "two", "-tp", "{npu}", "-gp", "{golden}"], "positional paths do not apply"),
    ],
)
def test_what_cannot_be_asked_is_said_in_one_line(case: Case, flags, said) -> None:
    case.device("Relu", "r", [numbers(4)])
    case.golden("r", numbers(4))
    case.rule("r")
    places = {"npu": case.root / "npu", "golden": case.root / "golden"}
    places["rules"] = case.write_rules()
    code, text = run("-m", "offline_data", *(flag.format(**places) for flag in flags))
    assert code == 2
    assert said in text
    assert "\n" not in text


def test_another_mode_is_refused(case: Case) -> None:
    code, text = run("-m", "atb", "-tp", case.root, "-gp", case.root)
    assert (code, "offline_data" in text) == (2, True)


def test_flags_of_the_mode_without_the_mode_are_refused(case: Case) -> None:
    code, text = run("-tp", case.root, "-gp", case.root)
    assert (code, "-m offline_data" in text) == (2, True)


@pytest.mark.parametrize(
    ("damage", "code"),
    [("none", 0), ("other values", 1), ("truncated", 1), ("other name", 3)],
)
def test_exit_codes(case: Case, damage: str, code: int) -> None:
    case.rule("r")
    path = case.device("Relu", "r", [numbers(64)])
    case.golden("other" if damage == "other name" else "r", numbers(64))
    if damage == "other values":
        case.device("Relu", "r", [numbers(64, seed=1)])
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    folders = ("-tp", case.root / "npu", "-gp", case.root / "golden")
    out = case.root / "out"
    found, text = run("-m", "offline_data", *folders, "-fr", case.write_rules(), "-o", out)
    assert found == code, text
    assert len(list(out.glob("result_*.csv"))) == 1
    assert sp.open_comparison(next(out.glob("result_*.cmp"))).target


def test_reports_of_one_second_do_not_overwrite_each_other(case: Case) -> None:
    case.rule("r")
    case.device("Relu", "r", [numbers(4)])
    case.golden("r", numbers(4))
    first, second = case.compare(), case.compare()
    assert first.report != second.report
    assert first.report.read_text() == second.report.read_text()


def test_ops_without_a_file_count_against_the_coverage(case: Case) -> None:
    for name in ("a", "b", "c"):
        case.rule(name)
        case.golden(name, numbers(8))
    case.rule("given", "Data")
    case.device("Relu", "a", [numbers(8)])
    outcome = case.compare()
    coverage = outcome.result.coverage
    assert (coverage.compared, coverage.target_tensors) == (1, 3)
    assert outcome.exit_code() == 3
    assert "2 ops are not in the dump: b, c" in outcome.result.warnings


@pytest.mark.parametrize("side", ["truncated device", "empty device", "truncated golden"])
def test_damaged_files_are_large_in_every_report(case: Case, side: str) -> None:
    for name in ("a", "b"):
        case.rule(name)
        path = case.device("Relu", name, [numbers(64)])
        case.golden(name, numbers(64))
    if side == "truncated golden":
        path = next((case.root / "golden").glob("b.0.*"))
    path.write_bytes(b"" if side == "empty device" else path.read_bytes()[:-9])
    outcome = case.compare(advisor=True)
    assert outcome.result.verdict == "large"
    assert sp.open_comparison(outcome.comparison).exit_code() == outcome.exit_code() == 1
    line = next(line for name, line in table(outcome.report).items() if name.startswith("b"))
    assert (line["Verdict"], line["Remark"]) == ("none", "unreadable")
    assert "cannot be used" in line["CompareFailReason"]
    assert "some could not be compared" in outcome.others[0].read_text()


def test_the_advice_points_to_the_first_nan(case: Case) -> None:
    golden = numbers(64)
    broken = golden.copy()
    broken[5] = np.nan
    for name, array in (("a", golden), ("b", broken), ("c", broken)):
        case.rule(name)
        case.device("Relu", name, [array])
        case.golden(name, golden)
    outcome = case.compare(advisor=True)
    assert "Operator Index: 1" in outcome.others[0].read_text()


@pytest.mark.parametrize("flag", [["--map", "x"], ["--ignore", "r"], ["--resume"]])
def test_options_of_other_comparisons_are_refused(case: Case, flag: list[str]) -> None:
    code, text = run("-m", "offline_data", "-tp", case.root, "-gp", case.root, *flag)
    assert (code, flag[0] in text) == (2, True)
