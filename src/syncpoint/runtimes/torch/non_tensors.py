"""Inputs and outputs of a model that are not tensors: they are not recorded, but named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syncpoint.run.model import OtherOutput, Part
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.ledger import Ledger
from syncpoint.runtimes.torch.tree_paths import named_leaves

_MAX_TEXT = 200
"""Characters that are kept of an output that is a number or a text."""


def other_outputs(
    names: Sequence[str], values: Sequence[Any], part: Part
) -> dict[str, OtherOutput]:
    """Outputs that are no tensors, as text: they are not recorded, and must not be forgotten."""
    where = "".join(
        f"@{name}={number}"
        for name, number in (("sample", part.sample), ("step", part.step))
        if number >= 0
    )
    return {
        f"{name}{where}": _other_output(value)
        for name, value in zip(names, values, strict=False)
        if value is not None and not isinstance(value, torch.Tensor)
    }


def _other_output(value: object) -> OtherOutput:
    if isinstance(value, bool | int | float | complex | str):
        return OtherOutput(repr(value)[:_MAX_TEXT])
    return OtherOutput(type(value).__name__, is_opaque=True)


def note_other_inputs(inputs: Tree, names: tuple[str, ...], ledger: Ledger) -> None:
    """Note each input in (args, kwargs) that is not a tensor: it is not recorded."""
    for path, value in named_leaves(inputs, names):
        if value is not None and not isinstance(value, torch.Tensor):
            ledger.note(f"the input {path} was {value!r}: no tensor, not recorded")
