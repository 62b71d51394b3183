"""The runs that bisection needs: the guide (the target op by op) and the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from syncpoint.errors import Unsupported
from syncpoint.workflow.capture import capture
from syncpoint.workflow.resolve_sides import runtime_options

if TYPE_CHECKING:
    from syncpoint.run.reader import Run
    from syncpoint.runtimes.inputs.shapes import Shape
    from syncpoint.runtimes.protocol import Cutter, Session


def capture_guide(
    target: object,
    inputs: object,
    options: Mapping[str, Any],
    shapes: Mapping[str, Shape | tuple[int, ...]],
) -> tuple[Run, Cutter]:
    """The target's ops one by one, and the way to cut it."""
    from syncpoint.runtimes.options import parse_options
    from syncpoint.runtimes.protocol import Truncates
    from syncpoint.runtimes.registry import find, runtimes

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


def default_reference_options(reference: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the reference, by which every op of it has a value unless they say so."""
    from syncpoint.runtimes.protocol import Truncates
    from syncpoint.runtimes.registry import find

    chosen = find(reference, options.get("runtime"))
    in_full = chosen.reference_options() if isinstance(chosen, Truncates) else {}
    return {**in_full, **options}
