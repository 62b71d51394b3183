"""The error of integer grids between sync points, against numbers calculated by hand."""

import numpy as np
import pytest

from syncpoint.comparison.introduced_error.grids_between_sync_points import (
    IntegerGrids,
    find_grids_behind,
)
from syncpoint.run.model import Edge, Op, OpKey, Quantization, Role, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import in_memory


def tensor(name, dtype="u8", shape=(4,), scale=0.5, zero=2, role=Role.OUTPUT):
    quantization = Quantization((scale,), (zero,)) if dtype[0] in "iu" else None
    return Tensor(TensorKey(OpKey(name), role), dtype, shape, quantization=quantization)


def test_inputs_are_rounded_to_the_grid_and_clipped_at_its_ends():
    grid = tensor("q")
    edge, key = Edge(OpKey("x")), TensorKey(OpKey("x"))
    value = np.array([0.2, 0.3, -5.0, 1000.0, np.nan, np.inf], np.float32)
    rounded = IntegerGrids(inputs={key: grid}).round_inputs({edge: value}, {edge: key})[edge]
    # Steps of 0.5 from -1 (0) to 126.5 (255).
    np.testing.assert_array_equal(
        rounded, np.array([0.0, 0.5, -1.0, 126.5, np.nan, np.inf], np.float32)
    )


def test_what_is_passed_on_is_the_noise_of_results_of_that_size():
    between = [tensor("a"), tensor("b", scale=0.25), tensor("c", shape=(8,), scale=100.0)]
    expected = np.sqrt((0.5**2 + 0.25**2) / 12)
    assert IntegerGrids(between=between).passed_on_rms(4) == pytest.approx(expected)
    # Rounding that is even over a step has just this root mean square.
    steps = np.linspace(-0.25, 0.25, 100001)
    assert np.sqrt(np.mean(steps**2)) == pytest.approx(
        IntegerGrids(between=between[:1]).passed_on_rms(4), 1e-4
    )


def test_the_grids_between_an_op_and_the_sync_points_before_it_are_found():
    """x -> quantized -> product with an int8 weight -> y, of which x and y are compared."""
    ops = [
        Op(OpKey("q"), "QuantizeLinear", (Edge(OpKey("x")),)),
        Op(OpKey("p"), "QLinearMatMul",
           (Edge(OpKey("q")), Edge(OpKey("w"), role=Role.PARAMETER))),
        Op(OpKey("y"), "DequantizeLinear", (Edge(OpKey("p")),)),
    ]  # fmt: skip
    values = np.zeros(4, np.uint8)
    weight = tensor("w", "i8", zero=0, role=Role.PARAMETER)
    run = in_memory(
        RunInfo(),
        ops,
        [
            (tensor("x", "f32"), values.astype(np.float32)),
            (tensor("q"), values),
            (weight, values.astype(np.int8)),
            (tensor("p"), values),
            (tensor("y", "f32"), values.astype(np.float32)),
        ],
    )
    compared = {TensorKey(OpKey("x")), TensorKey(OpKey("y"))}
    grids = find_grids_behind(run, TensorKey(OpKey("y")), compared)
    assert {str(k): str(t.key) for k, t in grids.inputs.items()} == {"x": "q"}
    assert [str(t.key.op) for t in grids.between] == ["p"]
    assert [str(t.key.op) for t in grids.parameters] == ["w"]
    weights = {Edge(OpKey("v"), role=Role.PARAMETER): np.array([1.0, 0.3, -0.26, 0.0])}
    # A weight of zeros has no step, so its levels are unknown.
    assert grids.round_parameters(run, weights).keys() == weights.keys()
