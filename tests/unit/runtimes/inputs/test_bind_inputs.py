"""Inputs are bound to the names a model declares, or by position."""

import pytest

from syncpoint.errors import InputError
from syncpoint.runtimes.inputs.bind_inputs import fit_inputs
from syncpoint.runtimes.protocol import Inputs, InputSpec

SPECS = [InputSpec("x"), InputSpec("ids"), InputSpec("scale", required=False)]


def test_names_else_positions_when_the_counts_agree():
    assert fit_inputs(Inputs(kwargs={"ids": 1, "x": 2}), SPECS, "f").kwargs == {"ids": 1, "x": 2}
    assert fit_inputs(Inputs(kwargs={"a": 1, "b": 2}), SPECS, "f").kwargs == {"x": 1, "ids": 2}
    shuffled = {f"arr_{i}": i for i in (2, 0, 1)}
    assert fit_inputs(Inputs(kwargs=shuffled), SPECS, "f").kwargs == {"x": 0, "ids": 1, "scale": 2}
    assert fit_inputs(Inputs((1,), {"ids": 2}), SPECS, "f").args == (1,)
    assert (
        fit_inputs(Inputs(kwargs={"x": 1, "ids": 2, "z": 3}), SPECS, "f", (False, True)).kwargs["z"]
        == 3
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            Inputs(kwargs={"x": 1, "b": 2}),
            "the inputs x, b do not fit f; use the names that it takes: x, ids, scale",
        ),
        (Inputs(kwargs={"a": 1}), "the inputs a do not fit f; use the names that it takes"),
        (Inputs((1, 2, 3, 4)), "f takes at most 3 inputs, not 4"),
        (Inputs((1,)), r"the input 'ids' of f is missing: 1 of 2 were given"),
        (Inputs((1, 2), {"x": 1}), "x of f is given by position and by name"),
    ],
)
def test_what_does_not_fit_says_what_is_expected(given, message):
    with pytest.raises(InputError, match=message):
        fit_inputs(given, SPECS, "f")
