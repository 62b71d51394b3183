"""What `offline_data` pairs and how it judges, where the tool of these dumps goes wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import syncpoint as sp
from helpers.device_dump_files import dump, output
from helpers.offline_data_cases import Case, numbers, table


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


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
    assert "first op whose output differs" in line["Remark"]
    assert "the error came in before it" in line["Remark"]
    assert any(w.startswith("relu: what it was given") for w in outcome.result.warnings)


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


def test_a_preset_judges_and_the_comparison_opens_again(case: Case, tmp_path: Path) -> None:
    x = numbers(4, 8)
    case.rule("r")
    case.device("Relu", "r", [x])
    case.golden("r", np.nextafter(x, np.float32(np.inf)))
    assert case.compare().result.verdict == "close"
    outcome = case.compare(preset="exact")
    assert (outcome.result.verdict, outcome.result.preset_name) == ("large", "exact")
    assert sp.open_comparison(outcome.comparison).preset_name == "exact"
    limits = tmp_path / "ours.yaml"
    limits.write_text("preset: exact\n")
    assert case.compare(limits=limits).result.preset_name == "ours"
    with pytest.raises(sp.InputError, match="no preset"):
        case.compare(preset="precise")


def test_the_environment_beside_a_dump_is_that_of_its_side(case: Case) -> None:
    case.rule("r")
    case.device("Relu", "r", [numbers(4)])
    case.golden("r", numbers(4))
    (case.root / "npu" / "env.json").write_text('{"cann": "8.0"}')
    (case.root / "golden" / "env.json").write_text('{"torch": "2.9"}')
    result = case.compare().result
    assert result.target["environment"]["cann"] == "8.0"
    assert result.reference["environment"]["torch"] == "2.9"
    (case.root / "golden" / "env.json").write_text("[]")
    with pytest.raises(sp.FormatError, match="plain values"):
        case.compare()
