"""The numbers of one pair: the native kernel, the catalogue, limits and verdicts."""

from syncpoint.metrics.catalogue import CATALOGUE, METRIC_IDS, Metric
from syncpoint.metrics.instruction_set import check_isa
from syncpoint.metrics.kernel import measure, measure_each, statistics
from syncpoint.metrics.measurement import Measurement
from syncpoint.metrics.on_demand import (
    Histograms,
    RowKl,
    Slice,
    TopK,
    kl,
    kl_minmax,
    kl_rows,
    topk_agreement,
    value_histograms,
    worst_slice,
    worst_slices,
)
from syncpoint.metrics.pair import FileRegion, Operand, Pair, operand
from syncpoint.metrics.row_major import dense

# At import, so that a wrong SYNCPOINT_ISA fails before anything is captured or measured.
check_isa()

__all__ = [
    "CATALOGUE",
    "METRIC_IDS",
    "FileRegion",
    "Histograms",
    "Measurement",
    "Metric",
    "Operand",
    "Pair",
    "RowKl",
    "Slice",
    "TopK",
    "dense",
    "kl",
    "kl_minmax",
    "kl_rows",
    "measure",
    "measure_each",
    "operand",
    "statistics",
    "topk_agreement",
    "value_histograms",
    "worst_slice",
    "worst_slices",
]
