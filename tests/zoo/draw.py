"""From a kind of fault and a seed to a pair that is ready to be compared."""

from dataclasses import dataclass
from random import Random

import torch

from zoo import lowering
from zoo.entry import Entry
from zoo.nets import draw_net
from zoo.planting.registry import STAGES, find_planter
from zoo.programs import cast, export, values_of
from zoo.work import NoSite, Work

TRIES = 40
LEAST = {"f32": 3e-5, "f16": 1e-2, "bf16": 8e-2, "int8": 3e-2}
"""Relative change of some tensor below which a fault drowns in rounding, and is drawn again."""


@dataclass
class Draw:
    """A case, and how many draws it took."""

    work: Work
    unfit: int
    """Nets in which there was no place for the fault."""
    too_small: int
    """Faults that changed nothing measurable."""


def draw(entry: Entry, seed: int, runtime: str = "", lower: bool = True) -> Draw:
    """Net, site, magnitude, runtime and element type, by the seed alone. Without `lower` the fault
    is planted, and nothing is compiled or converted."""
    unfit = too_small = 0
    for attempt in range(TRIES):
        try:
            work = _work(entry, Random(f"{entry.name}:{seed}:{attempt}"), runtime, lower)
        except NoSite:
            unfit += 1
            continue
        if work.change is not None and not work.change > LEAST[work.dtype]:
            too_small += 1
            continue
        return Draw(work, unfit, too_small)
    raise AssertionError(
        f"{entry.name}, seed {seed}: {unfit} nets without a place for it, {too_small} too small"
    )


def arguments_of(entry, rng):
    """A list of two floats is a range, any other a choice."""
    found = {}
    for name, said in entry.arguments.items():
        if isinstance(said, list) and len(said) == 2 and all(isinstance(v, float) for v in said):
            low, high = said
            spread = low > 0 and high / low > 5
            found[name] = low * (high / low) ** rng.random() if spread else rng.uniform(low, high)
        else:
            found[name] = rng.choice(said) if isinstance(said, list) else said
    return found


def _work(entry, rng, runtime, lower):
    chosen = [r for r in entry.runtimes if not runtime or r == runtime]
    if not chosen:
        raise AssertionError(f"{entry.name} is not for {runtime}, but for {entry.runtimes}")
    where = rng.choice(chosen)
    dtypes = [d for d in entry.dtypes if lowering.can(where, d)]
    dtype = rng.choice(dtypes)
    family = rng.choice(entry.models)
    fusion = rng.choice(("as-executed", "unfused")) if where == "onnxruntime" else ""
    net = draw_net(family, rng, dtype, **_wanted(entry.net.get(family, {}), rng))
    net.inputs = tuple(v.float() if v.is_floating_point() else v for v in cast(net.inputs, dtype))
    work = Work(entry, rng, where, dtype, fusion, net, net.inputs)
    planter = find_planter(entry.planter)
    arguments = arguments_of(entry, rng)
    for stage in STAGES:
        before = _prepare(work, stage, planter.stage)
        if stage == planter.stage:
            planter.plant(work, **arguments)
            if work.change is None:
                work.change = _change(work, stage, before)
                if not work.change > LEAST[work.dtype]:
                    return work
    if lower:
        planted = planter.stage in ("net", "program")
        if planted and where == "onnxruntime" and not lowering.arrives(work):
            raise NoSite
        lowering.finish(work)
    assert work.sites or entry.op == "any", f"{entry.name} says nothing of where"
    return work


def _wanted(said, rng):
    return {name: rng.choice(v) if name != "blocks" else v for name, v in said.items()}


def _prepare(work, stage, planted):
    """Makes what a stage works on; gives what it was before, to see what the fault changes."""
    if stage == "program":
        work.program = export(work.net.model, work.net.inputs, work.dtype)
        if planted == "program":
            return values_of(work.program, work.net.inputs, work.dtype)
    elif stage == "onnx" and work.runtime == "onnxruntime":
        work.proto = lowering.onnx_of(work)
        if planted == "onnx":
            return lowering.outputs_of(work)
    elif stage == "run" and work.runtime == "dump":
        work.run = lowering.recorded(work)
    return None


def _change(work, stage, before):
    if stage == "program":
        after = values_of(work.program, work.net.inputs, work.dtype)
        return max((apart(before[n], after[n]) for n in before.keys() & after.keys()), default=0)
    if stage == "onnx":
        after = lowering.outputs_of(work)
        return max(apart(a, b) for a, b in zip(before, after, strict=True))
    if stage == "inputs":
        pairs = zip(work.net.inputs, work.target_inputs, strict=True)
        return max(apart(a, b) for a, b in pairs)
    raise AssertionError(f"{work.entry.planter} must say how much it changes")


def apart(one, other):
    """How far two values are apart, relative to the first; infinite where only one is finite."""
    if one.shape != other.shape:
        return float("inf")
    one, other = (torch.as_tensor(v).double() for v in (one, other))
    finite = torch.isfinite(one)
    if not torch.equal(finite, torch.isfinite(other)):
        return float("inf")
    one, other = one[finite], other[finite]
    size = one.norm().item()
    return (one - other).norm().item() / size if size else float((one != other).any())
