"""The result of an analysis: its runs, their comparison, the verdict, the exit code, the guilty
ops, and those fused away without a buffer of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from syncpoint.analysis.compiled_buffers import fused_ops
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.errors import EXIT_CLOSE, EXIT_DIVERGED, EXIT_UNCOVERED
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Op, TensorKey

if TYPE_CHECKING:
    from syncpoint.analysis.contribution import Contribution
    from syncpoint.analysis.float64_distances import Float64Errors, OutputErrors
    from syncpoint.analysis.runs import AnalysisRuns
    from syncpoint.analysis.uncompiled_code import UncompiledCode


@dataclass(frozen=True, kw_only=True)
class AnalysisResult:
    """The runs of a compiled model and their comparison."""

    result: Result
    """The compiled run against its graph, executed op by op."""
    runs: AnalysisRuns
    outputs: tuple[OutputErrors, ...]
    truths: Mapping[TensorKey, Float64Errors]
    """By tensor of the graph."""
    metadata: Mapping[str, tuple[str, ...]]
    lowering: str
    """The difference between the graph and the model, both in float64, where it is too large for
    rounding: decompositions or graph passes changed the computation. Else ""."""
    contributions: tuple[Contribution, ...] = ()
    emulated: str = ""
    """Whether rounding that the compiler omits explains the difference; "" if not requested."""
    uncompiled: tuple[UncompiledCode, ...] = ()
    """Values that no compiled graph computes, with their ops in the eager run."""
    notes: tuple[str, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        """The exit code of an analysis: 0 nothing is wrong, 1 something is, 3 nothing could be
        compared."""
        if not self.result.rows or not self.result.coverage.compared:
            return EXIT_UNCOVERED
        wrong = self.lowering or any(self._fails(output) for output in self.outputs)
        if wrong or self.result.exit_code("large", 0.0) == EXIT_DIVERGED:
            return EXIT_DIVERGED
        return EXIT_CLOSE

    @property
    def verdict(self) -> Verdict:
        """The verdict on the model."""
        if self.exit_code == EXIT_DIVERGED:
            return Verdict.LARGE
        return self.result.verdict

    @property
    def guilty(self) -> list[Row]:
        """Rows whose ops introduce a large error, worst first."""
        guilty_rows = [row for row in self.result.rows if row.introduced_verdict is Verdict.LARGE]
        return sorted(
            guilty_rows, key=lambda row: -(row.introduced.ratio or 0) if row.introduced else 0
        )

    def hidden(self) -> dict[str, str]:
        """The ops of the graph without a buffer of their own, and the kernels that compute them."""
        return fused_ops(self.runs.compiled)

    def uncompiled_ops(self) -> list[Op]:
        """The ops of the eager run that were not compiled, each once."""
        return list({op.key: op for code in self.uncompiled for op in code.ops}.values())

    def _fails(self, output: OutputErrors) -> bool:
        metadata = ("dtype", "shape", "device")
        is_other = any(text.startswith(metadata) for text in output.differences)
        return output.truth.passes is False or is_other
