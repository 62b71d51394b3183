"""The numbers of one pair: the native kernel, the catalogue, limits and verdicts."""

from syncpoint.metrics.catalogue import CATALOGUE, METRIC_IDS, Metric
from syncpoint.metrics.kernel import measure, measure_each, statistics
from syncpoint.metrics.measurement import Measurement
from syncpoint.metrics.pair import FileRegion, Operand, Pair, operand

__all__ = [
    "CATALOGUE",
    "METRIC_IDS",
    "FileRegion",
    "Measurement",
    "Metric",
    "Operand",
    "Pair",
    "measure",
    "measure_each",
    "operand",
    "statistics",
]
