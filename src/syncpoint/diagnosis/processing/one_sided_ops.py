"""Find ops that one side alone has before an op that is off (second normalization, dropped norm):
add an op, or bypass it by an input of equal shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from numpy.typing import NDArray

from syncpoint.diagnosis.budget import read_real_values
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.execution.random_ops import draws_random_numbers
from syncpoint.diagnosis.experiments.proof import Proof, prove_change, prove_result
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment, wide
from syncpoint.run.model import Edge, Op, OpKey, Role, TensorKey
from syncpoint.run.reader import Run

Array = NDArray[Any]
_MAX_OPS_BEHIND = 24
_MAX_ATTEMPTS = 8
_MIN_PAIR_CONFIDENCE = 0.9


@dataclass(frozen=True)
class OneSidedOps:
    """Ops of one side whose presence or absence explains the target's values."""

    added: bool
    """Whether only the target has them; otherwise only the reference does."""
    ops: tuple[Op, ...]
    """In execution order."""
    edge: Edge
    """The reference's edge that they read."""
    proof: Proof


def find_one_sided_ops(case: Case, experiment: RegionExperiment) -> OneSidedOps | None:
    """Find the ops of one side that explain the target's values; None if none do."""
    edges = [
        e
        for e in experiment.region.inputs
        if e in experiment.inputs and _is_reliable(case, experiment, e)
    ]
    candidates = chain(_propose_added(case, experiment, edges), _propose_dropped(experiment, edges))
    for attempt, candidate in enumerate(candidates):
        if attempt >= _MAX_ATTEMPTS or not case.has_time:
            return None
        if candidate is None or not candidate.proof.exact:
            continue
        if not any(draws_random_numbers(op) for op in candidate.ops):
            return candidate
    return None


def _is_reliable(case: Case, experiment: RegionExperiment, edge: Edge) -> bool:
    """Whether the region reads here what the reference's op read. A doubtful pair, or one that is
    off itself, proves nothing about the ops in between."""
    if edge.role is Role.PARAMETER:
        return False
    part = experiment.row.target.key.part
    row = case.by_reference.get(TensorKey(edge.op, edge.role, edge.index, part))
    return row is not None and row.confidence >= _MIN_PAIR_CONFIDENCE and not row.guilty


def _propose_added(
    case: Case, experiment: RegionExperiment, edges: list[Edge]
) -> Iterator[OneSidedOps | None]:
    run, end = case.target, experiment.row.target.key
    if run is None:
        return
    compared = {row.target.key.op for row in case.computed} - {end.op}
    between = _list_ops_behind(run, end.op, compared)
    for op in between:
        value = _read_output(run, op, end)
        ops = [*_list_ops_behind(run, op.key, compared), op]
        reads = {edge.op for one in ops for edge in one.inputs}
        for edge in edges if value is not None else ():
            row = case.by_reference.get(TensorKey(edge.op, edge.role, edge.index, end.part))
            if value is None or row is None or row.target.key.op not in reads:
                continue
            if value.shape == experiment.inputs[edge].shape:
                shown = prove_change(experiment, {edge: value})
                yield OneSidedOps(True, tuple(ops), edge, shown) if shown is not None else None


def _propose_dropped(
    experiment: RegionExperiment, edges: list[Edge]
) -> Iterator[OneSidedOps | None]:
    for op in experiment.ops[:-1]:
        output = experiment.output(op)
        ops = _list_ops_within(experiment, op)
        reads = {edge for one in ops for edge in one.inputs}
        for edge in edges if output is not None else ():
            value = experiment.inputs[edge]
            if output is None or edge not in reads or output.shape != value.shape:
                continue
            shown = prove_result(experiment, experiment.replaced(op, wide(value)))
            yield OneSidedOps(False, tuple(ops), edge, shown) if shown is not None else None


def _list_ops_behind(run: Run, start: OpKey, compared: set[OpKey]) -> list[Op]:
    """List the ops before one that are not compared themselves, up to those that are."""
    ops_behind: dict[OpKey, Op] = {}
    waiting = [start]
    while waiting and len(ops_behind) < _MAX_OPS_BEHIND:
        op = run.op(waiting.pop())
        for edge in op.inputs if op is not None else ():
            before = run.op(edge.op)
            if before is not None and edge.op not in compared and edge.op not in ops_behind:
                ops_behind[edge.op] = before
                waiting.append(edge.op)
    return [op for op in run.ops if op.key in ops_behind]


def _list_ops_within(experiment: RegionExperiment, op: Op) -> list[Op]:
    """List the op and the ops of the region that it depends on."""
    needed = {op.key}
    ops = []
    for region_op in reversed(experiment.ops):
        if region_op.key in needed:
            ops.append(region_op)
            needed |= {edge.op for edge in region_op.inputs}
    return ops[::-1]


def _read_output(run: Run, op: Op, end: TensorKey) -> Array | None:
    tensor = run.tensor(TensorKey(op.key, part=end.part))
    return read_real_values(run, tensor)
