"""Errors of a model that raises while it is captured."""

from __future__ import annotations

import torch

from syncpoint.errors import CaptureError, InputError
from syncpoint.run.model import Op
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.torch.arrays import describe, dtype_name
from syncpoint.runtimes.torch.inputs import Args, Kwargs
from syncpoint.runtimes.torch.load_model import Subject
from syncpoint.runtimes.torch.tree_paths import named_leaves


class OpFailed(Exception):
    """An op of the model raised; carries the op and leaves the error as its cause."""

    def __init__(self, op: Op) -> None:
        super().__init__(str(op.key))
        self.op = op


def place_of(op: Op) -> str:
    """The end of a message about an op that raised."""
    place = f" in the op {op.key} ({op.type})"
    return f"{place} at {op.source[-1]}" if op.source else place


_ILL_FITTING = ("shape", "size", "dimension", "channels", "dtype", "out of range", "expected")


def raised(
    subject: Subject, error: Exception, args: Args, kwargs: Kwargs, op: str = ""
) -> InputError | CaptureError:
    """The error of a model that raised; what smells of ill-fitting inputs says so."""
    given = ", ".join(
        f"{name} {describe(value)}"
        for name, value in named_leaves((args, kwargs), subject.positional)
    )
    floats = {p.dtype for p in subject.plain.parameters() if p.is_floating_point()}
    for name, value in named_leaves((args, kwargs), subject.positional):
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            continue
        if floats and value.dtype not in floats:
            return InputError(
                f"{subject.title} to be given floating-point inputs in "
                + " or ".join(sorted(dtype_name(d) for d in floats)),
                f"{name} {describe(value)}, and it raised {one_line(error)}",
                "convert the input, or set the option dtype",
            )
    text = str(error).lower()
    misfit = isinstance(error, (RuntimeError, IndexError)) and any(
        word in text for word in _ILL_FITTING
    )
    # What an exported program says of sizes it was not exported for.
    if misfit or (isinstance(error, AssertionError) and text.startswith("guard failed")):
        return InputError(
            f"inputs that fit {subject.title}",
            f"{given}, with which it raised {one_line(error)}{op}",
        )
    return CaptureError(f"{subject.title} to run on {given}", f"{one_line(error)}{op}")
