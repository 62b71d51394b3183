"""Two runs -> a result: match, measure, find what was introduced, judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.accounting import Accounts, account, is_other_name, role_of_name
from syncpoint.comparison.coverage import Account
from syncpoint.comparison.introduced import add_introduced
from syncpoint.comparison.judging import AUTO, Choice, judged
from syncpoint.comparison.left_out import left_out_warnings, note_left_out
from syncpoint.comparison.masking import Masks, summary
from syncpoint.comparison.measuring import Beside, Progress, Sides, measured, rows
from syncpoint.comparison.on_demand import add_worst_slices
from syncpoint.comparison.operands import dequantized, fitted, operand_of, steps_of
from syncpoint.comparison.progress_log import ProgressLog
from syncpoint.comparison.reordered import note_reordered
from syncpoint.comparison.replayed import add_replayed
from syncpoint.comparison.result import Lonely, Result
from syncpoint.comparison.rows import Row
from syncpoint.comparison.stages import Stage, Step, Tally, Watch, unwatched
from syncpoint.comparison.verification import count_verified, damaged_unmatched
from syncpoint.errors import SyncpointError, Unsupported
from syncpoint.matching.chain import chain, match
from syncpoint.matching.confirming import Again, Confirmation
from syncpoint.matching.map_file import MapFile
from syncpoint.matching.protocol import JUDGED_ROLES, Matcher, Matching, Side, Unmatched
from syncpoint.matching.views import View
from syncpoint.metrics import Operand, statistics
from syncpoint.metrics.limits import coarser, coarsest
from syncpoint.metrics.verdict import Reason
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Kept, OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.runtimes.protocol import Evaluates, Inputs, Replays

NOT_COMPLETE = "not complete"
"""How the first warning of a comparison begins that was looked at before its end."""


@dataclass(frozen=True)
class Options:
    """How to compare."""

    choice: Choice = AUTO
    map_file: MapFile | None = None
    introduced: str = "local"
    """`local`, `replay` or `off`."""
    samples: Sequence[Inputs] = ()
    """What the target was given, for `replay`."""
    threads: int = 0
    progress: Progress | None = None
    log: ProgressLog | None = None
    """Where what is done is kept, in case it must be gone on with."""
    again: Again | None = None
    """Runs both models on another input, to confirm pairs that values alone speak for."""
    beside: Beside | None = None
    """Sees every pair that is measured."""
    same: Mapping[TensorKey, TensorKey] = field(default_factory=dict)
    """Target tensors that need not be measured since another holds the same bytes."""
    matchers: Sequence[Matcher] = ()
    """In place of the usual chain, where something else says what belongs together."""
    unfinished: bool = False
    """Measure nothing and run nothing: what is not in the log is left open."""
    watch: Watch | None = None
    """Told of every stage, beside `progress`, which is told of the measuring alone."""


def compare(target: Run, reference: Run, options: Options | None = None) -> Result:
    """Compare two runs."""
    options = options or Options()
    matchers: Sequence[Matcher] = options.matchers or chain(options.map_file)
    confirmation = Confirmation(options.again) if options.again is not None else None
    confirm = confirmation.agrees if confirmation is not None else None
    watch = options.watch or unwatched
    watch(Step(Stage.MATCH))
    matching = match(target, reference, matchers, confirm)
    watch(Step(Stage.MATCH, len(matching.pairs), 0, True, _in_words(matching)))
    said = options.map_file.masks if options.map_file is not None else ()
    sides = Sides(target, reference, Masks(said, target, reference) if said else None)
    if options.log is not None:
        options.log.runs(target, reference)
    made = rows(sides, matching.pairs, set(_standing_in(matching).values()))
    if options.unfinished:
        return _so_far(sides, matching, made, options)
    made = _measured(sides, made, options)
    made = [_with_input_check(sides, row) for row in made]
    made = _with_first_non_finite(sides, made)
    warnings = [*_warnings(sides), *summary(made)]
    warnings += _unconfirmed(sides, made)
    if confirmation is not None and confirmation.trouble:
        warnings.append(confirmation.trouble)
    if options.introduced != "off":
        watch(Step(Stage.INTRODUCED))
        if isinstance(reference.session, Evaluates):
            if options.introduced == "replay":
                made = _replayed(sides, made, options.samples)
            else:
                made = add_introduced(sides, made, reference.session, options.log, watch)
            warnings += _without_values(made)
        else:
            warnings.append(
                "introduced error is not known: the reference is a recording; name its model to"
                " have its ops run again"
            )
        known = sum(row.introduced is not None for row in made)
        watch(Step(Stage.INTRODUCED, known, known, True, f"known for {known} sync points"))
    made.sort(key=lambda row: (row.target.order < 0, row.target.order))
    made = add_worst_slices(sides, judged(made, options.choice), options.threads)
    made = note_left_out(note_reordered(sides, made))
    warnings += left_out_warnings(made)
    unmatched = matching.unmatched()
    accounts = account(matching, unmatched, made)
    damaged = damaged_unmatched(sides, made)
    return Result(
        _about(target),
        _about(reference),
        made,
        _lonely(matching, unmatched, accounts, frozenset(damaged)),
        options.choice,
        _edges(target, made),
        tuple(warnings),
        datetime.now(UTC).isoformat(timespec="seconds"),
        unkept=accounts.unkept,
        partial=accounts.partial,
        verified=count_verified(sides, made, damaged),
    )


def _so_far(sides: Sides, matching: Matching, made: list[Row], options: Options) -> Result:
    """What is known of a comparison that is not finished; the rest is said to be open."""
    log = options.log
    assert log is not None
    open_ = Reason.UNFINISHED.value
    found = [log.measured(row) or replace(row, unmeasured=row.unmeasured or open_) for row in made]
    left = sum(row.unmeasured == open_ for row in found)
    found = _with_first_non_finite(sides, [_with_input_check(sides, row) for row in found])
    if left:
        # What an op reads may be among what is not measured.
        found = [replace(row, first_non_finite=False) for row in found]
    if options.introduced != "off":
        found = [log.introduced(row) or replace(row, unknown=open_) for row in found]
    found.sort(key=lambda row: (row.target.order < 0, row.target.order))
    found = judged(found, options.choice)
    unmatched = matching.unmatched()
    accounts = account(matching, unmatched, found)
    return Result(
        _about(sides.target),
        _about(sides.reference),
        found,
        _lonely(matching, unmatched, accounts),
        options.choice,
        _edges(sides.target, found),
        (
            f"{NOT_COMPLETE}: {len(found) - left} of {len(found)} sync points are measured;"
            " verdicts may change, and who is guilty is known at the end",
            *_warnings(sides),
        ),
        datetime.now(UTC).isoformat(timespec="seconds"),
        unkept=accounts.unkept,
        partial=accounts.partial,
        verified=count_verified(sides, found),
    )


def _without_values(made: list[Row]) -> list[str]:
    """What to say where introduced error is not known for want of values."""
    computed = [row for row in made if row.target.key.role is Role.OUTPUT and not row.unmeasured]
    less = sum(row.basis != Kept.VALUES for row in computed)
    if not less:
        return []
    count = "" if less == len(computed) else f" of {less} of {len(computed)} ops"
    return [
        f"introduced error{count} is not known: only statistics or digests were kept; record"
        " values to tell who is guilty from who inherited"
    ]


def _measured(sides: Sides, made: list[Row], options: Options) -> list[Row]:
    tally = (
        Tally(options.watch, options.choice, len(sides.target.ops))
        if options.watch is not None
        else None
    )

    def progress(done: int, total: int) -> None:
        if tally is not None:
            tally.tell(done, total)
        if options.progress is not None:
            options.progress(done, total)

    if tally is not None:
        tally.tell(0, len(made))
    seen = tally.add if tally is not None else None

    made = measured(
        sides, made, options.threads, progress, options.log, options.beside, options.same, seen
    )
    if tally is not None:
        tally.finish(len(made))
    return made


def _in_words(matching: Matching) -> str:
    """How many pairs, by what evidence, and how many are left."""
    evidence = Counter(pair.evidence.partition(":")[0] for pair in matching.pairs)
    by = ", ".join(f"{count} by {name}" for name, count in evidence.most_common(4))
    left = Counter(unmatched.side for unmatched in matching.unmatched() if unmatched.counted)
    alone = ", ".join(f"{left[side]} of the {side}" for side in ("target", "reference"))
    return f"{len(matching.pairs)} pairs ({by}); unmatched: {alone}"


def _replayed(sides: Sides, made: list[Row], samples: Sequence[Inputs]) -> list[Row]:
    target, reference = sides.target.session, sides.reference.session
    if not isinstance(target, Replays) or not samples:
        raise Unsupported(
            "a target whose ops can be fed other values, captured in this command",
            f"{sides.target.info.runtime or 'a recording'}",
            "use --introduced local",
        )
    assert isinstance(reference, Evaluates)
    return add_replayed(sides, made, reference, target, list(samples))


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
        "environment": dict(info.environment),
        "other_outputs": dict(info.other_outputs),
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
        if run.unverified:
            said.append(f"the {name} run is unverified: {run.unverified}")
        if run.info.observer is not None and not run.info.observer.equal:
            said.append(
                f"capturing changed the {name}: its outputs differ from an uninstrumented run"
                f" ({run.info.observer.detail})"
            )
    return said


def _unconfirmed(sides: Sides, made: list[Row]) -> list[str]:
    """What to say where values could not choose among the ops that an op may stand for."""
    ends = [(r.target, r.reference) for r in made if r.target.key.role is Role.OUTPUT]
    if all((t.key.op, t.type) == (r.key.op, r.type) for t, r in ends):
        return []
    for name, run in (("target", sides.target), ("reference", sides.reference)):
        kept = {t.kept for t in run.tensors if t.key.role is Role.OUTPUT}
        if kept and Kept.VALUES not in kept:
            return [
                f"no values of the {name} were kept: pairs rest on names, origins and structure"
                " alone, and a fused op may be held against the wrong op of those it stands for"
            ]
    return []


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
            same = _same_when_rounded(sides, row, target, reference)
        except SyncpointError:
            return row
    return replace(row, numbers={**row.numbers, "same_input": same})


def _same_when_rounded(sides: Sides, row: Row, target: Tensor, reference: Tensor) -> bool:
    """Whether the two are no further apart than rounding one number to both types explains."""
    if (target.dtype, target.quantization) == (reference.dtype, reference.quantization):
        return False
    kinds = {DTYPES[target.dtype].kind, DTYPES[reference.dtype].kind}
    if Kind.COMPLEX in kinds or Kind.BOOL in kinds:
        return False
    try:
        t, _ = fitted(operand_of(sides.target, target), View(row.view), reference.shape)
    except ValueError:
        return False
    r = operand_of(sides.reference, reference)
    mine, theirs = dequantized(t), dequantized(r)
    if mine.shape != theirs.shape:
        return False
    mine, theirs = _clipped(mine, r), _clipped(theirs, t)
    allowed = _rounding_of(t, theirs) + _rounding_of(r, theirs)
    with np.errstate(invalid="ignore"):
        same = (np.abs(mine - theirs) <= allowed) | (mine == theirs)
    same |= np.isnan(mine) & np.isnan(theirs)
    return bool(same.all())


def _clipped(values: NDArray[Any], by: Operand) -> NDArray[Any]:
    """What is left of the values in the range of the other side's type."""
    dtype = DTYPES[by.dtype]
    if by.quantization is not None:
        ends = [replace(by, data=np.full_like(by.array, end)) for end in _integer_range(by)]
        low, high = (dequantized(end) for end in ends)
        inside: NDArray[Any] = np.clip(values, np.minimum(low, high), np.maximum(low, high))
        return inside
    if dtype.kind is Kind.FLOAT:
        return np.where(np.abs(values) > dtype.max, np.copysign(np.inf, values), values)
    return values


def _integer_range(operand: Operand) -> tuple[int, int]:
    bits = DTYPES[operand.dtype].bits
    return (
        (0, 2**bits - 1) if operand.dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )


def _rounding_of(operand: Operand, values: NDArray[Any]) -> NDArray[Any]:
    """The most by which rounding to this operand's type moves a value."""
    dtype = DTYPES[operand.dtype]
    moved: NDArray[Any] = np.zeros(values.shape)
    if operand.quantization is not None:
        moved = 0.5001 * np.abs(steps_of(operand))
    elif dtype.kind is Kind.FLOAT:
        least = 2.0 ** (dtype.min_exponent - dtype.mantissa - 1)
        finite = np.where(np.isfinite(values), np.abs(values), 0.0)
        moved = np.maximum(1.0001 * dtype.unit * finite, least)
    return moved


def _with_first_non_finite(sides: Sides, made: list[Row]) -> list[Row]:
    """Mark ops that make NaN or inf where the reference is finite, from inputs that are fine."""
    bad: dict[TensorKey, bool] = {
        row.target.key: _turns_non_finite(row) for row in made if row.numbers is not None
    }
    if not any(bad.values()):
        return made
    if not any(op.inputs for op in sides.target.ops):
        # A dump knows no edges: the first in its order is all that can be said.
        first = min((r for r in made if bad.get(r.target.key)), key=lambda r: r.target.order)
        return [replace(r, first_non_finite=r is first) for r in made]
    out = []
    for row in made:
        mark = False
        if bad.get(row.target.key) and row.target.order >= 0:
            op = sides.target.ops[row.target.order]
            part = row.target.key.part
            mark = row.target.key.role is Role.OUTPUT and not any(
                _not_finite(sides, TensorKey(edge.op, edge.role, edge.index, part), bad)
                for edge in op.inputs
            )
        out.append(replace(row, first_non_finite=mark) if mark else row)
    return out


def _not_finite(sides: Sides, key: TensorKey, bad: dict[TensorKey, bool], deep: int = 64) -> bool:
    """Whether an input of an op is already broken; one without a partner, such as a cast that
    only the target has, is looked at by itself. If it broke on inputs that are fine, it did so on
    behalf of the op that is compared."""
    if key not in bad:
        tensor = sides.target.tensor(key)
        bad[key] = False
        if tensor is not None and tensor.key.role is Role.OUTPUT:
            found = tensor.statistics
            if tensor.kept is Kept.VALUES:
                try:
                    found = statistics(operand_of(sides.target, tensor))
                except SyncpointError:
                    return False
            bad[key] = found is not None and (found.nan != 0 or found.inf != 0)
            op = sides.target.op(key.op)
            if bad[key] and op is not None and op.inputs and deep:
                bad[key] = any(
                    _not_finite(sides, TensorKey(e.op, e.role, e.index, key.part), bad, deep - 1)
                    for e in op.inputs
                )
    return bad[key]


def _turns_non_finite(row: Row) -> bool:
    numbers = row.numbers or {}
    return any(
        # Not counted is at least one.
        abs(numbers.get(f"target_{kind}") or 0) > abs(numbers.get(f"reference_{kind}") or 0)
        for kind in ("nan", "inf")
    ) and bool(numbers.get("mismatched"))


def _edges(target: Run, made: list[Row]) -> dict[OpKey, tuple[OpKey, ...]]:
    return {
        op.key: tuple(edge.op for edge in op.inputs if edge.role in (Role.OUTPUT, Role.STATE))
        for op in target.ops
    }


def _lonely(
    matching: Matching,
    without_partner: list[Unmatched],
    accounts: Accounts,
    damaged: AbstractSet[tuple[str, TensorKey]] = frozenset(),
) -> list[Lonely]:
    """What has no partner; `damaged` are tensors of which that may be the reason."""
    left = []
    runs = {"target": matching.target.run, "reference": matching.reference.run}
    orders = {side: {op.key: op for op in run.ops} for side, run in runs.items()}
    seen_through = _standing_in(matching)
    paired = {
        "target": {str(pair.target) for pair in matching.pairs},
        "reference": {str(pair.reference) for pair in matching.pairs},
    }
    for unmatched in without_partner:
        key = unmatched.key
        op = orders[unmatched.side].get(key.op)
        reason = unmatched.reason
        if op is not None and op.random and reason is Reason.NO_COUNTERPART:
            reason = Reason.RANDOM
        if (unmatched.side, key) in damaged:
            reason = Reason.DAMAGED
        role = role_of_name(key)
        counted = role in JUDGED_ROLES and reason not in (Reason.EXCLUDED, Reason.RANDOM)
        counted = counted and unmatched.counted
        counted = counted and not is_other_name(key, paired[unmatched.side])
        other = matching.reference if unmatched.side == "target" else matching.target
        if (unmatched.side, key) in seen_through and not _names_outputs(other):
            # A dump of intermediates has no model outputs of its own; a model that has some,
            # but not this one, is another matter.
            counted = False
        left.append(
            Lonely(
                unmatched.side,
                str(key.op),
                role,
                key.index,
                op.type if op else "",
                op.module if op else "",
                reason,
                unmatched.detail,
                counted,
                accounts.of.get((unmatched.side, key), Account.UNKNOWN) if counted else "",
            )
        )
    return left


def _standing_in(matching: Matching) -> dict[tuple[str, TensorKey], TensorKey]:
    """Model outputs without a partner, each with the target tensor that is compared in its
    place, at the op that made it."""
    found = {}
    by_reference = {pair.reference: pair.target for pair in matching.pairs}
    by_target = {pair.target: pair.target for pair in matching.pairs}
    for name, side, paired in (
        ("target", matching.target, by_target),
        ("reference", matching.reference, by_reference),
    ):
        by_text = {str(key): at for key, at in paired.items()}
        for tensor in side.others:
            unpaired = tensor.key.role is Role.MODEL_OUTPUT and tensor.key not in paired
            if unpaired and tensor.alias_of in by_text:
                found[name, tensor.key] = by_text[tensor.alias_of]
    return found


def _names_outputs(side: Side) -> bool:
    return any(tensor.key.role is Role.MODEL_OUTPUT for tensor in side.others)
