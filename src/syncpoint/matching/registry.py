"""The list of matchers: the built-in ones in order, the strongest evidence first, then those of
plugins.

A package adds a matcher with an entry point in the group `syncpoint.matchers`. It names a class or
an object with the attributes of `Matcher`, among them `API = 1`.
"""

from __future__ import annotations

from collections.abc import Iterator

from syncpoint.matching.protocol import API, Matcher
from syncpoint.plugins import Seam

_MAP = "map"
"""The matcher that needs a map, so that it is made for each comparison."""
MATCHERS: Seam[Matcher] = Seam(
    "syncpoint.matchers",
    "matcher",
    Matcher,
    API,
    {
        _MAP: "syncpoint.matching.matchers.map_file:MapMatcher",
        "boundary": "syncpoint.matching.matchers.inputs_outputs_parameters:BoundaryMatcher",
        "compiled": "syncpoint.matching.matchers.compiled:CompiledMatcher",
        "recurrent": "syncpoint.matching.matchers.recurrent_layers:RecurrentMatcher",
        "provenance": "syncpoint.matching.matchers.provenance:ProvenanceMatcher",
        "names": "syncpoint.matching.matchers.names_and_order:NameMatcher",
        "output-ops": "syncpoint.matching.matchers.output_ops:OutputOpMatcher",
        "structure": "syncpoint.matching.matchers.graph_edges:StructureMatcher",
        "unrolled": "syncpoint.matching.matchers.unrolled_layers:UnrolledLayerMatcher",
        "merged": "syncpoint.matching.matchers.merged_products:MergedProductMatcher",
        "values": "syncpoint.matching.matchers.values:ValueMatcher",
        "parameters": "syncpoint.matching.matchers.equal_parameters:ParameterMatcher",
        "last-slice": "syncpoint.matching.matchers.merged_products:LastSliceMatcher",
        "folds": "syncpoint.matching.matchers.pair_review:ReviewMatcher",
    },
)


def matchers_without_map() -> Iterator[Matcher]:
    """Yield all matchers that need no map, the built-in ones first."""
    yield from (MATCHERS.load(name) for name in MATCHERS.built_in if name != _MAP)
    yield from MATCHERS.plugins()
