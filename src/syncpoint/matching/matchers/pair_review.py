"""Matcher that reviews doubtful pairs: runs the corrections in order, then adds views and
reasons."""

from __future__ import annotations

from collections.abc import Iterable

from syncpoint.matching.corrections.contradicted_pairs import correct_contradicted_pairs
from syncpoint.matching.corrections.folded_ops import FoldReview
from syncpoint.matching.corrections.folded_parameters import unpair_folded_parameters
from syncpoint.matching.corrections.layouts_after_ops import move_pairs_to_wrong_layouts
from syncpoint.matching.corrections.moved_biases import repair_moved_biases
from syncpoint.matching.corrections.swapped_names import exchange_swapped_names
from syncpoint.matching.corrections.transpositions import (
    drop_moved_transpositions,
    pair_merged_transpositions,
)
from syncpoint.matching.corrections.unscaled_integers import drop_unscaled_integers
from syncpoint.matching.matchers.graph_edges import walk_edges
from syncpoint.matching.protocol import Matching, SyncPoint
from syncpoint.matching.unmatched_reasons import add_unmatched_reasons
from syncpoint.matching.view_selection import add_views
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace


class ReviewMatcher:
    """Reviews doubtful pairs, then adds views and reasons."""

    name = "folds"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Correct pairs, then add views and reasons; changes the matching directly."""
        work = Workspace.of(matching)
        drop_unscaled_integers(work)
        work.apply_changes()
        if all(graph.has_edges for graph in work.graphs):
            has_moved_biases = repair_moved_biases(work)
            work.apply_changes()
            moved_count = FoldReview(work).move_folded_pairs()
            work.apply_changes()
            if exchange_swapped_names(work):
                moved_count += 1 + FoldReview(work).move_folded_pairs()
                work.apply_changes()
            corrected_count = correct_contradicted_pairs(work)
            work.apply_changes()
            if corrected_count:
                # What a wrong pair held is free now: another op may have been folded there.
                corrected_count += FoldReview(work).move_folded_pairs()
                corrected_count += correct_contradicted_pairs(work)
                work.apply_changes()
            move_pairs_to_wrong_layouts(work)
            work.apply_changes()
            if moved_count or has_moved_biases or corrected_count:
                walk_edges(work)
        elif work.graphs[TARGET].has_edges:
            FoldReview(work).drop_folded_pairs()
            work.apply_changes()
        add_views(matching, work.view_selector)
        work.apply_changes()
        if work.graphs[TARGET].has_edges:
            drop_moved_transpositions(work)
            work.apply_changes()
            if work.graphs[REFERENCE].has_edges:
                pair_merged_transpositions(work)
        unpair_folded_parameters(work)
        add_unmatched_reasons(work)
        return ()
