"""What was not compared: a fused net passes, a dump that lost tensors does not."""

import json
from dataclasses import replace

import numpy as np
import pytest

import syncpoint as sp
from helpers.partial_runs import arrays, chain, fused, named, rebuilt, without_values
from helpers.reseal_checksums import reseal
from syncpoint.comparison.coverage import Account, Coverage
from syncpoint.comparison.engine import Options, compare
from syncpoint.comparison.storage.comparison_folder import load, save
from syncpoint.reports.coverage_text import uncovered_text
from syncpoint.reports.verdict_line import headline
from syncpoint.run.model import Op, OpKey, Part, Role, TensorKey
from syncpoint.run.reader import in_memory


def compared(target, reference, **options):
    return compare(target, reference, Options(introduced="off", **options))


def every(step, source):
    """Every so-manieth tensor, the output excepted."""
    return {name for name in named(source)[::step] if name != "head"}


def test_what_fusion_hides_is_not_missing():
    result = compared(fused(chain()), chain())
    assert result.coverage.reference < 0.4
    assert (result.coverage.target_missing, result.coverage.reference_missing) == (0, 0)
    assert result.coverage.reference_covered == 1
    assert result.exit_code(min_coverage=1.0) == 0
    assert headline(result).startswith("● close: compared 14 of 14")
    left = {u.op: u.account for u in result.unmatched if u.counted}
    assert set(left.values()) == {Account.DOWNSTREAM} and "relu_3" in left


def test_the_same_values_without_a_graph_are_a_partial_dump():
    lost = set(named(chain())) - set(named(fused(chain())))
    result = compared(arrays(chain(), lost), chain())
    assert result.verdict == "close"
    assert result.exit_code() == 3
    assert headline(result).startswith("● close as far as compared: 13 of 13 target tensors")


@pytest.mark.parametrize("with_ops", [False, True], ids=["values lost", "ops lost"])
@pytest.mark.parametrize("step", [3, 2])
def test_a_run_that_lost_values_is_partial_however_its_graph_looks(step, with_ops):
    reference = chain()
    result = compared(without_values(chain(), every(step, reference), with_ops), reference)
    assert result.verdict == "close"
    assert result.coverage.reference_missing == len(every(step, reference))
    assert result.exit_code() == 3
    assert "record all of them" in uncovered_text(result)


@pytest.mark.parametrize("with_ops", [False, True], ids=["values lost", "ops lost"])
def test_a_run_with_nothing_but_its_output_left_does_not_vouch_for_the_rest(with_ops):
    lost = set(named(chain())) - {"head"}
    result = compared(without_values(chain(), lost, with_ops), chain())
    assert result.exit_code() == 3
    assert result.coverage.reference_covered < 0.1


def test_a_black_box_that_computes_everything_in_one_op_is_whole():
    """As an accelerator that takes the whole graph does."""
    whole = chain()
    box = [Op(OpKey("head"), "TensorRT", whole.ops[0].inputs)]
    target = rebuilt(whole, box, lambda t: t.key.op.op == "head" or t.key.role is Role.MODEL_INPUT)
    assert compared(target, chain()).exit_code(min_coverage=1.0) == 0


def test_what_flows_into_nothing_that_was_compared_is_missing():
    target = fused(chain(side=True))
    result = compared(target, chain(side=True))
    missing = {u.op for u in result.unmatched if u.account == Account.MISSING and u.counted}
    assert missing == {"tanh_0", "exp_0"}
    assert result.coverage.reference_missing == 2
    assert "as far as compared" in headline(result)
    assert result.exit_code() == 0  # 13 of 15


def test_a_model_output_of_the_reference_is_never_left_out_in_silence():
    target = without_values(chain(), {"head"}, with_ops=True)
    result = compared(target, chain())
    assert result.uncompared_outputs == ["reference head:0"]
    assert result.exit_code(min_coverage=0.0) == 3
    assert "as far as compared" in headline(result)
    assert "model output" in uncovered_text(result)


def in_samples(source, samples):
    values = [
        (replace(t, key=replace(t.key, part=Part(sample=s))), source.values(t) + np.float32(s))
        for s in samples
        for t in source.tensors
    ]
    return in_memory(source.info, source.ops, values)


def test_each_sample_must_be_compared():
    result = compared(in_samples(chain(), [0]), in_samples(chain(), [0, 1, 2]))
    assert result.coverage.reference_covered == pytest.approx(1 / 3)
    assert result.exit_code() == 3


def with_types_only(source, keep):
    """A reference that says what its ops are, and not what reads what."""
    ops = [replace(op, inputs=()) for op in source.ops if op.key.op in keep]
    return rebuilt(source, ops, lambda t: t.key.op.op in keep)


def test_a_reference_that_records_a_third_of_the_ops_is_enough_if_the_rest_flows_into_them():
    keep = {n for n in named(chain()) if n.startswith(("add_", "head"))}
    result = compared(chain(), with_types_only(chain(), keep))
    assert result.coverage.target < 0.4
    assert result.coverage.target_covered == 1
    assert result.exit_code() == 0


def test_arrays_that_are_a_third_of_the_target_are_not():
    lost = {n for n in named(chain()) if not n.startswith(("add_", "head"))}
    result = compared(chain(), arrays(chain(), lost))
    assert result.exit_code() == 3
    assert "of the target was compared" in uncovered_text(result)


def test_the_tail_of_the_target_must_be_compared_whatever_the_reference_records():
    names = named(chain())
    result = compared(chain(), with_types_only(chain(), set(names[:12])))
    assert result.coverage.target_missing == len(names) - 12 + 1  # and the model output
    assert result.exit_code() == 3


def renamed(source):
    """The same graph with names, types and values that nothing pairs, but for the output."""
    keys = {op.key: OpKey(f"node{i}") for i, op in enumerate(source.ops)}
    ops = [
        Op(keys[o.key], "Custom", tuple(replace(e, op=keys.get(e.op, e.op)) for e in o.inputs))
        for o in source.ops
    ]
    values = []
    for t in source.tensors:
        noise = t.key.role is Role.OUTPUT and t.key.op.op != "head"
        array = source.values(t)
        moved = replace(t.key, op=keys.get(t.key.op, t.key.op))
        alias = str(TensorKey(moved.op)) if t.alias_of else ""
        values.append((replace(t, key=moved, alias_of=alias), array[::-1] * 7 if noise else array))
    return in_memory(source.info, ops, values)


def test_two_whole_graphs_of_which_little_could_be_paired_are_not_covered():
    result = compared(renamed(chain()), chain())
    assert result.coverage.compared <= 3
    assert result.exit_code() == 3


def test_the_user_decides_how_much_is_enough_on_both_sides():
    reference = chain()
    result = compared(arrays(chain(), every(4, reference)), reference)
    assert result.exit_code() == 3
    assert result.exit_code(min_coverage=0.7) == 0
    assert result.exit_code(min_coverage=0.8) == 3
    assert "as far as compared" in headline(result)


def test_what_the_user_ignores_is_not_missing():
    reference = chain()
    names = sorted(every(3, reference))
    comparison = sp.compare(arrays(chain(), set(names)), reference, ignore=names, diagnose=False)
    assert comparison.exit_code() == 0
    assert comparison.coverage.is_whole


def test_parameters_and_other_names_of_outputs_in_a_dump_are_no_results():
    source = arrays(chain())
    values = [(tensor, source.values(tensor)) for tensor in source.tensors]
    weight = np.ones(3, np.float32)
    for name in ("w!parameter", "x!model-input", "head!model-output"):
        values.append((replace(values[0][0], key=TensorKey(OpKey(name)), shape=(3,)), weight))
    more = in_memory(source.info, [Op(t.key.op, "") for t, _ in values], values)
    result = compared(source, more)
    assert result.exit_code() == 0 and result.coverage.is_whole


def test_a_model_output_that_only_a_dump_of_arrays_names_counts():
    source = arrays(chain(), {"head"})
    values = [(t, source.values(t)) for t in source.tensors]
    key = TensorKey(OpKey("head!model-output"))
    values.append((replace(values[0][0], key=key), np.ones((4, 6), np.float32)))
    more = in_memory(source.info, [Op(t.key.op, "") for t, _ in values], values)
    assert compared(source, more).exit_code(min_coverage=0.0) == 3


def test_a_run_that_ended_before_it_had_outputs_is_not_close_to_another():
    def broken(source):
        left = without_values(source, {"head"}, with_ops=True)
        left.info = replace(left.info, complete=False, missing="its writer died")
        return left

    result = compared(broken(chain()), broken(chain()))
    assert result.verdict == "close"
    assert result.exit_code() == 3
    assert "incomplete" in uncovered_text(result)


@pytest.mark.parametrize("make", [arrays, fused], ids=["arrays", "fused"])
def test_a_saved_comparison_ends_as_it_did(tmp_path, make):
    lost = {"lost": every(2, chain())} if make is arrays else {}
    result = compared(make(chain(), **lost), chain())
    again = load(save(result, tmp_path / "a.cmp"))
    assert again.exit_code() == result.exit_code()
    assert headline(again) == headline(result)
    assert again.coverage == result.coverage


@pytest.mark.parametrize(("make", "code"), [(arrays, 3), (fused, 0)], ids=["arrays", "fused"])
def test_a_comparison_saved_before_the_rule_existed_is_read_by_what_it_knows(tmp_path, make, code):
    lost = {"lost": every(2, chain())} if make is arrays else {}
    path = save(compared(make(chain(), **lost), chain()), tmp_path / "a.cmp")
    about = json.loads((path / "comparison.json").read_text())
    for name in ("unkept", "partial"):
        del about[name]
    for name in [n for n in about["coverage"] if n.endswith(("missing", "covered"))]:
        del about["coverage"][name]
    for lonely in about["unmatched"]:
        del lonely["account"]
    (path / "comparison.json").write_text(json.dumps(about))
    reseal(path)
    assert load(path).exit_code(min_coverage=0.6) == code
    assert Coverage.of_saved(about).is_whole is (code == 0)
