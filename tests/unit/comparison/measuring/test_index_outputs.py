"""The scores behind indices, in pieces: the same as in one."""

import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.comparison.measuring import index_outputs
from syncpoint.comparison.measuring.index_outputs import select_scores
from syncpoint.run.model import OpKey, TensorKey


def scores_of(shape, axis, dtype):
    values = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    values[(0,) * values.ndim] = np.inf
    values[-1] = np.nan
    chosen = np.argmax(np.nan_to_num(values), axis)
    other = np.argsort(np.nan_to_num(values), axis).take(-2, axis)
    made = run(("y", "aten.argmax.default", "", ("x",), chosen), inputs=[("x", values)])
    made.ops[0].attributes["dim"] = axis
    return select_scores(made, TensorKey(OpKey("y")), other, chosen)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("shape", "axis"), [((9, 7), 1), ((9, 7), 0), ((3, 5, 4), -1), ((6,), 0)])
def test_pieces_give_the_same_scores(shape, axis, dtype, monkeypatch):
    whole = scores_of(shape, axis, dtype)
    monkeypatch.setattr(index_outputs, "_MAX_PIECE_SCORES", 10)
    pieces = scores_of(shape, axis, dtype)
    assert pieces.target.dtype == np.float64
    assert np.array_equal(pieces.target, whole.target, equal_nan=True)
    assert np.array_equal(pieces.reference, whole.reference, equal_nan=True)
    assert pieces.spread == pytest.approx(whole.spread)
    assert pieces.max_score == whole.max_score
