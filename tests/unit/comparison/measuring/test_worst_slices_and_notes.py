"""Pairs that are not close say which of their slices is worst; it warns and decides nothing."""

import numpy as np
import pytest

import syncpoint as sp
import syncpoint.comparison.measuring.worst_slices_and_notes as notes_module
from helpers.small_runs import run
from syncpoint.api import Comparison
from syncpoint.comparison.engine import Options, compare
from syncpoint.errors import FormatError
from syncpoint.metrics.limits import PRESETS
from syncpoint.metrics.verdict import Verdict

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 32, 6, 5)).astype(np.float32)
COLUMNS = ("worst_slice", "worst_slice_axis", "worst_slice_index")


def ruined(channel=17):
    out = X.copy()
    out[:, channel] *= np.float32(0.07)
    return out


def only_row(target, reference=X, **options):
    runs = [run(("a", "", "", (), values)) for values in (target, reference)]
    return compare(*runs, Options(**options)).rows[0]


def test_a_planted_channel_fault_is_named():
    row = only_row(ruined())
    assert row.verdict is Verdict.LARGE
    assert [row.numbers[c] for c in COLUMNS] == [pytest.approx(0.93, rel=1e-6), 1, 17]
    assert "worst slice: 17 of axis 1, rel_l2 0.93" in row.notes


def test_the_worse_of_both_axes_is_named():
    bad = X.copy()
    bad[..., 3] += 9
    assert only_row(bad).numbers["worst_slice_axis"] == 3


def test_close_pairs_are_not_read_again(monkeypatch):
    def refuse(*_):
        raise AssertionError("read again")

    monkeypatch.setattr(notes_module, "worst_slices", refuse)
    row = only_row(X.copy())
    assert row.verdict is Verdict.CLOSE
    assert not set(COLUMNS) & set(row.numbers) and not row.notes
    with pytest.raises(AssertionError, match="read again"):
        only_row(ruined())


def test_it_decides_nothing():
    """Under limits that the whole passes, a ruined channel is close and nothing is said."""
    limits = PRESETS["int4"]
    small = X.copy()
    small[:, 17] *= np.float32(0.9)
    assert only_row(small, choice=limits).verdict is Verdict.CLOSE
    assert only_row(small).verdict is not Verdict.CLOSE


@pytest.mark.parametrize("shape", [(), (7,), (0, 3)])
def test_without_two_axes_there_is_no_slice_to_name(shape):
    row = only_row(np.full(shape, 2, np.float32), np.ones(shape, np.float32))
    assert not set(COLUMNS) & set(row.numbers or {})


def test_the_slice_is_that_of_the_pair_as_it_was_measured():
    """Seen through its view: the target is channels last, the index is the reference's."""
    row = only_row(ruined()[:1].squeeze(0), X[:1])
    assert row.view.startswith("reshape")
    assert [row.numbers[c] for c in COLUMNS[1:]] == [1, 17]


def test_values_that_can_no_longer_be_read_leave_the_verdict(monkeypatch):
    def gone(*_):
        raise FormatError("the file is gone")

    monkeypatch.setattr(notes_module, "prepare_pair", gone)
    row = only_row(ruined())
    assert row.verdict is Verdict.LARGE and "worst_slice" not in row.numbers


def test_judging_again_leaves_it_as_it_is_and_the_table_keeps_it(tmp_path):
    runs = [run(("a", "", "", (), a), ("b", "", "", ("a",), X)) for a in (ruined(), X)]
    comparison = Comparison.of(compare(*runs))
    again = comparison.rejudged(PRESETS["f32"]).rejudged(PRESETS["int4"])
    assert [r.numbers for r in again.rows] == [r.numbers for r in comparison.rows]
    table = comparison.table.select(COLUMNS).rows()
    assert table == [(pytest.approx(0.93, rel=1e-6), 1, 17), (None, None, None)]
    opened = sp.open_comparison(comparison.save(tmp_path / "a.cmp"))
    assert opened.rows == comparison.rows
    assert opened.table.equals(comparison.table)


def test_threads_do_not_change_a_bit():
    def found(threads):
        ops = [(f"op{k}", "", "", (), ruined(k)) for k in range(32)]
        good = [(name, "", "", (), X) for name, *_ in ops]
        return [r.numbers for r in compare(run(*ops), run(*good), Options(threads=threads)).rows]

    assert found(1) == found(5)
