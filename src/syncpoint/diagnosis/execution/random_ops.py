"""Random numbers that a run draws for itself."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from syncpoint.matching.op_kinds import op_kind
from syncpoint.run.model import Op, OpKey
from syncpoint.run.reader import Run

_FAR = 64
"""Ops that are looked at behind one."""
_DRAWS = frozenset(
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
_DROPS = frozenset(
    {"dropout", "native_dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"}
)


def draws(op: Op) -> bool:
    """Whether an op draws random numbers; dropout does where it says that it trains."""
    kind = op_kind(op.type)
    drops = kind in _DROPS and op.attributes.get("train") is True and op.attributes.get("p") != 0
    if kind in _DRAWS or drops:
        return True
    inside = op.attributes.get("computes") or ()
    return any(str(step).startswith(("inductor_random", "inductor_randint")) for step in inside)


def drawn_for(run: Run | None, op: OpKey, compared: AbstractSet[OpKey]) -> Op | None:
    """The op that draws what this one gives, if it does itself or reads it by way of ops that are
    not compared by themselves."""
    if run is None:
        return None
    by_key = {one.key: one for one in run.ops}
    waiting, seen = [op], {op}
    while waiting:
        one = by_key.get(waiting.pop())
        if one is None:
            continue
        if draws(one):
            return one
        for edge in one.inputs:
            if edge.op not in seen and edge.op not in compared and len(seen) < _FAR:
                seen.add(edge.op)
                waiting.append(edge.op)
    return None
