"""The order of axes that a target needs, for tensors whose shape fits with it and without it."""

import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.matching.protocol import Matching, Side
from syncpoint.matching.view_selection import MIN_VOTES, add_views
from syncpoint.matching.workspace import Workspace

RNG = np.random.default_rng(0)
LONG = RNG.standard_normal((MIN_VOTES, 12, 20)).astype(np.float32)
SQUARE = RNG.standard_normal((16, 16)).astype(np.float32)
UNRELATED = RNG.standard_normal((16, 16)).astype(np.float32)
TRANSPOSED = "transpose(1,0)"


def paired_by_name(runs):
    """The pairs of two runs whose ops have the same names, with their views."""
    matching = Matching(*map(Side.of, runs))
    for op in runs[0].ops:
        for pair in matching.pair_ops(op.key, op.key, "by hand", 1.0):
            matching.add(pair)
    add_views(matching, Workspace.of(matching).view_selector)
    return matching


def view_of_square(target, reference, votes=MIN_VOTES):
    """The view and the note of a pair of square tensors. Before it, `votes` tensors of other axis
    lengths are transposed in the target."""
    runs = []
    for long, square in ((LONG.transpose(0, 2, 1), target), (LONG, reference)):
        ops = [(f"long_{i}", "Linear", "", ("x",), long[i].copy()) for i in range(votes)]
        ops.append(("square", "Linear", "", ("x",), square.copy()))
        runs.append(run(*ops, inputs=[("x", np.zeros(4, np.float32))]))
    matching = paired_by_name(runs)
    views = {pair.target.op.op: (str(pair.view), pair.note) for pair in matching.pairs}
    proven = TRANSPOSED if votes >= MIN_VOTES else ""
    assert all(views[f"long_{i}"][0] == proven for i in range(votes))
    return views["square"]


@pytest.mark.parametrize("seed", range(6))
def test_two_unrelated_square_tensors_get_no_view(seed):
    """Of each two, one order of axes is nearer by chance."""
    target, reference = np.random.default_rng(seed).standard_normal((2, 16, 16)).astype(np.float32)
    assert view_of_square(target, reference) == ("", "")
    assert view_of_square(target.T, reference) == ("", "")


def test_equal_square_tensors_get_no_view():
    assert view_of_square(SQUARE, SQUARE) == ("", "")


@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_square_tensors_that_are_equal_in_the_proven_order_get_its_view(noise):
    assert view_of_square(SQUARE.T + np.float32(noise) * UNRELATED, SQUARE) == (TRANSPOSED, "")


def test_of_two_orders_within_rounding_the_nearer_one_is_the_view():
    """An almost symmetric matrix is almost equal to its transpose."""
    reference = SQUARE + SQUARE.T + np.float32(1e-4) * UNRELATED
    target = reference.T + np.float32(1.2e-4) * RNG.standard_normal((16, 16)).astype(np.float32)
    assert view_of_square(target, reference) == (TRANSPOSED, "")


@pytest.mark.parametrize("factor", [0.5, 1.5, 2.0])
def test_a_scaled_square_tensor_in_the_proven_order_gets_its_view(factor):
    """The scale is the error to report, not the order of axes."""
    assert view_of_square(np.float32(factor) * SQUARE.T, SQUARE) == (TRANSPOSED, "")


@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_a_square_tensor_with_an_error_in_the_proven_order_gets_its_view(noise):
    assert view_of_square(SQUARE.T + np.float32(noise) * UNRELATED, SQUARE) == (TRANSPOSED, "")


def test_an_order_of_axes_that_is_not_proven_is_no_view():
    assert view_of_square(SQUARE.T, SQUARE, votes=MIN_VOTES - 1) == ("", "")


def view_of_sum(result, operand):
    """The view of the sum of a tensor that the target holds in another order of axes."""
    runs = []
    for values, total in ((operand, result), (LONG, 2 * LONG)):
        ops = [
            ("values", "Linear", "", ("x",), values.copy()),
            ("total", "Add", "", ("values", "values"), total.copy()),
        ]
        runs.append(run(*ops, inputs=[("x", np.zeros(4, np.float32))]))
    matching = paired_by_name(runs)
    return next(str(pair.view) for pair in matching.pairs if pair.target.op.op == "total")


def test_an_op_that_reads_its_operands_in_another_order_is_compared_in_that_order():
    turned = LONG.transpose(0, 2, 1)
    assert view_of_sum(2 * turned, turned) == "transpose(0,2,1)"
    # A wrong result is still compared.
    assert view_of_sum(turned[::-1] + turned, turned) == "transpose(0,2,1)"


def test_an_op_that_turns_its_result_by_itself_gets_no_view():
    assert not view_of_sum(2 * LONG.transpose(0, 2, 1), LONG)
