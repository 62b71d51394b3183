"""Findings about values overwritten after they were computed: buffers reused too early, memory
shared by live tensors, changed inputs; device dumps: memory_reuse.py."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.findings import Finding
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.budget import read_real_values
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.execution.overwritten_values import (
    find_overlaps,
    list_ops_read,
    list_produced_between,
    prove_overwritten,
)
from syncpoint.diagnosis.finding_text import finding_at, name_op, of_norm
from syncpoint.diagnosis.weights.relations import distance
from syncpoint.run.model import OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

Values = NDArray[np.float64]

_MAX_CANDIDATES = 24
"""Tensors to try in place of one that an op read."""


class Memory:
    """Values that were overwritten before they were read."""

    name = "memory"
    title = "a value was overwritten before it was read"

    def look(self, case: Case) -> Iterable[Finding]:
        """Yield findings about guilty ops that no earlier cause explains for certain."""
        run = case.target
        if run is None or not case.is_off:
            return
        explained = {p for f in case.findings if f.confidence >= 0.9 for p in f.rows}
        rows = [r for r in case.guilty[:16] if case.place[r.target.key] not in explained]
        if not rows:
            return
        overlaps = find_overlaps(run)
        for row in rows:
            finding = (
                self._report_changed_input(case, run, row)
                or self._report_shared_memory(case, run, row, overlaps)
                or self._report_overwritten(case, run, row)
            )
            if finding is not None:
                yield finding

    def _report_changed_input(self, case: Case, run: Run, row: Row) -> Finding | None:
        """Make the finding that a recorded input is not what the op before it produced."""
        op = run.op(row.target.key.op)
        part = row.target.key.part
        for index, edge in enumerate(op.inputs if op is not None else ()):
            if edge.role is not Role.OUTPUT:
                continue
            read = _values(run, run.tensor(TensorKey(row.target.key.op, Role.INPUT, index, part)))
            produced = _values(run, run.tensor(TensorKey(edge.op, edge.role, edge.index, part)))
            if read is None or produced is None or read.shape != produced.shape:
                continue
            gap = distance(read, produced)
            if gap <= 1e-6:
                continue
            evidence = (
                f"the values that {row.target.label} read differ by {of_norm(gap)} from those that"
                f" {edge.op} produced"
            )
            return self._finding(case, row, edge.op, "overwritten", 0.96, (evidence,))
        return None

    def _report_shared_memory(
        self, case: Case, run: Run, row: Row, overlaps: dict[OpKey, tuple[OpKey, str]]
    ) -> Finding | None:
        """Make the finding that the op reads a tensor which shares bytes with another live one."""
        op = run.op(row.target.key.op)
        for edge in op.inputs if op is not None else ():
            if edge.op in overlaps:
                other, words = overlaps[edge.op]
                evidence = (words, f"{other} was written before {row.target.label} read {edge.op}")
                return self._finding(case, row, edge.op, "overlap", 0.95, evidence, other)
        return None

    def _report_overwritten(self, case: Case, run: Run, row: Row) -> Finding | None:
        """Make the finding that the op gives the result of a tensor which was produced between one
        of its inputs and the op itself."""
        experiment = case.experiment(row)
        if experiment is None or run.op(row.target.key.op) is None:
            return None
        reads = list_ops_read(case, run, row)
        for edge, value in experiment.inputs.items():
            maker = case.by_reference.get(
                TensorKey(edge.op, edge.role, edge.index, row.target.key.part)
            )
            if edge.role is not Role.OUTPUT or maker is None:
                continue
            if reads and maker.target.key.op not in reads:
                continue  # The graph itself says that the op reads another tensor.
            for other in list_produced_between(case, run, maker, row, value.shape, reads)[
                -_MAX_CANDIDATES:
            ]:
                proof = prove_overwritten(case, experiment, edge, value, other)
                if proof is None:
                    continue
                label = maker.target.label
                change = f"with {other.target.label} in place of {label} in the reference"
                evidence = (
                    proof.words(change, row.target.label),
                    f"according to the graph, {row.target.label} reads {label}, not"
                    f" {other.target.label}",
                )
                confidence = 0.93 if reads else 0.6
                return self._finding(
                    case, row, maker.target.key.op, "overwritten", confidence, evidence
                )
        return None

    def _finding(
        self,
        case: Case,
        row: Row,
        maker: OpKey,
        kind: str,
        confidence: float,
        evidence: tuple[str, ...],
        other: OpKey | None = None,
    ) -> Finding:
        writer = "the target" if other is None else f"the target's {other}"
        title = f"{writer} overwrites the buffer of {maker} before {name_op(row)} reads {maker}"
        return finding_at(
            case,
            row,
            self.name,
            kind,
            title,
            confidence,
            evidence,
            f"give {maker} a buffer of its own in the target, or copy {maker} before its buffer is"
            " reused",
            ops=(row.target.label, str(maker)),
        )


def _values(run: Run, tensor: Tensor | None) -> Values | None:
    if tensor is None or tensor.quantization is not None:
        return None
    return read_real_values(run, tensor)
