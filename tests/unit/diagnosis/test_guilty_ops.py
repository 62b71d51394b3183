"""Who is guilty: the rule as a truth table, and against its definition on all combinations."""

from dataclasses import replace
from itertools import product

import pytest

from syncpoint.comparison.rows import End, Introduced, Row
from syncpoint.diagnosis.guilty_ops import ValueChecks, find_guilty
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import OpKey, Role, TensorKey

NONFINITE = {
    **{"target_nan": 3, "reference_nan": 1, "target_inf": 0, "reference_inf": 0},
    "mismatched": 2,
}
INTRODUCED = Introduced(
    rmse=1.0,
    psnr=None,
    sqnr=None,
    rel_l2=None,
    max_abs=None,
    expected=0.1,
    ratio=10.0,
    preset="f32",
)

ROWS = {
    # what the comparison says of an op: introduced verdict, more NaN or inf, makes the first one
    "unknown": (Verdict.NONE, False, False),
    "unknown, more NaN": (Verdict.NONE, True, False),
    "unknown, first NaN": (Verdict.NONE, True, True),
    "close": (Verdict.CLOSE, False, False),
    "close, more NaN": (Verdict.CLOSE, True, False),
    "close, first NaN": (Verdict.CLOSE, True, True),
    "moderate": (Verdict.MODERATE, False, False),
    "moderate, more NaN": (Verdict.MODERATE, True, False),
    "large": (Verdict.LARGE, False, False),
    "large, more NaN": (Verdict.LARGE, True, False),
    "large, first NaN": (Verdict.LARGE, True, True),
    "model output": (Verdict.NONE, False, False),
}


def build_row(kind: str, order: int) -> Row:
    verdict, has_more, is_first = ROWS[kind]
    role = Role.MODEL_OUTPUT if kind == "model output" else Role.OUTPUT
    key = TensorKey(OpKey(f"op{order}"), role)
    end = End(key=key, type="add", dtype="f32", shape=(4,), order=order)
    return Row(
        target=end,
        reference=end,
        evidence="name",
        confidence=1.0,
        view="",
        basis="values",
        preset="f32",
        numbers=NONFINITE if has_more else {},
        introduced=INTRODUCED if verdict is not Verdict.NONE else None,
        introduced_verdict=verdict,
        first_non_finite=is_first,
    )


def guilty_orders(kinds, folded=(), unexplained=(), innocent=(), parting=()):
    """The places of the guilty rows; the answers of the value checks are places too."""
    rows = [build_row(kind, order) for order, kind in enumerate(kinds)]
    checks = ValueChecks(
        drop_folded_norms=lambda some: [row for row in some if row.target.order not in folded],
        is_unexplained_output=lambda row: row.target.order in unexplained,
        is_innocent=lambda row: row.target.order in innocent,
        first_divergence=lambda: [row for row in rows if row.target.order in parting],
    )
    return [row.target.order for row in find_guilty(rows, checks)]


TABLE = [
    # rows in execution order, answers of the value checks, places of the guilty
    # Introduced error is known: it decides.
    (("close", "close"), {}, []),
    (("close", "large"), {}, [1]),
    (("large", "close", "large"), {}, [0, 2]),
    (("close", "moderate"), {}, [1]),
    # A large error hides moderate ones.
    (("moderate", "large"), {}, [1]),
    (("moderate", "close, first NaN"), {}, [1]),
    # The first NaN or inf is guilty whatever its introduced error; what passes it on is not.
    (("close, first NaN", "large, more NaN"), {}, [0]),
    (("large", "close, first NaN", "large, more NaN"), {}, [0, 1]),
    (("close, first NaN", "moderate, more NaN"), {}, [0]),
    # Without a first one, who passes on NaN stays accused.
    (("large, more NaN", "large"), {}, [0, 1]),
    # A norm that the target folded into the product before it is no fault.
    (("large", "large"), {"folded": {0}}, [1]),
    (("large", "moderate"), {"folded": {0}}, [1]),
    # An output that no op accounts for comes after large errors and before moderate ones.
    (("large", "model output"), {"unexplained": {1}}, [0]),
    (("moderate", "model output"), {"unexplained": {1}}, [1]),
    (("large", "model output"), {"folded": {0}, "unexplained": {1}}, [1]),
    # Where the runs part counts if introduced error is known and accuses nobody,
    (("close", "unknown"), {"parting": {1}}, [1]),
    (("close", "unknown"), {"parting": {1}, "innocent": {1}}, [1]),
    (("large", "unknown"), {"parting": {1}}, [0]),
    (("moderate", "unknown"), {"parting": {1}}, [0]),
    (("large", "unknown"), {"folded": {0}, "parting": {1}}, [1]),
    # or if it is known nowhere, unless the op does what the reference's op does.
    (("unknown", "unknown"), {"parting": {1}}, [1]),
    (("unknown", "unknown"), {"parting": {0, 1}, "innocent": {0}}, [1]),
    (("unknown", "unknown"), {}, []),
    (("unknown", "unknown, first NaN"), {"parting": {0, 1}}, [0, 1]),
    (("unknown, first NaN", "unknown, more NaN"), {"parting": {0}}, [0]),
    (("unknown", "model output"), {"parting": {0}, "unexplained": {1}}, [0, 1]),
]


@pytest.mark.parametrize(("kinds", "answers", "guilty"), TABLE)
def test_truth_table(kinds, answers, guilty):
    assert guilty_orders(kinds, **answers) == guilty


def defined_orders(kinds, folded, unexplained, innocent, parting):
    """The same as one condition for each row."""
    rows = list(enumerate(kinds))
    breaks = any("first NaN" in kind for kind in kinds)

    def is_accused(kind):
        passes_on = breaks and "more NaN" in kind
        return (not passes_on and kind.startswith(("moderate", "large"))) or "first NaN" in kind

    large = {at for at, kind in rows if is_accused(kind) and ("large" in kind or "first" in kind)}
    moderate = {at for at, kind in rows if is_accused(kind)} - large
    large = large - folded
    known = any(kind.startswith(("close", "moderate", "large")) for kind in kinds)
    nobody = not (large or unexplained or moderate)
    return [
        at
        for at, _ in rows
        if at in large
        or (not large and at in unexplained)
        or (not large and not unexplained and at in moderate)
        or (at in parting and (nobody if known else at not in innocent))
    ]


SUBSETS = (set(), {0}, {1}, {0, 1})


@pytest.mark.parametrize("first", ROWS)
def test_all_combinations_of_two_rows(first):
    for second, *answers in product(ROWS, SUBSETS, SUBSETS, SUBSETS, SUBSETS):
        kinds = (first, second)
        assert guilty_orders(kinds, *answers) == defined_orders(kinds, *answers), (kinds, answers)


def test_ops_alone_are_accused():
    """A model output is judged by total error; what is introduced there is its op's."""
    row = build_row("model output", 0)
    row = Row(**{**row.__dict__, "introduced_verdict": Verdict.LARGE})
    checks = ValueChecks(
        drop_folded_norms=lambda rows: rows,
        is_unexplained_output=lambda row: False,
        is_innocent=lambda row: False,
        first_divergence=list,
    )
    assert find_guilty([row], checks) == []


@pytest.mark.parametrize(
    ("numbers", "more"),
    [
        ({}, False),
        ({"target_nan": 2, "reference_nan": 2, "mismatched": 1}, False),
        ({"target_nan": 2, "reference_nan": 1, "mismatched": 1}, True),
        ({"target_inf": 1, "reference_inf": None, "mismatched": 1}, True),
        ({"target_inf": 0, "reference_inf": 5, "mismatched": 5}, False),
        # Statistics that say -1 did not count what is there.
        ({"target_inf": -1, "reference_inf": 0, "mismatched": 1}, True),
        ({"target_inf": 0, "reference_inf": -1, "mismatched": 1}, False),
        # A mask that is -inf in the target and -1e9 in the reference.
        ({"target_inf": 5, "reference_inf": 0, "mismatched": 0}, False),
    ],
)
def test_more_nonfinite_values_than_the_reference(numbers, more):
    assert replace(build_row("close", 0), numbers=numbers).has_more_non_finite is more
