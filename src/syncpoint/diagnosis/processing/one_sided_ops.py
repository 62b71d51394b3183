"""Ops that only one side has before an op that is off: normalisation inside the model that the
pipeline has done already, a norm that the conversion left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from numpy.typing import NDArray

from syncpoint.diagnosis.budget import real_values
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.execution.random_ops import draws
from syncpoint.diagnosis.experiments.proof import Proof, against, proof
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment, wide
from syncpoint.run.model import Edge, Op, OpKey, Role, TensorKey
from syncpoint.run.reader import Run

Array = NDArray[Any]
_FAR = 24
"""Ops that are looked at behind one."""
_TRIED = 8
_SURE = 0.9


@dataclass(frozen=True)
class Extra:
    """Ops whose presence, or absence, gives the target's numbers."""

    added: bool
    """Whether the target alone has them; else the reference."""
    ops: tuple[Op, ...]
    """In execution order."""
    edge: Edge
    """What they read, in the reference."""
    proof: Proof


def extra(case: Case, experiment: RegionExperiment) -> Extra | None:
    """The ops that explain what the target's op gave; None where none do."""
    given = [
        e
        for e in experiment.region.inputs
        if e in experiment.inputs and _is_sure(case, experiment, e)
    ]
    for tried, found in enumerate(
        chain(_added(case, experiment, given), _dropped(experiment, given))
    ):
        if tried >= _TRIED or not case.has_time:
            return None
        if found is not None and found.proof.exact and not any(draws(op) for op in found.ops):
            return found
    return None


def _is_sure(case: Case, experiment: RegionExperiment, edge: Edge) -> bool:
    """Whether what the region reads here is what the reference's op read: a pair that is in doubt,
    or off by itself, proves nothing of the ops in between."""
    if edge.role is Role.PARAMETER:
        return False
    part = experiment.row.target.key.part
    row = case.by_reference.get(TensorKey(edge.op, edge.role, edge.index, part))
    return row is not None and row.confidence >= _SURE and not row.guilty


def _added(case: Case, experiment: RegionExperiment, given: list[Edge]) -> Iterator[Extra | None]:
    run, end = case.target, experiment.row.target.key
    if run is None:
        return
    compared = {row.target.key.op for row in case.computed} - {end.op}
    between = _behind(run, end.op, compared)
    for op in between:
        value = _value(run, op, end)
        ops = [*_behind(run, op.key, compared), op]
        reads = {edge.op for one in ops for edge in one.inputs}
        for edge in given if value is not None else ():
            row = case.by_reference.get(TensorKey(edge.op, edge.role, edge.index, end.part))
            if value is None or row is None or row.target.key.op not in reads:
                continue
            if value.shape == experiment.inputs[edge].shape:
                made = proof(experiment, {edge: value})
                yield Extra(True, tuple(ops), edge, made) if made is not None else None


def _dropped(experiment: RegionExperiment, given: list[Edge]) -> Iterator[Extra | None]:
    for op in experiment.ops[:-1]:
        made = experiment.output(op)
        ops = _within(experiment, op)
        reads = {edge for one in ops for edge in one.inputs}
        for edge in given if made is not None else ():
            value = experiment.inputs[edge]
            if made is None or edge not in reads or made.shape != value.shape:
                continue
            left = against(experiment, experiment.replaced(op, wide(value)))
            yield Extra(False, tuple(ops), edge, left) if left is not None else None


def _behind(run: Run, at: OpKey, compared: set[OpKey]) -> list[Op]:
    """The ops behind one that are not compared themselves, up to those that are."""
    found: dict[OpKey, Op] = {}
    waiting = [at]
    while waiting and len(found) < _FAR:
        op = run.op(waiting.pop())
        for edge in op.inputs if op is not None else ():
            before = run.op(edge.op)
            if before is not None and edge.op not in compared and edge.op not in found:
                found[edge.op] = before
                waiting.append(edge.op)
    return [op for op in run.ops if op.key in found]


def _within(experiment: RegionExperiment, op: Op) -> list[Op]:
    """The op and those of the region that it is made from."""
    wanted = {op.key}
    found = []
    for one in reversed(experiment.ops):
        if one.key in wanted:
            found.append(one)
            wanted |= {edge.op for edge in one.inputs}
    return found[::-1]


def _value(run: Run, op: Op, end: TensorKey) -> Array | None:
    tensor = run.tensor(TensorKey(op.key, part=end.part))
    return real_values(run, tensor)
