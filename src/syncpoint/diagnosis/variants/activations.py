"""Activations: another form of the same, one left out, one that is too many."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.numpy_ops.elementwise import gelu, sigmoid
from syncpoint.diagnosis.variants.protocol import Hypothesis, Seen
from syncpoint.matching.op_kinds import ACTIVATIONS

Values = NDArray[np.float64]


def gelu_erf(x: Values) -> Values:
    """GELU as it is defined."""
    return gelu(x)


def gelu_tanh(x: Values) -> Values:
    """GELU by a polynomial in tanh."""
    return gelu(x, "tanh")


FORMS: dict[str, tuple[str, Callable[[Values], Values]]] = {
    "gelu-erf": ("the exact (erf) form of GELU", gelu_erf),
    "gelu-tanh": ("the tanh form of GELU", gelu_tanh),
    "gelu-sigmoid": (
        "the sigmoid form of GELU, x * sigmoid(1.702 x)",
        lambda x: x * sigmoid(1.702 * x),
    ),
}
PLAIN: dict[str, tuple[str, Callable[[Values], Values]]] = {
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
"""Activations of one argument without settings of their own."""


def activations(seen: Seen) -> Iterable[Hypothesis]:
    """For an activation: its other forms, none, or another; for anything else: one added."""
    x = seen.argument(0)
    if seen.output.dtype.kind != "f":
        return
    if seen.kind in ACTIVATIONS or seen.kind in PLAIN:
        if x is None or x.shape != seen.output.shape:
            return
        yield Hypothesis(
            f"{seen.kind}-missing",
            f"returns its input unchanged; the reference applies {seen.kind}",
            x,
            simplicity=3,
        )
        for kind, (text, form) in FORMS.items():
            if seen.kind == "gelu" and seen.wants(kind):
                yield Hypothesis(
                    kind, f"computes {text}{_own_form(seen)}", form(x), subtle=True, simplicity=2
                )
        for kind, (text, form) in PLAIN.items():
            if kind != seen.kind and seen.wants(f"{kind}-instead"):
                yield Hypothesis(
                    f"{kind}-instead",
                    f"computes {text} instead of {seen.kind}",
                    form(x),
                    simplicity=1,
                )
        wanted = seen.wants(f"{seen.kind}-twice")
        twice = seen.again({seen.op.inputs[0]: seen.output}) if wanted else None
        if twice is not None:
            yield Hypothesis(f"{seen.kind}-twice", f"applies {seen.kind} twice", twice)
        return
    for kind, (text, form) in PLAIN.items():
        if seen.kinds is not None and f"{kind}-added" not in seen.kinds:
            continue
        yield Hypothesis(
            f"{kind}-added",
            f"applies {text} to its result; the reference does not",
            form(seen.output),
        )
    yield from _before(seen)


def _own_form(seen: Seen) -> str:
    """Which form of GELU the reference's attributes declare, as the end of a sentence."""
    forms = {"none": "the exact (erf) form", "tanh": "the tanh form"}
    form = forms.get(str(seen.attribute("approximate")))
    return f"; the reference computes {form}" if form else ""


def _before(seen: Seen) -> Iterable[Hypothesis]:
    """An activation that is applied to what the op reads."""
    for at, (edge, x) in enumerate(zip(seen.op.inputs[:2], seen.arguments, strict=False)):
        if x is None or x.dtype.kind != "f" or edge.role == "parameter":
            continue
        where = "its input" if len(seen.op.inputs) == 1 or at == 0 else "its second operand"
        for kind in ("relu", "gelu", "silu", "sigmoid", "tanh", "relu6"):
            text, form = PLAIN[kind]
            if not seen.wants(f"{kind}-before"):
                continue
            value = seen.again({edge: form(x)})
            if value is not None:
                yield Hypothesis(
                    f"{kind}-before", f"applies {text} to {where}; the reference does not", value
                )
