"""Targets that give other numbers each time they are run."""

import os

import torch

from zoo.planting.registry import planter
from zoo.programs import argument, aten, call, ops, replace
from zoo.work import pick


@torch.library.custom_op("zoo::unsteady", mutates_args=())
def unsteady(x: torch.Tensor, share: float, size: float) -> torch.Tensor:
    """Some additions are lost, others each time: a race between the threads of a kernel. What
    chance there is does not come from torch, whose seed is set before every run."""
    generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "little"))
    lost = torch.rand(x.shape, generator=generator) < share
    part = torch.rand(x.shape, generator=generator) * size
    return torch.where(lost, x - part.to(x.dtype) * x, x)


@unsteady.register_fake
def _(x: torch.Tensor, share: float, size: float) -> torch.Tensor:
    return torch.empty_like(x)


@planter("program")
def race(work, share, size):
    node = pick(work, ops(work.program, aten.linear.default, aten.conv2d.default), "no product")
    work.blame(node.name, *(user.name for user in node.users))
    work.said = f"{node.name} loses additions in {share:.0%} of its elements"
    args = (node.args[0], node.args[1], argument(node, 2), *node.args[3:])
    whole = call(work.program, node, node.target, *args, **node.kwargs)
    made = call(work.program, node, torch.ops.zoo.unsteady.default, whole, share, size)
    replace(work.program, node, made)


@torch.library.custom_op("zoo::uninitialised", mutates_args=())
def uninitialised(x: torch.Tensor, share: float) -> torch.Tensor:
    """The last part of the buffer is whatever was there."""
    found = x.clone(memory_format=torch.contiguous_format)
    flat = found.view(-1)
    start = int(len(flat) * (1 - share))
    generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "little"))
    noise = torch.randn(len(flat) - start, generator=generator)
    flat[start:] = (noise * x.float().abs().mean()).to(x.dtype)
    return found


@uninitialised.register_fake
def _(x: torch.Tensor, share: float) -> torch.Tensor:
    return torch.empty_like(x)


@planter("program")
def tail_uninitialised(work, share):
    """A kernel that does not write the last elements of its result."""
    kinds = (aten.relu.default, aten.silu.default, aten.gelu.default, aten.add.Tensor)
    found = [n for n in ops(work.program, *kinds) if n.args[0].op == "call_function"]
    node = pick(work, found, "no op")
    work.blame(node.name, *(user.name for user in node.users))
    work.said = f"{node.name} leaves {share:.0%} of its result unwritten"
    whole = call(work.program, node, node.target, *node.args, **node.kwargs)
    made = call(work.program, node, torch.ops.zoo.uninitialised.default, whole, share)
    replace(work.program, node, made)
