"""Run a comparison of two runs: match, measure, compute introduced errors or say why they are
unknown, judge; and its settings (`Options`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from syncpoint.comparison.build_rows import build_rows
from syncpoint.comparison.checksum_status import count_verified, damaged_unmatched
from syncpoint.comparison.events import MeasuringFinished, MeasuringStarted, Stage, Step
from syncpoint.comparison.first_non_finite import mark_first_non_finite
from syncpoint.comparison.introduced_error.local_calculation import add_local_errors
from syncpoint.comparison.introduced_error.replay_calculation import add_replay_errors
from syncpoint.comparison.judge_rows import AUTO, Choice, check_choice, judge_rows
from syncpoint.comparison.measuring.measure_rows import measure_rows
from syncpoint.comparison.measuring.worst_slices_and_notes import (
    add_worst_slices,
    note_few_compared,
    note_reordered,
)
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.comparison.run_facts import op_inputs, run_facts
from syncpoint.comparison.same_inputs import mark_same_input
from syncpoint.comparison.sides import Sides, build_sides
from syncpoint.comparison.storage.progress_log import ProgressLog
from syncpoint.comparison.storage.unfinished_result import build_unfinished_result
from syncpoint.comparison.unmatched import decide_accounts, find_stand_ins, list_unmatched
from syncpoint.comparison.warning_texts import (
    mask_warnings,
    output_warnings,
    pairing_warnings,
    run_warnings,
    values_warnings,
)
from syncpoint.errors import Unsupported
from syncpoint.matching.masks import Mask
from syncpoint.matching.matcher_chain import chain, match, summarize
from syncpoint.matching.matchers.map_file import MapFile
from syncpoint.matching.protocol import Matcher
from syncpoint.matching.second_input_confirmation import SecondExecution, SecondInputConfirmation
from syncpoint.run.events import NULL_SINK, EventSink
from syncpoint.run.model import TensorKey
from syncpoint.run.reader import Run
from syncpoint.runtimes.protocol import Evaluates, Inputs, Replays


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of a comparison."""

    choice: Choice = AUTO
    map_file: MapFile | None = None
    introduced: str = "local"
    """`local`, `replay` or `off`."""
    samples: Sequence[Inputs] = ()
    """The inputs that the target ran on, for `replay`."""
    threads: int = 0
    log: ProgressLog | None = None
    """Log of finished work, so that an interrupted comparison can be resumed."""
    second_execution: SecondExecution | None = None
    """Runs both models on a second input, to confirm pairs that only equal values support."""
    same: Mapping[TensorKey, TensorKey] = field(default_factory=dict)
    """Target tensors that are not measured, each with the tensor that has the same bytes."""
    matchers: Sequence[Matcher] = ()
    """Replaces the default matcher chain."""
    unfinished: bool = False
    """Measure and run nothing: report what the log has, and leave the rest open."""
    events: EventSink = NULL_SINK
    """Receives every event: stages, and batches while their values are in memory."""

    def __post_init__(self) -> None:
        check_choice(self.choice)

    @property
    def masks(self) -> tuple[Mask, ...]:
        """Masks of the map file: positions to leave out."""
        return self.map_file.masks if self.map_file is not None else ()


def compare(target: Run, reference: Run, options: Options | None = None) -> Result:
    """Compare two runs."""
    options = options or Options()
    return compare_through(build_sides(target, reference, options.masks), options)


def compare_through(sides: Sides, options: Options) -> Result:
    """Compare two runs through sides that the caller made, and uses later for the diagnosis.

    The sides must have the masks of the options.
    """
    target, reference = sides.target, sides.reference
    matchers: Sequence[Matcher] = options.matchers or chain(options.map_file)
    second_execution = options.second_execution
    confirmation = (
        SecondInputConfirmation(second_execution) if second_execution is not None else None
    )
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
    rows = build_rows(sides, matching.pairs, set(find_stand_ins(matching).values()))
    if options.unfinished:
        return build_unfinished_result(sides, matching, rows, options)
    rows = _measure_rows(sides, rows, options)
    rows = [mark_same_input(sides, row) for row in rows]
    rows = mark_first_non_finite(sides, rows)
    warnings = [*run_warnings(sides), *mask_warnings(sides, rows)]
    warnings += pairing_warnings(sides, rows)
    if confirmation is not None and confirmation.problem:
        warnings.append(confirmation.problem)
    if options.introduced != "off":
        events.send(Step(stage=Stage.INTRODUCED))
        if isinstance(reference.session, Evaluates):
            if options.introduced == "replay":
                rows = _replay_rows(sides, rows, options.samples)
            else:
                rows = add_local_errors(sides, rows, reference.session, options.log, events)
            warnings += values_warnings(rows)
        else:
            warnings.append(_explain_unknown_introduced(reference))
        known_count = sum(row.introduced is not None for row in rows)
        summary = f"known for {known_count} sync points"
        events.send(
            Step(
                stage=Stage.INTRODUCED,
                done=known_count,
                total=known_count,
                finished=True,
                text=summary,
            )
        )
    rows.sort(key=lambda row: (row.target.order < 0, row.target.order))
    rows = add_worst_slices(
        sides, judge_rows(rows, options.choice, op_inputs(target)), options.threads
    )
    rows = note_few_compared(note_reordered(sides, rows))
    warnings += output_warnings(rows)
    unmatched = matching.unmatched()
    accounts = decide_accounts(matching, unmatched, rows)
    damaged = damaged_unmatched(sides, rows)
    return Result(
        target=run_facts(target),
        reference=run_facts(reference),
        rows=rows,
        unmatched=list_unmatched(matching, unmatched, accounts, frozenset(damaged)),
        choice=options.choice,
        edges=op_inputs(target),
        warnings=tuple(warnings),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        unkept=accounts.unkept,
        partial=accounts.partial,
        verified=count_verified(sides, rows, damaged),
        masks=options.masks,
    )


def _explain_unknown_introduced(reference: Run) -> str:
    """Say why the ops of the reference cannot be run again."""
    if reference.session is None:
        cause = "the reference is a recording; give its model with --reference-model"
    else:
        cause = f"the runtime {reference.info.runtime} cannot run single ops of its models"
    return f"introduced error is unknown: {cause}"


def _measure_rows(sides: Sides, rows: list[Row], options: Options) -> list[Row]:
    """Measure the rows, and send the events of the start and the end."""
    events = options.events
    events.send(MeasuringStarted(len(rows), len(sides.target.ops), options.choice))
    rows = measure_rows(sides, rows, options.threads, options.log, options.same, events)
    events.send(MeasuringFinished(len(rows)))
    return rows


def _replay_rows(sides: Sides, rows: list[Row], samples: Sequence[Inputs]) -> list[Row]:
    target_session, reference_session = sides.target.session, sides.reference.session
    if not isinstance(target_session, Replays) or not samples:
        raise Unsupported(
            "--introduced replay needs a target that can replay its ops and was captured by this"
            f" command; the target is {sides.target.info.runtime or 'a recording'}",
            cure="use --introduced local",
        )
    assert isinstance(reference_session, Evaluates)
    return add_replay_errors(sides, rows, reference_session, target_session, list(samples))
