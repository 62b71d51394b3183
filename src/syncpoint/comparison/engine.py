"""Two runs -> a result: match, measure, find what was introduced, judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from syncpoint.comparison.build_rows import build_rows
from syncpoint.comparison.checksum_status import count_verified, damaged_unmatched
from syncpoint.comparison.events import MeasuringFinished, MeasuringStarted, Stage, Step
from syncpoint.comparison.first_non_finite import mark_first_non_finite
from syncpoint.comparison.introduced_error.local_calculation import add_local_errors
from syncpoint.comparison.introduced_error.replay_calculation import add_replay_errors
from syncpoint.comparison.judge_rows import AUTO, Choice, check_choice, judge_rows
from syncpoint.comparison.measuring import measure_rows
from syncpoint.comparison.result import Result
from syncpoint.comparison.row_notes import note_few_compared, note_reordered
from syncpoint.comparison.rows import Row
from syncpoint.comparison.run_facts import op_inputs, run_facts
from syncpoint.comparison.same_inputs import mark_same_input
from syncpoint.comparison.sides import Sides, build_sides
from syncpoint.comparison.storage.progress_log import ProgressLog
from syncpoint.comparison.unmatched import (
    decide_accounts,
    find_stand_ins,
    list_unmatched,
)
from syncpoint.comparison.warning_texts import (
    mask_warnings,
    output_warnings,
    pairing_warnings,
    run_warnings,
    values_warnings,
)
from syncpoint.comparison.worst_slices import add_worst_slices
from syncpoint.errors import Unsupported
from syncpoint.matching.masks import Mask
from syncpoint.matching.matcher_chain import chain, match, summarize
from syncpoint.matching.matchers.map_file import MapFile
from syncpoint.matching.protocol import Matcher, Matching
from syncpoint.matching.second_input_confirmation import SecondExecution, SecondInputConfirmation
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.events import NULL_SINK, EventSink
from syncpoint.run.model import TensorKey
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
    confirmation = SecondInputConfirmation(second) if second is not None else None
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
        options.log.record_runs(target, reference)
    made = build_rows(sides, matching.pairs, set(find_stand_ins(matching).values()))
    if options.unfinished:
        return _build_unfinished_result(sides, matching, made, options)
    made = _measure_rows(sides, made, options)
    made = [mark_same_input(sides, row) for row in made]
    made = mark_first_non_finite(sides, made)
    warnings = [*run_warnings(sides), *mask_warnings(sides, made)]
    warnings += pairing_warnings(sides, made)
    if confirmation is not None and confirmation.problem:
        warnings.append(confirmation.problem)
    if options.introduced != "off":
        events.send(Step(stage=Stage.INTRODUCED))
        if isinstance(reference.session, Evaluates):
            if options.introduced == "replay":
                made = _replay_rows(sides, made, options.samples)
            else:
                made = add_local_errors(sides, made, reference.session, options.log, events)
            warnings += values_warnings(made)
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
    made = note_few_compared(note_reordered(sides, made))
    warnings += output_warnings(made)
    unmatched = matching.unmatched()
    accounts = decide_accounts(matching, unmatched, made)
    damaged = damaged_unmatched(sides, made)
    return Result(
        target=run_facts(target),
        reference=run_facts(reference),
        rows=made,
        unmatched=list_unmatched(matching, unmatched, accounts, frozenset(damaged)),
        choice=options.choice,
        edges=op_inputs(target),
        warnings=tuple(warnings),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        unkept=accounts.unkept,
        partial=accounts.partial,
        verified=count_verified(sides, made, damaged),
        masks=options.masks,
    )


def _build_unfinished_result(
    sides: Sides, matching: Matching, made: list[Row], options: Options
) -> Result:
    """What is known of a comparison that is not finished; the rest is said to be open."""
    log = options.log
    assert log is not None
    open_ = Reason(ReasonCode.UNFINISHED)
    found = [
        log.measured_row(row) or replace(row, unmeasured=row.unmeasured or open_) for row in made
    ]
    left = sum(row.unmeasured == open_ for row in found)
    found = mark_first_non_finite(sides, [mark_same_input(sides, row) for row in found])
    if left:
        # What an op reads may be among what is not measured.
        found = [replace(row, first_non_finite=False) for row in found]
    if options.introduced != "off":
        found = [log.introduced_row(row) or replace(row, unknown=open_) for row in found]
    found.sort(key=lambda row: (row.target.order < 0, row.target.order))
    found = judge_rows(found, options.choice)
    unmatched = matching.unmatched()
    accounts = decide_accounts(matching, unmatched, found)
    so_far = (
        f"not complete: {len(found) - left} of {len(found)} sync points are measured; verdicts may"
        " change, and who is guilty is known at the end"
    )
    return Result(
        target=run_facts(sides.target),
        reference=run_facts(sides.reference),
        rows=found,
        unmatched=list_unmatched(matching, unmatched, accounts),
        choice=options.choice,
        edges=op_inputs(sides.target),
        warnings=(so_far, *run_warnings(sides)),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        unkept=accounts.unkept,
        partial=accounts.partial,
        verified=count_verified(sides, found),
        masks=options.masks,
        unfinished=so_far,
    )


def _measure_rows(sides: Sides, made: list[Row], options: Options) -> list[Row]:
    """The rows with their numbers, between the events that say so."""
    events = options.events
    events.send(MeasuringStarted(len(made), len(sides.target.ops), options.choice))
    made = measure_rows(sides, made, options.threads, options.log, options.same, events)
    events.send(MeasuringFinished(len(made)))
    return made


def _replay_rows(sides: Sides, made: list[Row], samples: Sequence[Inputs]) -> list[Row]:
    target, reference = sides.target.session, sides.reference.session
    if not isinstance(target, Replays) or not samples:
        raise Unsupported(
            "a target whose ops can be fed other values, captured in this command",
            f"{sides.target.info.runtime or 'a recording'}",
            "use --introduced local",
        )
    assert isinstance(reference, Evaluates)
    return add_replay_errors(sides, made, reference, target, list(samples))
