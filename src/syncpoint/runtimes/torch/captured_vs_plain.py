"""Whether looking changed what was looked at: a captured run against a plain one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from syncpoint.run.model import Observer
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.observer_check import difference
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.arrays import describe, to_numpy


def observed(names: Sequence[str], captured: list[Any], plain: Callable[[], Tree]) -> Observer:
    """Whether `plain` gives the same bits as the captured outputs, which have these names."""
    try:
        found = pytree.tree_leaves(plain())
    except Exception as error:
        return Observer(False, f"the plain model raised {one_line(error)}")
    if len(found) != len(captured):
        return Observer(False, f"{len(found)} outputs, {len(captured)} when captured")
    for name, left, right in zip(names, captured, found, strict=True):
        detail = _difference(left, right)
        if detail:
            return Observer(False, f"{name}: {detail}{_fast_path(captured, plain)}")
    return Observer(True)


def observed_states(
    captured: Mapping[str, torch.Tensor], plain: Mapping[str, torch.Tensor]
) -> Observer:
    """Whether a captured and a plain step leave the same bits in what the model keeps."""
    for name, right in plain.items():
        if name not in captured:
            return Observer(False, f"the state {name} was written to by the plain model only")
        detail = _difference(captured[name], right)
        if detail:
            return Observer(False, f"the state {name}: {detail}")
    return Observer(True)


def _fast_path(captured: list[Any], plain: Callable[[], Tree]) -> str:
    """Whether a difference comes of the fused encoder that eager mode has and export not."""
    mha = torch.backends.mha
    if not mha.get_fastpath_enabled():
        return ""
    mha.set_fastpath_enabled(False)
    try:
        found = pytree.tree_leaves(plain())
    finally:
        mha.set_fastpath_enabled(True)
    if any(_difference(*pair) for pair in zip(captured, found, strict=True)):
        return ""
    return "; equal without the fused encoder (torch.backends.mha.set_fastpath_enabled(False))"


def _difference(captured: Tree, plain: Tree) -> str:
    if not isinstance(captured, torch.Tensor) or not isinstance(plain, torch.Tensor):
        return "" if _is_equal(captured, plain) else f"{plain!r}, {captured!r} when captured"
    if captured.dtype != plain.dtype or captured.shape != plain.shape:
        return f"{describe(plain)}, {describe(captured)} when captured"
    return difference(to_numpy(captured), to_numpy(plain))


def _is_equal(captured: Tree, plain: Tree) -> bool:
    """Whether two objects are equal as far as can be told: arrays and objects that hold tensors
    do not answer `==` with yes or no."""
    if isinstance(captured, np.ndarray) and isinstance(plain, np.ndarray):
        return not difference(captured, plain)
    try:
        return bool(captured == plain)
    except Exception:
        return repr(captured) == repr(plain)
