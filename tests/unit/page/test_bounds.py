"""Where only statistics were kept, the page says what a metric is at most."""

import numpy as np
import pytest

from helpers.saved_comparisons import compared, row_of
from syncpoint.page.navigator import build_row_briefs
from syncpoint.page.row_states import pack_states
from syncpoint.page.row_table import RowQuery
from syncpoint.run.model import Kept


@pytest.fixture
def opened(tmp_path):
    rng = np.random.default_rng(0)
    values = {name: rng.standard_normal((8, 9)).astype("f4") for name in "abcd"}
    off = {"a": 0.0, "b": 0.5, "c": 4.0, "d": 0.0}
    target = [(name, array + np.float32(off[name])) for name, array in values.items()]
    return compared(tmp_path, target, list(values.items()), record=Kept.STATISTICS), values, off


def test_a_bound_is_never_below_what_the_values_measure(opened):
    opened, values, off = opened
    shown, bounded = opened.table.scores_or_bounds("psnr")
    for name in "bc":
        at = row_of(opened, name)
        measured = 20 * np.log10(np.abs(values[name]).max() / off[name])
        assert bounded[at] and shown[at] >= measured - 1e-3
    found = {
        one.target: one
        for one in build_row_briefs(opened.table, "psnr", np.arange(opened.table.size))
    }
    assert found["b"].bound and found["c"].score < found["b"].score
    assert not found["a"].bound and found["a"].score is None, "equal statistics bound nothing"


def test_rows_are_sorted_by_their_bounds(opened):
    opened, *_ = opened
    names = opened.table.labels(opened.table.select(RowQuery()).rows)
    assert names[:2] == ["c", "b"]


def test_the_states_tell_bounds_from_scores(opened):
    opened, *_ = opened
    _, bounded = opened.table.scores_or_bounds("psnr")
    assert pack_states(opened, "psnr").bounds == "".join("b" if one else "." for one in bounded)
    assert "b" not in pack_states(opened, "cosine").bounds
