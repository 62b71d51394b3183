"""Activations: another form of the same, one left out, one that is too many."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, Seen
from syncpoint.matching.kinds import ACTIVATIONS

Values = NDArray[np.float64]


def erf(x: Values) -> Values:
    """The error function to 1e-15; NumPy has none."""
    from math import erf as exact

    return np.asarray(np.frompyfunc(exact, 1, 1)(x), np.float64)


def sigmoid(x: Values) -> Values:
    """Without overflow on either side."""
    found: Values = 0.5 * (1 + np.tanh(0.5 * x))
    return found


def gelu_erf(x: Values) -> Values:
    """GELU as it is defined."""
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def gelu_tanh(x: Values) -> Values:
    """GELU by a polynomial in tanh."""
    found: Values = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return found


FORMS: dict[str, tuple[str, Callable[[Values], Values]]] = {
    "gelu-erf": ("the erf form of GELU", gelu_erf),
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
            f"{seen.kind}-missing", f"nothing: the {seen.kind} is missing", x, simplicity=3
        )
        for kind, (text, form) in FORMS.items():
            if seen.kind == "gelu":
                yield Hypothesis(kind, text, form(x), subtle=True, simplicity=2)
        for kind, (text, form) in PLAIN.items():
            if kind != seen.kind:
                yield Hypothesis(f"{kind}-instead", f"{text} instead", form(x), simplicity=1)
        twice = seen.again({seen.op.inputs[0]: seen.output})
        if twice is not None:
            yield Hypothesis(f"{seen.kind}-twice", f"the {seen.kind} twice", twice)
        return
    for kind, (text, form) in PLAIN.items():
        yield Hypothesis(f"{kind}-added", f"{text} too many, after it", form(seen.output))
    yield from _before(seen, x)


def _before(seen: Seen, x: Array | None) -> Iterable[Hypothesis]:
    """An activation that is applied to what the op reads."""
    if x is None or x.dtype.kind != "f" or seen.op.inputs[0].role == "parameter":
        return
    for kind in ("relu", "gelu", "silu", "sigmoid", "tanh", "relu6"):
        text, form = PLAIN[kind]
        value = seen.again({seen.op.inputs[0]: form(x)})
        if value is not None:
            yield Hypothesis(f"{kind}-before", f"{text} too many, before it", value)
