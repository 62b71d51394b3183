"""The observer check for torch: compare captured outputs and states of a step with a run of the
plain model; name and explain differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from syncpoint.run.model import Observer
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.observer_check import describe_difference
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.arrays import describe_value, to_numpy


def compare_with_plain(
    names: Sequence[str], captured: list[Any], plain: Callable[[], Tree]
) -> Observer:
    """Check that `plain` returns the same bits as the captured outputs; `names` name them."""
    try:
        plain_outputs = pytree.tree_leaves(plain())
    except Exception as error:
        return Observer(False, f"the plain model raised {one_line(error)}")
    if len(plain_outputs) != len(captured):
        return Observer(False, f"{len(plain_outputs)} outputs, {len(captured)} when captured")
    for name, captured_value, plain_value in zip(names, captured, plain_outputs, strict=True):
        detail = _describe_difference(captured_value, plain_value)
        if detail:
            reason = _explain_by_fast_path(captured, plain)
            return Observer(False, f"{name}: {detail}{reason}", explained=bool(reason))
    return Observer(True)


def compare_states(
    captured: Mapping[str, torch.Tensor], plain: Mapping[str, torch.Tensor]
) -> Observer:
    """Check that a captured and a plain step leave the same bits in the states of the model."""
    for name, plain_value in plain.items():
        if name not in captured:
            return Observer(False, f"only the plain model wrote to the state {name}")
        detail = _describe_difference(captured[name], plain_value)
        if detail:
            return Observer(False, f"the state {name}: {detail}")
    return Observer(True)


def _explain_by_fast_path(captured: list[Any], plain: Callable[[], Tree]) -> str:
    """Text for a difference caused by the fused encoder, which only eager mode has."""
    mha = torch.backends.mha
    if not mha.get_fastpath_enabled():
        return ""
    mha.set_fastpath_enabled(False)
    try:
        plain_outputs = pytree.tree_leaves(plain())
    finally:
        mha.set_fastpath_enabled(True)
    if any(_describe_difference(*pair) for pair in zip(captured, plain_outputs, strict=True)):
        return ""
    return "; equal without the fused encoder (torch.backends.mha.set_fastpath_enabled(False))"


def _describe_difference(captured: Tree, plain: Tree) -> str:
    if not isinstance(captured, torch.Tensor) or not isinstance(plain, torch.Tensor):
        return "" if _is_equal(captured, plain) else f"{plain!r}, {captured!r} when captured"
    if captured.dtype != plain.dtype or captured.shape != plain.shape:
        return f"{describe_value(plain)}, {describe_value(captured)} when captured"
    return describe_difference(to_numpy(captured), to_numpy(plain))


def _is_equal(captured: Tree, plain: Tree) -> bool:
    """Whether two objects are equal; `==` of arrays and of objects with tensors is not a bool."""
    if isinstance(captured, np.ndarray) and isinstance(plain, np.ndarray):
        return not describe_difference(captured, plain)
    try:
        return bool(captured == plain)
    except Exception:
        return repr(captured) == repr(plain)
