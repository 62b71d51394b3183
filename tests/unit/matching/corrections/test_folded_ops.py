"""Batch norms that were folded into a convolution of 8-bit integers, and those that are missing."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.matching.matcher_chain import chain, match
from syncpoint.run.model import Quantization, Role
from syncpoint.run.reader import in_memory

RNG = np.random.default_rng(0)
STEP = 1 / 32
QUANTIZATION = Quantization((STEP,))
SHAPE = (1, 4, 6, 6)
X = RNG.standard_normal(SHAPE).astype(np.float32)
PRODUCTS = RNG.standard_normal((3, *SHAPE)).astype(np.float32)
FEW = np.float32([[0.5, -0.25, 1.0, 0.75]]).reshape(1, 4, 1, 1)
"""Too few values to tell a tensor from another one by them."""
WEIGHT, GAMMA, BETA = np.ones((4, 4), np.float32), np.full(4, 1.1, np.float32), np.zeros(4)


def normed(product, gain=1.1):
    """A batch norm that changes little: its result is within the tolerance of 8-bit integers."""
    return np.float32(gain) * product


def after(values):
    return np.tanh(values)


def reference_run(products):
    """For each product: a convolution, its batch norm and an activation."""
    ops, parameters, before = [], [], "x"
    for i, product in enumerate(products):
        conv, norm, act = f"conv{i}", f"norm{i}", f"act{i}"
        parameters += [(f"{conv}.w", WEIGHT), (f"{norm}.gamma", GAMMA), (f"{norm}.beta", BETA)]
        ops += [
            (conv, "aten.conv2d.default", conv, (before, f"{conv}.w"), product),
            (norm, "aten.batch_norm.default", norm,
             (conv, f"{norm}.gamma", f"{norm}.beta"), normed(product)),
            (act, "aten.tanh.default", act, (norm,), after(normed(product))),
        ]  # fmt: skip
        before = act
    return run(*ops, inputs=[("x", X)], parameters=parameters, outputs=[(before, ops[-1][4])])


def integer_run(results, ends=None, present=()):
    """For each result: a convolution that returns it as 8-bit integers, and an activation.
    `present` are parameters that it has besides the weights."""
    ops, parameters, before = [], [(name, GAMMA) for name in present], "x"
    ends = results if ends is None else ends
    for i, (result, end) in enumerate(zip(results, ends, strict=True)):
        conv, act = f"conv{i}", f"act{i}"
        parameters.append((f"{conv}.w", WEIGHT))
        stored = np.clip(np.round(result / STEP), -128, 127).astype(np.int8)
        reads = (before, f"{conv}.w", *(name for name in present if name[4] == str(i)))
        ops += [
            (conv, "QLinearConv", conv, reads, stored),
            (act, "Tanh", act, (conv,), after(end).astype(np.float32)),
        ]
        before = act
    plain_run = run(*ops, inputs=[("x", X)], parameters=parameters, outputs=[(before, ops[-1][4])])
    tensors = [
        replace(t, quantization=QUANTIZATION) if t.dtype == "i8" else t for t in plain_run.tensors
    ]
    return in_memory(
        plain_run.info, list(plain_run.ops), [(t, plain_run.values(t)) for t in tensors]
    )


def paired(target, reference):
    """The pairs of ops with their evidence, and the reasons of unpaired reference tensors."""
    matching = match(target, reference, chain())
    pairs = {
        p.target.op.op: (p.reference.op.op, p.evidence)
        for p in matching.pairs
        if p.target.role is Role.OUTPUT
    }
    reasons = {u.key.op.op: u.reason.detail for u in matching.unmatched() if u.side == "reference"}
    return pairs, reasons


def test_integers_nearer_to_an_absent_batch_norm_are_its_counterpart():
    """They are equal to the convolution too, up to the tolerance of 8-bit integers."""
    product = PRODUCTS[0]
    pairs, reasons = paired(integer_run([normed(product)]), reference_run([product]))
    partner, evidence = pairs["conv0"]
    assert partner == "norm0" and evidence.endswith("norm0 folded into conv0, by equal values")
    assert reasons["conv0"] == "folded into conv0"


def test_a_missing_batch_norm_leaves_the_convolution_its_pair():
    """So that the error of what follows shows."""
    product = PRODUCTS[0]
    pairs, reasons = paired(integer_run([product]), reference_run([product]))
    assert pairs["conv0"][0] == "conv0" and "norm0" in reasons


def test_a_missing_batch_norm_shows_beside_folded_ones():
    results = [normed(PRODUCTS[0]), PRODUCTS[1], normed(PRODUCTS[2])]
    pairs, _ = paired(integer_run(results), reference_run(PRODUCTS))
    assert [pairs[f"conv{i}"][0] for i in range(3)] == ["norm0", "conv1", "norm2"]


@pytest.mark.parametrize("parameter", ["norm0.gamma", "norm0.beta"])
def test_a_batch_norm_whose_parameter_has_a_counterpart_is_not_absent(parameter):
    """The target has the norm somewhere else."""
    product = PRODUCTS[0]
    target = integer_run([normed(product)], present=[parameter])
    pairs, _ = paired(target, reference_run([product]))
    assert pairs["conv0"][0] == "conv0"


@pytest.mark.parametrize("position", [0, 1, 2])
def test_too_few_values_follow_a_fold_that_others_prove(position):
    products = [*PRODUCTS[:2]]
    products.insert(position, FEW)
    target = integer_run([normed(product) for product in products])
    pairs, reasons = paired(target, reference_run(products))
    assert {pairs[f"conv{i}"][0] for i in range(3)} == {"norm0", "norm1", "norm2"}
    assert pairs[f"conv{position}"][1].endswith("by its position")
    assert reasons[f"conv{position}"] == f"folded into conv{position}"


def test_too_few_values_without_a_proven_fold_keep_their_pair():
    pairs, _ = paired(integer_run([normed(FEW)]), reference_run([FEW]))
    assert pairs["conv0"][0] == "conv0"
