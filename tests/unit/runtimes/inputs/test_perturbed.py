"""The second input is the same for both sides, also where one side takes an input in pieces or
padded."""

import numpy as np
import pytest

from syncpoint.errors import InputError
from syncpoint.runtimes.inputs.perturbed import perturb_inputs
from syncpoint.runtimes.protocol import Inputs

RANDOM = np.random.default_rng(0)


def perturb(target, reference):
    samples = perturb_inputs([Inputs(kwargs=target)], [Inputs(kwargs=reference)], signs=True)
    return samples[0][0].kwargs, samples[1][0].kwargs


def test_an_input_with_padding_holds_the_perturbed_one():
    x = RANDOM.standard_normal((1, 40)).astype("f4")
    target, reference = perturb({"padded": np.pad(x, ((0, 0), (6, 0)))}, {"x": x})
    assert not np.array_equal(reference["x"], x)
    np.testing.assert_array_equal(target["padded"], np.pad(reference["x"], ((0, 0), (6, 0))))
    target, reference = perturb({"x": x}, {"padded": np.pad(x, ((0, 0), (0, 6)))})
    np.testing.assert_array_equal(target["x"], reference["padded"][:, :40])


def test_states_in_one_input_are_perturbed_as_those_in_two():
    state = RANDOM.standard_normal((2, 1, 16)).astype("f4")
    pieces = {"h": state[:1], "c": state[1:]}
    for target, reference in ((pieces, {"state": state}), ({"state": state}, pieces)):
        sides = perturb(target, reference)
        both = {**sides[0], **sides[1]}
        np.testing.assert_array_equal(both["state"], np.concatenate([both["h"], both["c"]]))
        assert not np.array_equal(both["state"], state)


def test_an_input_of_one_side_stays_if_it_is_one_that_is_never_perturbed():
    x = RANDOM.standard_normal(20)
    target, _ = perturb({"x": x, "rate": np.array(16000), "state": np.zeros(8)}, {"x": x})
    assert target["rate"] == 16000
    assert not target["state"].any()
    with pytest.raises(InputError, match=r"shape \[8\] is on one side only"):
        perturb({"x": x, "state": RANDOM.standard_normal(8)}, {"x": x})
