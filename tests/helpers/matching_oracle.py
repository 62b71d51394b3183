"""An oracle for matching: every tensor of one run held against every one of the other.

Independent of the code it checks: whole tensors, all orders of axes, no fingerprints.
"""

from dataclasses import replace
from itertools import permutations

import numpy as np

from syncpoint.run.model import Edge, Op, OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import in_memory


def slots(run):
    """Computed float tensors that depend on what they are given, by key."""
    found = {}
    live = set()
    for op in run.ops:
        if any(e.role is Role.MODEL_INPUT or e.op in live for e in op.inputs):
            live.add(op.key)
    for tensor in run.tensors:
        if tensor.key.op not in live:
            continue
        if tensor.key.role is Role.OUTPUT and tensor.dtype in ("f32", "f16"):
            values = np.array(run.values(tensor), np.float64)
            masked = ~np.isfinite(values) | (values < -60000)
            values = np.where(masked, 0.0, values)
            if len(np.unique(values)) > 5:
                found[tensor.key] = values
    return found


def equal(a, b, tolerance):
    """Whether one is the other up to a reshape and an order of axes."""
    if a.size != b.size:
        return False
    if abs(np.linalg.norm(a) - np.linalg.norm(b)) > tolerance * np.linalg.norm(b):
        return False
    flat, norm = b.ravel(), np.linalg.norm(b)
    for axes in permutations(range(a.ndim)):
        if np.linalg.norm(a.transpose(axes).ravel() - flat) <= tolerance * norm:
            return True
    return any(
        np.linalg.norm(a.ravel() - b.transpose(axes).ravel()) <= tolerance * norm
        for axes in permutations(range(b.ndim))
    )


class Twins:
    """Classes of tensors, over both runs, that hold the same numbers."""

    def __init__(self, target, reference, tolerance):
        mine, theirs = slots(target), slots(reference)
        self.parent = {("t", k): ("t", k) for k in mine} | {("r", k): ("r", k) for k in theirs}
        self.copies = {
            ("r", tensor.key)
            for tensor in reference.tensors
            if tensor.key in theirs and reference.op(tensor.key.op).type == "aten.dropout.default"
        }
        by_size = {}
        for side, values in (("t", mine), ("r", theirs)):
            for key, array in values.items():
                by_size.setdefault(array.size, []).append(((side, key), array))
        for members in by_size.values():
            for i, (a, x) in enumerate(members):
                for b, y in members[:i]:
                    if self.find(a) != self.find(b) and equal(x, y, tolerance):
                        self.parent[self.find(a)] = self.find(b)

    def find(self, node):
        while self.parent[node] != node:
            node = self.parent[node]
        return node

    def possible(self):
        """How many pairs there can be at most: in each class as many as its smaller side. What
        reads a tensor and gives it as it is, is no counterpart of a change of layout."""
        counts = {}
        for node in self.parent:
            if node in self.copies:
                continue
            counts.setdefault(self.find(node), {"t": 0, "r": 0})[node[0]] += 1
        return {root: min(c["t"], c["r"]) for root, c in counts.items()}

    def together(self, target, reference):
        """Whether the two are in one class; None where the oracle knows one of them not."""
        if ("t", target) not in self.parent or ("r", reference) not in self.parent:
            return None
        return self.find(("t", target)) == self.find(("r", reference))


def share_paired(comparison, twins):
    """Pairs found over pairs possible."""
    possible = twins.possible()
    found = dict.fromkeys(possible, 0)
    for row in comparison.rows:
        if row.target.key.role is Role.OUTPUT and twins.together(row.target.key, row.reference.key):
            found[twins.find(("t", row.target.key))] += 1
    total = sum(possible.values())
    return sum(min(found[root], possible[root]) for root in possible) / total


def stripped(run, seed=0):
    """The run without names, modules, lines and origins, its ops in another order that their
    edges allow; and how its ops and parameters were called before."""
    rng = np.random.default_rng(seed)
    by_key = {op.key: op for op in run.ops}
    waiting = {
        op.key: {e.op for e in op.inputs if e.role is Role.OUTPUT and e.op in by_key}
        for op in run.ops
    }
    order = []
    while waiting:
        ready = [k for k, needs in waiting.items() if not needs]
        chosen = ready[rng.integers(len(ready))]
        order.append(chosen)
        del waiting[chosen]
        for needs in waiting.values():
            needs.discard(chosen)
    names = {}
    for number, key in enumerate(order):
        names[key, Role.OUTPUT] = OpKey(f"n{number}")
    for number, tensor in enumerate(t for t in run.tensors if t.key.role is Role.PARAMETER):
        names[tensor.key.op, Role.PARAMETER] = OpKey(f"p{number}")
    for number, tensor in enumerate(t for t in run.tensors if t.key.role is Role.MODEL_INPUT):
        names[tensor.key.op, Role.MODEL_INPUT] = OpKey(f"i{number}")

    def renamed(key, role):
        role = Role.OUTPUT if role is Role.MODEL_OUTPUT else role
        return names.get((key, role), key)

    ops = [
        Op(
            names[key, Role.OUTPUT],
            by_key[key].type,
            tuple(Edge(renamed(e.op, e.role), e.index, e.role) for e in by_key[key].inputs),
            attributes=by_key[key].attributes,
        )
        for key in order
    ]
    aliases = {
        str(t.key): str(replace(t.key, op=renamed(t.key.op, t.key.role))) for t in run.tensors
    }
    before: dict[TensorKey, TensorKey] = {}
    tensors: list[tuple[Tensor, np.ndarray]] = []
    for tensor in run.tensors:
        key = replace(tensor.key, op=renamed(tensor.key.op, tensor.key.role))
        before[key] = tensor.key
        alias = aliases.get(tensor.alias_of, "")
        tensors.append((replace(tensor, key=key, name="", alias_of=alias), run.values(tensor)))
    return in_memory(run.info, ops, tensors), before
