"""How the values of both sides are spread, and the elements that are furthest off."""

from __future__ import annotations

from syncpoint.metrics import value_histograms
from syncpoint.page.open_comparison import Opened
from syncpoint.page.schema import Distribution
from syncpoint.page.tensor_values import values_of
from syncpoint.page.worst_elements import pattern, worst

_BINS = 64


def distribution(opened: Opened, row: int) -> Distribution:
    """Histograms of both sides over common edges, and the worst elements."""
    values = values_of(opened, row)
    found = value_histograms(values.counted_pair, _BINS)
    masked = values.masked_count
    places, elements = worst(values)
    return Distribution(
        edges=list(found.edges),
        reference=list(found.reference_counts),
        target=list(found.target_counts),
        reference_outside=found.reference_masked + found.reference_non_finite + masked,
        target_outside=found.target_masked + found.target_non_finite + masked,
        worst=elements,
        pattern=pattern(places, values),
    )
