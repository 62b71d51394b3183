"""Small runs made by hand, for tests that need no runtime."""

import numpy as np

from syncpoint.run.dtypes import from_numpy
from syncpoint.run.model import Edge, Op, OpKey, Part, Role, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import in_memory


def tensor(op, array, role=Role.OUTPUT, index=0, part=None, **more):
    array = np.asarray(array)
    key = TensorKey(OpKey(op), role, index, part or Part())
    found = Tensor(key, from_numpy(array.dtype).name, array.shape, nbytes=array.nbytes, **more)
    return found, array


def run(*ops, inputs=(), parameters=(), outputs=(), info=None):
    """`ops` are (name, type, module, names it reads, array or arrays)."""
    made, tensors = [], []
    names = {name for name, *_ in ops}
    for name, array in inputs:
        tensors.append(tensor(name, array, Role.MODEL_INPUT, name=name))
    for name, array in parameters:
        tensors.append(tensor(name, array, Role.PARAMETER))
    given = {name: Role.MODEL_INPUT for name, _ in inputs}
    given |= {name: Role.PARAMETER for name, _ in parameters}
    for name, kind, module, reads, arrays in ops:
        edges = tuple(Edge(OpKey(r), 0, Role.OUTPUT if r in names else given[r]) for r in reads)
        made.append(Op(OpKey(name), kind, edges, module=module))
        for index, array in enumerate(arrays if isinstance(arrays, list) else [arrays]):
            tensors.append(tensor(name, array, index=index))
    for index, (name, array) in enumerate(outputs):
        alias = str(TensorKey(OpKey(name)))
        tensors.append(tensor(name, array, Role.MODEL_OUTPUT, index, name="out", alias_of=alias))
    return in_memory(info or RunInfo(model="made by hand"), made, tensors)
