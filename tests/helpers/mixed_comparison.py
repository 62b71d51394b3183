"""Comparisons of all kinds of rows, for the tests of the server."""

import numpy as np

from helpers.small_runs import run
from syncpoint.api import Comparison
from syncpoint.comparison.engine import compare
from syncpoint.run.model import RunInfo

DTYPES = (np.float32, np.float16, np.int64, np.bool_)
MODULES = ("", "stem", "blocks.0.attn", "blocks.0.mlp", "blocks.1.attn", "blocks.1.mlp", "head")


def mixed(ops: int = 120, seed: int = 0) -> Comparison:
    """A chain of ops of several types, modules and precisions, off by all amounts."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((4, 6)).astype(np.float32)
    sides: dict[str, list] = {"target": [], "reference": []}
    before = "x"
    for at in range(ops):
        dtype = DTYPES[at % 11 % 4]
        value = (rng.standard_normal((4, 6)) * 10).astype(dtype)
        other = value.copy()
        kind = at % 7
        if kind == 1:
            other = (value + rng.standard_normal((4, 6)) * 10.0 ** -(at % 9)).astype(dtype)
        elif kind == 2 and dtype in (np.float32, np.float16):
            other[0, 0] = np.nan
        elif kind == 3:
            other = np.zeros((4, 7), dtype)
        elif kind == 4:
            value = other = np.zeros((0, 3), dtype)
        elif kind == 5:
            value = np.zeros((4, 6), dtype)
            other = value.copy()
            other[1, 1] = 1
        module = MODULES[at * len(MODULES) // ops]
        name = f"op_{at}"
        sides["reference"].append((name, f"type{at % 5}", module, (before,), value))
        if at % 13 != 12:
            sides["target"].append((name, f"type{at % 5}", module, (before,), other))
            before = name
        else:
            sides["reference"].pop()
            sides["reference"].append((name, "lonely", module, (before,), value))
    output = [(before, {o[0]: o[4] for o in sides["reference"]}[before])]
    made = {
        side: run(
            *ops_,
            inputs=[("x", x)],
            parameters=[("head.weight", x)],
            outputs=output,
            info=RunInfo(model=f"{side}.py:model", runtime="torch", device="cpu"),
        )
        for side, ops_ in sides.items()
    }
    return Comparison.of(compare(made["target"], made["reference"]))
