"""The first bad op of a model that shows nothing but its outputs.

The target is cut at a tensor, run as the black box that it is, and what it gives there is
compared with the reference. A run of the target's ops one by one serves as the guide: it says
which tensor of the reference belongs to which of the target; its numbers are not believed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.asking import inputs_of, recording
from syncpoint.capturing import GIVE_INPUTS, capture
from syncpoint.diagnosis.bench import Bench, Cutter
from syncpoint.diagnosis.bisection import Bisected, Cut
from syncpoint.errors import InputError, Unsupported

if TYPE_CHECKING:
    from syncpoint.comparison.judging import Choice
    from syncpoint.run.reader import Run
    from syncpoint.runtimes.inputs import Shape

_OF_CAPTURE = ("runtime", "record", "filter", "max_bytes")


class Bisection(Bisected):
    """What was found, as users hold it."""

    def __str__(self) -> str:
        from syncpoint.reports.bisection_report import as_text

        return as_text(self)


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
) -> Bisection:
    """Find the first bad op of the target by cutting it."""
    from syncpoint.runtimes.inputs import read_inputs
    from syncpoint.runtimes.protocol import Declares

    if recording(target) is not None:
        raise InputError("a model as target, which can be cut and run", "a recording")
    if out is not None and out.exists():
        raise InputError(f"no file or folder at {out}", "one that is there", "name another with -o")
    trusted = recording(reference)
    fed = inputs if inputs is not None else inputs_of(trusted)
    if fed is None:
        raise InputError("inputs to run the target with", "none", GIVE_INPUTS)
    guide, cutter = _guided(target, fed, target_options, shapes)
    declared = guide.session.inputs() if isinstance(guide.session, Declares) else ()
    samples = inputs_of(guide) or read_inputs(fed, shapes, declared)
    if trusted is None:
        trusted = capture(reference, samples, **_in_full(reference, reference_options))
    found = Bench(guide, trusted, cutter, samples, choice, out, told).found()
    made = Bisection(**{f.name: getattr(found, f.name) for f in fields(Bisected)})
    if out is not None:
        from syncpoint.reports.bisection_report import write_json

        write_json(made, out / "bisection.json")
    return made


def _guided(
    target: object,
    inputs: object,
    options: Mapping[str, Any],
    shapes: Mapping[str, Shape | tuple[int, ...]],
) -> tuple[Run, Cutter]:
    """The target's ops one by one, and the way to cut it."""
    from syncpoint.runtimes.registry import find, parse_options

    chosen = find(target, options.get("runtime"))
    own = {k: v for k, v in options.items() if k not in _OF_CAPTURE}
    settings = parse_options(chosen, own)
    if settings.get("steps"):
        raise Unsupported("samples to bisect", "steps of a loop", "leave the option steps out")
    if chosen.name == "onnxruntime":
        from syncpoint.runtimes.onnx_cutting import OnnxCutter

        plain = {**own, "fusion": "unfused"}
        guide = capture(target, inputs, runtime=chosen.name, shapes=shapes, **plain)
        return guide, OnnxCutter(guide, settings)
    if chosen.name in ("torch", "inductor"):
        from syncpoint.runtimes.torch_cutting import TorchCutter

        known = {o.name for o in find(target, "torch").options()}
        plain = {k: v for k, v in own.items() if k in known}
        guide = capture(target, inputs, runtime="torch", shapes=shapes, **plain)
        return guide, TorchCutter(guide, chosen.name, settings)
    raise Unsupported("a model that can be cut: ONNX or PyTorch", f"one of {chosen.name}")


def _in_full(reference: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the reference, by which every op of it has a value unless they say so."""
    from syncpoint.runtimes.registry import find

    chosen = find(reference, options.get("runtime"))
    return {"fusion": "unfused", **options} if chosen.name == "onnxruntime" else dict(options)
