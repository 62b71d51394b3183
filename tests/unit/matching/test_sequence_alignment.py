"""Alignment of two sequences of tokens."""

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.matching.sequence_alignment import align


@given(st.lists(st.sampled_from("abc"), max_size=9), st.lists(st.sampled_from("abc"), max_size=9))
def test_sure_pairs_lie_in_every_longest_alignment(a, b):
    sure, _ = align([(x,) for x in a], [(x,) for x in b])
    best, alignments = 0, [frozenset()]

    def grow(i, j, chosen):
        nonlocal best, alignments
        if len(chosen) > best:
            best, alignments = len(chosen), []
        if len(chosen) == best:
            alignments.append(frozenset(chosen))
        for x in range(i, len(a)):
            for y in range(j, len(b)):
                if a[x] == b[y] and len(chosen) + 1 + min(len(a) - x, len(b) - y) > best - 1:
                    grow(x + 1, y + 1, [*chosen, (x, y)])

    if len(a) * len(b) <= 36:
        grow(0, 0, [])
        assert set(sure) == frozenset.intersection(*alignments)
