"""The mode `offline_data` where the tool of these dumps goes wrong, case by case."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import syncpoint as sp
from ascend_files import chunk, dump, number, output, shape
from syncpoint.cli.app import app
from syncpoint.errors import InputError, SyncpointError
from syncpoint.offline.mode import Outcome

TYPES = {"float32": 1, "float16": 2, "int8": 3, "int32": 7, "int64": 8}


@dataclass
class Case:
    """Two folders and a rule file that grow line by line."""

    root: Path
    rules: list[dict[str, Any]] = field(default_factory=list)
    at: int = 1700000000000000

    def device(
        self,
        type: str,
        name: str,
        outputs: list[np.ndarray],
        inputs: list[np.ndarray] = (),
        *,
        folder: str = "npu",
        addresses: tuple[int, ...] = (),
        said: str = "",
    ) -> Path:
        """A dump file; `said` is the name in its header."""
        self.at += 1000
        messages = []
        for array in inputs:
            body = number(1, TYPES[str(array.dtype)]) + number(2, 2) + shape(3, array.shape)
            messages.append(chunk(4, body + number(5, array.nbytes) + shape(6, array.shape)))
        for place, array in enumerate(outputs):
            address = addresses[place] if place < len(addresses) else 0
            code = TYPES[str(array.dtype)]
            messages.append(output(array.shape, array.nbytes, code, address=address))
        path = self.root / folder / f"{type}.{escaped(name)}.1.2.{self.at}"
        path.parent.mkdir(exist_ok=True)
        data = b"".join(a.tobytes() for a in (*inputs, *outputs))
        path.write_bytes(dump(*messages, data=data, name=said))
        return path

    def golden(self, name: str, array: np.ndarray, index: int = 0, folder: str = "golden") -> None:
        self.at += 1000
        path = self.root / folder / f"{escaped(name)}.{index}.{self.at}.npy"
        path.parent.mkdir(exist_ok=True)
        np.save(path, array)

    def rule(
        self,
        name: str,
        type: str = "Relu",
        inputs: list[str] = (),
        origins: list[str | None] = ("",),
        originals: list[str] | None = None,
    ) -> None:
        """An op of the rule file; an origin of "" is its own name, None says nothing."""
        self.rules.append(
            {
                "name": name,
                "type": type,
                "id": len(self.rules),
                "input": list(inputs),
                "output_desc": [desc(name if o == "" else o, 0) for o in origins],
                "attr": []
                if originals is None
                else [{"key": "_datadump_original_op_names", "value": {"list": {"s": originals}}}],
            }
        )

    def write_rules(self, name: str = "rules.json") -> Path:
        path = self.root / name
        path.write_text(json.dumps({"graph": [{"name": "net", "op": self.rules}]}))
        return path

    def compare(self, **more: Any) -> Outcome:
        options = {"fusion_rule": self.write_rules(), "out": self.root / "out", **more}
        return sp.compare_offline(self.root / "npu", self.root / "golden", **options)[0]

    def lines(self, **more: Any) -> dict[str, dict[str, str]]:
        """Lines of the report by TensorIndex, or by the op where there is none."""
        return table(self.compare(**more).report)


def table(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    found = [dict(zip(header, row, strict=True)) for row in rows]
    return {r["NPUDump"] if r["TensorIndex"] == "NaN" else r["TensorIndex"]: r for r in found}


def desc(origin: str | None, index: int) -> dict[str, Any]:
    attr = [{"key": "_datadump_origin_output_index", "value": {"i": index}}]
    attr.append({"key": "_datadump_origin_format", "value": {"s": "ND"}})
    if origin is not None:
        attr.append({"key": "_datadump_origin_name", "value": {"s": origin}})
    return {"dtype": "DT_FLOAT", "attr": attr}


def escaped(name: str) -> str:
    return name.replace("/", "_").replace(".", "_").replace(" ", "_")


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_names_that_collide_are_told_apart_by_the_header_or_not_compared(case: Case) -> None:
    one, two = numbers(4, 8), numbers(4, 8, seed=1)
    for name, array in (("a/b", one), ("a_b", two)):
        case.rule(name)
        case.device("Relu", name, [array], said=name)
    case.golden("a/b", one)
    lines = case.lines()
    # The golden files have no header: which of the two this one is cannot be told.
    for label in ("a/b:output:0", "a_b:output:0"):
        assert lines[label]["Verdict"] == "none"
        assert "ambiguous" in lines[label]["Remark"]
        assert lines[label]["CosineSimilarity"] == "NaN"


def test_device_files_that_collide_are_found_by_the_name_in_their_header(case: Case) -> None:
    one, two = numbers(4, 8), numbers(4, 8, seed=1)
    case.rule("a/b", origins=["first"], originals=["first"])
    case.rule("a_b", origins=["second"], originals=["second"])
    case.device("Relu", "a_b", [two], said="a_b")
    case.device("Relu", "a/b", [one], said="a/b")
    case.golden("first", one)
    case.golden("second", two)
    lines = case.lines()
    assert [lines[f"{n}:output:0"]["Verdict"] for n in ("a/b", "a_b")] == ["close", "close"]


def test_an_op_with_a_space_in_its_name_is_found(case: Case) -> None:
    case.rule("sp ace")
    case.device("Relu", "sp ace", [numbers(4)])
    case.golden("sp ace", numbers(4))
    assert case.lines()["sp ace:output:0"]["Verdict"] == "close"


def test_an_output_that_the_rules_do_not_describe_has_no_counterpart(case: Case) -> None:
    case.rule("split", "Split", origins=[""])
    case.device("Split", "split", [numbers(4), numbers(4, seed=1)])
    case.golden("split", numbers(4))
    lines = case.lines()
    assert lines["split:output:0"]["Verdict"] == "close"
    assert lines["split:output:1"]["CosineSimilarity"] == "NaN"
    assert "describes 1 outputs" in lines["split:output:1"]["CompareFailReason"]


def test_one_complex_golden_costs_its_own_line_only(case: Case) -> None:
    for name in ("good", "odd"):
        case.rule(name)
        case.device("Relu", name, [numbers(4)])
    case.golden("good", numbers(4))
    case.golden("odd", numbers(4).astype(np.complex64))
    lines = case.lines()
    assert lines["good:output:0"]["Verdict"] == "close"
    assert "complex" in lines["odd:output:0"]["CompareFailReason"]


def test_the_last_execution_is_compared_and_the_report_says_so(case: Case) -> None:
    case.rule("r")
    case.device("Relu", "r", [numbers(4, seed=1)])
    case.device("Relu", "r", [numbers(4)])
    case.golden("r", numbers(4))
    line = case.lines()["r:output:0"]
    assert line["Verdict"] == "close"
    assert "last of 2 executions" in line["Remark"]


def test_inputs_are_compared_with_their_producer_through_casts(case: Case) -> None:
    x, y = numbers(4), numbers(4, seed=1)
    case.rule("x", "Data")
    case.rule("cast", "Cast", ["x:0"], origins=[None], originals=[""])
    case.rule("y", "Abs", ["cast:0", "w:0"])
    case.rule("w", "Const")
    case.device("Data", "x", [x])
    case.device("Cast", "cast", [x.astype(np.float16)], [x])
    case.device("Abs", "y", [y], [x.astype(np.float16), y])
    case.golden("x", x)
    case.golden("y", y)
    outcome = case.compare()
    lines = table(outcome.report)
    for label in ("cast:input:0", "cast:output:0", "y:input:0"):
        assert (lines[label]["Verdict"], lines[label]["GroundTruth"][:1]) != ("none", "")
        assert lines[label]["Verdict"] == "close", lines[label]
    assert "the constant w" in lines["y:input:1"]["CompareFailReason"]
    # A constant that nobody dumped is no gap in what was compared.
    assert outcome.result.coverage.target == 1.0


def test_the_error_is_placed_where_it_came_in(case: Case) -> None:
    x, y, z = (numbers(64, seed=seed) for seed in range(3))
    case.rule("x", "Data")
    case.rule("y", "Abs", ["x:0"])
    case.rule("z", "Neg", ["y:0"])
    # Dumped in another order than they were executed in the network: the edges tell.
    case.device("Data", "x", [x])
    case.device("Abs", "y", [y * np.float32(1.5)])
    case.device("Neg", "z", [z * np.float32(1.5)])
    for name, array in (("x", x), ("y", y), ("z", z)):
        case.golden(name, array)
    outcome = case.compare()
    assert [str(r.target.key.op) for r in outcome.result.first_divergence] == ["y"]
    assert outcome.exit_code() == 1


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
    with pytest.raises(InputError, match="near to it: conv1"):
        case.compare(op="conv2")


def test_a_quantized_original_model_is_compared_by_the_quantizing_rules(case: Case) -> None:
    x, y = numbers(16), numbers(16, seed=1)
    case.golden("x", x, folder="npu")
    case.golden("y_quant", y, folder="npu")
    case.golden("x", x)
    case.golden("y", y)
    case.rule("x", "Data")
    case.rule("y_quant", "Convolution", ["x:0"], origins=["y"], originals=["y"])
    rules = case.write_rules("quant.json")
    lines = case.lines(fusion_rule=None, quant_fusion_rule=rules)
    assert [line["Verdict"] for line in lines.values()] == ["close", "close"]
    assert lines["y_quant:output:0"]["GroundTruth"] == "y"


def test_a_name_that_looks_like_a_formula_is_written_as_text(case: Case) -> None:
    case.rule("=cmd|' /C calc'!A0", originals=["+x"], origins=["+x"])
    case.device("Relu", "other", [numbers(4)])
    case.golden("other", numbers(4))
    (line,) = case.lines().values()
    assert (line["NPUDump"], line["GroundTruth"]) == ("'=cmd|' /C calc'!A0", "'+x")


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    error = result.exception
    if isinstance(error, SyncpointError):
        return error.exit_code, str(error)
    return result.exit_code, result.output


def test_without_the_rule_file_the_error_says_how_to_make_it(case: Case) -> None:
    case.device("Relu", "r", [numbers(4)])
    case.golden("r", numbers(4))
    code, said = run("-m", "offline_data", "-tp", case.root / "npu", "-gp", case.root / "golden")
    assert code == 2
    assert "atc --mode=1 --om=MODEL.om --json=MODEL.json" in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-tp", "{npu}", "-gp", "{npu}", "-fr", "{rules}"], "-fr and -cfr together"),
        (["-tp", "{golden}", "-gp", "{npu}"], "swap them"),
        (["-tp", "{golden}", "-gp", "{golden}"], "-qfr alone"),
        (["-tp", "{npu}", "-gp", "{golden}", "-cfr", "{rules}"], "-cfr only"),
        (["-tp", "{npu}"], "-gp"),
        (["-gp", "{npu}"], "-tp"),
        (["-tp", "{npu}/nothing", "-gp", "{golden}", "-fr", "{rules}"], "nothing there"),
        (["-tp", "{npu}", "-gp", "{golden}", "-fr", "{rules}.none"], "rule file"),
        (["one", "two", "-tp", "{npu}", "-gp", "{golden}"], "too"),
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


def test_a_quantized_model_is_judged_as_one(case: Case) -> None:
    """The integers carry no scale, so nothing else tells that eight bits lie on the way."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(4096).astype(np.float32)
    noisy = (x + 0.01 * rng.standard_normal(4096)).astype(np.float32)
    case.rule("x", "Data")
    case.rule("x_quant", "AscendQuant", ["x:0"], origins=[None], originals=[""])
    case.rules[-1]["output_desc"][0]["dtype"] = "DT_INT8"
    case.rule("mul", "Mul", ["x_quant:0"])
    case.rule("mul_dequant", "AscendDequant", ["mul:0"], origins=["mul"], originals=["mul"])
    case.rule("next", "Abs", ["mul_dequant:0"])
    case.device("Data", "x", [x])
    case.device("AscendQuant", "x_quant", [(x * 30).astype(np.int8)], [x])
    case.device("Mul", "mul", [(x * 30).astype(np.int32)], [(x * 30).astype(np.int8)])
    case.device("AscendDequant", "mul_dequant", [noisy], [(x * 30).astype(np.int32)])
    case.device("Abs", "next", [noisy], [noisy])
    for name in ("x", "mul", "next"):
        case.golden(name, x)
    outcome = case.compare()
    rows = {(r.target.key.op.op, str(r.target.key.role)): r for r in outcome.result.rows}
    assert {r.verdict for r in rows.values()} == {"close"}
    assert rows["mul_dequant", "output"].preset == "int8"
    assert rows["next", "input"].preset == "int8"
    assert rows["x", "output"].preset == "f32"
    assert ("mul", "output") not in rows
    assert outcome.exit_code() == 0


def test_what_an_op_is_given_is_measured_once_and_reported_under_its_own_name(case: Case) -> None:
    zero = np.zeros(8, np.float32)
    case.rule("x", "Data")
    case.rule("y", "Abs", ["x:0"])
    case.device("Data", "x", [zero])
    given = case.device("Abs", "y", [numbers(8)], [zero])
    case.golden("x", numbers(8))
    case.golden("y", numbers(8))
    lines = case.lines()
    made, read = lines["x:output:0"], lines["y:input:0"]
    assert made["MaxAbsoluteError"] == read["MaxAbsoluteError"] != "NaN"
    assert (made["Verdict"], read["Verdict"]) == ("large", "large")
    assert given.name in read["CompareFailReason"]
    assert given.name not in made["CompareFailReason"]


def test_infinities_of_unlike_sign_are_not_the_same(case: Case) -> None:
    golden = numbers(64)
    golden[3] = np.inf
    for name, value in (("same", np.inf), ("other", -np.inf)):
        case.rule(name)
        target = golden.copy()
        target[3] = value
        case.device("Relu", name, [target])
        case.golden(name, golden)
    lines = case.lines()
    assert [lines[f"{n}:output:0"]["Verdict"] for n in ("same", "other")] == ["close", "large"]
    # The columns cannot tell the two apart.
    assert {lines[f"{n}:output:0"]["CosineSimilarity"] for n in ("same", "other")} == {"nan"}


@pytest.mark.parametrize("declared", [True, False])
def test_a_larger_device_tensor_is_cut_axis_by_axis_where_the_rules_declare_it(
    case: Case, declared: bool
) -> None:
    golden = numbers(2, 10, 4)
    target = np.full((2, 16, 4), np.float32(7))
    target[:, :10] = golden
    case.rule("r")
    if declared:
        shape = {"key": "origin_shape", "value": {"list": {"i": list(golden.shape)}}}
        case.rules[-1]["output_desc"][0]["attr"].append(shape)
    case.device("Relu", "r", [target])
    case.golden("r", golden)
    line = case.lines()["r:output:0"]
    if declared:
        assert (line["Verdict"], line["MaxAbsoluteError"]) == ("close", "0.000000")
    else:
        assert (line["Verdict"], line["MaxAbsoluteError"]) == ("none", "NaN")
        assert "nothing says which part of it to compare" in line["CompareFailReason"]


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


def test_an_op_that_was_given_what_is_off_says_so(case: Case) -> None:
    x, y = numbers(64), numbers(64, seed=1)
    case.rule("x", "Data")
    case.rule("conv", "Conv2D", ["x:0"])
    case.rule("relu", "Relu", ["conv:0"])
    case.device("Data", "x", [x])
    wrong = y * np.float32(1.5)
    case.device("Relu", "relu", [wrong], [wrong])  # of conv there is no file
    for name, array in (("x", x), ("conv", y), ("relu", y)):
        case.golden(name, array)
    outcome = case.compare()
    line = table(outcome.report)["relu:output:0"]
    assert "where the two part first" in line["Remark"]
    assert "the error came in before it" in line["Remark"]
    assert any(w.startswith("relu: what it was given") for w in outcome.result.warnings)


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


def test_casts_without_a_word_in_the_rule_file_are_seen_through(case: Case) -> None:
    x = numbers(8)
    case.rule("x", "Data")
    case.rule("cast", "Cast", ["x:0"], origins=[None])
    case.device("Data", "x", [x])
    case.device("Cast", "cast", [x.astype(np.float16)], [x])
    case.golden("x", x)
    assert {line["Verdict"] for line in case.lines().values()} == {"close"}


def test_two_devices_may_name_their_axes_in_another_order(case: Case) -> None:
    x = numbers(2, 3, 4, 5)
    for folder, array, format in (("npu", x, 0), ("golden", x.transpose(0, 2, 3, 1), 1)):
        data = np.ascontiguousarray(array)
        body = dump(output(data.shape, data.nbytes, 1, format), data=data.tobytes())
        (case.root / folder).mkdir()
        (case.root / folder / "Relu.r.1.2.1700000000000001").write_bytes(body)
    (outcome,) = sp.compare_offline(case.root / "npu", case.root / "golden", out=case.root / "o")
    assert outcome.result.verdict == "close"


def test_an_array_of_another_name_is_only_noted(case: Case) -> None:
    case.rule("r")
    case.device("Relu", "r", [numbers(4)])
    case.golden("r", numbers(4))
    np.save(case.root / "golden" / "foo.npy", numbers(4))
    outcome = case.compare()
    assert outcome.exit_code() == 0


@pytest.mark.parametrize("flag", [["--map", "x"], ["--ignore", "r"], ["--resume"]])
def test_options_of_other_comparisons_are_refused(case: Case, flag: list[str]) -> None:
    code, text = run("-m", "offline_data", "-tp", case.root, "-gp", case.root, *flag)
    assert (code, flag[0] in text) == (2, True)
