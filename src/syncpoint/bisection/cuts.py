"""Cut the target at an op, run it for each sample, collect values, judge them against the reference
(good, bad, not judged); PSNR; save a cut model.

A run of the target op by op, the guide, pairs the tensors of the target with those of the
reference. The values of the guide are not used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from syncpoint.bisection.graph_search import State
from syncpoint.bisection.result import Cut
from syncpoint.comparison.engine import Options, compare
from syncpoint.comparison.judge_rows import Choice, judge_row
from syncpoint.comparison.measuring.measure_rows import build_pair
from syncpoint.comparison.rows import Row
from syncpoint.comparison.sides import Sides
from syncpoint.errors import SyncpointError
from syncpoint.files.write_errors import write_errors
from syncpoint.metrics import Operand, measure
from syncpoint.metrics.verdict import NO_REASON, Reason, ReasonCode, Verdict
from syncpoint.run.dtypes import from_numpy
from syncpoint.run.model import Edge, Kept, Op, Part, Role, TensorKey
from syncpoint.run.reader import Run
from syncpoint.runtimes.protocol import Cutter, Inputs


class CutRunner:
    """Runs the target, cut or whole, and judges what it computes. Ops are numbered by the guide."""

    def __init__(
        self,
        guide: Run,
        reference: Run,
        cutter: Cutter,
        samples: list[Inputs],
        choice: Choice,
        out: Path | None,
        on_cut: Callable[[Cut], None] | None,
    ) -> None:
        self.guide, self.reference = guide, reference
        self.cutter, self.samples, self.choice = cutter, samples, choice
        self.out, self.on_cut = out, on_cut
        comparison = compare(guide, reference, Options(choice=choice, introduced="off"))
        self.sides = Sides(guide, reference)
        self.ops = [op for op in guide.ops if not op.key.path]
        self.index_by_key = {op.key: index for index, op in enumerate(self.ops)}
        self.rows: dict[int, list[Row]] = {}
        """The sync points at the outputs of each op that can be cut at."""
        self.output_rows: list[Row] = []
        for row in comparison.rows:
            if row.target.key.role is Role.MODEL_OUTPUT:
                self.output_rows.append(row)
            elif self._can_be_cut_at(row):
                self.rows.setdefault(self.index_by_key[row.target.key.op], []).append(row)
        self.cuts: list[Cut] = []
        self.scores: dict[int, Row] = {}
        """The worst row of each op that was judged."""
        self.notes: list[str] = []

    def _can_be_cut_at(self, row: Row) -> bool:
        """Whether to cut here. Values that the guide could not measure do not rule it out."""
        key = row.target.key
        is_op_output = key.role is Role.OUTPUT and key.op in self.index_by_key
        is_excluded = row.unmeasured.code in (ReasonCode.RANDOM, ReasonCode.EXCLUDED)
        return is_op_output and row.basis == Kept.VALUES and not is_excluded

    # Runs

    def run_whole(self) -> list[Row]:
        """Run the whole target and judge its outputs."""
        edges: dict[Edge, None] = {}
        for tensor in self.guide.tensors:
            edge = self._edge_of(tensor.key) if tensor.key.role is Role.MODEL_OUTPUT else None
            if edge is not None:
                edges[edge] = None
        values = self._run(tuple(edges))
        rows: list[Row] = []
        for row in self.output_rows:
            edge = self._edge_of(row.target.key)
            value = values.get((edge, row.target.key.part)) if edge is not None else None
            rows.append(self._judge(row, value))
        self._add_cut("the whole model", "", rows, "")
        return rows

    def test_cut(self, index: int) -> State:
        """Run the target cut at an op, and judge the outputs of this op."""
        op = self.ops[index]
        op_rows = self.rows[index]
        edges = tuple(dict.fromkeys(Edge(op.key, row.target.key.index) for row in op_rows))
        model_path = ""
        try:
            values = self._run(edges)
            if self.out is not None:
                model_path = self._save(op, edges)
        except SyncpointError as error:
            detail = f"the cut does not run: {error.detail}"
            rows = [self._judge(row, None, detail, error.cure) for row in op_rows]
        else:
            rows = [
                self._judge(
                    row, values.get((Edge(op.key, row.target.key.index), row.target.key.part))
                )
                for row in op_rows
            ]
        self.scores[index] = _worst(rows)
        return self._add_cut(str(op.key), op.type, rows, model_path)

    def _run(self, edges: tuple[Edge, ...]) -> dict[tuple[Edge | None, Part], Any]:
        """The values of some tensors for every sample."""
        values_by_edge: dict[tuple[Edge | None, Part], Any] = {}
        if not edges:
            return values_by_edge
        for number, sample in enumerate(self.samples):
            part = Part(sample=number) if len(self.samples) > 1 else Part()
            values = self.cutter.run(edges, sample, part)
            values_by_edge |= {
                (edge, part): value for edge, value in zip(edges, values, strict=True)
            }
        return values_by_edge

    def _save(self, op: Op, edges: tuple[Edge, ...]) -> str:
        """Write the cut model; return its path, or "" where it cannot be saved."""
        assert self.out is not None
        with write_errors(self.out):
            self.out.mkdir(parents=True, exist_ok=True)
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in str(op.key))[-80:]
        part = Part(sample=0) if len(self.samples) > 1 else Part()
        path = self.out / f"cut-{len(self.cuts):02}-{name}.model"
        try:
            return str(self.cutter.save(edges, self.samples[0], part, path))
        except SyncpointError as error:
            self.notes.append(f"the model cut at {op.key} was not saved: {error}")
            return ""

    def _add_cut(self, op: str, op_type: str, rows: list[Row], model_path: str) -> State:
        state = state_of(rows)
        worst = _worst(rows) if rows else None
        cut = Cut(
            op=op,
            type=op_type,
            state=state.value,
            psnr=psnr_of(worst),
            verdict=worst.verdict.value if worst else Verdict.NONE.value,
            why=worst.why if worst else Reason(detail="nothing to compare"),
            model=model_path,
        )
        self.cuts.append(cut)
        if self.on_cut is not None:
            self.on_cut(cut)
        return state

    # Judging

    def _judge(
        self, row: Row, value: Any, why: str = "the target returned no tensor", cure: str = ""
    ) -> Row:
        """The row with the verdict on a value of the target; `why` says why there is no value."""
        row = replace(row, numbers=None, introduced=None, first_non_finite=False)
        if value is None:
            reason = Reason(ReasonCode.UNREADABLE, why, cure)
            return judge_row(replace(row, unmeasured=reason), self.choice)
        row = replace(row, unmeasured=NO_REASON)
        tensor = self.guide.tensor(row.target.key)
        reference = self.reference.tensor(row.reference.key)
        if tensor is None or reference is None:
            raise KeyError(row)
        operand = Operand(value, from_numpy(value.dtype).name, tensor.quantization)
        operand = self.sides.with_mask_limit(0, tensor, operand)
        try:
            row, pair = build_pair(self.sides, row, operand, self.sides.operand(1, reference))
        except SyncpointError as error:
            reason = Reason.of_error(ReasonCode.UNREADABLE, error)
            row, pair = replace(row, unmeasured=reason), None
        if pair is not None:
            row = replace(row, numbers=measure([pair])[0].as_dict())
        return judge_row(row, self.choice)

    # The graph

    def parents(self) -> list[list[int]]:
        """For each op, the ops that it reads."""
        return [
            sorted(
                {
                    self.index_by_key[edge.op]
                    for edge in op.inputs
                    if edge.role is Role.OUTPUT and self.index_by_key.get(edge.op, index) < index
                }
            )
            for index, op in enumerate(self.ops)
        ]

    def _edge_of(self, key: TensorKey) -> Edge | None:
        """The op output that a model output is."""
        tensor = self.guide.tensor(key)
        output = self._output_by_name.get(tensor.alias_of) if tensor is not None else None
        if output is None and key.op in self.index_by_key:
            output = TensorKey(key.op, index=key.index)
        return Edge(output.op, output.index) if output is not None else None

    @cached_property
    def _output_by_name(self) -> dict[str, TensorKey]:
        outputs = (tensor.key for tensor in self.guide.tensors if tensor.key.role is Role.OUTPUT)
        return {str(key): key for key in outputs}

    def maker_of(self, row: Row) -> int | None:
        """The op that computes a model output; None where the target cannot be cut at it."""
        edge = self._edge_of(row.target.key)
        return self.index_by_key.get(edge.op) if edge is not None else None


def _worst(rows: list[Row]) -> Row:
    return max(rows, key=lambda row: (row.verdict.severity, -(psnr_of(row) or 0.0)))


def psnr_of(row: Row | None) -> float | None:
    """The psnr of a row in dB; None where nothing was measured."""
    return row.numbers.get("psnr") if row is not None and row.numbers is not None else None


def state_of(rows: list[Row]) -> State:
    """Bad if any row is bad; good only if every row was judged and there is one."""
    if any(row.verdict.severity > 0 or row.why.code is ReasonCode.SHAPE for row in rows):
        return State.BAD
    if not rows or any(row.verdict is Verdict.NONE for row in rows):
        return State.UNKNOWN
    return State.GOOD
