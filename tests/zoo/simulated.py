"""An engine that computes a program node by node in its own arithmetic, and leaves a run.

So runs can be had of machines that are not here: ones that round what goes into a product, flush
small numbers to zero, add up in 16 bits, or let a buffer be written while somebody still reads it.
"""

import torch
from torch.fx import Interpreter

from syncpoint.run.model import Role
from zoo.planting.runs import arrays_of, edited
from zoo.programs import as_module, cast


class Engine(Interpreter):
    """`compute(node, target, args, kwargs, plain)` gives what a node gives in its arithmetic;
    `read(node, args)` what it finds where its arguments should be."""

    def __init__(self, module, compute=None, read=None):
        super().__init__(module)
        self.compute, self.read = compute, read
        self.seen = {}

    def run_node(self, n):
        if n.op != "call_function":
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if self.read is not None:
            args = self.read(n, args)
        if self.compute is not None:
            found = self.compute(n, args, kwargs)
        else:
            found = n.target(*args, **kwargs)
        self.seen[n.name] = found
        return found


def simulate(work, compute=None, read=None, info=None, **tensors):
    """The run of the work as this engine would have left it: same ops, other values."""
    engine = Engine(as_module(work.program), compute, read)
    with torch.no_grad():
        result = engine.run(*cast(work.target_inputs, work.dtype))
    results = [result] if isinstance(result, torch.Tensor) else list(result)
    arrays = arrays_of(work.run)
    before = dict(arrays)
    for key in arrays:
        if key.role is Role.MODEL_OUTPUT:
            found = results[key.index]
        elif key.role is Role.OUTPUT and str(key.op) in engine.seen:
            found = engine.seen[str(key.op)]
            found = found[key.index] if isinstance(found, list | tuple) else found
        else:
            continue
        old = arrays[key]
        arrays[key] = found.float().numpy().astype(old.dtype).reshape(old.shape)
    work.run = edited(work.run, arrays, info, **tensors)
    return before, arrays
