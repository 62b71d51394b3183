"""Errors for a model that raises while it is captured: which op failed, where, and whether the
inputs seem not to fit."""

from __future__ import annotations

import torch

from syncpoint.errors import CaptureError, InputError
from syncpoint.run.model import Op
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.torch.arrays import describe_value, dtype_name
from syncpoint.runtimes.torch.inputs import Args, Kwargs
from syncpoint.runtimes.torch.load_model import LoadedModel
from syncpoint.runtimes.torch.tree_paths import named_leaves


class OpFailure(Exception):
    """An op of the model raised; carries the op, and the error as its cause."""

    def __init__(self, op: Op) -> None:
        super().__init__(str(op.key))
        self.op = op


def describe_op_location(op: Op) -> str:
    """Where an op is, as the end of a message: its key, type and source line."""
    place = f" in the op {op.key} ({op.type})"
    return f"{place} at {op.source[-1]}" if op.source else place


_MISFIT_WORDS = ("shape", "size", "dimension", "channels", "dtype", "out of range", "expected")


def make_model_error(
    loaded_model: LoadedModel, error: Exception, args: Args, kwargs: Kwargs, location: str = ""
) -> InputError | CaptureError:
    """The error to raise for a model that raised: InputError if the inputs seem not to fit."""
    inputs_text = ", ".join(
        f"{name} {describe_value(value)}"
        for name, value in named_leaves((args, kwargs), loaded_model.positional)
    )
    floats = {p.dtype for p in loaded_model.plain.parameters() if p.is_floating_point()}
    for name, value in named_leaves((args, kwargs), loaded_model.positional):
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            continue
        if floats and value.dtype not in floats:
            return InputError(
                f"{loaded_model.title} computes in"
                f" {' or '.join(sorted(dtype_name(d) for d in floats))}, but the input is"
                f" {name} {describe_value(value)}; it raised {one_line(error)}",
                cure="convert the input, or set the option dtype",
            )
    text = str(error).lower()
    is_misfit = isinstance(error, (RuntimeError, IndexError)) and any(
        word in text for word in _MISFIT_WORDS
    )
    # The error of an exported program for sizes that it was not exported for.
    if is_misfit or (isinstance(error, AssertionError) and text.startswith("guard failed")):
        return InputError(
            f"the inputs {inputs_text} do not fit {loaded_model.title}:"
            f" it raised {one_line(error)}{location}",
            cure="check shapes and types of the inputs",
        )
    return CaptureError(
        f"{loaded_model.title} raised {one_line(error)}{location} on {inputs_text}",
        cure="fix the model, then try again",
    )
