"""Pairs without a fault: nothing may be found in them that asks somebody to stop."""

from dataclasses import dataclass
from random import Random

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
PAIRS = {
    "-".join(part for part in ("clean", family, *how) if part): Pair(family, *how)
    for family in ("cnn", "transformer")
    for how in _HOW
}


def make(name, seed):
    """A pair, by its name and the seed."""
    pair = PAIRS[name]
    rng = Random(f"{name}:{seed}")
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
