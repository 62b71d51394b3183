"""Values that change after they were produced: buffers that are used again too early, or shared by
tensors that live at the same time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.findings import Finding
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.budget import real_values
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.execution.overwritten_values import (
    find_overlaps,
    made_between,
    makers_behind,
    prove_overwritten,
)
from syncpoint.diagnosis.finding_text import finding_at, of_norm
from syncpoint.diagnosis.weights.relations import distance
from syncpoint.run.model import OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

Values = NDArray[np.float64]

_CANDIDATES = 24
"""Tensors that are tried in place of one that an op read."""


class Memory:
    """Memory and aliasing faults."""

    name = "memory"
    title = "a value changed between its making and its reading"

    def look(self, case: Case) -> Iterable[Finding]:
        """At ops that make error and that nothing explains for certain."""
        run = case.target
        if run is None or not case.is_off:
            return
        explained = {p for f in case.found if f.confidence >= 0.9 for p in f.rows}
        rows = [r for r in case.guilty[:16] if case.place[r.target.key] not in explained]
        if not rows:
            return
        overlaps = find_overlaps(run)
        for row in rows:
            found = (
                self._recorded(case, run, row)
                or self._shared(case, run, row, overlaps)
                or self._later(case, run, row)
            )
            if found is not None:
                yield found

    def _recorded(self, case: Case, run: Run, row: Row) -> Finding | None:
        """What the op was given was recorded, and is not what its maker gave."""
        op = run.op(row.target.key.op)
        part = row.target.key.part
        for index, edge in enumerate(op.inputs if op is not None else ()):
            if edge.role is not Role.OUTPUT:
                continue
            given = _values(run, run.tensor(TensorKey(row.target.key.op, Role.INPUT, index, part)))
            made = _values(run, run.tensor(TensorKey(edge.op, edge.role, edge.index, part)))
            if given is None or made is None or given.shape != made.shape:
                continue
            gap = distance(given, made)
            if gap <= 1e-6:
                continue
            evidence = f"{row.target.label} read it {of_norm(gap)} off from what was produced"
            return self._finding(case, row, edge.op, "overwritten", 0.96, (evidence,))
        return None

    def _shared(
        self, case: Case, run: Run, row: Row, overlaps: dict[OpKey, tuple[OpKey, str]]
    ) -> Finding | None:
        """Two tensors that live at the same time share bytes, and the op reads one of them."""
        op = run.op(row.target.key.op)
        for edge in op.inputs if op is not None else ():
            if edge.op in overlaps:
                other, words = overlaps[edge.op]
                evidence = (words, f"{other} was written before {row.target.label} read {edge.op}")
                return self._finding(case, row, edge.op, "overlap", 0.95, evidence)
        return None

    def _later(self, case: Case, run: Run, row: Row) -> Finding | None:
        """The op's result is that of another value in place of one that it reads: of a tensor
        that was made between the two."""
        experiment = case.experiment(row)
        if experiment is None or run.op(row.target.key.op) is None:
            return None
        reads = makers_behind(case, run, row)
        for edge, value in experiment.inputs.items():
            maker = case.by_reference.get(
                TensorKey(edge.op, edge.role, edge.index, row.target.key.part)
            )
            if edge.role is not Role.OUTPUT or maker is None:
                continue
            if reads and maker.target.key.op not in reads:
                continue  # The graph says itself that it reads something else.
            for other in made_between(case, run, maker, row, value.shape, reads)[-_CANDIDATES:]:
                shown = prove_overwritten(case, experiment, edge, value, other)
                if shown is None:
                    continue
                label = maker.target.label
                words = shown.words(f"with {other.target.label} for {label}", row.target.label)
                evidence = (words, f"the graph says that it reads {label}")
                sure = 0.93 if reads else 0.6
                return self._finding(case, row, maker.target.key.op, "overwritten", sure, evidence)
        return None

    def _finding(
        self,
        case: Case,
        row: Row,
        maker: OpKey,
        kind: str,
        confidence: float,
        evidence: tuple[str, ...],
    ) -> Finding:
        how = "shares its memory with another" if kind == "overlap" else "changed"
        return finding_at(
            case,
            row,
            self.name,
            kind,
            f"{maker} {how} before {row.target.label} read it",
            confidence,
            evidence,
            f"give {maker} a buffer of its own, or copy it before it is written to",
            ops=(row.target.label, str(maker)),
        )


def _values(run: Run, tensor: Tensor | None) -> Values | None:
    if tensor is None or tensor.quantization is not None:
        return None
    return real_values(run, tensor)
