"""The columns of the server say what the rows of the comparison say."""

from concurrent.futures import ThreadPoolExecutor
from math import isnan

import numpy as np
import pytest

from helpers.mixed_comparison import mixed
from syncpoint.comparison.judge_rows import limits_of
from syncpoint.metrics import CATALOGUE
from syncpoint.metrics.judge_values import judge_metric
from syncpoint.metrics.limits import PRESETS, metric_bound
from syncpoint.metrics.verdict import Verdict
from syncpoint.page.navigator import build_group_brief
from syncpoint.page.overview import CHOOSABLE_METRICS
from syncpoint.page.row_states import GUILTS, LEVELS, LevelJudge
from syncpoint.page.row_table import LEVEL_FILTERS, RowQuery, RowTable


@pytest.fixture(scope="module", params=["auto", "f16", "int4"])
def both(request):
    comparison = mixed()
    if request.param != "auto":
        comparison = comparison.rejudged(PRESETS[request.param])
    limits = None if request.param == "auto" else PRESETS[request.param]
    return comparison, RowTable(comparison.table, limits)


@pytest.mark.parametrize("metric", CHOOSABLE_METRICS)
def test_the_level_of_every_row_is_that_of_the_metric(both, metric):
    comparison, table = both
    seen = set()
    for row, level in zip(comparison.rows, table.levels(metric), strict=True):
        limits = limits_of(row, comparison.choice)
        if row.verdict is Verdict.NONE:
            expected = "none"
        elif "same_input" in (row.numbers or {}):
            expected = row.verdict.value
        else:
            expected = judge_metric(metric, row.numbers, limits).value
            if row.guilty and row.verdict.severity > Verdict(expected).severity:
                expected = row.verdict.value  # whoever makes error is shown so
        assert LEVELS[level] == expected, (row.target.label, metric)
        seen.add(expected)
    assert len(seen) >= 3


@pytest.mark.parametrize("metric", CHOOSABLE_METRICS)
def test_the_limits_of_every_row_are_those_of_the_judge(both, metric):
    comparison, table = both
    for level, column in enumerate(table.limit_columns(metric)):
        for row, found in zip(comparison.rows, column, strict=True):
            limits = limits_of(row, comparison.choice)
            if row.numbers is None or limits.exact:
                continue
            expected = metric_bound(metric, row.numbers, limits, level)
            assert isnan(found) if expected is None else found == pytest.approx(expected)


def test_the_names_are_those_of_the_reports(both):
    comparison, table = both
    rows = np.arange(table.size)
    names = zip(table.labels(rows), table.labels(rows, "reference"), strict=True)
    for row, (name, other) in zip(comparison.rows, names, strict=True):
        assert name == row.target.label
        assert other == row.reference.label


def test_guilt_is_told_as_the_rows_tell_it(both):
    comparison, table = both
    for row, guilt in zip(comparison.rows, table.guilts, strict=True):
        said = GUILTS[guilt]
        if row.first_non_finite:
            assert said == "first-non-finite"
        elif row.verdict is Verdict.INHERITED:
            assert said == "inherited"
        elif row.verdict in (Verdict.CLOSE, Verdict.NONE):
            assert said == ""
        elif row.output:
            assert said == "output"
        else:
            assert said == ("guilty" if row.guilty else "unknown")


@pytest.mark.parametrize("metric", ["psnr", "max_abs", "cosine", "exact"])
@pytest.mark.parametrize("descending", [False, True])
def test_similarity_puts_the_worst_first(both, metric, descending):
    _, table = both
    rows = table.select(RowQuery(metric=metric, descending=descending)).rows
    assert sorted(rows) == list(range(table.size))
    rows = rows[::-1] if descending else rows
    scored = [row for row in rows if LEVELS[table.levels(metric)[row]] != "none"]
    assert list(rows[: len(scored)]) == scored
    keys = []
    for row in scored:
        score = float(table.scores(metric)[row])
        better = CATALOGUE[metric].better
        key = score if better == "higher" else -abs(score - 1) if better == "one" else -score
        level = LEVELS[table.levels(metric)[row]]
        without = {"large": -1e300, "moderate": -1e299, "close": np.inf}[level]
        keys.append(-np.inf if table.mismatched[row] else without if isnan(key) else key)
    assert keys == sorted(keys)


def test_operation_is_the_order_of_execution(both):
    comparison, table = both
    rows = table.select(RowQuery(sort="operation")).rows
    ops = [row for row in rows if comparison.rows[row].target.key.role.value == "output"]
    orders = [comparison.rows[row].target.order for row in ops]
    assert orders == sorted(orders)
    assert comparison.rows[rows[0]].target.key.role.value == "model-input"
    assert comparison.rows[rows[-1]].target.key.role.value == "parameter"


def test_filters_let_through_what_they_say(both):
    comparison, table = both
    for query, keeps in (
        (RowQuery(text="OP_1"), lambda r: "op_1" in r.target.label or "op_1" in r.target.key.op.op),
        (RowQuery(types=("type2", "type3")), lambda r: r.target.type in ("type2", "type3")),
        (RowQuery(module="blocks.1"), lambda r: r.target.module.startswith("blocks.1")),
        (RowQuery(module="blocks"), lambda r: r.target.module.startswith("blocks.")),
        (RowQuery(text="nothing like it"), lambda r: False),
        (RowQuery(text="[("), lambda r: False),
    ):
        found = set(table.select(query).rows.tolist())
        wanted = {at for at, row in enumerate(comparison.rows) if keeps(row)}
        assert found == wanted, query


def test_the_counts_do_not_follow_the_filter_by_level(both):
    _, table = both
    everything = table.select(RowQuery()).counts
    assert sum(everything.values()) == table.size
    for level in LEVEL_FILTERS:
        found = table.select(RowQuery(levels=(level,)))
        assert found.counts == everything
        assert len(found.rows) == everything[level]


def test_a_brush_lets_through_a_stretch_of_the_execution(both):
    _, table = both
    rows = table.select(RowQuery(sort="operation", start=10, stop=20)).rows
    assert [int(table.order[row]) for row in rows] == list(range(10, 20))


def test_groups_hold_every_row_once(both):
    _, table = both
    for sort in ("operation", "similarity"):
        groups = table.select(RowQuery(sort=sort, grouped=True)).groups
        names = [name for name, _ in groups]
        assert len(set(names)) == len(names)
        assert sorted(row for _, rows in groups for row in rows) == list(range(table.size))
        for name, rows in groups:
            assert {table.groups[int(row)] for row in rows} == {name}
    operation = [name for name, _ in table.select(RowQuery(sort="operation", grouped=True)).groups]
    assert operation == ["inputs", "", "stem", "blocks.0", "blocks.1", "head", "parameters"]


def test_what_no_module_made_belongs_to_the_top_level(both):
    _, table = both
    role = table.frame["target_role"].to_list()
    for row in range(table.size):
        if role[row] in ("output", "model-output"):
            assert (table.groups[row] == "") == (table.modules[row] == ""), row


def test_no_score_is_never_worse_than_one(both):
    """A row without a verdict is not among the worst, nor is it hidden among the close ones."""
    comparison, table = both
    rows = table.select(RowQuery()).rows
    verdicts = [comparison.rows[row].verdict for row in rows]
    first = verdicts.index(Verdict.NONE)
    assert all(verdict is Verdict.NONE for verdict in verdicts[first:])
    assert comparison.rows[rows[0]].verdict.severity


def test_an_empty_table_answers_every_question():
    empty = RowTable(mixed().table.clear())
    assert empty.select(RowQuery()).rows.tolist() == []
    assert empty.select(RowQuery(grouped=True, text="x", module="y", start=1)).groups == []
    assert len(empty.levels("psnr")) == 0


@pytest.mark.parametrize("metric", ["psnr", "max_abs"])
def test_a_group_shows_the_worst_of_each_of_its_stretches(both, metric):
    """By level, then who passes it on, then the metric, then who came first."""
    _, table = both
    rows = np.random.default_rng(0).permutation(table.size)

    def severity(row):
        level = LEVELS[table.levels(metric)[row]]
        passed = GUILTS[table.guilts[row]] == "inherited" and level != "close"
        rank = {"none": -1, "close": 0, "moderate": 2, "large": 4}[level] - passed
        return -rank, table.badness(metric)[row], table.order[row]

    def said(row):
        return LEVELS[table.levels(metric)[row]], GUILTS[table.guilts[row]]

    found = build_group_brief(table, metric, "all", rows, True)
    stretches = np.array_split(sorted(rows, key=lambda row: table.order[row]), 24)
    cells = [(cell.level, cell.guilt) for cell in found.cells]
    assert cells == [said(min(stretch, key=severity)) for stretch in stretches]
    assert found.level == LEVELS[table.levels(metric)[min(rows, key=severity)]]
    assert found.count == table.size


def test_columns_are_worked_out_once_for_all_who_ask(both, monkeypatch):
    _, table = both
    fresh, judged = RowTable(table.frame, table.limits), []
    judge = LevelJudge.judge
    monkeypatch.setattr(
        LevelJudge, "judge", lambda self, metric: (judged.append(metric), judge(self, metric))[1]
    )
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: fresh.select(RowQuery()), range(32)))
    assert judged == ["psnr"]
