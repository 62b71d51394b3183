"""Histograms of the values of both sides, and the worst elements."""

from __future__ import annotations

from syncpoint.metrics import value_histograms
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.schema import Distribution
from syncpoint.page.tensor_values import read_values
from syncpoint.page.worst_elements import describe_pattern, find_worst_elements

_BIN_COUNT = 64


def build_distribution(opened: OpenComparison, row: int) -> Distribution:
    """Return histograms of both sides over common edges, and the worst elements."""
    values = read_values(opened, row)
    histograms = value_histograms(values.counted_pair, _BIN_COUNT)
    masked = values.masked_count
    places, elements = find_worst_elements(values)
    return Distribution(
        edges=list(histograms.edges),
        reference=list(histograms.reference_counts),
        target=list(histograms.target_counts),
        reference_outside=histograms.reference_masked + histograms.reference_non_finite + masked,
        target_outside=histograms.target_masked + histograms.target_non_finite + masked,
        worst=elements,
        pattern=describe_pattern(places, values),
    )
