"""Machines and memory: products that round, small numbers flushed, buffers overwritten."""

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from zoo import lowering
from zoo.draw import apart
from zoo.planting.registry import planter
from zoo.planting.runs import inner
from zoo.programs import aten, export
from zoo.simulated import simulate
from zoo.work import pick

PRODUCTS = (
    *(aten.conv2d.default, aten.linear.default, aten.matmul.default),
    aten.scaled_dot_product_attention.default,
)
STEEP = (
    *(aten.softmax.int, aten.gelu.default, aten.silu.default, aten.sigmoid.default),
    *(aten.tanh.default, aten.rsqrt.default, aten.layer_norm.default),
)


def _change(before, after):
    keys = [key for key in before if before[key].dtype.kind == "f"]
    return max(apart(before[k].astype(np.float64), after[k].astype(np.float64)) for k in keys)


def _known(work, **said):
    info = work.run.info
    return replace(info, environment={**info.environment, **said})


def tf32(value):
    """Rounded to ten bits of mantissa, to nearest, as the matrix units of GPUs read float32."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    bits = value.contiguous().view(torch.int32)
    kept = (bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF
    return kept.view(torch.float32)


@planter("run")
def tf32_products(work):
    def compute(node, args, kwargs):
        if node.target in PRODUCTS:
            parts = [tf32(a) for a in args[:2]]
            args = (*parts, *args[2:])
        return node.target(*args, **kwargs)

    info = _known(work, tf32="True", device_name="an accelerator")
    work.change = _change(*simulate(work, compute, info=info))
    work.said = "products read ten bits of mantissa"


class Tiny(nn.Module):
    """Likelihoods that are scaled down, and up again."""

    def __init__(self, inner, size):
        super().__init__()
        self.inner, self.size = inner, size

    def forward(self, *inputs):
        small = self.inner(*inputs) * self.size
        return small * (1e-20 / self.size) * 1e20


@planter("run")
def small_flushed(work, size):
    """Numbers below the least normal one are zero, in a net that has such."""
    work.net.model = Tiny(work.net.model, size).eval()
    work.program = export(work.net.model, work.net.inputs, work.dtype)
    work.run = lowering.recorded(work)

    def compute(node, args, kwargs):
        found = node.target(*args, **kwargs)
        if isinstance(found, torch.Tensor) and found.is_floating_point():
            least = torch.finfo(found.dtype).tiny
            found = torch.where(found.abs() < least, torch.zeros_like(found), found)
        return found

    info = _known(work, flush_denormal="True")
    before, after = simulate(work, compute, info=info)
    work.change = _change(before, after)
    work.said = "small numbers are flushed to zero"


@planter("run")
def fast_math(work, bits):
    """Steep functions by short tables: right to so many bits."""
    step = 2.0 ** -round(bits)

    def compute(node, args, kwargs):
        found = node.target(*args, **kwargs)
        if node.target in STEEP:
            if node.target is aten.layer_norm.default:
                # The root in it is approximated, the same for all of a row.
                over = args[0].float().var(-1, unbiased=False, keepdim=True).rsqrt()
                bias = args[3] if len(args) > 3 and args[3] is not None else 0.0
                found = (found - bias) * (1 + step * torch.sin(over * 37.0)) + bias
            else:
                # Between the entries of a table the error goes up and down.
                found = found * (1 + step * torch.sin(found.abs().clamp_min(1e-30).log2() * 37.0))
        return found

    info = _known(work, fast_math="True", compiler_flags="-O3 -ffast-math")
    work.change = _change(*simulate(work, compute, info=info))
    work.said = f"steep functions are right to {round(bits)} bits"


@planter("run")
def version_changed(work, version):
    """The same engine in another version, whose products round what they read."""

    def compute(node, args, kwargs):
        if node.target in PRODUCTS:
            args = (*(tf32(a) for a in args[:2]), *args[2:])
        return node.target(*args, **kwargs)

    info = _known(work, torch=version, tf32="True")
    info = replace(info, runtime_version=version, model=f"{_class(work.net.model)}")
    work.change = _change(*simulate(work, compute, info=info))
    work.said = f"version {version} reads ten bits of mantissa in products"


def _class(model):
    return f"{type(model).__module__}.{type(model).__qualname__}"


def _late_reads(work):
    """A tensor, one of its readers that is not the first, and an op in between of the same shape:
    the buffer may be given away after the first reader by a planner that miscounts."""
    order = {str(op.key): at for at, op in enumerate(work.run.ops)}
    forms = {str(t.key.op): t.shape for t in inner(work.run) if not t.key.index}
    found = []
    for name in forms:
        users = [
            str(op.key)
            for op in work.run.ops
            if any(str(e.op) == name and e.role == "output" for e in op.inputs)
        ]
        if len(users) < 2:
            continue
        last = max(users, key=order.__getitem__)
        first = min(order[user] for user in users)
        between = [
            other
            for other, form in forms.items()
            if form == forms[name] and first <= order[other] < order[last] and other != name
        ]
        found += [(name, other, last) for other in between]
    return found


@planter("run")
def buffer_overwritten(work, addresses):
    """A late reader finds what a later op put into the buffer."""
    found = _late_reads(work)
    name, other, reader = pick(work, found, "nothing is read late")
    values = {}

    def read(node, args):
        if node.name == reader:
            swapped = [a.name if isinstance(a, torch.fx.Node) else None for a in node.args]
            return tuple(
                values[other] if said == name else given
                for said, given in zip(swapped, args, strict=True)
            )
        return args

    def compute(node, args, kwargs):
        values[node.name] = node.target(*args, **kwargs)
        return values[node.name]

    more = {"address": _addresses(work, name, other)} if addresses else {}
    before, after = simulate(work, compute, read, **more)
    work.change = _change(before, after)
    work.blame(name, other, reader)
    work.said = f"{reader} finds {other} where {name} was"


def _addresses(work, name, other):
    """Every tensor in a place of its own, but for the two."""
    found, free = {}, 0x10000
    for t in work.run.tensors:
        found[t.key] = free
        free += (t.nbytes + 255) // 256 * 256
    places = {str(k.op): v for k, v in found.items() if k.role == "output" and not k.index}
    for key in found:
        if str(key.op) == other and key.role == "output" and not key.index:
            found[key] = places[name]
    return found


@planter("run")
def accumulated_coarsely(work, chunk):
    """One product adds up its parts in 16 bits."""
    nodes = [
        str(op.key)
        for op in work.run.ops
        if op.type.startswith("aten.linear") and len(op.inputs) > 1
    ]
    name = pick(work, nodes, "no linear layer")

    def compute(node, args, kwargs):
        if node.name != name:
            return node.target(*args, **kwargs)
        x, weight = args[0].float(), args[1].float()
        total = torch.zeros(*x.shape[:-1], weight.shape[0], dtype=torch.bfloat16)
        for at in range(0, x.shape[-1], chunk):
            part = x[..., at : at + chunk] @ weight[:, at : at + chunk].T
            total = total + part.to(torch.bfloat16)
        if len(args) > 2 and args[2] is not None:
            total = total.float() + args[2].float()
        return total.to(args[0].dtype)

    work.change = _change(*simulate(work, compute))
    work.blame(name)
    work.said = f"{name} adds up in bf16"
