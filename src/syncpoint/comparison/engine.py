"""Two runs -> a result: match, measure, find what was introduced, judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from syncpoint.comparison.introduced import add_introduced
from syncpoint.comparison.judging import AUTO, Choice, judged
from syncpoint.comparison.measuring import Progress, Sides, dequantized, measured, operand_of, rows
from syncpoint.comparison.result import Lonely, Result
from syncpoint.comparison.rows import Row
from syncpoint.errors import SyncpointError
from syncpoint.matching.chain import chain, match
from syncpoint.matching.map_file import MapFile
from syncpoint.matching.protocol import JUDGED_ROLES, Matcher, Matching
from syncpoint.metrics.limits import coarser, coarsest
from syncpoint.metrics.verdict import Reason
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Kept, OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.runtimes.protocol import Evaluates


@dataclass(frozen=True)
class Options:
    """How to compare."""

    choice: Choice = AUTO
    map_file: MapFile | None = None
    introduced: bool = True
    threads: int = 0
    progress: Progress | None = None


def compare(target: Run, reference: Run, options: Options | None = None) -> Result:
    """Compare two runs."""
    options = options or Options()
    matchers: Sequence[Matcher] = chain(options.map_file)
    matching = match(target, reference, matchers)
    sides = Sides(target, reference)
    made = rows(sides, matching.pairs)
    made = measured(sides, made, options.threads, options.progress)
    made = [_with_input_check(sides, row) for row in made]
    made = _with_first_non_finite(sides, made)
    warnings = list(_warnings(sides))
    if options.introduced:
        if isinstance(reference.session, Evaluates):
            made = add_introduced(sides, made, reference.session)
        else:
            warnings.append(
                "introduced error is not known: the reference is a recording; name its model to"
                " have its ops run again"
            )
    made.sort(key=lambda row: (row.target.order < 0, row.target.order))
    return Result(
        _about(target),
        _about(reference),
        judged(made, options.choice),
        _lonely(matching),
        options.choice,
        _edges(target, made),
        tuple(warnings),
        datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _about(run: Run) -> dict[str, Any]:
    info = run.info
    observer = None
    if info.observer is not None:
        observer = {"equal": info.observer.equal, "detail": info.observer.detail}
    return {
        "path": str(run.path) if run.path else "",
        # Hashing a dump that carries no digests would read all of it once more.
        "digest": run.digest() if all(t.digest for t in run.tensors) else "",
        "model": info.model,
        "runtime": info.runtime,
        "runtime_version": info.runtime_version,
        "options": dict(info.options),
        "device": info.device,
        "precision": info.precision or _precision_of(run),
        "fusion": info.fusion,
        "observer": observer,
        "complete": info.complete,
        "missing": info.missing,
        "notes": list(info.notes),
    }


def _precision_of(run: Run) -> str:
    """Where a dump does not say what it was computed in, what it was stored in."""
    kinds = (Kind.FLOAT, Kind.COMPLEX)
    found = {t.dtype for t in run.tensors if DTYPES[t.dtype].kind in kinds}
    return "+".join(sorted(found))


def _warnings(sides: Sides) -> list[str]:
    said = []
    coarse = [
        coarsest([p.of(t) for t in run.tensors if t.key.role in JUDGED_ROLES])
        for p, run in zip(sides.precisions, (sides.target, sides.reference), strict=True)
    ]
    if "exact" not in coarse and coarser(coarse[1], coarse[0]):
        said.append(
            f"the reference is {coarse[1]} and the target {coarse[0]}: are the two swapped?"
        )
    for name, run in (("target", sides.target), ("reference", sides.reference)):
        if not run.info.complete:
            said.append(f"the {name} run is incomplete: {run.info.missing or 'its writer died'}")
        if run.info.observer is not None and not run.info.observer.equal:
            said.append(
                f"capturing changed the {name}: its outputs differ from an uninstrumented run"
                f" ({run.info.observer.detail})"
            )
    return said


def _with_input_check(sides: Sides, row: Row) -> Row:
    """Inputs are the same if they are equal once the finer side is rounded to the coarser."""
    if row.target.key.role is not Role.MODEL_INPUT or row.numbers is None:
        return row
    target = sides.target.tensor(row.target.key)
    reference = sides.reference.tensor(row.reference.key)
    if target is None or reference is None or row.basis != Kept.VALUES:
        return row
    if row.numbers["equal"] == row.numbers["count"]:
        same = True
    else:
        try:
            same = _same_when_rounded(sides, target, reference)
        except SyncpointError:
            return row
    return replace(row, numbers={**row.numbers, "same_input": same})


def _same_when_rounded(sides: Sides, target: Tensor, reference: Tensor) -> bool:
    t = operand_of(sides.target, target)
    r = operand_of(sides.reference, reference)
    if t.quantization or r.quantization:
        return False
    if DTYPES[t.dtype].kind is not Kind.FLOAT or DTYPES[r.dtype].kind is not Kind.FLOAT:
        return False
    finer, other = (t, r) if DTYPES[t.dtype].unit < DTYPES[r.dtype].unit else (r, t)
    with np.errstate(over="ignore"):
        rounded = finer.array.astype(DTYPES[other.dtype].numpy)
    return bool(np.array_equal(rounded.astype(np.float64), dequantized(other), equal_nan=True))


def _with_first_non_finite(sides: Sides, made: list[Row]) -> list[Row]:
    """Mark ops that make NaN or inf where the reference is finite, from inputs that are fine."""
    bad: dict[TensorKey, bool] = {
        row.target.key: _turns_non_finite(row) for row in made if row.numbers is not None
    }
    if not any(bad.values()):
        return made
    out = []
    for row in made:
        mark = False
        if bad.get(row.target.key) and row.target.order >= 0:
            op = sides.target.ops[row.target.order]
            part = row.target.key.part
            mark = row.target.key.role is Role.OUTPUT and not any(
                bad.get(TensorKey(edge.op, edge.role, edge.index, part), False)
                for edge in op.inputs
            )
        out.append(replace(row, first_non_finite=mark) if mark else row)
    return out


def _turns_non_finite(row: Row) -> bool:
    numbers = row.numbers or {}
    return any(
        (numbers.get(f"target_{kind}") or 0) > (numbers.get(f"reference_{kind}") or 0)
        for kind in ("nan", "inf")
    ) and bool(numbers.get("mismatched"))


def _edges(target: Run, made: list[Row]) -> dict[OpKey, tuple[OpKey, ...]]:
    return {
        op.key: tuple(edge.op for edge in op.inputs if edge.role is Role.OUTPUT)
        for op in target.ops
    }


def _lonely(matching: Matching) -> list[Lonely]:
    left = []
    runs = {"target": matching.target.run, "reference": matching.reference.run}
    orders = {side: {op.key: op for op in run.ops} for side, run in runs.items()}
    seen_through = _compared_through_alias(matching)
    for unmatched in matching.unmatched():
        key = unmatched.key
        op = orders[unmatched.side].get(key.op)
        reason = unmatched.reason
        if op is not None and op.random and reason is Reason.NO_COUNTERPART:
            reason = Reason.RANDOM
        counted = key.role in JUDGED_ROLES and reason not in (Reason.EXCLUDED, Reason.RANDOM)
        if (unmatched.side, key) in seen_through:
            counted = False
        left.append(
            Lonely(
                unmatched.side,
                str(key.op),
                key.role,
                key.index,
                op.type if op else "",
                op.module if op else "",
                reason,
                unmatched.detail,
                counted,
            )
        )
    return left


def _compared_through_alias(matching: Matching) -> set[tuple[str, TensorKey]]:
    """Model outputs without a partner whose value is compared at the op that made it: a dump
    of intermediates has no model outputs of its own."""
    found = set()
    sides = (
        ("target", matching.target, {p.target for p in matching.pairs}),
        ("reference", matching.reference, {p.reference for p in matching.pairs}),
    )
    for name, side, paired in sides:
        paired_names = {str(key) for key in paired}
        for tensor in side.others:
            if tensor.key.role is Role.MODEL_OUTPUT and tensor.alias_of in paired_names:
                found.add((name, tensor.key))
    return found
