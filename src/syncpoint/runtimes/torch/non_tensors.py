"""Inputs and outputs of a model that are not tensors: not recorded, but noted in the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syncpoint.run.model import Part
from syncpoint.run.non_tensor_outputs import OtherOutput
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.ledger import CaptureLedger
from syncpoint.runtimes.torch.tree_paths import named_leaves

_MAX_TEXT_CHARS = 200
"""Maximum length of the text of an output."""


def describe_other_outputs(
    names: Sequence[str], values: Sequence[Any], part: Part
) -> dict[str, OtherOutput]:
    """The outputs that are not tensors, as text."""
    part_suffix = "".join(
        f"@{name}={number}"
        for name, number in (("sample", part.sample), ("step", part.step))
        if number >= 0
    )
    return {
        f"{name}{part_suffix}": _describe_other_output(value)
        for name, value in zip(names, values, strict=False)
        if value is not None and not isinstance(value, torch.Tensor)
    }


def _describe_other_output(value: object) -> OtherOutput:
    if isinstance(value, bool | int | float | complex | str):
        return OtherOutput(repr(value)[:_MAX_TEXT_CHARS])
    return OtherOutput(type(value).__name__, is_opaque=True)


def note_other_inputs(inputs: Tree, names: tuple[str, ...], ledger: CaptureLedger) -> None:
    """Note each input in (args, kwargs) that is not a tensor: it is not recorded."""
    for path, value in named_leaves(inputs, names):
        if value is not None and not isinstance(value, torch.Tensor):
            ledger.note(f"the input {path} is not a tensor and was not recorded: {value!r}")
