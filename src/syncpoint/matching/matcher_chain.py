"""The chain of matchers: strongest evidence first, each given what the others left."""

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
"""In this order: the strongest evidence first."""
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
    """The matchers in order; those of other packages come last."""
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
    """Pair the tensors of two runs; `confirmation` is asked about pairs by values alone."""
    matching = Matching(Side.of(target), Side.of(reference), confirmation=confirmation)
    for matcher in matchers:
        try:
            for pair in matcher.match(matching):
                matching.add(pair)
        except Exception as error:
            # The pairs that a matcher of another package yielded before it failed stay.
            MATCHERS.report_failure(matcher.name, error)
    return matching


def summarize(matching: Matching) -> str:
    """How many pairs, by what evidence, and how many tensors are left without a partner."""
    evidence = Counter(pair.evidence for pair in matching.pairs)
    by = ", ".join(f"{count} by {name}" for name, count in evidence.most_common(4))
    unmatched = Counter(tensor.side for tensor in matching.unmatched() if tensor.counted)
    alone = ", ".join(f"{unmatched[side]} of the {side}" for side in ("target", "reference"))
    return f"{len(matching.pairs)} pairs ({by}); unmatched: {alone}"
