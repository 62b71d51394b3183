"""What watching every op costs in CPU time, with the tensors kept in memory and nothing written.

The model is run by the interpreter and the ledger that a capture uses, with a recorder that keeps
references. The denominator is one plain run of the model. Exporting is left out, as it is done
once before; so is the observer check, which is a plain run of its own. Both ways of capturing
are measured: `export` has the limit, `dispatch` is there to compare.

All take turns, so that a busy machine slows all; `low` and `high` are the extremes over the
rounds. One JSON line for each model and way.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from time import process_time

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from models.gpt import gpt_inputs, make_gpt
from models.resnet import make_resnet, resnet_inputs
from syncpoint.run.model import WHOLE, TensorKey
from syncpoint.runtimes.options import parse_options
from syncpoint.runtimes.protocol import Inputs
from syncpoint.runtimes.registry import find_runtime
from syncpoint.runtimes.torch.capture import CaptureLedger

MODELS = {"ResNet-18": (make_resnet, resnet_inputs), "GPT-2": (make_gpt, gpt_inputs)}


class Keeps:
    """A recorder that holds on to what it is given."""

    part = WHOLE

    def __init__(self):
        self.ops, self.tensors = [], []

    @property
    def writer(self):
        # Not an attribute: what holds itself is not let go of before the next collection.
        return self

    def for_part(self, part):
        return self

    def op(self, op):
        self.ops.append(op)
        return op.key

    def tensor(self, op, value, role, index, **more):
        self.tensors.append((op, role, index, value, more))
        return TensorKey(op, role, index)

    def note(self, text):
        pass


def cpu(call):
    start = process_time()
    call()
    return process_time() - start


def spread(values):
    return [round(f(values), 3) for f in (median, min, max)]


def measured(name, rounds):
    make, inputs = MODELS[name]
    model, args = make(), inputs()
    runtime = find_runtime(model, None)
    sessions = {
        way: runtime.open(model, parse_options(runtime, {"capture": way}))
        for way in ("export", "dispatch")
    }
    export = sessions["export"]
    export.prepare(Inputs(args))
    program = next(iter(export._programs.values()))
    kept = []

    def exported():
        kept[:] = [Keeps()]
        with torch.no_grad():
            export._capture(
                program, CaptureLedger(program.observed, kept[0], program.has_subgraphs), args, {}
            )

    def dispatched():
        kept[:] = [Keeps()]
        with torch.no_grad():
            sessions["dispatch"]._trace(args, {}, kept[0], WHOLE)

    def plain():
        with torch.no_grad():
            model(*args)

    times = {"export": [], "dispatch": []}
    ways = {"export": exported, "dispatch": dispatched}
    counts = {}
    for way, call in ways.items():
        call(), plain()
        counts[way] = (len(kept[0].ops), len(kept[0].tensors))
    base = []
    for _ in range(rounds):
        base.append(cpu(plain))
        for way, call in ways.items():
            kept.clear()
            times[way].append(cpu(call))
        kept.clear()
    for way, found in times.items():
        middle, low, high = spread([a / b for a, b in zip(found, base, strict=True)])
        yield {
            "figure": f"{name} watched by {way}, tensors in memory, vs plain run, CPU time",
            "ratio": middle,
            "low": low,
            "high": high,
            "limit": 1.2 if way == "export" else None,
            "ops_tensors": counts[way],
            "plain_watched_milliseconds": [
                round(1e3 * median(base), 1),
                round(1e3 * median(found), 1),
            ],
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in MODELS:
        for line in measured(name, options.rounds):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
