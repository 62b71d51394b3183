"""Align two sequences: longest common subsequence (exact, or ends of long ones), longest chain of
pairs that do not cross."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

_MAX_TABLE_CELLS = 6_000_000
"""Maximum size of the alignment table; beyond it the equal ends of both sequences are cut off."""
_END_MARGIN = 200
"""Number of tokens at the equal ends that are aligned all the same, since they may repeat."""

Token = tuple[str, ...]
Positions = list[tuple[int, int]]


def longest_rising_chain(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest chain of pairs that rises on both sides, so that no two of them cross."""
    tails: list[int] = []
    ends: list[int] = []
    previous: list[int] = []
    for i, (_, r) in enumerate(pairs):
        index = bisect_left(tails, r)
        if index == len(tails):
            tails.append(r)
            ends.append(i)
        else:
            tails[index] = r
            ends[index] = i
        previous.append(ends[index - 1] if index else -1)
    chain = []
    index = ends[-1] if ends else -1
    while index >= 0:
        chain.append(pairs[index])
        index = previous[index]
    return chain[::-1]


def align(a: list[Token], b: list[Token]) -> tuple[Positions, Positions]:
    """The pairs in every longest common subsequence, and the pairs in some of them only."""
    if a == b:
        return [(i, i) for i in range(len(a))], []
    if len(a) * len(b) > _MAX_TABLE_CELLS:
        return _align_long(a, b)
    codes = {token: n for n, token in enumerate(dict.fromkeys([*a, *b]))}
    x = np.array([codes[t] for t in a])
    y = np.array([codes[t] for t in b])
    after = _common_lengths(x, y)
    before = _common_lengths(x[::-1], y[::-1])[::-1, ::-1]
    # A pair is in some longest alignment if the longest alignments before and after it add up to
    # the total length minus one. Each alignment has exactly one pair of each rank: if a rank has
    # only one candidate, that pair is in all of them.
    rank = before[:-1, :-1]
    candidates = (x[:, None] == y[None, :]) & (rank + 1 + after[1:, 1:] == after[0, 0])
    by_rank: dict[int, Positions] = {}
    for i, j in zip(*np.nonzero(candidates), strict=True):
        by_rank.setdefault(int(rank[i, j]), []).append((int(i), int(j)))
    sure = [cells[0] for cells in by_rank.values() if len(cells) == 1]
    unsure = [pair for cells in by_rank.values() if len(cells) > 1 for pair in cells]
    return sorted(sure), sorted(unsure)


def _align_long(a: list[Token], b: list[Token]) -> tuple[Positions, Positions]:
    """Align long sequences that are mostly equal: pair the equal ends in order, except for a
    margin in which a repeated token could be paired in two ways."""
    shorter = min(len(a), len(b))
    head = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    tail = next((i for i in range(shorter - head) if a[-1 - i] != b[-1 - i]), shorter - head)
    head, tail = max(0, head - _END_MARGIN), max(0, tail - _END_MARGIN)
    inner_a, inner_b = a[head : len(a) - tail], b[head : len(b) - tail]
    if len(inner_a) * len(inner_b) > _MAX_TABLE_CELLS:
        return [], list(zip(range(len(a)), range(len(b)), strict=False))
    sure, unsure = align(inner_a, inner_b)
    ends = [(i, i) for i in range(head)]
    ends += [(len(a) - tail + i, len(b) - tail + i) for i in range(tail)]
    return (
        sorted(ends + [(i + head, j + head) for i, j in sure]),
        [(i + head, j + head) for i, j in unsure],
    )


def _common_lengths(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """At [i, j], the length of the longest common subsequence of x[i:] and y[j:]."""
    best = np.zeros((len(x) + 1, len(y) + 1), np.int32)
    for i in range(len(x) - 1, -1, -1):
        # row[j] = max(below[j], row[j+1], 1 + below[j+1] where equal), the middle term by a
        # running maximum from the right.
        below = best[i + 1]
        row = np.maximum(below[:-1], np.where(y == x[i], below[1:] + 1, 0))
        best[i, :-1] = np.maximum.accumulate(row[::-1])[::-1]
    return best
