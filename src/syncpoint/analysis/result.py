"""What the runs of an analysis say together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from syncpoint.analysis.contribution import Contribution
from syncpoint.analysis.float64_distances import OutputTruth, Truth
from syncpoint.analysis.fused_ops import fused_ops
from syncpoint.analysis.runs import Runs
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.errors import EXIT_CLOSE, EXIT_DIVERGED, EXIT_UNCOVERED
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import TensorKey


@dataclass(frozen=True, kw_only=True)
class AnalysisResult:
    """What the runs say together."""

    result: Result
    """The compiled run against the ops of its graph, run one by one."""
    runs: Runs
    outputs: tuple[OutputTruth, ...]
    truths: Mapping[TensorKey, Truth]
    """By the tensor of the graph."""
    metadata: Mapping[str, tuple[str, ...]]
    lowering: str
    """How far the graph is from the model it was made of, both in float64, where that is too
    far to be rounding: then decompositions or graph passes changed the computation."""
    contributions: tuple[Contribution, ...] = ()
    emulated: str = ""
    """What the twin that rounds as eager does says; "" where it was not asked for."""
    notes: tuple[str, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        """0 where nothing is wrong, 1 where something is, 3 where nothing could be compared."""
        if not self.result.rows or not self.result.coverage.compared:
            return EXIT_UNCOVERED
        wrong = self.lowering or any(self._fails(output) for output in self.outputs)
        if wrong or self.result.exit_code("large", 0.0) == EXIT_DIVERGED:
            return EXIT_DIVERGED
        return EXIT_CLOSE

    @property
    def verdict(self) -> Verdict:
        """The verdict on the whole."""
        if self.exit_code == EXIT_DIVERGED:
            return Verdict.LARGE
        return self.result.verdict

    @property
    def guilty(self) -> list[Row]:
        """Rows where error is made, worst first."""
        made = [row for row in self.result.rows if row.introduced_verdict is Verdict.LARGE]
        return sorted(made, key=lambda row: -(row.introduced.ratio or 0) if row.introduced else 0)

    def hidden(self) -> dict[str, str]:
        """Ops of the graph that have no buffer of their own -> the kernels that compute them."""
        return fused_ops(self.runs.compiled)

    def _fails(self, output: OutputTruth) -> bool:
        kept = [d for d in output.differences if d.startswith(("dtype", "shape", "device"))]
        return output.truth.passes is False or bool(kept)
