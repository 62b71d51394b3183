"""Record the guide of a bisection (the target op by op), get its cutter, and choose the reference's
options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from syncpoint.errors import Unsupported
from syncpoint.workflow.capture import capture
from syncpoint.workflow.resolve_sides import runtime_options

if TYPE_CHECKING:
    from syncpoint.run.reader import Run
    from syncpoint.runtimes.inputs.shapes import InputShape
    from syncpoint.runtimes.protocol import Cutter, Session


def capture_guide(
    target: object,
    inputs: object,
    options: Mapping[str, Any],
    shapes: Mapping[str, InputShape | tuple[int, ...]],
) -> tuple[Run, Cutter]:
    """Record the target op by op; return this run and the cutter of the target."""
    from syncpoint.runtimes.options import parse_options
    from syncpoint.runtimes.protocol import Truncates
    from syncpoint.runtimes.registry import find_runtime, load_runtimes

    runtime = find_runtime(target, options.get("runtime"))
    target_options = runtime_options(options)
    settings = parse_options(runtime, target_options)
    if settings.get("steps"):
        raise Unsupported(
            "the option steps is set: bisect runs samples, not the steps of a loop",
            cure="leave the option steps out",
        )
    if not isinstance(runtime, Truncates):
        supported = ", ".join(each.name for each in load_runtimes() if isinstance(each, Truncates))
        raise Unsupported(
            f"bisect cannot cut a model of the runtime {runtime.name}",
            cure=f"use a model of one of these runtimes: {supported}",
        )
    guide_runtime, guide_options = runtime.guide_options(target_options)
    guide = capture(target, inputs, runtime=guide_runtime, shapes=shapes, **guide_options)
    return guide, runtime.cutter(cast("Session", guide.session), settings)


def default_reference_options(reference: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the reference. By default every op of it has a value."""
    from syncpoint.runtimes.protocol import Truncates
    from syncpoint.runtimes.registry import find_runtime

    runtime = find_runtime(reference, options.get("runtime"))
    defaults = runtime.reference_options() if isinstance(runtime, Truncates) else {}
    return {**defaults, **options}
