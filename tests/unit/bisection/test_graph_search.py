"""The first bad op of any graph is found, in few tests."""

import math
import random

import pytest

from syncpoint.bisection.graph_search import Search, State


def truth(parents, guilty):
    """An op is bad if it is guilty or reads what is bad."""
    bad = []
    for at, reads in enumerate(parents):
        bad.append(at in guilty or any(bad[one] for one in reads))
    return bad


def searched(parents, bad, start, unknown=(), testable=None):
    asked = []

    def test(at):
        asked.append(at)
        if at in unknown:
            return State.UNKNOWN
        return State.BAD if bad[at] else State.GOOD

    every = range(len(parents)) if testable is None else testable
    search = Search(parents, test, frozenset(every))
    return search.first_bad(start), asked


CHAIN = [[at - 1] if at else [] for at in range(200)]


@pytest.mark.parametrize("guilty", [0, 1, 57, 99, 100, 198, 199])
def test_a_chain_takes_a_logarithm_of_tests(guilty):
    found, asked = searched(CHAIN, truth(CHAIN, {guilty}), 199)
    assert found.op == guilty and not found.untested
    assert len(asked) <= math.ceil(math.log2(200)) + 3


@pytest.mark.parametrize("seed", range(40))
def test_any_graph(seed):
    draw = random.Random(seed)
    size = draw.randrange(2, 60)
    parents = [
        sorted(set(draw.choices(range(max(0, at - 8), at), k=draw.randrange(1, 4)))) if at else []
        for at in range(size)
    ]
    guilty = draw.randrange(size)
    bad = truth(parents, {guilty})
    starts = [at for at in range(size) if bad[at]]
    found, asked = searched(parents, bad, draw.choice(starts))
    assert found.op == guilty and not found.untested
    assert len(asked) == len(set(asked))


def test_what_cannot_be_judged_does_not_hide_what_is_deeper():
    bad = truth(CHAIN, {120})
    found, _ = searched(CHAIN, bad, 199, unknown=range(80, 130))
    assert found.op == 130
    assert set(found.untested) == set(range(80, 130))
    found, _ = searched(CHAIN, truth(CHAIN, {20}), 199, unknown=range(80, 130))
    assert found.op == 20


def test_an_error_that_is_damped_on_the_way_is_noticed():
    # Bad from 40 on, good again at 140 and 141 by chance, bad behind them.
    bad = truth(CHAIN, {40})
    for at in range(139, 142):
        bad[at] = False
    found, _ = searched(CHAIN, bad, 199)
    assert found.op == 40
    parents = [[], [0], [1], [2], [3], [4]]
    found, _ = searched(parents, [False, True, False, False, False, True], 5)
    assert found.op == 1 and set(found.damped) <= {2, 3, 4} and found.damped


def test_every_op_of_a_diamond():
    parents = [[], [0], [1], [0], [3], [2, 4], [5]]
    for guilty in range(7):
        found, _ = searched(parents, truth(parents, {guilty}), 6)
        assert found.op == guilty
