"""Where a target is cut, run and judged, until the first bad op is found.

A run of the target's ops one by one serves as the guide: it says which tensor of the reference
belongs to which of the target; its numbers are not believed.
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
from syncpoint.comparison.measuring import build_pair
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


class Bench:
    """Cuts, runs and judges."""

    def __init__(
        self,
        guide: Run,
        reference: Run,
        cutter: Cutter,
        samples: list[Inputs],
        choice: Choice,
        out: Path | None,
        told: Callable[[Cut], None] | None,
    ) -> None:

        self.guide, self.reference = guide, reference
        self.cutter, self.samples, self.choice = cutter, samples, choice
        self.out, self.told = out, told
        result = compare(guide, reference, Options(choice=choice, introduced="off"))
        self.sides = Sides(guide, reference)
        self.ops = [op for op in guide.ops if not op.key.path]
        self.place = {op.key: at for at, op in enumerate(self.ops)}
        self.rows: dict[int, list[Row]] = {}
        self.finals: list[Row] = []
        for row in result.rows:
            if row.target.key.role is Role.MODEL_OUTPUT:
                self.finals.append(row)
            elif self._can_be_cut_at(row):
                self.rows.setdefault(self.place[row.target.key.op], []).append(row)
        self.cuts: list[Cut] = []
        self.scores: dict[int, Row] = {}
        self.notes: list[str] = []

    def _can_be_cut_at(self, row: Row) -> bool:
        """The guide's own values decide nothing: what could not be measured there is tried."""
        made = row.target.key.role is Role.OUTPUT and row.target.key.op in self.place
        left_out = row.unmeasured.code in (ReasonCode.RANDOM, ReasonCode.EXCLUDED)
        return made and row.basis == Kept.VALUES and not left_out

    # Runs

    def run_whole(self) -> list[Row]:
        """The model's outputs as the uncut target gives them, judged."""
        edges: dict[Edge, None] = {}
        for tensor in self.guide.tensors:
            at = self._made(tensor.key) if tensor.key.role is Role.MODEL_OUTPUT else None
            if at is not None:
                edges[at] = None
        wanted = tuple(edges)
        rows: list[Row] = []
        given = self._given(wanted)
        for row in self.finals:
            edge = self._made(row.target.key)
            value = given.get((edge, row.target.key.part)) if edge is not None else None
            rows.append(self._judged(row, value))
        self._note("the whole model", "", rows, "")
        return rows

    def test_cut(self, at: int) -> State:
        """Run the target cut at an op, and judge what it gives there."""
        op = self.ops[at]
        edges = tuple(dict.fromkeys(Edge(op.key, r.target.key.index) for r in self.rows[at]))
        kept = ""
        try:
            given = self._given(edges)
            if self.out is not None:
                kept = self._save(op, edges)
        except SyncpointError as error:
            rows = [
                self._judged(row, None, f"the cut does not run: {error.detail}", error.cure)
                for row in self.rows[at]
            ]
        else:
            rows = [
                self._judged(
                    row,
                    given.get((Edge(op.key, row.target.key.index), row.target.key.part)),
                )
                for row in self.rows[at]
            ]
        self.scores[at] = _worst(rows)
        return self._note(str(op.key), op.type, rows, kept)

    def _given(self, edges: tuple[Edge, ...]) -> dict[tuple[Edge | None, Part], Any]:
        found: dict[tuple[Edge | None, Part], Any] = {}
        if not edges:
            return found
        for number, sample in enumerate(self.samples):
            part = Part(sample=number) if len(self.samples) > 1 else Part()
            values = self.cutter.run(edges, sample, part)
            found |= {(e, part): v for e, v in zip(edges, values, strict=True)}
        return found

    def _save(self, op: Op, edges: tuple[Edge, ...]) -> str:
        assert self.out is not None
        with write_errors(self.out):
            self.out.mkdir(parents=True, exist_ok=True)
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in str(op.key))[-80:]
        part = Part(sample=0) if len(self.samples) > 1 else Part()
        path = self.out / f"cut-{len(self.cuts):02}-{name}.model"
        try:
            return str(self.cutter.save(edges, self.samples[0], part, path))
        except SyncpointError as error:
            self.notes.append(f"the cut at {op.key} is not kept: {error}")
            return ""

    def _note(self, op: str, kind: str, rows: list[Row], kept: str) -> State:
        state = state_of(rows)
        worst = _worst(rows) if rows else None
        cut = Cut(
            op=op,
            type=kind,
            state=state.value,
            psnr=psnr_of(worst),
            verdict=worst.verdict.value if worst else Verdict.NONE.value,
            why=worst.why if worst else Reason(detail="nothing to compare"),
            model=kept,
        )
        self.cuts.append(cut)
        if self.told is not None:
            self.told(cut)
        return state

    # Judging

    def _judged(
        self, row: Row, value: Any, why: str = "the target gave no tensor", cure: str = ""
    ) -> Row:
        """The row with the verdict on what the black box gave."""

        clean = replace(row, numbers=None, introduced=None, first_non_finite=False)
        if value is None:
            reason = Reason(ReasonCode.UNREADABLE, why, cure)
            return judge_row(replace(clean, unmeasured=reason), self.choice)
        clean = replace(clean, unmeasured=NO_REASON)
        tensor = self.guide.tensor(row.target.key)
        theirs = self.reference.tensor(row.reference.key)
        if tensor is None or theirs is None:
            raise KeyError(row)
        operand = Operand(value, from_numpy(value.dtype).name, tensor.quantization)
        operand = self.sides.with_mask_limit(0, tensor, operand)
        try:
            clean, pair = build_pair(self.sides, clean, operand, self.sides.operand(1, theirs))
        except SyncpointError as error:
            reason = Reason.of_error(ReasonCode.UNREADABLE, error)
            clean, pair = replace(clean, unmeasured=reason), None
        if pair is not None:
            clean = replace(clean, numbers=measure([pair])[0].as_dict())
        return judge_row(clean, self.choice)

    # The graph

    def parents(self) -> list[list[int]]:
        """Of each op, those that it reads."""
        return [
            sorted(
                {
                    self.place[edge.op]
                    for edge in op.inputs
                    if edge.role is Role.OUTPUT and self.place.get(edge.op, at) < at
                }
            )
            for at, op in enumerate(self.ops)
        ]

    def _made(self, key: TensorKey) -> Edge | None:
        """Which op's output a model output is."""
        tensor = self.guide.tensor(key)
        maker = self._makers.get(tensor.alias_of) if tensor is not None else None
        if maker is None and key.op in self.place:
            maker = TensorKey(key.op, index=key.index)
        return Edge(maker.op, maker.index) if maker is not None else None

    @cached_property
    def _makers(self) -> dict[str, TensorKey]:
        outputs = (t.key for t in self.guide.tensors if t.key.role is Role.OUTPUT)
        return {str(key): key for key in outputs}

    def maker_of(self, row: Row) -> int | None:
        """The op that makes a model output; None where it cannot be cut at."""
        edge = self._made(row.target.key)
        return self.place.get(edge.op) if edge is not None else None


def _worst(rows: list[Row]) -> Row:
    return max(rows, key=lambda row: (row.verdict.severity, -(psnr_of(row) or 0.0)))


def psnr_of(row: Row | None) -> float | None:
    """The psnr of a row in dB; None where nothing was measured."""
    return row.numbers.get("psnr") if row is not None and row.numbers is not None else None


def state_of(rows: list[Row]) -> State:
    """Bad if anything is; good only if something was judged and nothing is left open."""

    if any(row.verdict.severity > 0 or row.why.code is ReasonCode.SHAPE for row in rows):
        return State.BAD
    if not rows or any(row.verdict is Verdict.NONE for row in rows):
        return State.UNKNOWN
    return State.GOOD
