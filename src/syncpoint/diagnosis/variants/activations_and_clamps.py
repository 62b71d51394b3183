"""Variants of activations and clamps: another form (GELU), one missing or added, other bounds or
slopes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.numpy_ops.elementwise import clamp, gelu, leaky, sigmoid
from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, OpUnderTest
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
            "returns its input unchanged; the reference "
            + ("clamps it" if tested_op.kind == "clamp" else f"applies {tested_op.kind}"),
            x,
            simplicity=3,
        )
        for kind, (text, form) in GELU_FORMS.items():
            if tested_op.kind == "gelu" and tested_op.is_requested(kind):
                yield Hypothesis(
                    kind,
                    f"computes {text}{_describe_reference_form(tested_op)}",
                    form(x),
                    setting=_reference_form(tested_op),
                    next=_advise_on_sigmoid_form(tested_op) if kind == "gelu-sigmoid" else "",
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


_REFERENCE_FORMS = {"none": "the exact (erf) form", "tanh": "the tanh form"}
"""Values of the argument `approximate` in words."""


def _describe_reference_form(tested_op: OpUnderTest) -> str:
    """Name the form of GELU that the reference declares, as the end of a sentence."""
    form = _REFERENCE_FORMS.get(str(tested_op.attribute("approximate")))
    return f"; the reference computes {form}" if form else ""


def _reference_form(tested_op: OpUnderTest) -> tuple[str, str] | None:
    """Return the argument that declares the form of GELU, and its value in the reference."""
    form = tested_op.attribute("approximate")
    return ("`approximate`", repr(form)) if form is not None else None


def _advise_on_sigmoid_form(tested_op: OpUnderTest) -> str:
    """Return the next step for the sigmoid form of GELU, which no argument chooses."""
    form = _REFERENCE_FORMS.get(str(tested_op.attribute("approximate")), "the reference's form")
    return (
        f"in the target, replace the sigmoid form of GELU with {form} ({tested_op.op.key} of the"
        " reference)"
    )


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


def vary_clamp(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary clamps, ReLUs and leaky ReLUs."""
    x = tested_op.argument(0)
    if x is None or x.dtype.kind != "f" or x.shape != tested_op.output.shape:
        return
    bound = tested_op.bound
    if tested_op.kind == "leaky_relu":
        yield from _vary_slope(tested_op, x)
        yield from _fit_bounds(tested_op, tested_op.output, "result")
    elif tested_op.kind == "clamp" and bound is not None and bound.function is clamp:
        lower, upper = bound.settings["lower"], bound.settings["upper"]
        if lower is not None:
            value = clamp(x, None, upper)
            yield Hypothesis(
                "clamp-min-missing", f"ignores its lower bound {lower}", value, simplicity=2
            )
        if upper is not None:
            value = clamp(x, lower, None)
            yield Hypothesis(
                "clamp-max-missing", f"ignores its upper bound {upper}", value, simplicity=2
            )
        yield from _fit_bounds(tested_op, x, "")
    elif tested_op.kind in ("relu", "clamp"):
        yield from _fit_bounds(tested_op, x, "")


def _vary_slope(tested_op: OpUnderTest, x: Array) -> Iterator[Hypothesis]:
    reference_slope = tested_op.bound.settings.get("slope") if tested_op.bound is not None else None
    comparison = (
        f" instead of {reference_slope:g}" if isinstance(reference_slope, int | float) else ""
    )
    setting = ("the slope", f"{reference_slope:g}") if comparison else None
    for slope in (0.01, 0.1, 0.2, 0.3):
        text = f"uses slope {slope:g}{comparison}"
        yield Hypothesis("leaky-slope", text, leaky(x, slope), setting=setting, simplicity=2)
    if tested_op.target is not None:
        below = tested_op.without_masked((x < 0) & np.isfinite(x) & np.isfinite(tested_op.target))
        energy = float(np.sum(np.square(x[below])))
        if energy:
            slope = float(np.sum(x[below] * tested_op.target[below])) / energy
            text = f"uses slope {slope:.4g}{comparison}"
            value = leaky(x, slope)
            yield Hypothesis("leaky-slope", text, value, setting=setting, simplicity=1, solved=1)


def _fit_bounds(tested_op: OpUnderTest, x: Array, tensor_text: str) -> Iterator[Hypothesis]:
    """Read the bounds off the minimum and maximum of the target."""
    target = tested_op.target
    if target is None or not target.size or not np.isfinite(target).all():
        return
    target_values, input_values = tested_op.counted(target), tested_op.counted(x)
    if not target_values.size:
        return
    lower, upper = float(target_values.min()), float(target_values.max())
    # A bound needs several target elements on it and several input elements beyond it.
    has_lower = np.count_nonzero(target_values == lower) > 1 and bool(
        (input_values < lower).sum() > 1
    )
    has_upper = np.count_nonzero(target_values == upper) > 1 and bool(
        (input_values > upper).sum() > 1
    )
    if not has_lower and not has_upper:
        return
    value = clamp(x, lower if has_lower else None, upper if has_upper else None)
    interval = f"[{lower:.6g}" if has_lower else "(-inf"
    interval += f", {upper:.6g}]" if has_upper else ", inf)"
    text = f"clamps its {tensor_text or 'input'} to {interval}"
    settings = tested_op.bound.settings if tested_op.bound is not None else {}
    setting = None
    if not tensor_text and "lower" in settings and "upper" in settings:
        bounds = f"[{settings['lower']}, {settings['upper']}]"
        text += f" instead of {bounds}"
        setting = ("the bounds", bounds)
    yield Hypothesis(
        "clamp-bounds",
        text,
        value,
        setting=setting,
        simplicity=1,
        solved=int(has_lower) + int(has_upper),
    )
