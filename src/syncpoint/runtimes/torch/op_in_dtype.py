"""How one op is carried over to another floating-point type.

A model that computes in float32 says so in many places besides its parameters: casts, dtype
arguments given by position or by name, factories that fall back to the default type, flags for
half precision. All of them are rewritten here. Quantize ops count as identity, and so do casts.
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
from syncpoint.runtimes.torch.arrays import complex_dtype_of, dtype_name
from syncpoint.runtimes.torch.node_metadata import (
    is_random,
    is_uninitialised,
    list_arguments,
    op_type,
)

aten = torch.ops.aten

_HALF_FLAGS = {aten._softmax.default, aten._log_softmax.default}
"""Ops whose last argument says that the input is half precision and the output float32."""
_OPS_WITH_LITERALS = frozenset({"aten::add", "aten::sub", "aten::mul", "aten::div"})
"""Ops whose numbers are constants of the converted model, in its type."""


def cast_floats(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor in `dtype` if it is floating point, in its complex twin if complex, else as is."""
    if value.is_floating_point():
        return value.to(dtype)
    return value.to(complex_dtype_of(dtype)) if value.is_complex() else value


def check_can_change_dtype(node: Node) -> None:
    """Raise if the op cannot be evaluated on its own in another type."""
    if is_random(node):
        raise Unsupported(
            "an op that gives the same result each time", f"{node.name}, which draws random numbers"
        )
    if is_uninitialised(node):
        raise Unsupported(
            "an op that gives the same result each time",
            f"{node.name}, which gives memory that nothing was written to",
        )
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        raise Unsupported("an op that can be run on its own", f"{op_type(node)} with sub-graphs")
    if not isinstance(node.target, torch._ops.OpOverload):
        raise Unsupported("an op that can be run on its own", f"{node.name} ({op_type(node)})")
    if node.target is aten.view.dtype:
        raise Unsupported(
            "an op that means the same in every type",
            f"{node.name}, which reads the bits of a number as another type",
        )


def call_in_dtype(
    node: Node,
    fetch: Callable[[Node], Any],
    dtype: torch.dtype,
    rounded_to: torch.dtype | None = None,
) -> Tree:
    """Run the node's op with all floating-point arithmetic in `dtype`; the numbers that are written
    into it, such as a factor, rounded before to another type where one is named."""
    target = node.target
    assert isinstance(target, torch._ops.OpOverload)
    stand_in = _STAND_INS.get(target._schema.name)
    if stand_in is not None:
        given = {name: _fetch_nodes(value, fetch) for name, value in list_arguments(node)}
        return stand_in(given, dtype)
    args, kwargs = pytree.tree_map(
        lambda value: _change_dtype(_fetch_nodes(value, fetch), dtype),
        (tuple(node.args), dict(node.kwargs)),
    )
    if rounded_to is not None and target._schema.name in _OPS_WITH_LITERALS:
        args = tuple(_round_literal(value, rounded_to) for value in args)
    args = _adapt_arguments(node, list(args), kwargs, dtype)
    for position, argument in enumerate(target._schema.arguments):
        info = argument.alias_info
        if info is None or not info.is_write:
            continue
        if position < len(args):
            args[position] = pytree.tree_map(_own, args[position])
        elif argument.name in kwargs:
            kwargs[argument.name] = pytree.tree_map(_own, kwargs[argument.name])
    result = target(*args, **kwargs)
    for value in pytree.tree_leaves(result):
        if isinstance(value, torch.Tensor) and is_narrower(value.dtype, dtype):
            raise Unsupported(
                f"{node.name} ({op_type(node)}) to compute in {dtype_name(dtype)}",
                f"a result in {dtype_name(value.dtype)}",
            )
    return result


def _round_literal(value: Any, dtype: torch.dtype) -> Any:
    """A number as it is in a type; one that the type cannot hold stays as it is."""
    if not isinstance(value, float):
        return value
    found = torch.tensor(value, dtype=torch.float64).to(dtype).item()
    return found if math.isfinite(found) else value


def is_narrower(found: torch.dtype, dtype: torch.dtype) -> bool:
    """Whether a floating-point or complex type holds fewer bits than `dtype` asks for."""
    if not found.is_floating_point and not found.is_complex:
        return False
    # The finfo of a complex type is that of its parts.
    return torch.finfo(found).bits < torch.finfo(dtype).bits


def _fetch_nodes(value: Tree, fetch: Callable[[Node], Any]) -> Tree:
    return pytree.tree_map(lambda v: fetch(v) if isinstance(v, Node) else v, value)


def _own(value: Tree) -> Tree:
    return value.clone() if isinstance(value, torch.Tensor) else value


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
    """Arguments that depend on the type without naming it."""
    if node.target in _HALF_FLAGS:
        args[-1] = False
    if node.target is aten.nan_to_num.default:
        # Its defaults are the greatest and lowest number of the type the model ran in.
        seen = node.meta.get("val")
        if isinstance(seen, torch.Tensor) and seen.dtype.is_floating_point:
            given = dict(list_arguments(node))
            limits = torch.finfo(seen.dtype)
            args = [
                args[0],
                given.get("nan"),
                limits.max if given.get("posinf") is None else given["posinf"],
                limits.min if given.get("neginf") is None else given["neginf"],
            ]
            kwargs.clear()
    return args


def _pass_through(given: dict[str, Any], dtype: torch.dtype) -> Tree:
    found = given.get("input", given.get("self"))
    assert isinstance(found, torch.Tensor)
    return cast_floats(found, dtype)


def _pass_through_with_mask(given: dict[str, Any], dtype: torch.dtype) -> Tree:
    found = _pass_through(given, dtype)
    return found, torch.ones_like(found, dtype=torch.bool)


def _dequantize(given: dict[str, Any], dtype: torch.dtype) -> Tree:
    """Real work only on stored integers; what an identity left in floating point stays."""
    stored = given["input"]
    if stored.is_floating_point():
        return stored.to(dtype)
    scale, zero = given.get("scale"), given.get("zero_point")
    if scale is None:
        scale, zero = given["scales"], given.get("zero_points")
    scale = torch.as_tensor(scale).to(dtype)
    zero = torch.as_tensor(0 if zero is None else zero).to(dtype)
    if "axis" in given:
        shape = [1] * stored.dim()
        shape[given["axis"]] = -1
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
