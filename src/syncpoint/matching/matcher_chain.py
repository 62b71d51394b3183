"""Run the matchers in order, strongest evidence first, on what is still unpaired; summarize the
pairs in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from syncpoint.matching.matchers.compiled import CompiledMatcher
from syncpoint.matching.matchers.graph_edges import StructureMatcher
from syncpoint.matching.matchers.inputs_outputs_parameters import BoundaryMatcher
from syncpoint.matching.matchers.map_file import MapFile, MapMatcher
from syncpoint.matching.matchers.names_and_order import NameMatcher
from syncpoint.matching.matchers.output_ops import OutputOpMatcher
from syncpoint.matching.matchers.pair_review import ReviewMatcher
from syncpoint.matching.matchers.provenance import ProvenanceMatcher
from syncpoint.matching.matchers.values import ValueMatcher
from syncpoint.matching.protocol import API, Matcher, Matching, PairConfirmation, Side
from syncpoint.plugins import Seam
from syncpoint.run.reader import Run

_CHAIN: tuple[type[Matcher], ...] = (
    BoundaryMatcher,
    CompiledMatcher,
    ProvenanceMatcher,
    NameMatcher,
    OutputOpMatcher,
    StructureMatcher,
    ValueMatcher,
    ReviewMatcher,
)
"""In order: the strongest evidence first."""
MATCHERS: Seam[Matcher] = Seam(
    "syncpoint.matchers",
    "matcher",
    Matcher,
    API,
    {
        "map": "syncpoint.matching.matchers.map_file:MapMatcher",
        **{matcher.name: f"{matcher.__module__}:{matcher.__qualname__}" for matcher in _CHAIN},
    },
)


def chain(map_file: MapFile | None = None) -> list[Matcher]:
    """The matchers in order; plugins come last."""
    matchers: list[Matcher] = [MapMatcher(map_file)] if map_file else []
    matchers += [matcher() for matcher in _CHAIN]
    matchers += MATCHERS.plugins()
    return matchers


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
