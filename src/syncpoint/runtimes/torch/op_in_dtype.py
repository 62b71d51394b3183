"""Run one torch op in another floating-point dtype: cast tensors, rewrite its dtype arguments,
constants and factories; refuse ops that cannot.

A model names its dtype in many places besides its parameters: casts, dtype arguments by position
or by name, factories that use the default dtype, flags for half precision. All of them are
rewritten here. Quantize ops and casts count as identity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from syncpoint.errors import Unsupported
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.arrays import clone_tensor, complex_dtype_of, dtype_name
from syncpoint.runtimes.torch.node_metadata import (
    is_random,
    is_uninitialised,
    list_arguments,
    op_type,
)

aten = torch.ops.aten

_HALF_FLAGS = {aten._softmax.default, aten._log_softmax.default}
"""Ops whose last argument is a flag: half-precision input, float32 output."""
_OPS_WITH_LITERALS = frozenset({"aten::add", "aten::sub", "aten::mul", "aten::div"})
"""Ops whose numbers are constants of the converted model, in the dtype of that model."""


def cast_floats(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A float tensor in `dtype`, a complex one in the matching complex dtype, others as is."""
    if value.is_floating_point():
        return value.to(dtype)
    return value.to(complex_dtype_of(dtype)) if value.is_complex() else value


def check_can_change_dtype(node: Node) -> None:
    """Raise Unsupported if the op cannot be evaluated on its own in another dtype."""
    if is_random(node):
        raise Unsupported(
            f"{node.name} cannot be computed again: it draws random numbers",
        )
    if is_uninitialised(node):
        raise Unsupported(
            f"{node.name} cannot be computed again: it returns uninitialised memory",
        )
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        raise Unsupported(
            f"{node.name} ({op_type(node)}) cannot be run on its own: it has sub-graphs",
        )
    if not isinstance(node.target, torch._ops.OpOverload):
        raise Unsupported(
            f"{node.name} ({op_type(node)}) cannot be run on its own: it is not an op of torch",
        )
    if node.target is aten.view.dtype:
        raise Unsupported(
            f"the type of {node.name} cannot be changed: it is a bitcast, whose result depends on"
            " the exact type",
        )


def call_in_dtype(
    node: Node,
    fetch: Callable[[Node], Any],
    dtype: torch.dtype,
    rounded_to: torch.dtype | None = None,
) -> Tree:
    """Run the op of a node with all floating-point arithmetic in `dtype`.

    Numbers written into the op, such as a factor, are first rounded to `rounded_to` if given."""
    target = node.target
    assert isinstance(target, torch._ops.OpOverload)
    stand_in = _STAND_INS.get(target._schema.name)
    if stand_in is not None:
        argument_values = {name: _fetch_nodes(value, fetch) for name, value in list_arguments(node)}
        return stand_in(argument_values, dtype)
    args, kwargs = pytree.tree_map(
        lambda value: _change_dtype(_fetch_nodes(value, fetch), dtype),
        (tuple(node.args), dict(node.kwargs)),
    )
    if rounded_to is not None and target._schema.name in _OPS_WITH_LITERALS:
        args = tuple(_round_literal(value, rounded_to) for value in args)
    args = _adapt_arguments(node, list(args), kwargs, dtype)
    for position, argument in enumerate(target._schema.arguments):
        alias_info = argument.alias_info
        if alias_info is None or not alias_info.is_write:
            continue
        if position < len(args):
            args[position] = pytree.tree_map(clone_tensor, args[position])
        elif argument.name in kwargs:
            kwargs[argument.name] = pytree.tree_map(clone_tensor, kwargs[argument.name])
    output = target(*args, **kwargs)
    for value in pytree.tree_leaves(output):
        if isinstance(value, torch.Tensor) and is_narrower(value.dtype, dtype):
            raise Unsupported(
                f"{node.name} ({op_type(node)}) does not compute in {dtype_name(dtype)}: its"
                f" result is in {dtype_name(value.dtype)}",
            )
    return output


def _round_literal(value: Any, dtype: torch.dtype) -> Any:
    """Round a number to a dtype; a number out of its range stays as it is."""
    if not isinstance(value, float):
        return value
    rounded = torch.tensor(value, dtype=torch.float64).to(dtype).item()
    return rounded if math.isfinite(rounded) else value


def is_narrower(other: torch.dtype, dtype: torch.dtype) -> bool:
    """Whether a floating-point or complex dtype has fewer bits than `dtype`."""
    if not other.is_floating_point and not other.is_complex:
        return False
    # The finfo of a complex dtype is that of its parts.
    return torch.finfo(other).bits < torch.finfo(dtype).bits


def _fetch_nodes(value: Tree, fetch: Callable[[Node], Any]) -> Tree:
    return pytree.tree_map(lambda v: fetch(v) if isinstance(v, Node) else v, value)


def _change_dtype(value: Tree, dtype: torch.dtype) -> Tree:
    if isinstance(value, torch.dtype):
        if value.is_floating_point:
            return dtype
        return complex_dtype_of(dtype) if value.is_complex else value
    if isinstance(value, torch.Tensor):
        return cast_floats(value, dtype)
    return value


def _adapt_arguments(
    node: Node, args: list[Any], kwargs: dict[str, Any], dtype: torch.dtype
) -> list[Any]:
    """Adapt arguments that depend on the dtype without naming it."""
    if node.target in _HALF_FLAGS:
        args[-1] = False
    if node.target is aten.nan_to_num.default:
        # Its defaults are the largest and smallest number of the dtype that the model ran in.
        meta_value = node.meta.get("val")
        if isinstance(meta_value, torch.Tensor) and meta_value.dtype.is_floating_point:
            argument_values = dict(list_arguments(node))
            limits = torch.finfo(meta_value.dtype)
            args = [
                args[0],
                argument_values.get("nan"),
                limits.max if argument_values.get("posinf") is None else argument_values["posinf"],
                limits.min if argument_values.get("neginf") is None else argument_values["neginf"],
            ]
            kwargs.clear()
    return args


def _pass_through(argument_values: dict[str, Any], dtype: torch.dtype) -> Tree:
    value = argument_values.get("input", argument_values.get("self"))
    assert isinstance(value, torch.Tensor)
    return cast_floats(value, dtype)


def _pass_through_with_mask(argument_values: dict[str, Any], dtype: torch.dtype) -> Tree:
    value = _pass_through(argument_values, dtype)
    return value, torch.ones_like(value, dtype=torch.bool)


def _dequantize(argument_values: dict[str, Any], dtype: torch.dtype) -> Tree:
    """Dequantize stored integers; values that are still floating point only change dtype."""
    stored = argument_values["input"]
    if stored.is_floating_point():
        return stored.to(dtype)
    scale, zero = argument_values.get("scale"), argument_values.get("zero_point")
    if scale is None:
        scale, zero = argument_values["scales"], argument_values.get("zero_points")
    scale = torch.as_tensor(scale).to(dtype)
    zero = torch.as_tensor(0 if zero is None else zero).to(dtype)
    if "axis" in argument_values:
        shape = [1] * stored.dim()
        shape[argument_values["axis"]] = -1
        scale = scale.reshape(shape)
        zero = zero.reshape(shape) if zero.dim() else zero
    return (stored.to(dtype) - zero) * scale


_STAND_INS: dict[str, Callable[[dict[str, Any], torch.dtype], Any]] = {
    "quantized_decomposed::quantize_per_tensor": _pass_through,
    "quantized_decomposed::quantize_per_channel": _pass_through,
    "quantized_decomposed::dequantize_per_tensor": _dequantize,
    "quantized_decomposed::dequantize_per_channel": _dequantize,
    "aten::fake_quantize_per_tensor_affine": _pass_through,
    "aten::fake_quantize_per_channel_affine": _pass_through,
    "aten::fake_quantize_per_tensor_affine_cachemask": _pass_through_with_mask,
    "aten::fake_quantize_per_channel_affine_cachemask": _pass_through_with_mask,
}
