"""The inputs that a run recorded, nested as the model took them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from syncpoint.errors import InputError
from syncpoint.run.model import Role, Tensor
from syncpoint.run.reader import Run
from syncpoint.runtimes.protocol import Array, Inputs, Tree


def read_run_inputs(path: Path) -> list[Inputs]:
    """The inputs of the run in a folder, one `Inputs` for each sample."""
    from syncpoint.run.storage.open_run import open_run

    found = recorded_inputs(open_run(path))
    if not found:
        raise InputError("a run with recorded inputs", f"none in {path}")
    return found


def recorded_inputs(run: Run) -> list[Inputs]:
    """What a recorded run was fed, one `Inputs` for each of its samples; none if it kept none."""
    samples: dict[Any, dict[str, Any]] = {}
    for tensor in run.tensors:
        if tensor.key.role is Role.MODEL_INPUT:
            _place(samples.setdefault(tensor.key.part, {}), tensor, run.values(tensor))
    return [_untangled(samples[part]) for part in sorted(samples)]


_STEP = re.compile(r'\[(?:(?P<index>\d+)|(?P<key>"(?:[^"\\]|\\.)*"))\]')


def _place(sample: dict[str, Any], tensor: Tensor, values: Array) -> None:
    """Put a value at its path, such as `x`, `extra["mask"]` or `states[0]`."""
    path = tensor.name or tensor.key.op.op
    root = path.partition("[")[0]
    steps: list[Any] = []
    at = len(root)
    while match := _STEP.match(path, at):
        steps.append(int(match["index"]) if match["index"] else json.loads(match["key"]))
        at = match.end()
    if at != len(path):
        root, steps = path, []
    holder = sample
    last: Any = root
    for step in steps:
        holder = holder.setdefault(last, {})
        last = step
    holder[last] = values


def _untangled(sample: dict[str, Any]) -> Inputs:
    kwargs = {name: _sequences(value) for name, value in sample.items()}
    args = kwargs.pop("args", ())
    return Inputs(tuple(args), kwargs)


def _sequences(value: Tree) -> Tree:
    """Dicts whose keys are positions, as tuples."""
    if not isinstance(value, dict):
        return value
    inner = {key: _sequences(item) for key, item in value.items()}
    if inner and all(isinstance(key, int) for key in inner):
        return tuple(inner[key] for key in sorted(inner))
    return inner
