"""Open numbers of a variant are solved, and round numbers are recognized."""

import numpy as np
import pytest

from syncpoint.diagnosis.variants.normalization import EPSILONS, Norm
from syncpoint.diagnosis.variants.protocol import OpUnderTest
from syncpoint.diagnosis.variants.solving import solve_number
from syncpoint.run.model import Op, OpKey


def op_under_test(output, target):
    op = Op(OpKey("op"), "aten.layer_norm.default")
    return OpUnderTest(
        op=op,
        kind="layer_norm",
        arguments=[],
        output=output,
        rerun=lambda changed: None,
        region_target=target,
    )


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 3e-4, 1e-3, 0.07])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_an_epsilon_is_found(epsilon, dtype):
    x = np.random.default_rng(3).standard_normal((16, 32)) * 1e-4**0.5
    target = Norm(x=x, axes=(1,), epsilon=epsilon).value().astype(dtype).astype(np.float64)

    def form(number):
        return Norm(x=x, axes=(1,), epsilon=number).value()

    solution = solve_number(op_under_test(form(1e-5), target), form, (1e-5, *EPSILONS), EPSILONS)
    assert solution is not None
    # An epsilon that moves the result by less than rounding cannot be resolved.
    unit = 1e-4 * (np.finfo(np.float32).eps if dtype == np.float32 else 1e-12)
    assert abs(solution.number - epsilon) <= max(1e-3 * epsilon, unit)


def test_a_round_number_that_fits_as_well_is_meant():
    x = np.random.default_rng(4).standard_normal((64, 32))
    target = (0.125 * x).astype(np.float16).astype(np.float64)
    solution = solve_number(op_under_test(x, target), lambda s: s * x, (1.0,), (0.125,))
    assert solution is not None and solution.number == 0.125


def test_a_few_elements_prove_nothing():
    x = np.ones(4)
    assert solve_number(op_under_test(x, 2 * x), lambda s: s * x, (1.0,)) is None
