"""The first bad op of a model that shows nothing but its outputs.

The target is cut at a tensor, run as the black box that it is, and what it gives there is
compared with the reference. A run of the target's ops one by one serves as the guide: it says
which tensor of the reference belongs to which of the target; its numbers are not believed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from syncpoint.bisection.result import Bisected, Cut
from syncpoint.bisection.trials import Bench
from syncpoint.errors import InputError, Unsupported
from syncpoint.workflow.capture import GIVE_INPUTS, capture, inputs_of
from syncpoint.workflow.resolve_sides import open_recording, runtime_options

if TYPE_CHECKING:
    from syncpoint.comparison.judging import Choice
    from syncpoint.run.reader import Run
    from syncpoint.runtimes.inputs.generate import Shape
    from syncpoint.runtimes.protocol import Cutter, Session


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
    guide, cutter = _guided(target, fed, target_options, shapes)
    declared = guide.session.inputs() if isinstance(guide.session, Declares) else ()
    samples = inputs_of(guide) or read_inputs(fed, shapes, declared)
    if trusted is None:
        trusted = capture(reference, samples, **_in_full(reference, reference_options))
    return Bench(guide, trusted, cutter, samples, choice, out, told).found()


def _guided(
    target: object,
    inputs: object,
    options: Mapping[str, Any],
    shapes: Mapping[str, Shape | tuple[int, ...]],
) -> tuple[Run, Cutter]:
    """The target's ops one by one, and the way to cut it."""
    from syncpoint.runtimes.protocol import Truncates
    from syncpoint.runtimes.registry import find, parse_options, runtimes

    chosen = find(target, options.get("runtime"))
    own = runtime_options(options)
    settings = parse_options(chosen, own)
    if settings.get("steps"):
        raise Unsupported("samples to bisect", "steps of a loop", "leave the option steps out")
    if not isinstance(chosen, Truncates):
        able = ", ".join(known.name for known in runtimes() if isinstance(known, Truncates))
        raise Unsupported(f"a model that can be cut: of {able}", f"one of {chosen.name}")
    guiding, plain = chosen.guide_options(own)
    guide = capture(target, inputs, runtime=guiding, shapes=shapes, **plain)
    return guide, chosen.cutter(cast("Session", guide.session), settings)


def _in_full(reference: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the reference, by which every op of it has a value unless they say so."""
    from syncpoint.runtimes.protocol import Truncates
    from syncpoint.runtimes.registry import find

    chosen = find(reference, options.get("runtime"))
    in_full = chosen.reference_options() if isinstance(chosen, Truncates) else {}
    return {**in_full, **options}
