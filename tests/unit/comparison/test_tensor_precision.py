"""The precision of numbers that are written into ops, told by their bits."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.comparison.tensor_precision import Precisions
from syncpoint.run.model import OpKey
from syncpoint.run.reader import in_memory

X = np.ones((2, 2))
DIVISOR = 3.4641016
F16 = 1 / float(np.float16(DIVISOR))


def scaled(dtype, **attributes):
    """A product in float32 below a tensor of another type, with numbers written into it."""
    made = run(
        ("cast", "Cast", "", ("x",), X.astype(np.float32)),
        ("product", "com.microsoft.FusedMatMul", "", ("cast",), X.astype(np.float32)),
        inputs=[("x", X.astype(dtype))],
    )
    ops = [replace(op, attributes=attributes) if op.key.op == "product" else op for op in made.ops]
    return in_memory(made.info, ops, [(t, made.values(t)) for t in made.tensors])


def parameters(target):
    return Precisions(target, scaled(np.float64)).parameters(OpKey("product"))


ENDS_IN_ZEROS = 1 / float(np.float16(np.sqrt(8)))
"""2.828125: the last three bits of the divisor happen to be 0."""


@pytest.mark.parametrize(
    "alpha", [F16, float(np.float32(F16)), -F16, float(np.float16(0.1)), ENDS_IN_ZEROS]
)
def test_a_factor_that_was_rounded_below_float16_counts_as_a_parameter_of_it(alpha):
    assert parameters(scaled(np.float16, alpha=alpha)) == "f16"


@pytest.mark.parametrize("alpha", [0.25, 0.75, 8.0, 127.5, 1 / DIVISOR, 0.1, 0.0, np.inf, 2, "0.1"])
def test_a_factor_that_any_type_holds_or_none_rounded_says_nothing(alpha):
    assert parameters(scaled(np.float16, alpha=alpha)) == "exact"


def test_a_rounded_factor_below_float32_says_nothing():
    """There it was rounded for nothing, and that is a fault."""
    assert parameters(scaled(np.float32, alpha=F16)) == "exact"
