"""Pairs of model inputs: by their path where both sides record one, else by position."""

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
