"""The review of doubtful pairs, which runs the corrections and then adds views and reasons."""

from __future__ import annotations

from collections.abc import Iterable

from syncpoint.matching.corrections.folded_ops import FoldReview
from syncpoint.matching.corrections.folded_parameters import part_folded
from syncpoint.matching.corrections.moved_biases import settle_biases
from syncpoint.matching.corrections.swapped_names import exchange
from syncpoint.matching.corrections.transpositions import drop_moved_transpositions, pair_turned
from syncpoint.matching.corrections.unscaled_integers import drop_unlike
from syncpoint.matching.layouts import add_views
from syncpoint.matching.matchers.graph_edges import walk
from syncpoint.matching.protocol import Matching, SyncPoint
from syncpoint.matching.unmatched_reasons import add_reasons
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace


class ReviewMatcher:
    """Looks at doubtful pairs again, then gives views and reasons."""

    name = "folds"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Moves pairs, never makes one out of nothing."""
        work = Workspace.of(matching)
        drop_unlike(work)
        work.settle()
        if all(graph.has_edges for graph in work.graphs):
            rebiased = settle_biases(work)
            work.settle()
            moved = FoldReview(work).run()
            work.settle()
            if exchange(work):
                moved += 1 + FoldReview(work).run()
                work.settle()
            if moved or rebiased:
                walk(work)
        elif work.graphs[TARGET].has_edges:
            FoldReview(work).unfold()
            work.settle()
        add_views(matching, work.layouts)
        work.settle()
        if work.graphs[TARGET].has_edges:
            drop_moved_transpositions(work)
            work.settle()
            if work.graphs[REFERENCE].has_edges:
                pair_turned(work)
        part_folded(work)
        add_reasons(work)
        return ()
