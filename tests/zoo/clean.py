"""Pairs without a fault: nothing may be found in them that asks somebody to stop."""

from dataclasses import dataclass
from random import Random

import torch
from torch.utils import _pytree as pytree

from zoo import lowering
from zoo.entry import Entry
from zoo.nets import draw_net
from zoo.programs import cast, export
from zoo.work import Work


@dataclass(frozen=True)
class Pair:
    """A net of a family in one runtime."""

    family: str
    runtime: str
    dtype: str
    fusion: str = ""


_HOW = (
    *(("torch", dtype, "") for dtype in ("f32", "f16", "bf16")),
    *(("inductor", dtype, "") for dtype in ("f32", "bf16")),
    ("inductor", "f32", "unfused"),
    *(
        ("onnxruntime", dtype, fusion)
        for dtype in ("f32", "f16", "int8")
        for fusion in ("as-executed", "unfused")
    ),
    *(("coreai", dtype, "") for dtype in ("f32", "f16")),
    *(("dump", dtype, "") for dtype in ("f32", "f16")),
)
_TRIES = 20
_SQNR, _PSNR = 12, 25
"""Signal over noise and over its peak, in dB, below which eight bits are large."""
PAIRS = {
    "-".join(part for part in ("clean", family, *how) if part): Pair(family, *how)
    for family in ("cnn", "transformer")
    for how in _HOW
}


def make(name, seed):
    """A pair, by its name and the seed, and how many were drawn before that eight bits are too few
    for: a net whose output they ruin is rightly called so, and is no clean pair."""
    for again in range(_TRIES):
        work = _made(name, f"{name}:{seed}:{again}" if again else f"{name}:{seed}")
        if work.dtype != "int8" or not _ruined(work):
            return work, again
    raise RuntimeError(f"{name}, seed {seed}: {_TRIES} nets that eight bits are too few for")


def _ruined(work):
    """Whether what the runtime gives by itself is off by more than integers may cost."""
    with torch.no_grad():
        whole = pytree.tree_leaves(work.net.model(*work.net.inputs))
    made = lowering.outputs_of(work, rewritten=work.fusion == "as-executed")
    for one, other in zip(made, whole, strict=True):
        reference = other.double().numpy()
        noise = ((one.astype("f8") - reference) ** 2).mean() ** 0.5
        least = reference.std() * 10 ** (-_SQNR / 20), abs(reference).max() * 10 ** (-_PSNR / 20)
        if noise > min(least):
            return True
    return False


def _made(name, drawn):
    pair = PAIRS[name]
    rng = Random(drawn)
    net = draw_net(pair.family, rng, pair.dtype)
    net.inputs = tuple(
        v.float() if v.is_floating_point() else v for v in cast(net.inputs, pair.dtype)
    )
    entry = Entry(name, "nothing is wrong", (), "")
    work = Work(entry, rng, pair.runtime, pair.dtype, pair.fusion, net, net.inputs)
    work.program = export(net.model, net.inputs, pair.dtype)
    if pair.runtime == "onnxruntime":
        work.proto = lowering.onnx_of(work)
    if pair.runtime == "inductor" and pair.fusion:
        work.options["fusion"] = pair.fusion
    if pair.runtime == "dump":
        work.run = lowering.recorded(work)
    lowering.finish(work)
    return work
