"""Two runs -> a result: match, measure, find what was introduced, judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from syncpoint.comparison.checksum_status import count_verified, damaged_unmatched
from syncpoint.comparison.coverage import Account
from syncpoint.comparison.events import MeasuringFinished, MeasuringStarted, Stage, Step
from syncpoint.comparison.introduced_error.local_calculation import add_introduced
from syncpoint.comparison.introduced_error.replay_calculation import add_replayed
from syncpoint.comparison.judging import AUTO, Choice, check_choice, judge_rows
from syncpoint.comparison.measuring import Sides, build_sides, measured, rows
from syncpoint.comparison.nothing_to_compare import left_out_warnings, note_left_out
from syncpoint.comparison.operands import operand_of
from syncpoint.comparison.reordered import note_reordered
from syncpoint.comparison.result import Lonely, Result
from syncpoint.comparison.rows import Row
from syncpoint.comparison.same_inputs import note_same_input
from syncpoint.comparison.storage.progress_log import ProgressLog
from syncpoint.comparison.unmatched import Accounts, account, is_other_name, role_of_name
from syncpoint.comparison.worst_slices import add_worst_slices
from syncpoint.errors import SyncpointError, Unsupported
from syncpoint.matching.masks import Mask
from syncpoint.matching.matcher_chain import chain, match, summarize
from syncpoint.matching.matchers.map_file import MapFile
from syncpoint.matching.protocol import JUDGED_ROLES, Matcher, Matching, Side, Unmatched
from syncpoint.matching.second_input_confirmation import Confirmation, SecondExecution
from syncpoint.metrics import statistics
from syncpoint.metrics.limits import coarser, coarsest
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.events import NULL_SINK, EventSink
from syncpoint.run.model import Kept, OpKey, Role, TensorKey
from syncpoint.run.reader import Run
from syncpoint.runtimes.protocol import Evaluates, Inputs, Replays


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to compare."""

    choice: Choice = AUTO
    map_file: MapFile | None = None
    introduced: str = "local"
    """`local`, `replay` or `off`."""
    samples: Sequence[Inputs] = ()
    """What the target was given, for `replay`."""
    threads: int = 0
    log: ProgressLog | None = None
    """Where what is done is kept, in case it must be gone on with."""
    second_execution: SecondExecution | None = None
    """Runs both models on another input, to confirm pairs that values alone speak for."""
    same: Mapping[TensorKey, TensorKey] = field(default_factory=dict)
    """Target tensors that need not be measured since another holds the same bytes."""
    matchers: Sequence[Matcher] = ()
    """In place of the usual chain, where something else says what belongs together."""
    unfinished: bool = False
    """Measure nothing and run nothing: what is not in the log is left open."""
    events: EventSink = NULL_SINK
    """Receives every event: stages, and batches while their values are in memory."""

    def __post_init__(self) -> None:
        check_choice(self.choice)

    @property
    def masks(self) -> tuple[Mask, ...]:
        """Positions that do not count, as the map says them."""
        return self.map_file.masks if self.map_file is not None else ()


def compare(target: Run, reference: Run, options: Options | None = None) -> Result:
    """Compare two runs."""
    options = options or Options()
    return compare_through(build_sides(target, reference, options.masks), options)


def compare_through(sides: Sides, options: Options) -> Result:
    """Compare two runs through sides that the caller goes on reading them through, such as for the
    diagnosis; they have the masks of the options."""
    target, reference = sides.target, sides.reference
    matchers: Sequence[Matcher] = options.matchers or chain(options.map_file)
    second = options.second_execution
    confirmation = Confirmation(second) if second is not None else None
    events = options.events
    events.send(Step(stage=Stage.MATCH))
    matching = match(target, reference, matchers, confirmation)
    events.send(
        Step(
            stage=Stage.MATCH,
            done=len(matching.pairs),
            total=0,
            finished=True,
            text=summarize(matching),
        )
    )
    if options.log is not None:
        options.log.runs(target, reference)
    made = rows(sides, matching.pairs, set(_standing_in(matching).values()))
    if options.unfinished:
        return _so_far(sides, matching, made, options)
    made = _measured(sides, made, options)
    made = [note_same_input(sides, row) for row in made]
    made = _with_first_non_finite(sides, made)
    warnings = [*_warnings(sides), *_masked_positions(sides, made)]
    warnings += _unconfirmed(sides, made)
    if confirmation is not None and confirmation.trouble:
        warnings.append(confirmation.trouble)
    if options.introduced != "off":
        events.send(Step(stage=Stage.INTRODUCED))
        if isinstance(reference.session, Evaluates):
            if options.introduced == "replay":
                made = _replayed(sides, made, options.samples)
            else:
                made = add_introduced(sides, made, reference.session, options.log, events)
            warnings += _without_values(made)
        else:
            warnings.append(
                "introduced error is not known: the reference is a recording; name its model to"
                " have its ops run again"
            )
        known = sum(row.introduced is not None for row in made)
        text = f"known for {known} sync points"
        events.send(Step(stage=Stage.INTRODUCED, done=known, total=known, finished=True, text=text))
    made.sort(key=lambda row: (row.target.order < 0, row.target.order))
    made = add_worst_slices(sides, judge_rows(made, options.choice), options.threads)
    made = note_left_out(note_reordered(sides, made))
    warnings += left_out_warnings(made)
    unmatched = matching.unmatched()
    accounts = account(matching, unmatched, made)
    damaged = damaged_unmatched(sides, made)
    return Result(
        target=_about(target),
        reference=_about(reference),
        rows=made,
        unmatched=_lonely(matching, unmatched, accounts, frozenset(damaged)),
        choice=options.choice,
        edges=_edges(target, made),
        warnings=tuple(warnings),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        unkept=accounts.unkept,
        partial=accounts.partial,
        verified=count_verified(sides, made, damaged),
        masks=options.masks,
    )


def _so_far(sides: Sides, matching: Matching, made: list[Row], options: Options) -> Result:
    """What is known of a comparison that is not finished; the rest is said to be open."""
    log = options.log
    assert log is not None
    open_ = Reason(ReasonCode.UNFINISHED)
    found = [log.measured(row) or replace(row, unmeasured=row.unmeasured or open_) for row in made]
    left = sum(row.unmeasured == open_ for row in found)
    found = _with_first_non_finite(sides, [note_same_input(sides, row) for row in found])
    if left:
        # What an op reads may be among what is not measured.
        found = [replace(row, first_non_finite=False) for row in found]
    if options.introduced != "off":
        found = [log.introduced(row) or replace(row, unknown=open_) for row in found]
    found.sort(key=lambda row: (row.target.order < 0, row.target.order))
    found = judge_rows(found, options.choice)
    unmatched = matching.unmatched()
    accounts = account(matching, unmatched, found)
    so_far = (
        f"not complete: {len(found) - left} of {len(found)} sync points are measured; verdicts may"
        " change, and who is guilty is known at the end"
    )
    return Result(
        target=_about(sides.target),
        reference=_about(sides.reference),
        rows=found,
        unmatched=_lonely(matching, unmatched, accounts),
        choice=options.choice,
        edges=_edges(sides.target, found),
        warnings=(so_far, *_warnings(sides)),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        unkept=accounts.unkept,
        partial=accounts.partial,
        verified=count_verified(sides, found),
        masks=options.masks,
        unfinished=so_far,
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
    """The rows with their numbers, between the events that say so."""
    events = options.events
    events.send(MeasuringStarted(len(made), len(sides.target.ops), options.choice))
    made = measured(sides, made, options.threads, options.log, options.same, events)
    events.send(MeasuringFinished(len(made)))
    return made


def _masked_positions(sides: Sides, made: list[Row]) -> list[str]:
    return sides.masks.summary(made) if sides.masks is not None else []


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
        "other_outputs": {name: o.to_json() for name, o in info.other_outputs.items()},
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


def _with_first_non_finite(sides: Sides, made: list[Row]) -> list[Row]:
    """Mark ops that make NaN or inf where the reference is finite, from inputs that are fine."""
    bad: dict[TensorKey, bool] = {
        row.target.key: row.has_more_non_finite for row in made if row.numbers is not None
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
        code = unmatched.reason.code
        if op is not None and op.random and code is ReasonCode.NO_COUNTERPART:
            code = ReasonCode.RANDOM
        if (unmatched.side, key) in damaged:
            code = ReasonCode.DAMAGED
        role = role_of_name(key)
        counted = role in JUDGED_ROLES and code not in (ReasonCode.EXCLUDED, ReasonCode.RANDOM)
        counted = counted and unmatched.counted
        counted = counted and not is_other_name(key, paired[unmatched.side])
        other = matching.reference if unmatched.side == "target" else matching.target
        if (unmatched.side, key) in seen_through and not _names_outputs(other):
            # A dump of intermediates has no model outputs of its own; a model that has some,
            # but not this one, is another matter.
            counted = False
        left.append(
            Lonely(
                side=unmatched.side,
                op=str(key.op),
                role=role,
                index=key.index,
                type=op.type if op else "",
                module=op.module if op else "",
                why=replace(unmatched.reason, code=code),
                counted=counted,
                account=accounts.of.get((unmatched.side, key), Account.UNKNOWN) if counted else "",
                inside=unmatched.inside,
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
