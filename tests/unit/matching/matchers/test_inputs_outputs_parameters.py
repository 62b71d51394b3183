"""Pairs of model inputs: by their path where both sides record one, else by position. Where one
side has more of them, or others, outputs pair by size and inputs by their values."""

import numpy as np
import pytest

from helpers.small_runs import tensor
from syncpoint.matching.matchers.inputs_outputs_parameters import BoundaryMatcher
from syncpoint.matching.protocol import Matching, Side
from syncpoint.run.model import Part, Role, RunInfo
from syncpoint.run.reader import in_memory

X = np.zeros((2, 3), np.float32)


def run_of_inputs(*names_and_paths, parts=(None,)):
    """A run of model inputs alone, in this order."""
    inputs = [
        tensor(name, X, Role.MODEL_INPUT, part=part, name=path)
        for part in parts
        for name, path in names_and_paths
    ]
    return in_memory(RunInfo(), [], inputs)


def input_pairs(target, reference):
    """The names of paired inputs with the evidence, from target to reference."""
    matching = Matching(Side.of(target), Side.of(reference))
    for pair in BoundaryMatcher().match(matching):
        matching.add(pair)
    return {
        f"{pair.target.op}{pair.target.part}": (
            f"{pair.reference.op}{pair.reference.part}",
            pair.evidence,
        )
        for pair in matching.pairs
    }


def test_inputs_recorded_in_another_order_are_paired_by_their_path():
    target = run_of_inputs(("arg0_1", "args[3]"), ("arg1_1", "args[1]"))
    reference = run_of_inputs(("ids", "args[1]"), ("mask", "args[3]"))
    assert input_pairs(target, reference) == {
        "arg0_1": ("mask", "model-input of the same path"),
        "arg1_1": ("ids", "model-input of the same path"),
    }


def test_a_path_pairs_only_inputs_of_the_same_execution():
    parts = (Part(0), Part(1))
    target = run_of_inputs(("arg0_1", "args[3]"), ("arg1_1", "args[1]"), parts=parts)
    reference = run_of_inputs(("ids", "args[1]"), ("mask", "args[3]"), parts=parts)
    pairs = input_pairs(target, reference)
    assert {target: partner for target, (partner, _) in pairs.items()} == {
        f"{name}{part}": f"{partner}{part}"
        for part in parts
        for name, partner in (("arg0_1", "mask"), ("arg1_1", "ids"))
    }


def test_inputs_whose_paths_differ_are_paired_by_position():
    target = run_of_inputs(("arg0_1", "args[1]"), ("arg1_1", "tokens"), ("arg2_1", ""))
    reference = run_of_inputs(("mask", ""), ("ids", "x"), ("weights", "args[1]"))
    pairs = input_pairs(target, reference)
    assert pairs == {
        "arg0_1": ("weights", "model-input of the same path"),
        "arg1_1": ("mask", "model-input at the same position"),
        "arg2_1": ("ids", "model-input at the same position"),
    }


@pytest.mark.parametrize("path", ["", "args[1]"])
def test_a_name_on_both_sides_pairs_before_a_path(path):
    target = run_of_inputs(("ids", path), ("mask", "args[3]"))
    reference = run_of_inputs(("mask", path), ("ids", "args[3]"))
    assert input_pairs(target, reference) == {
        "ids": ("ids", "model-input of the same name"),
        "mask": ("mask", "model-input of the same name"),
    }


def run_of(role, *shapes, seed=0):
    """A run of inputs, outputs or states of these shapes."""
    generator = np.random.default_rng(seed)
    return [
        tensor(
            f"{role}{seed}_{index}",
            generator.standard_normal(shape).astype("f4"),
            role,
            index=index if role is Role.MODEL_OUTPUT else 0,
        )
        for index, shape in enumerate(shapes)
    ]


def pairs_of(target, reference):
    """Names and evidence of the pairs of two lists of tensors."""
    return input_pairs(in_memory(RunInfo(), [], target), in_memory(RunInfo(), [], reference))


def renamed(values, name, shape):
    return tensor(name, np.asarray(values, np.float32).reshape(shape), Role.MODEL_INPUT)


def test_outputs_of_unlike_count_pair_by_size_in_order():
    target = run_of(Role.MODEL_OUTPUT, (1, 3), (2, 1, 8), (1, 3), seed=1)
    reference = run_of(Role.MODEL_OUTPUT, (3,), (3,), seed=2)
    evidence = "model-output of the same size, in order"
    assert pairs_of(target, reference) == {
        "model-output1_0": ("model-output2_0", evidence),
        "model-output1_2": ("model-output2_1", evidence),
    }


def test_outputs_in_another_order_stay_paired_by_position():
    """A caller takes outputs by position, so that the order is wrong."""
    target = run_of(Role.MODEL_OUTPUT, (3, 4), (5,), seed=1)
    reference = run_of(Role.MODEL_OUTPUT, (5,), (3, 4), seed=2)
    evidence = "model-output at the same position"
    assert pairs_of(target, reference) == {
        "model-output1_0": ("model-output2_0", evidence),
        "model-output1_1": ("model-output2_1", evidence),
    }


def test_inputs_of_unlike_size_pair_only_with_equal_values():
    numbers = np.random.default_rng(0).standard_normal(12)
    target = [renamed(numbers, "a", (3, 4)), renamed(numbers[:4], "b", (4,))]
    reference = [renamed(numbers[:4] * 1.001, "c", (1, 4)), renamed(3.0, "rate", ())]
    assert pairs_of(target, reference) == {"b": ("c", "model-input with equal values")}
    reference[0] = renamed(numbers[4:8], "c", (1, 4))
    assert pairs_of(target, reference) == {}


def test_an_output_pairs_with_the_state_of_its_size_that_the_other_side_keeps():
    outputs = run_of(Role.MODEL_OUTPUT, (1, 2), (2, 1, 8), seed=1)
    kept = [*run_of(Role.MODEL_OUTPUT, (2,), seed=2), *run_of(Role.STATE, (2, 8), (5,), seed=3)]
    evidence = "one side passes the state that the other one keeps"
    assert pairs_of(outputs, kept)["model-output1_1"] == ("state3_0", evidence)
    assert pairs_of(kept, outputs)["state3_0"] == ("model-output1_1", evidence)


def test_of_several_states_of_one_size_values_decide():
    outputs = run_of(Role.MODEL_OUTPUT, (4, 4), (8, 2), seed=1)
    states = run_of(Role.STATE, (16,), (16,), seed=1)
    pairs = pairs_of(outputs, states)
    assert {name: partner for name, (partner, _) in pairs.items()} == {
        "model-output1_0": "state1_0",
        "model-output1_1": "state1_1",
    }
    assert pairs_of(outputs, run_of(Role.STATE, (16,), (16,), seed=5)) == {}
