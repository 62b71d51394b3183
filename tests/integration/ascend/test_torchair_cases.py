"""The mode `torchair` where the tool of these dumps goes wrong or knows no answer, case by case."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import syncpoint as sp
from helpers.commands import syncpoint
from helpers.device_dump_files import dump, input_, output
from helpers.torchair_dumps import Dumps, lines, numbers
from syncpoint.errors import InputError
from syncpoint.metrics.verdict import ReasonCode, Verdict
from syncpoint.run.model import Role


@pytest.fixture
def dumps(tmp_path: Path) -> Dumps:
    return Dumps(tmp_path)


def simple(dumps: Dumps, *tokens: int, **folders: str) -> np.ndarray:
    """One op, the same on both sides."""
    x = numbers(4, 8)
    for token in tokens or (0,):
        dumps.device("Relu", "Relu_1", [x + token], [x], token)
        dumps.node("relu-aten.relu.default", [x + token], [x], token)
    dumps.op("Relu_1", "Relu", ["arg:0"], ["relu-aten.relu.default.OUTPUT.0"])
    return x


def test_what_a_fused_op_reads_is_what_its_parts_read_from_outside(dumps):
    a, b, c = numbers(4, 4), numbers(4, 4, seed=1), numbers(4, 4, seed=2)
    dumps.device("AutomaticBufferFusionOp", "Add_1Mul_2", [(a + b) * c], [a, b, c])
    dumps.node("add-aten.add.Tensor", [a + b], [a, b])
    dumps.node("mul-aten.mul.Tensor", [(a + b) * c], [a + b, c])
    dumps.op("Add_1", "Add", ["x:0", "y:0"], ["add-aten.add.Tensor.OUTPUT.0"])
    dumps.op("Mul_2", "Mul", ["Add_1:0", "z:0"], ["mul-aten.mul.Tensor.OUTPUT.0"])
    found = dumps.lines()
    assert [row["Verdict"] for row in found.values()] == ["close"] * 4
    assert "mul-aten.mul.Tensor.INPUT.1" in found["Add_1Mul_2.input.2"]["Data Name"]
    # The same against a dump without fusion.
    dumps.device("Add", "Add_1", [a + b], [a, b], folder="off/20240101010101/0/graph_1/1")
    dumps.device("Mul", "Mul_2", [(a + b) * c], [a + b, c], folder="off/20240101010101/0/graph_1/1")
    found = dumps.lines("off")
    assert [row["Verdict"] for row in found.values()] == ["close"] * 4


def test_names_in_a_row_are_split_even_where_the_longest_leads_nowhere(dumps):
    x = numbers(4, 4)
    for name, fx in (("Add", ""), ("Add_1", ""), ("_1Mul_2", "mul-aten.mul.Tensor.OUTPUT.0")):
        dumps.op(name, "Op", [], [fx])
    dumps.op("Sub", "Op", [], ["sub-aten.sub.Tensor.OUTPUT.0"])
    dumps.device("AutomaticBufferFusionOp", "SubAdd_1Mul_2", [x])
    dumps.node("sub-aten.sub.Tensor", [x + 1])
    dumps.node("mul-aten.mul.Tensor", [x])
    assert dumps.lines()["SubAdd_1Mul_2.output.0"]["Verdict"] == "close"


def test_arguments_in_another_order_are_not_mixed_up(dumps):
    # addmm(bias, a, b) is MatMul(a, b, bias), and here all three have one shape.
    bias, a, b = (numbers(8, 8, seed=k) for k in range(3))
    names = ("bias", "a", "b")
    for name, value in zip(names, (bias, a, b), strict=True):
        dumps.node(f"{name}-aten.neg.default", [value], [-value])
        dumps.op(name, "Neg", [], [f"{name}-aten.neg.default.OUTPUT.0"])
    dumps.device("MatMulV2", "MatMul_1", [a @ b + bias], [a, b, bias])
    dumps.node("addmm-aten.addmm.default", [a @ b + bias], [bias, a, b])
    dumps.op(
        "MatMul_1", "MatMulV2", ["a:0", "b:0", "bias:0"], ["addmm-aten.addmm.default.OUTPUT.0"]
    )
    found = dumps.lines()
    for k, argument in enumerate((1, 2, 0)):
        row = found[f"MatMul_1.input.{k}"]
        assert row["Verdict"] == "close" and f"INPUT.{argument}." in row["Data Name"], row
        assert f"argument {argument}" in row["Remark"]


def test_an_operand_that_is_wrong_stays_wrong_whatever_the_arguments_hold(dumps):
    # The device was given other values than the FX node: no other argument is taken instead.
    a, b = numbers(8, 8), numbers(8, 8, seed=1)
    for name, value in (("a", a), ("b", b)):
        dumps.node(f"{name}-aten.neg.default", [value], [-value])
        dumps.op(name, "Neg", [], [f"{name}-aten.neg.default.OUTPUT.0"])
    dumps.device("Sub", "Sub_1", [b - a], [b, a])
    dumps.node("sub-aten.sub.Tensor", [a - b], [a, b])
    dumps.op("Sub_1", "Sub", ["a:0", "b:0"], ["sub-aten.sub.Tensor.OUTPUT.0"])
    found = dumps.lines()
    assert [found[f"Sub_1.{what}"]["Verdict"] for what in ("input.0", "input.1", "output.0")] == [
        "large"
    ] * 3


def test_what_the_ops_inside_of_a_node_make_is_no_argument_of_it(dumps):
    # softmax is Exp, ReduceSum and Div on the device; x and exp(x) have one shape.
    x = numbers(4, 8)
    exp = np.exp(x)
    total = exp.sum(-1, keepdims=True)
    dumps.node("neg-aten.neg.default", [x], [-x])
    dumps.node("softmax-aten.softmax.int", [exp / total], [x, -1])
    dumps.op("Neg_0", "Neg", ["arg:0"], ["neg-aten.neg.default.OUTPUT.0"])
    dumps.op("Cast_0", "Cast", ["Neg_0:0"], [""])
    dumps.op("Exp_1", "Exp", ["Cast_0:0"], [""])
    dumps.op("Sum_2", "ReduceSum", ["Exp_1:0"], [""])
    dumps.op("Div_3", "Div", ["Exp_1:0", "Sum_2:0"], ["softmax-aten.softmax.int.OUTPUT.0"])
    dumps.device("Exp", "Exp_1", [exp], [x.astype(np.float16)])
    dumps.device("ReduceSum", "Sum_2", [total], [exp])
    dumps.device("Div", "Div_3", [exp / total], [exp, total])
    found = dumps.lines()
    assert found["Div_3.output.0"]["Verdict"] == "close"
    for name in ("Div_3.input.0", "Div_3.input.1", "Sum_2.input.0", "Exp_1.output.0"):
        assert found[name]["Verdict"] == "none" and "no counterpart" in found[name]["Remark"]
    # What goes into the first of them is known by its maker, seen through the cast.
    assert found["Exp_1.input.0"]["Verdict"] == "close"
    assert "neg-aten.neg.default.OUTPUT.0" in found["Exp_1.input.0"]["Data Name"]


def test_arguments_that_are_lists_or_no_tensors_keep_their_places(dumps):
    a, b, c = numbers(4, 8), numbers(4, 8, seed=1), numbers(4, 8, seed=2)
    whole = np.concatenate([a, b, c])
    dumps.device("ConcatV2", "Concat_1", [whole], [a, b, c])
    path = dumps.node("cat-aten.cat.default", [whole], [[a, b, c], 0])
    np.save(path / f"cat-aten.cat.default.INPUT.2.{dumps.at}.npy", np.array("text"))
    np.save(path / f"cat-aten.cat.default.INPUT.3.{dumps.at}.npy", np.array(None))
    dumps.op("Concat_1", "ConcatV2", [], ["cat-aten.cat.default.OUTPUT.0"])
    outcome = dumps.compare()[0]
    found = lines(outcome.report)
    for k in range(3):
        assert found[f"Concat_1.input.{k}"]["Verdict"] == "close"
        assert f"INPUT.0.{k}." in found[f"Concat_1.input.{k}"]["Data Name"]
    # The number of the axis is an argument that the device's op does not read as a tensor.
    extra = found["cat-aten.cat.default.input.3"]
    assert extra["Verdict"] == "none" and "no input 3" in extra["Err_message"]
    assert any("2 arguments are no numbers" in note for note in outcome.result.reference["notes"])
    assert outcome.exit_code() == 0


def test_tensors_beyond_those_of_the_other_side_have_lines(dumps):
    x, y = numbers(4, 8), numbers(4, 8, seed=1)
    dumps.device("Op", "One", [x, y], [x, y])
    dumps.node("one-aten.one.default", [x], [x])
    dumps.device("Op", "Two", [x], [x])
    dumps.node("two-aten.two.default", [x, y], [x, y])
    dumps.op("One", "Op", [], ["one-aten.one.default.OUTPUT.0"])
    dumps.op("Two", "Op", [], ["two-aten.two.default.OUTPUT.0"])
    found = dumps.lines()
    for name in ("One.input.1", "One.output.1"):
        assert found[name]["Verdict"] == "none" and "no counterpart" in found[name]["Remark"]
    for name in ("two-aten.two.default.input.1", "two-aten.two.default.output.1"):
        assert "no target value" in found[name]["Remark"]


def test_several_outputs_go_by_the_tensor_that_the_graph_names(dumps):
    x, y = numbers(4, 8), numbers(4, 8, seed=1)
    dumps.device("TopK", "TopK_1", [x, y])
    dumps.node("topk-aten.topk.default", [y, x])
    said = [f"topk-aten.topk.default.OUTPUT.{k}" for k in (1, 0)]
    dumps.op("TopK_1", "TopK", [], said)
    found = dumps.lines()
    assert [row["Verdict"] for row in found.values()] == ["close", "close"]


def test_ops_and_tokens_of_one_side_only_have_lines(dumps):
    x = simple(dumps, 0, 1)
    dumps.device("Relu", "Relu_1", [x], [x], token=2)
    dumps.node("relu-aten.relu.default", [x], [x], token=5)
    dumps.node("lost-aten.neg.default", [x], [x])
    dumps.device("Strange", "Strange_7", [x])
    dumps.device("AutomaticBufferFusionOp", "Mul_2Sub_3", [x])
    dumps.node("mul-aten.mul.Tensor", [x])
    dumps.node("sub-aten.sub.Tensor", [x])
    dumps.op("Mul_2", "Mul", [], ["mul-aten.mul.Tensor.OUTPUT.0"])
    dumps.op("Sub_3", "Sub", [], ["sub-aten.sub.Tensor.OUTPUT.0"])
    outcome = dumps.compare()[0]
    found = lines(outcome.report)
    assert "no token 2" in found["Relu_1.output.0@2"]["Err_message"]
    assert "no token 5" in found["graph@5"]["Err_message"]
    assert "no op for it" in found["lost-aten.neg.default"]["Err_message"]
    assert "no op of this name" in found["Strange_7.output.0"]["Err_message"]
    assert "inside of the device's op Mul_2Sub_3" in found["mul-aten.mul.Tensor"]["Err_message"]
    assert any("Strange_7" in warning for warning in outcome.result.warnings)
    assert outcome.result.coverage.target == pytest.approx(5 / 8)


def test_a_cast_is_compared_with_what_it_was_given(dumps):
    x = np.array([1.7, -1.7, 0.0, 300.0], np.float32)
    simple(dumps)
    dumps.device("Cast", "trans_Cast_1", [x.astype(np.int32)], [x])
    dumps.device("Cast", "trans_Cast_2", [x.astype(bool)], [x])
    dumps.device("Cast", "trans_Cast_3", [np.array([2, -2, 0, 300], np.int32)], [x])
    dumps.device("Cast", "trans_Cast_4", [x.astype(np.float16)], [x])
    dumps.device("Cast", "trans_Cast_5", [(x * 1.1).astype(np.float16)], [x])
    dumps.device("TransData", "trans_6", [x[::-1].copy()], [x])
    i8 = np.array([1, 2, 3], np.int8)
    dumps.device("Cast", "trans_Cast_7", [i8.astype(np.float32)], [i8])
    found = dumps.lines()
    verdicts = {name: row["Verdict"] for name, row in found.items() if name.startswith("trans")}
    assert list(verdicts.values()) == [
        "close",
        "close",
        "large",
        "close",
        "large",
        "large",
        "close",
    ]


def test_files_that_cannot_be_used_are_a_divergence(dumps):
    x = simple(dumps)
    path = dumps.device("Relu", "Broken_1", [x], [x])
    path.write_bytes(path.read_bytes()[:60])
    dumps.op("Broken_1", "Relu", [], ["broken-aten.relu.default.OUTPUT.0"])
    dumps.device("Relu", "Fine_2", [x])
    folder = dumps.node("fine-aten.relu.default", [x])
    dumps.op("Fine_2", "Relu", [], ["fine-aten.relu.default.OUTPUT.0"])
    file = next(folder.glob("fine*"))
    file.write_bytes(file.read_bytes()[:100])
    outcome = dumps.compare()[0]
    found = lines(outcome.report)
    assert found["Broken_1"]["Result"] == found["Fine_2.output.0"]["Result"] == "FAIL"
    assert "unreadable" in found["Fine_2.output.0"]["Remark"]
    assert found["Relu_1.output.0"]["Verdict"] == "close"
    assert outcome.exit_code() == 1
    for result in (outcome.result, sp.open_comparison(outcome.comparison)):
        assert result.verdict is Verdict.LARGE
        bad = {row.target.label: row.reason for row in result.worst(2)}
        assert set(bad) == {"Broken_1 [step=0]", "Fine_2 [step=0]"}
        assert all(reason.startswith("unreadable: the ") for reason in bad.values())
        assert (result.coverage.compared, result.coverage.target_tensors) == (2, 4)
        assert not [u for u in result.unmatched if u.side == "target"]


def test_a_file_with_one_tensor_that_cannot_be_read_has_a_row_for_it_beside_the_others(dumps):
    x = simple(dumps)
    path = dumps.device("Relu", "Part_1", [x], [x])
    data = x.tobytes()
    int2 = input_(x.shape, x.nbytes, 30)
    path.write_bytes(dump(int2, output(x.shape, x.nbytes, 1), data=data + data))
    dumps.node("part-aten.relu.default", [x], [x])
    dumps.op("Part_1", "Relu", [], ["part-aten.relu.default.OUTPUT.0"])
    outcome = dumps.compare()[0]
    rows = {row.target.label: row for row in outcome.result.rows}
    assert rows["Part_1 [step=0]"].verdict is Verdict.CLOSE
    assert "unreadable" in rows["Part_1 (input 0) [step=0]"].reason
    assert len(sp.open_comparison(outcome.comparison).rows) == len(outcome.result.rows) == 4


def test_a_file_damaged_in_one_token_leaves_the_others_as_they_are(dumps):
    x = numbers(4, 8)
    for token in (0, 1, 2):
        dumps.device("Relu", "Relu_1", [x], [x], token)
        dumps.node("relu-aten.relu.default", [x], [x], token)
    dumps.op("Relu_1", "Relu", [], ["relu-aten.relu.default.OUTPUT.0"])
    made = next((dumps.root / "fx/2").rglob("*OUTPUT*.npy"))
    made.write_bytes(made.read_bytes()[:100])
    next((dumps.root / "fx/3").rglob("*OUTPUT*.npy")).unlink()
    result = dumps.compare()[0].result
    outputs = [row for row in result.rows if row.target.key.role is Role.OUTPUT]
    found = {row.target.key.part.step: row.verdict for row in outputs}
    assert found == {0: Verdict.CLOSE, 1: Verdict.NONE}
    assert [u.reason for u in result.unmatched if u.side == "target"] == [ReasonCode.NO_COUNTERPART]
    assert result.coverage.target_tensors == 6 and result.coverage.compared == 4


def test_the_last_of_several_executions_is_compared_and_the_line_says_so(dumps):
    x = simple(dumps)
    dumps.device("Relu", "Relu_1", [x + 1], [x])
    found = dumps.lines()
    assert found["Relu_1.output.0"]["Verdict"] == "large"
    assert "the last of 2 executions" in found["Relu_1.output.0"]["Remark"]


@pytest.mark.parametrize("first", [0, 1])
def test_tokens_count_from_one_unless_there_is_a_folder_zero(first, dumps):
    x = numbers(4, 8)
    for token in (0, 1):
        dumps.device("Relu", "Relu_1", [x + token], [x], token)
        folder = f"fx/data_dump/{token + first}/gm_{token}"
        dumps.node("relu-aten.relu.default", [x + token], [x], folder=folder)
    dumps.op("Relu_1", "Relu", [], ["relu-aten.relu.default.OUTPUT.0"])
    for golden in ("fx", "fx/data_dump"):
        assert {row["Verdict"] for row in dumps.lines(golden).values()} == {"close"}


def ranked(dumps: Dumps, ge: list[int], fx: list[int]) -> None:
    x = numbers(4, 8)
    for rank in ge:
        folder = f"ge/worldsize2_global_rank{rank}/20240101010101/{rank}/graph_1/1"
        dumps.device("Relu", "Relu_1", [x + rank], [x], folder=folder)
        dumps.ops = []
        dumps.op("Relu_1", "Relu", [], ["relu-aten.relu.default.OUTPUT.0"])
        dumps.write_graph(f"ge/dynamo_original_graph_1_rank_{rank}_pid_7_ts_2024.txt")
    for rank in fx:
        folder = f"fx/worldsize2_global_rank{rank}/gm_1_dump/0"
        dumps.node("relu-aten.relu.default", [x + rank], [x], folder=folder)


def test_each_rank_has_a_report(dumps):
    ranked(dumps, [0, 1, 10], [0, 1, 10])
    outcomes = dumps.compare()
    assert [o.report.name.split("_")[3] for o in outcomes] == ["rank0", "rank1", "rank10"]
    assert [o.exit_code() for o in outcomes] == [0, 0, 0]
    (row, *_) = outcomes[2].result.rows
    assert row.target.key.part.rank == 10


def test_a_rank_without_a_partner_is_no_pass(dumps):
    ranked(dumps, [0, 1], [0, 2])
    whole, lonely = dumps.compare()
    assert whole.exit_code() == 0 and lonely.exit_code() == 3
    assert {row["Verdict"] for row in lines(lonely.report).values()} == {"none"}
    assert "rank 2 is in the golden dump only" in whole.result.warnings


def test_a_rank_that_only_one_side_names_is_the_same_one(dumps):
    ranked(dumps, [3], [])
    dumps.node("relu-aten.relu.default", [numbers(4, 8) + 3], [numbers(4, 8)])
    (outcome,) = dumps.compare()
    assert "_rank3_" in outcome.report.name and outcome.exit_code() == 0


def test_ranks_of_which_none_is_on_both_sides_are_refused(dumps):
    ranked(dumps, [0, 1], [2, 3])
    with pytest.raises(InputError, match="no rank in common"):
        dumps.compare()


def test_names_with_slashes_are_found_whether_the_header_has_them_or_not(dumps):
    x = numbers(4, 8)
    folder = "off/20240101010101/0/graph_1/1"
    dumps.device("Relu", "a_b", [x], said="a/b")
    dumps.device("Relu", "a_b", [x], folder=folder)
    dumps.op("a/b", "Relu", [], ["relu-aten.relu.default.OUTPUT.0"])
    dumps.node("relu-aten.relu.default", [x])
    assert dumps.lines("off")["a/b.output.0"]["Verdict"] == "close"
    assert dumps.lines("fx")["a/b.output.0"]["Verdict"] == "close"


def test_several_devices_of_one_time_are_ranks(dumps):
    x = numbers(4, 8)
    for device in (0, 1):
        for side in ("ge", "off"):
            folder = f"{side}/20240101010101/{device}/graph_1/1"
            dumps.device("Relu", "Relu_1", [x + device], [x], folder=folder)
    dumps.op("Relu_1", "Relu")
    outcomes = dumps.compare("off")
    assert [o.exit_code() for o in outcomes] == [0, 0]


def test_graphs_belong_together_by_their_ops_and_else_by_their_order(dumps):
    x = numbers(4, 8)
    for graph, name in (("1", "Relu_1"), ("2", "Neg_2"), ("11", "Neg_2")):
        value = x + int(graph)
        dumps.device("Op", name, [value], folder=f"ge/20240101010101/0/graph_1/{graph}")
        node = f"{name.lower()}-aten.op.default"
        dumps.node(node, [value], folder=f"fx/1/gm_{int(graph):02}")
    for number, name in ((3, "Relu_1"), (4, "Neg_2"), (20, "Neg_2")):
        dumps.ops = []
        dumps.op(name, "Op", [], [f"{name.lower()}-aten.op.default.OUTPUT.0"])
        dumps.write_graph(f"ge/dynamo_original_graph_{number}.txt")
    (outcome,) = dumps.compare()
    assert [row.verdict for row in outcome.result.rows] == ["close"] * 3
    assert {row.target.key.op.graph for row in outcome.result.rows} == {"1", "2", "11"}


def test_two_graphs_of_the_device_may_share_one_of_the_other_side(dumps):
    x = numbers(4, 8)
    for graph, name in (("1", "Relu_1"), ("2", "Neg_2")):
        dumps.device("Op", name, [x], folder=f"ge/20240101010101/0/graph_1/{graph}")
        dumps.node(f"{name.lower()}-aten.op.default", [x])
        dumps.op(name, "Op", [], [f"{name.lower()}-aten.op.default.OUTPUT.0"])
    dumps.node("lost-aten.op.default", [x])
    found = dumps.lines()
    assert list(found) == ["Relu_1.output.0", "Neg_2.output.0", "lost-aten.op.default"]


def test_two_dumps_in_one_folder_are_refused(dumps):
    simple(dumps)
    dumps.device("Relu", "Relu_1", [numbers(4, 8)], folder="ge/20240101010102/0/graph_1/1")
    with pytest.raises(InputError, match="2 dumps of graph 1, token 0"):
        dumps.compare()


@pytest.mark.parametrize(
    ("target", "golden", "said"),
    [
        ("fx", "ge", "swap the two paths"),
        ("nothing", "fx", "does not exist"),
        ("ge", "empty", "has no files of a GE dump"),
        (".", "fx", "a GE and an FX dump"),
        ("ge/20240101010101", "fx", "dynamo_original_graph"),
    ],
)
def test_mistakes_are_told_in_one_line(target, golden, said, dumps):
    simple(dumps)
    dumps.write_graph()
    (dumps.root / "empty").mkdir()
    found = syncpoint(
        "compare", "-m", "torchair", "-tp", target, "-gp", golden, cwd=dumps.root, code=2
    )
    assert said in found.stderr and found.stderr.count("\n") == 1


def test_flags_of_the_other_mode_are_refused(dumps):
    for flags, mode in (
        (["-advisor"], "torchair"),
        (["-fr", "x.json"], "torchair"),
        (["--xlsx"], "offline_data"),
        (["--dialect", "26.2"], "offline_data"),
        (["--dialect", "1.0"], "torchair"),
    ):
        words = ["compare", "-m", mode, "-tp", "ge", "-gp", "fx", *flags]
        assert syncpoint(*words, cwd=dumps.root, code=2).stderr.count("\n") == 1
    with pytest.raises(InputError, match="dialect"):
        sp.compare_torchair("ge", "fx", dialect="x")


def test_without_the_package_for_sheets_nothing_is_begun(dumps, monkeypatch):
    import sys

    simple(dumps)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(sp.errors.MissingExtra, match="xlsx"):
        dumps.compare(xlsx=True)
    assert not (dumps.root / "out").exists()


def test_a_name_that_begins_like_a_formula_is_no_formula_in_the_report(dumps, monkeypatch):
    simple(dumps)
    dumps.write_graph()
    (dumps.root / "fx").rename(dumps.root / "=fx")
    monkeypatch.chdir(dumps.root)
    (outcome,) = sp.compare_torchair("ge", "=fx", dialect="26.2")
    assert ",'=fx/1/" in outcome.report.read_text()


def test_a_preset_judges_and_the_comparison_opens_again(dumps):
    simple(dumps)
    (outcome,) = dumps.compare(preset="exact")
    assert outcome.result.preset_name == "exact"
    assert sp.open_comparison(outcome.comparison).preset_name == "exact"
    with pytest.raises(InputError, match="no preset"):
        dumps.compare(preset="precise")


def test_the_command_passes_preset_and_limits_on(dumps):
    simple(dumps)
    dumps.write_graph()
    words = ["compare", "-m", "torchair", "-tp", "ge", "-gp", "fx", "-o"]
    syncpoint(*words, "by_preset", "--preset", "exact", cwd=dumps.root)
    (dumps.root / "ours.yaml").write_text("preset: f16\n")
    syncpoint(*words, "by_file", "--limits", "ours.yaml", cwd=dumps.root)
    for folder, name in (("by_preset", "exact"), ("by_file", "ours")):
        (comparison,) = (dumps.root / folder).glob("*.cmp")
        assert sp.open_comparison(comparison).preset_name == name


def test_the_environment_beside_a_dump_is_that_of_its_side(dumps):
    simple(dumps)
    (dumps.root / "ge" / "env.json").write_text('{"cann": "8.0"}')
    (dumps.root / "fx" / "env.json").write_text('{"torch": "2.9"}')
    (outcome,) = dumps.compare()
    assert outcome.result.verdict == "close"
    assert outcome.result.target["environment"]["cann"] == "8.0"
    assert outcome.result.reference["environment"]["torch"] == "2.9"
