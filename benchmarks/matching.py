"""How long two runs take to be paired when all that is known of one is what it computed.

A deep residual net as two runs in memory, the target without names, modules, lines and in another
order. One JSON line a size: seconds of one core, pairs found, and how many tensors were looked at
side by side, which must grow no faster than the net.
"""

import json
import sys
from time import process_time

import numpy as np

from syncpoint.matching.matcher_chain import chain, match
from syncpoint.run.model import Edge, Op, OpKey, Role, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import in_memory

WIDTH = 64


def net(ops, named=True, seed=0):
    """Blocks of three products of one input, an addition of two of them and an activation."""
    rng = np.random.default_rng(0)
    noise = np.random.default_rng(seed)
    x = rng.standard_normal(WIDTH)
    given = Edge(OpKey("x"), role=Role.MODEL_INPUT)
    kinds = ("MatMul", "Add", "Relu") if not named else (
        "aten.linear.default", "aten.add.Tensor", "aten.relu.default")  # fmt: skip
    made, tensors = [], [tensor(TensorKey(OpKey("x"), Role.MODEL_INPUT), x)]
    last = (given, x)

    def op(name, kind, module, reads, value):
        key = OpKey(name if named else f"n{len(made)}")
        edges = tuple(edge for edge, _ in reads)
        made.append(Op(key, kind, edges, module=module if named else ""))
        value = value * (1 + (0 if named else 1e-7) * noise.standard_normal(WIDTH))
        tensors.append(tensor(TensorKey(key), value))
        return Edge(key), value

    block = 0
    while len(made) < ops:
        module = f"blocks.{block}"
        branches = {}
        order = noise.permutation(3) if not named else range(3)
        values = [np.tanh(last[1][rng.permutation(WIDTH)] + rng.standard_normal(WIDTH))
                  for _ in range(3)]  # fmt: skip
        for i in order:
            branches[i] = op(f"{module}.{i}", kinds[0], f"{module}.{i}", [last], values[i])
        first = op(f"{module}.s", kinds[1], module, [branches[0], branches[1]],
                   branches[0][1] + branches[1][1])  # fmt: skip
        second = op(f"{module}.t", kinds[1], module, [first, branches[2]],
                    first[1] + branches[2][1])  # fmt: skip
        last = op(
            f"{module}.r", kinds[2], module, [second], np.maximum(second[1], 0.01 * second[1])
        )
        block += 1
    made_by = str(TensorKey(last[0].op))
    tensors.append(tensor(TensorKey(last[0].op, Role.MODEL_OUTPUT), last[1], made_by))
    return in_memory(RunInfo(), made, tensors)


def tensor(key, value, alias=""):
    value = np.asarray(value, np.float32)
    return Tensor(key, "f32", value.shape, nbytes=value.nbytes, alias_of=alias), value


def matched(ops):
    target, reference = net(ops, named=False, seed=1), net(ops)
    start = process_time()
    found = match(target, reference, chain())
    return found, process_time() - start


def main(sizes=(5_000, 50_000)):
    for size in sizes:
        found, seconds = matched(size)
        pairs = sum(p.target.role is Role.OUTPUT for p in found.pairs)
        print(
            json.dumps(
                {
                    "figure": f"pairing {size} ops a side by structure and values",
                    "seconds": round(seconds, 2),
                    "limit": 10.0 * size / 5_000,
                    "paired": round(pairs / size, 3),
                    "compared": found.workspace.fingerprints.comparison_count,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or (5_000, 50_000))
