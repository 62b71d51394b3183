"""Sums in a narrow type are recognised by their very errors, and others are not taken for them."""

import numpy as np
import pytest

from syncpoint.comparison.rows import End, Row
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.numerics.accumulators import find_narrow_accumulator
from syncpoint.run.model import Edge, Op, OpKey, Role, TensorKey
from syncpoint.runtimes.protocol import Region

X, W = Edge(OpKey("x"), 0, Role.MODEL_INPUT), Edge(OpKey("w"), 0, Role.PARAMETER)


class Linear:
    def evaluate(self, region, inputs, dtype, parameter_dtype=None):
        return [inputs[X] @ inputs[W].T]


def experiment(target, x, w):
    op = Op(OpKey("linear"), "aten.linear.default", (X, W))
    end = End(key=TensorKey(op.key), type=op.type, dtype="f32", shape=target.shape)
    region = Region((op.key,), (X,), (Edge(op.key),))
    row = Row(
        target=end,
        reference=end,
        evidence="",
        confidence=1.0,
        view="",
        basis="values",
        preset="f32",
    )
    return RegionExperiment(
        row=row,
        ops=(op,),
        region=region,
        inputs={X: x, W: w},
        target=target,
        truth=x @ w.T,
        session=Linear(),
    )


@pytest.fixture
def operands():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 300)).astype(np.float16).astype(np.float64)
    return x, rng.normal(size=(12, 300)).astype(np.float16).astype(np.float64)


def summed(x, w, kind):
    out = np.zeros((len(x), len(w)), kind)
    for k in range(x.shape[1]):
        out = (out + np.outer(x[:, k], w[:, k])).astype(kind)
    return out.astype(np.float64)


def test_a_sum_in_float16_is_reproduced(operands):
    x, w = operands
    accumulator = find_narrow_accumulator(experiment(summed(x, w, np.float16), x, w))
    assert (
        accumulator.dtype == "f16"
        and accumulator.reproduces
        and accumulator.residual == 0
        and accumulator.terms == 300
    )


def test_a_sum_in_another_order_has_the_size(operands):
    x, w = operands
    accumulator = find_narrow_accumulator(
        experiment(summed(x[:, ::-1], w[:, ::-1], np.float16), x, w)
    )
    assert accumulator.dtype == "f16" and accumulator.fits and not accumulator.reproduces


def test_a_wide_sum_is_none(operands):
    x, w = operands
    assert find_narrow_accumulator(experiment(summed(x, w, np.float32), x, w)) is None


def test_a_missing_term_is_none(operands):
    x, w = operands
    assert find_narrow_accumulator(experiment(x @ w.T + 30.0, x, w)) is None
