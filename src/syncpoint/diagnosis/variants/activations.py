"""Variants of activations: another form, a missing one, an additional one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.numpy_ops.elementwise import gelu, sigmoid
from syncpoint.diagnosis.variants.protocol import Hypothesis, OpUnderTest
from syncpoint.matching.op_kinds import ACTIVATIONS

Values = NDArray[np.float64]


def gelu_erf(x: Values) -> Values:
    """Compute the exact GELU (with erf)."""
    return gelu(x)


def gelu_tanh(x: Values) -> Values:
    """Compute the tanh approximation of GELU."""
    return gelu(x, "tanh")


GELU_FORMS: dict[str, tuple[str, Callable[[Values], Values]]] = {
    "gelu-erf": ("the exact (erf) form of GELU", gelu_erf),
    "gelu-tanh": ("the tanh form of GELU", gelu_tanh),
    "gelu-sigmoid": (
        "the sigmoid form of GELU, x * sigmoid(1.702 x)",
        lambda x: x * sigmoid(1.702 * x),
    ),
}
PLAIN_ACTIVATIONS: dict[str, tuple[str, Callable[[Values], Values]]] = {
    "relu": ("a ReLU", lambda x: np.maximum(x, 0)),
    "relu6": ("a ReLU6", lambda x: np.clip(x, 0, 6)),
    "silu": ("a SiLU", lambda x: x * sigmoid(x)),
    "gelu": ("a GELU", gelu_erf),
    "sigmoid": ("a sigmoid", sigmoid),
    "tanh": ("a tanh", np.tanh),
    "leaky_relu": ("a leaky ReLU (0.01)", lambda x: np.where(x > 0, x, 0.01 * x)),
    "hard_swish": ("a hard swish", lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "hard_sigmoid": ("a hard sigmoid", lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "elu": ("an ELU", lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    "softplus": ("a softplus", lambda x: np.logaddexp(0, x)),
}
"""Activations of one argument without settings."""


def vary_activation(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary an activation (other forms, none, another one); add one to any other op."""
    x = tested_op.argument(0)
    if tested_op.output.dtype.kind != "f":
        return
    if tested_op.kind in ACTIVATIONS or tested_op.kind in PLAIN_ACTIVATIONS:
        if x is None or x.shape != tested_op.output.shape:
            return
        yield Hypothesis(
            f"{tested_op.kind}-missing",
            f"returns its input unchanged; the reference applies {tested_op.kind}",
            x,
            simplicity=3,
        )
        for kind, (text, form) in GELU_FORMS.items():
            if tested_op.kind == "gelu" and tested_op.is_requested(kind):
                yield Hypothesis(
                    kind,
                    f"computes {text}{_describe_reference_form(tested_op)}",
                    form(x),
                    subtle=True,
                    simplicity=2,
                )
        for kind, (text, form) in PLAIN_ACTIVATIONS.items():
            if kind != tested_op.kind and tested_op.is_requested(f"{kind}-instead"):
                yield Hypothesis(
                    f"{kind}-instead",
                    f"computes {text} instead of {tested_op.kind}",
                    form(x),
                    simplicity=1,
                )
        is_twice_requested = tested_op.is_requested(f"{tested_op.kind}-twice")
        twice = (
            tested_op.rerun({tested_op.op.inputs[0]: tested_op.output})
            if is_twice_requested
            else None
        )
        if twice is not None:
            yield Hypothesis(f"{tested_op.kind}-twice", f"applies {tested_op.kind} twice", twice)
        return
    for kind, (text, form) in PLAIN_ACTIVATIONS.items():
        if tested_op.kinds is not None and f"{kind}-added" not in tested_op.kinds:
            continue
        yield Hypothesis(
            f"{kind}-added",
            f"applies {text} to its result; the reference does not",
            form(tested_op.output),
        )
    yield from _vary_inputs(tested_op)


def _describe_reference_form(tested_op: OpUnderTest) -> str:
    """Name the form of GELU that the reference declares, as the end of a sentence."""
    forms = {"none": "the exact (erf) form", "tanh": "the tanh form"}
    form = forms.get(str(tested_op.attribute("approximate")))
    return f"; the reference computes {form}" if form else ""


def _vary_inputs(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Apply an activation to an input of the op."""
    for index, (edge, x) in enumerate(
        zip(tested_op.op.inputs[:2], tested_op.arguments, strict=False)
    ):
        if x is None or x.dtype.kind != "f" or edge.role == "parameter":
            continue
        operand_text = (
            "its input" if len(tested_op.op.inputs) == 1 or index == 0 else "its second operand"
        )
        for kind in ("relu", "gelu", "silu", "sigmoid", "tanh", "relu6"):
            text, form = PLAIN_ACTIVATIONS[kind]
            if not tested_op.is_requested(f"{kind}-before"):
                continue
            value = tested_op.rerun({edge: form(x)})
            if value is not None:
                yield Hypothesis(
                    f"{kind}-before",
                    f"applies {text} to {operand_text}; the reference does not",
                    value,
                )
