"""Inputs are bound to the names a model declares, or by position."""

import pytest

from syncpoint.errors import InputError
from syncpoint.runtimes.inputs.bind_inputs import fit
from syncpoint.runtimes.protocol import Inputs, InputSpec

SPECS = [InputSpec("x"), InputSpec("ids"), InputSpec("scale", required=False)]


def test_names_else_positions_when_the_counts_agree():
    assert fit(Inputs(kwargs={"ids": 1, "x": 2}), SPECS, "f").kwargs == {"ids": 1, "x": 2}
    assert fit(Inputs(kwargs={"a": 1, "b": 2}), SPECS, "f").kwargs == {"x": 1, "ids": 2}
    shuffled = {f"arr_{i}": i for i in (2, 0, 1)}
    assert fit(Inputs(kwargs=shuffled), SPECS, "f").kwargs == {"x": 0, "ids": 1, "scale": 2}
    assert fit(Inputs((1,), {"ids": 2}), SPECS, "f").args == (1,)
    assert (
        fit(Inputs(kwargs={"x": 1, "ids": 2, "z": 3}), SPECS, "f", (False, True)).kwargs["z"] == 3
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Inputs(kwargs={"x": 1, "b": 2}), "inputs for f; found x, b; it takes: x, ids, scale"),
        (Inputs(kwargs={"a": 1}), "found a; it takes"),
        (Inputs((1, 2, 3, 4)), "at most 3 inputs for f; found 4"),
        (Inputs((1,)), "found 1 without ids"),
        (Inputs((1, 2), {"x": 1}), "x by position and by name"),
    ],
)
def test_what_does_not_fit_says_what_is_expected(given, message):
    with pytest.raises(InputError, match=message):
        fit(given, SPECS, "f")
