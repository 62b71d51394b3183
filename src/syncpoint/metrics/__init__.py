"""The numbers of one pair: the native kernel, the catalogue, limits and verdicts."""

from syncpoint.metrics.catalogue import CATALOGUE, METRIC_IDS, Metric
from syncpoint.metrics.kernel import measure, statistics
from syncpoint.metrics.measurement import Measurement
from syncpoint.metrics.pair import Operand, Pair, operand

__all__ = [
    "CATALOGUE",
    "METRIC_IDS",
    "Measurement",
    "Metric",
    "Operand",
    "Pair",
    "measure",
    "operand",
    "statistics",
]
