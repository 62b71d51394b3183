"""The steps of `bisect`: run the whole target, search from every bad output, report the first bad
op of each branch and the nearest good ops.

The target is cut at a tensor and run as a black box. The value of that tensor is compared with the
reference. A run of the target op by op, the guide, pairs the tensors of the target with those of
the reference. The values of the guide are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.bisection.cuts import CutRunner, psnr_of, state_of
from syncpoint.bisection.graph_search import FirstBadOp, Search, State
from syncpoint.bisection.guide_and_reference import capture_guide, default_reference_options
from syncpoint.bisection.result import Bisected, Culprit, Cut
from syncpoint.errors import InputError
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Part
from syncpoint.runtimes.inputs.read_inputs import read_recorded_inputs
from syncpoint.workflow.capture import GIVE_INPUTS, capture
from syncpoint.workflow.resolve_sides import open_recording

if TYPE_CHECKING:
    from syncpoint.comparison.judge_rows import Choice
    from syncpoint.comparison.rows import Row
    from syncpoint.runtimes.inputs.shapes import InputShape

_MIN_OWN_ERROR_DB = 6.0
"""An op that lowers the psnr by less than this has no error of its own."""
_MAX_DAMPED_NAMES = 3
"""Names of damped ops in a note."""


def bisect(
    target: object,
    reference: object,
    inputs: object,
    target_options: Mapping[str, Any],
    reference_options: Mapping[str, Any],
    shapes: Mapping[str, InputShape | tuple[int, ...]],
    choice: Choice,
    out: Path | None = None,
    on_cut: Callable[[Cut], None] | None = None,
) -> Bisected:
    """Find the first bad op of the target by cutting it. `on_cut` is called after every run."""
    from syncpoint.runtimes.inputs.read_inputs import read_inputs
    from syncpoint.runtimes.protocol import Declares

    if open_recording(target) is not None:
        raise InputError(
            "the target is a recording, which cannot be cut and run", cure="give a model as target"
        )
    if out is not None and out.exists():
        raise InputError(f"{out} already exists", cure="choose another name with -o")
    reference_run = open_recording(reference)
    target_inputs = inputs if inputs is not None else read_recorded_inputs(reference_run)
    if target_inputs is None:
        raise InputError("there are no inputs to run the target with", cure=GIVE_INPUTS)
    guide, cutter = capture_guide(target, target_inputs, target_options, shapes)
    declared = guide.session.inputs() if isinstance(guide.session, Declares) else ()
    samples = read_recorded_inputs(guide) or read_inputs(target_inputs, shapes, declared)
    if reference_run is None:
        options = default_reference_options(reference, reference_options)
        reference_run = capture(reference, samples, **options)
    return _find_culprits(CutRunner(guide, reference_run, cutter, samples, choice, out, on_cut))


def _find_culprits(runner: CutRunner) -> Bisected:
    """Run the whole target, then search the ancestors of every bad output."""
    output_rows = runner.run_whole()
    search = Search(runner.parents(), runner.test_cut, frozenset(runner.rows))
    bad_outputs: dict[int, list[Row]] = {}
    searches: dict[int, FirstBadOp] = {}
    for row in output_rows:
        if state_of([row]) is not State.BAD:
            continue
        maker = runner.maker_of(row)
        if maker is None:
            runner.notes.append(f"{row.target.label} is not the output of an op that can be cut at")
            continue
        runner.scores.setdefault(maker, row)
        ancestors = set(search.ancestors(maker))
        culprit = next((index for index in bad_outputs if index in ancestors), None)
        if culprit is not None:
            bad_outputs[culprit].append(row)
            continue
        first_bad = search.first_bad(maker)
        bad_outputs.setdefault(first_bad.op, []).append(row)
        searches[first_bad.op] = first_bad
    culprits = [
        _culprit(runner, search, searches[index], bad_outputs[index])
        for index in sorted(bad_outputs)
    ]
    _note_unjudged(runner, search, output_rows)
    return Bisected(
        target=runner.guide.info.model,
        reference=runner.reference.info.model,
        culprits=tuple(culprits),
        cuts=tuple(runner.cuts),
        outputs=_output_verdicts(output_rows),
        ops=len(runner.ops),
        notes=tuple(runner.notes),
    )


def _note_unjudged(runner: CutRunner, search: Search, output_rows: list[Row]) -> None:
    unknown = sum(state is State.UNKNOWN for state in search.tested.values())
    if unknown:
        runner.notes.append(f"{unknown} cuts could not be judged and were skipped")
    for row in output_rows:
        if state_of([row]) is State.UNKNOWN:
            runner.notes.append(f"{row.target.label} could not be judged: {row.reason}")
    if not output_rows:
        runner.notes.append("no output of the target has a counterpart in the reference")


def _output_verdicts(output_rows: list[Row]) -> dict[str, str]:
    """The worst verdict on each output over all samples."""
    verdicts: dict[str, str] = {}
    for row in output_rows:
        label = replace(row.target, key=replace(row.target.key, part=Part())).label
        earlier = Verdict(verdicts.get(label, row.verdict))
        verdicts[label] = max(earlier, row.verdict, key=lambda verdict: verdict.severity).value
    return verdicts


def _culprit(
    runner: CutRunner, search: Search, first_bad: FirstBadOp, outputs: list[Row]
) -> Culprit:
    op, row = runner.ops[first_bad.op], runner.scores[first_bad.op]
    scores = [psnr_of(runner.scores[index]) for index in _nearest_good(search, first_bad.op)]
    before = min((score for score in scores if score is not None), default=None)
    after = psnr_of(row)
    notes = []
    if before is not None and after is not None and before - after < _MIN_OWN_ERROR_DB:
        notes.append(
            f"psnr falls by only {before - after:.1f} dB here: the error grows over many ops"
        )
    if first_bad.damped:
        damped = first_bad.damped[:_MAX_DAMPED_NAMES]
        names = ", ".join(str(runner.ops[index].key) for index in damped)
        notes.append(f"some ops after it are good: the error is damped at {names}")
    return Culprit(
        op=str(op.key),
        type=op.type,
        reference=row.reference.label,
        module=op.module or row.reference.module,
        source=str(op.source[-1]) if op.source else row.reference.source,
        before=before,
        after=after,
        verdict=row.verdict.value,
        why=row.why,
        outputs=tuple(dict.fromkeys(output.target.label for output in outputs)),
        suspects=tuple(str(runner.ops[index].key) for index in first_bad.untested),
        notes=tuple(notes),
    )


def _nearest_good(search: Search, op: int) -> list[int]:
    """The good ops nearest before an op, past those that were not judged good."""
    good, waiting, visited = [], list(search.parents[op]), set()
    while waiting:
        index = waiting.pop()
        if index in visited:
            continue
        visited.add(index)
        if search.tested.get(index) is State.GOOD:
            good.append(index)
        else:
            waiting += search.parents[index]
    return good
