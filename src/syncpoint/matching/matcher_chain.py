"""Run the matchers in order, strongest evidence first, on what is still unpaired; count the pairs
by evidence in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from syncpoint.matching.matchers.map_file import MapFile, MapMatcher
from syncpoint.matching.protocol import Matcher, Matching, PairConfirmation, Side
from syncpoint.matching.registry import MATCHERS, matchers_without_map
from syncpoint.run.reader import Run


def chain(map_file: MapFile | None = None) -> list[Matcher]:
    """The matchers in order; plugins come last."""
    return [*([MapMatcher(map_file)] if map_file else []), *matchers_without_map()]


def match(
    target: Run,
    reference: Run,
    matchers: Sequence[Matcher],
    confirmation: PairConfirmation | None = None,
) -> Matching:
    """Pair the tensors of two runs; `confirmation` checks pairs that only values support."""
    matching = Matching(Side.of(target), Side.of(reference), confirmation=confirmation)
    for matcher in matchers:
        try:
            for pair in matcher.match(matching):
                matching.add(pair)
        except Exception as error:
            # Pairs that a plugin yielded before it failed are kept.
            MATCHERS.report_failure(matcher.name, error)
    return matching


def summarize(matching: Matching) -> str:
    """The number of pairs by evidence and the number of unmatched tensors, in one line."""
    evidence = Counter(pair.evidence for pair in matching.pairs)
    evidence_text = ", ".join(f"{count} by {name}" for name, count in evidence.most_common(4))
    unmatched = Counter(tensor.side for tensor in matching.unmatched() if tensor.counted)
    unmatched_text = ", ".join(
        f"{unmatched[side]} of the {side}" for side in ("target", "reference")
    )
    return f"{len(matching.pairs)} pairs ({evidence_text}); unmatched: {unmatched_text}"
