"""Find the op, such as dropout in training mode, that draws the random numbers in a result, for a
diagnosis: by type, attributes and what it reads."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from syncpoint.matching.op_kinds import op_kind
from syncpoint.run.model import Op, OpKey
from syncpoint.run.reader import Run

_MAX_OPS_BEHIND = 64
_RANDOM_KINDS = frozenset(
    [
        "rand",
        "randn",
        "rand_like",
        "randn_like",
        "randint",
        "randint_like",
        "randperm",
        "normal",
        "uniform",
        "bernoulli",
        "multinomial",
        "poisson",
        "exponential",
        "cauchy",
        "geometric",
        "log_normal",
        "random",
        "randomnormal",
        "randomnormallike",
        "randomuniform",
        "randomuniformlike",
    ]
)
_DROPOUT_KINDS = frozenset(
    {"dropout", "native_dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"}
)


def draws_random_numbers(op: Op) -> bool:
    """Whether an op draws random numbers; dropout does if its attributes say that it trains."""
    kind = op_kind(op.type)
    is_dropout = (
        kind in _DROPOUT_KINDS
        and op.attributes.get("train") is True
        and op.attributes.get("p") != 0
    )
    if kind in _RANDOM_KINDS or is_dropout:
        return True
    steps = op.attributes.get("computes") or ()
    return any(str(step).startswith(("inductor_random", "inductor_randint")) for step in steps)


def find_random_op(run: Run | None, key: OpKey, compared: AbstractSet[OpKey]) -> Op | None:
    """Find the op that draws the random numbers in an op's result: itself, or one that it reads
    through ops that are not compared."""
    if run is None:
        return None
    op_by_key = {op.key: op for op in run.ops}
    waiting, visited = [key], {key}
    while waiting:
        op = op_by_key.get(waiting.pop())
        if op is None:
            continue
        if draws_random_numbers(op):
            return op
        for edge in op.inputs:
            if edge.op in visited or edge.op in compared:
                continue
            if len(visited) < _MAX_OPS_BEHIND:
                visited.add(edge.op)
                waiting.append(edge.op)
    return None
