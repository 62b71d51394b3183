"""Pairs of tensors that reach every path of the kernel, measured by any instruction set."""

import json

import numpy as np

from helpers import tensor_generators as tensors
from syncpoint.metrics import Operand, Pair, measure
from syncpoint.run.model import Quantization


def hard_pairs() -> list[Pair]:
    """Every kind of block there is: ordinary, equal, with zeros, holes, masks, offsets, scales."""
    rng = np.random.default_rng(11)
    pairs = []
    for names in (("f32", "f32"), ("f16", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("i8", "f32")):
        for recipe in ("normal", "exponents", "offset", "masks", "small integers", "outliers"):
            for relation in ("equal", "near", "unrelated"):
                with np.errstate(all="ignore"):
                    t, r = tensors.make_pair(rng, names, recipe, relation, 40_003)
                    if relation == "unrelated":
                        tensors.sprinkle(rng, t, names[0], 0.01)
                        tensors.sprinkle(rng, r, names[1], 0.01)
                pairs.append(Pair(Operand(t, names[0]), Operand(r, names[1])))
    stored = rng.integers(-128, 128, 40_003).astype(np.int8)
    for scale in (0.03, 0.03125, -0.5):
        real = scale * (stored.astype(np.float64) - 3)
        side = Operand(stored, "i8", Quantization((scale,), (3,)))
        pairs.append(Pair(side, Operand(real.astype(np.float32), "f32")))
        pairs.append(Pair(Operand(real.astype(np.float16), "f16"), side))
    return pairs


def measure_hard_pairs() -> str:
    """All metrics of all pairs, as JSON."""
    with np.errstate(all="ignore"):
        return json.dumps([m.as_dict() for m in measure(hard_pairs(), robust=True)])
