"""Reads the inputs that a run recorded, nested as the model took them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from syncpoint.errors import InputError
from syncpoint.run.model import Role, Tensor
from syncpoint.run.reader import Run
from syncpoint.runtimes.protocol import Array, Inputs, Tree


def open_recorded_inputs(path: Path) -> list[Inputs]:
    """The inputs of the run in a folder, one `Inputs` for each sample."""
    from syncpoint.run.storage.open_run import open_run

    samples = read_recorded_inputs(open_run(path))
    if not samples:
        raise InputError(
            f"the run {path} has no recorded inputs",
            cure="give the inputs, or record the run with its inputs",
        )
    return samples


def read_recorded_inputs(run: Run) -> list[Inputs]:
    """The inputs that a run recorded, one `Inputs` for each sample; empty if it has none."""
    samples: dict[Any, dict[str, Any]] = {}
    for tensor in run.tensors:
        if tensor.key.role is Role.MODEL_INPUT:
            _insert_at_path(samples.setdefault(tensor.key.part, {}), tensor, run.values(tensor))
    return [_rebuild_inputs(samples[part]) for part in sorted(samples)]


_PATH_STEP = re.compile(r'\[(?:(?P<index>\d+)|(?P<key>"(?:[^"\\]|\\.)*"))\]')


def _insert_at_path(sample: dict[str, Any], tensor: Tensor, values: Array) -> None:
    """Insert a value at its path, such as `x`, `extra["mask"]` or `states[0]`."""
    path = tensor.name or tensor.key.op.op
    root = path.partition("[")[0]
    steps: list[Any] = []
    position = len(root)
    while match := _PATH_STEP.match(path, position):
        steps.append(int(match["index"]) if match["index"] else json.loads(match["key"]))
        position = match.end()
    if position != len(path):
        root, steps = path, []
    holder = sample
    last: Any = root
    for step in steps:
        holder = holder.setdefault(last, {})
        last = step
    holder[last] = values


def _rebuild_inputs(sample: dict[str, Any]) -> Inputs:
    kwargs = {name: _rebuild_sequences(value) for name, value in sample.items()}
    args = kwargs.pop("args", ())
    return Inputs(tuple(args), kwargs)


def _rebuild_sequences(value: Tree) -> Tree:
    """Turn dicts whose keys are positions into tuples."""
    if not isinstance(value, dict):
        return value
    children = {key: _rebuild_sequences(child) for key, child in value.items()}
    if children and all(isinstance(key, int) for key in children):
        return tuple(children[key] for key in sorted(children))
    return children
