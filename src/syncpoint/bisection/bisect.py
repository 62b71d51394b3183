"""The first bad op of a model that shows nothing but its outputs.

The target is cut at a tensor, run as the black box that it is, and what it gives there is
compared with the reference. A run of the target's ops one by one serves as the guide: it says
which tensor of the reference belongs to which of the target; its numbers are not believed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.bisection.cuts import Bench, psnr_of, state_of
from syncpoint.bisection.graph_search import Search, State
from syncpoint.bisection.guide_and_reference import capture_guide, default_reference_options
from syncpoint.bisection.result import Bisected, Culprit, Cut
from syncpoint.errors import InputError
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Part
from syncpoint.workflow.capture import GIVE_INPUTS, capture, inputs_of
from syncpoint.workflow.resolve_sides import open_recording

if TYPE_CHECKING:
    from syncpoint.comparison.judge_rows import Choice
    from syncpoint.comparison.rows import Row
    from syncpoint.runtimes.inputs.shapes import Shape

_GRADUAL = 6.0
"""An op after which the score is less than so many dB lower made no error of its own."""


def bisect(
    target: object,
    reference: object,
    inputs: object,
    target_options: Mapping[str, Any],
    reference_options: Mapping[str, Any],
    shapes: Mapping[str, Shape | tuple[int, ...]],
    choice: Choice,
    out: Path | None = None,
    told: Callable[[Cut], None] | None = None,
) -> Bisected:
    """Find the first bad op of the target by cutting it."""
    from syncpoint.runtimes.inputs.read_inputs import read_inputs
    from syncpoint.runtimes.protocol import Declares

    if open_recording(target) is not None:
        raise InputError("a model as target, which can be cut and run", "a recording")
    if out is not None and out.exists():
        raise InputError(f"no file or folder at {out}", "one that is there", "name another with -o")
    trusted = open_recording(reference)
    fed = inputs if inputs is not None else inputs_of(trusted)
    if fed is None:
        raise InputError("inputs to run the target with", "none", GIVE_INPUTS)
    guide, cutter = capture_guide(target, fed, target_options, shapes)
    declared = guide.session.inputs() if isinstance(guide.session, Declares) else ()
    samples = inputs_of(guide) or read_inputs(fed, shapes, declared)
    if trusted is None:
        trusted = capture(
            reference, samples, **default_reference_options(reference, reference_options)
        )
    return _find_culprits(Bench(guide, trusted, cutter, samples, choice, out, told))


def _find_culprits(bench: Bench) -> Bisected:
    """Run the whole target, then search behind every output that is off."""

    whole = bench.run_whole()
    bad = [row for row in whole if state_of([row]) is State.BAD]
    search = Search(bench.parents(), bench.test_cut, frozenset(bench.rows))
    culprits: dict[int, list[Row]] = {}
    extra: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    for row in bad:
        at = bench.maker_of(row)
        if at is None:
            bench.notes.append(f"{row.target.label} is not made by an op that can be cut at")
            continue
        bench.scores.setdefault(at, row)
        behind = set(search.behind(at))
        known = next((c for c in culprits if c in behind), None)
        if known is not None:
            culprits[known].append(row)
            continue
        one = search.first_bad(at)
        culprits.setdefault(one.op, []).append(row)
        extra[one.op] = (one.rest, one.damped)
    made = [_culprit(bench, search, at, *extra[at], culprits[at]) for at in sorted(culprits)]
    unknown = sum(s is State.UNKNOWN for s in search.tested.values())
    if unknown:
        bench.notes.append(f"{unknown} cuts could not be judged and were gone around")
    for row in whole:
        if state_of([row]) is State.UNKNOWN:
            bench.notes.append(f"{row.target.label} could not be judged: {row.reason}")
    outputs: dict[str, str] = {}
    for row in whole:
        label = replace(row.target, key=replace(row.target.key, part=Part())).label
        held = Verdict(outputs.get(label, row.verdict))
        outputs[label] = max(held, row.verdict, key=lambda v: v.severity).value
    if not outputs:
        bench.notes.append("no output of the target has a counterpart in the reference")
    return Bisected(
        target=bench.guide.info.model,
        reference=bench.reference.info.model,
        culprits=tuple(made),
        cuts=tuple(bench.cuts),
        outputs=outputs,
        ops=len(bench.ops),
        notes=tuple(bench.notes),
    )


def _culprit(
    bench: Bench,
    search: Search,
    at: int,
    rest: tuple[int, ...],
    damped: tuple[int, ...],
    outputs: list[Row],
) -> Culprit:
    op, row = bench.ops[at], bench.scores[at]
    scores = [s for p in _nearest(search, at) if (s := psnr_of(bench.scores[p])) is not None]
    before, after = min(scores, default=None), psnr_of(row)
    notes = []
    if before is not None and after is not None and before - after < _GRADUAL:
        notes.append(
            f"the score falls by {before - after:.1f} dB only: the error grows over many ops"
        )
    if damped:
        names = ", ".join(str(bench.ops[d].key) for d in damped[:3])
        notes.append(f"not every op after it is off: the error is damped at {names}")
    suspects = tuple(str(bench.ops[one].key) for one in rest)
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
        outputs=tuple(dict.fromkeys(r.target.label for r in outputs)),
        suspects=suspects,
        notes=tuple(notes),
    )


def _nearest(search: Search, at: int) -> list[int]:
    """The judged ops right before one, past those that were not."""
    found, waiting, seen = [], list(search.parents[at]), set()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        if search.tested.get(one) is State.GOOD:
            found.append(one)
        else:
            waiting += search.parents[one]
    return found
