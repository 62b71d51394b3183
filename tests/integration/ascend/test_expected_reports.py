"""Nothing of what the tools of these dumps wrote is left out: each of their reports is held against
ours, line by line, by a test; where ours differs, the test lists the line with what is wrong there.
"""

from __future__ import annotations

import pytest

from helpers.msprobe_dumps import TASKS
from helpers.offline_data_sets import SETS
from helpers.paths import ASCEND_DATA
from helpers.torchair_reports import (
    FLAT,
    LABEL,
    REPORTS,
    STRING_ORDER,
    alike,
    compare,
    known_cells,
    table,
)

READ_BY = {
    **{f"{name}/expected.csv": "integration/ascend/test_offline_data.py" for name in SETS},
    "offline_mixed/expected_overflow_advisor.csv": "integration/ascend/test_offline_data.py",
    "offline_mixed/expected_advisor_summary.txt": "integration/ascend/test_offline_data.py",
    **{
        f"{name.split()[0]}/{expected}": "integration/ascend/test_torchair.py"
        for name, (*_, expected) in REPORTS.items()
    },
    **{f"pytorch_dump/expected_{task}.csv": "unit/ascend/msprobe/test_table.py" for task in TASKS},
}
"""Each report with the test that reads it."""


def test_every_report_of_the_data_is_read_by_a_test():
    found = {str(path.relative_to(ASCEND_DATA)) for path in ASCEND_DATA.rglob("expected*")}
    assert found == set(READ_BY)


def test_every_set_of_dumps_has_a_report():
    sets = {path.name for path in ASCEND_DATA.iterdir() if path.is_dir()}
    assert sets == {name.split("/")[0] for name in READ_BY}


def test_lines_in_which_a_tool_is_wrong_are_few_and_have_a_reason():
    listed = known_cells()
    assert {fact for fact, _ in listed.values()} == {
        STRING_ORDER,
        FLAT,
        LABEL,
    }
    rows = sum(
        len(table(ASCEND_DATA / name.split()[0] / expected))
        for name, (*_, expected) in REPORTS.items()
    )
    wrong = [key for key, (fact, _) in listed.items() if fact != LABEL]
    assert (rows, len(wrong)) == (78, 11)


SIDE = ("data_path", "dtype", "shape", "max_value", "min_value", "mean_value")


@pytest.mark.parametrize("side", ["my", "golden"])
def test_pairs_that_the_tool_mixed_up_have_its_numbers_of_each_side(side, tmp_path, monkeypatch):
    """It compares input 10 with argument 2; what it says of each of the two is right."""
    report = compare("torchair_edge", tmp_path, monkeypatch, dialect="26.2").report
    columns = [f"{side}_{name}" for name in SIDE]
    wanted, got = (
        {row[columns[0]]: row for row in table(path) if "many" in row[columns[0]]}
        for path in (ASCEND_DATA / "torchair_edge" / "expected_fx.csv", report)
    )
    assert len(wanted) == 13 and set(wanted) == set(got)
    for name, want in wanted.items():
        for column in columns:
            assert alike(column, want[column], got[name][column]), (name, column)
