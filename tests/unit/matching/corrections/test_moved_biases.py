"""Products whose bias was moved into the op that follows."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.matching.matcher_chain import chain, match
from syncpoint.matching.protocol import EvidenceKind
from syncpoint.run.model import OpKey, Quantization, Role
from syncpoint.run.reader import in_memory

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 8)).astype(np.float32)
WEIGHT = RNG.standard_normal((8, 5)).astype(np.float32)
BIAS = (2 + RNG.standard_normal(5)).astype(np.float32)
MEAN, SCALE = RNG.uniform(1, 2, (2, 5)).astype(np.float32)
PRODUCT = X @ WEIGHT
NORMED = ((PRODUCT + BIAS - MEAN) * SCALE).astype(np.float32)


def from_ops(origins, *ops, parameters):
    """A run whose ops record their origins."""
    plain_run = run(
        *ops, inputs=[("x", X)], parameters=parameters, outputs=[(ops[-1][0], ops[-1][4])]
    )
    ops_with_origins = [replace(op, origins=(origins[op.key.op],)) for op in plain_run.ops]
    return in_memory(
        plain_run.info, ops_with_origins, [(t, plain_run.values(t)) for t in plain_run.tensors]
    )


def reference():
    return from_ops(
        {"linear": "linear", "norm": "norm"},
        ("linear", "aten.linear.default", "up", ("x", "w", "b"), PRODUCT + BIAS),
        ("norm", "aten.batch_norm.default", "norm", ("linear", "m"), NORMED),
        parameters=[("w", WEIGHT.T), ("b", BIAS), ("m", MEAN)],
    )


def target(added, whose="norm"):
    """The op that adds a constant to the product names the norm as its origin."""
    summed = PRODUCT + added
    return from_ops(
        {"mm": "linear", "add": whose, "mul": "norm"},
        ("mm", "MatMul", "up", ("x", "w"), PRODUCT),
        ("add", "Add", "norm", ("mm", "c"), summed),
        ("mul", "Mul", "norm", ("add", "s"), (summed * SCALE).astype(np.float32)),
        parameters=[("w", WEIGHT), ("c", added.reshape(1, 5)), ("s", SCALE)],
    )


def paired(target, reference):
    matching = match(target, reference, chain())
    pairs = {
        p.target.op.op: p.reference.op.op for p in matching.pairs if p.target.role is Role.OUTPUT
    }
    return pairs, {u.key.op.op: u.reason.detail for u in matching.unmatched() if u.side == "target"}


def test_the_sum_is_the_counterpart_if_it_adds_the_bias_alone():
    pairs, _ = paired(target(BIAS), reference())
    assert pairs["add"] == "linear" and "mm" not in pairs


def test_a_bias_that_went_into_another_constant_leaves_no_counterpart():
    pairs, details = paired(target(BIAS - MEAN), reference())
    assert "linear" not in pairs.values()
    assert details["mm"] == "inside linear, before its bias"
    assert pairs["mul"] == "norm"


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_a_wrong_bias_that_says_where_it_is_from_stays_paired(factor):
    """It is a fault, not a fold."""
    pairs, _ = paired(target((factor * BIAS).astype(np.float32), whose="linear"), reference())
    assert pairs["add"] == "linear"


class First:
    """Pairs the bare product first, with the given evidence."""

    name = "first"

    def __init__(self, evidence, **kind):
        self.evidence, self.kind = evidence, kind

    def match(self, matching):
        yield from matching.pair_ops(OpKey("mm"), OpKey("linear"), self.evidence, 0.9, **self.kind)


@pytest.mark.parametrize("evidence", ["pinned by the map", "some words"])
def test_the_text_of_an_evidence_decides_nothing(evidence):
    """A plugin may write any text; only the map pins."""
    for kind, counterpart in (({}, "add"), ({"kind": EvidenceKind.MAP}, "mm")):
        pairing = match(target(BIAS), reference(), [First(evidence, **kind), *chain()])
        [pair] = [p for p in pairing.pairs if p.reference.op.op == "linear"]
        assert pair.target.op.op == counterpart and pair.evidence.startswith(evidence)


def split(added):
    """A hard swish whose first constant was merged with the bias, beside the bias itself."""
    summed, more = PRODUCT + added[0], PRODUCT + added[1]
    bound = np.clip(more, 0, 6)
    constants = [("c", added[0].reshape(1, 5)), ("d", added[1].reshape(1, 5)), ("s", SCALE)]
    return from_ops(
        {"mm": "linear", "more": "swish", "add": "swish", "clip": "swish", "mul": "swish"},
        ("mm", "Conv", "up", ("x", "w"), PRODUCT),
        ("more", "Add", "swish", ("mm", "d"), more),
        ("add", "Add", "swish", ("mm", "c"), summed),
        ("clip", "Clip", "swish", ("more",), bound),
        ("mul", "Mul", "swish", ("add", "clip"), summed * bound / 6),
        parameters=[("w", WEIGHT), *constants],
    )


def swished():
    biased = PRODUCT + BIAS
    return from_ops(
        {"linear": "linear", "swish": "swish"},
        ("linear", "aten.conv2d.default", "up", ("x", "w", "b"), biased),
        (
            "swish",
            "aten.hardswish.default",
            "swish",
            ("linear",),
            biased * np.clip(biased + 3, 0, 6) / 6,
        ),
        parameters=[("w", WEIGHT.T), ("b", BIAS)],
    )


def test_of_two_sums_the_one_that_adds_the_bias_alone_is_the_counterpart():
    pairs, details = paired(split((BIAS, BIAS + 3)), swished())
    assert pairs["add"] == "linear" and pairs["mul"] == "swish"
    assert details["mm"] == "inside linear, before its bias" and "more" not in pairs


def test_two_sums_of_other_constants_leave_no_counterpart():
    pairs, details = paired(split((BIAS + 1, BIAS + 3)), swished())
    assert "linear" not in pairs.values()
    assert details["mm"] == "inside linear, before its bias"


STEP = 1 / 16


def integer_product(bias):
    """A product of integers, dequantized, and its bias added after it; without origins."""
    stored = np.round(PRODUCT / STEP).astype(np.int8)
    real = stored * np.float32(STEP)
    facts = [("sx", STEP), ("zx", 0), ("w", WEIGHT), ("sw", STEP), ("zw", 0), ("sy", STEP)]
    facts = [(name, np.asarray(value, np.float32)) for name, value in [*facts, ("zy", 0)]]
    names = [name for name, _ in facts]
    biased = real + bias
    plain_run = run(
        ("q", "QuantizeLinear", "", ("x",), np.round(X / STEP).astype(np.int8)),
        ("mm", "QLinearMatMul", "", ("q", *names), stored),
        ("dq", "DequantizeLinear", "", ("mm", "sy", "zy"), real),
        ("add", "Add", "", ("dq", "b"), biased),
        ("end", "Tanh", "", ("add",), np.tanh(biased)),
        inputs=[("x", X)],
        parameters=[*facts, ("b", bias)],
        outputs=[("end", np.tanh(biased))],
    )
    quantization = Quantization((STEP,))
    tensors = [
        replace(t, quantization=quantization) if t.dtype == "i8" else t for t in plain_run.tensors
    ]
    return in_memory(
        plain_run.info, list(plain_run.ops), [(t, plain_run.values(t)) for t in tensors]
    )


@pytest.mark.parametrize("size", [1.0, 1e-2])
def test_the_bias_of_an_integer_product_is_added_after_dequantization(size):
    """A small bias is below the step of the integers: values fit the product and the sum."""
    bias = (size * BIAS).astype(np.float32)
    biased = PRODUCT + bias
    reference_run = run(
        ("linear", "aten.linear.default", "up", ("x", "w", "b"), biased),
        ("tanh", "aten.tanh.default", "", ("linear",), np.tanh(biased)),
        inputs=[("x", X)],
        parameters=[("w", WEIGHT.T), ("b", bias)],
        outputs=[("tanh", np.tanh(biased))],
    )
    pairs, _ = paired(integer_product(bias), reference_run)
    assert (pairs["add"], pairs["end"]) == ("linear", "tanh")
    assert "mm" not in pairs and "dq" not in pairs


def product_in(readers, parameters=(), product=PRODUCT, inputs=("x", "w"), kind="MatMul"):
    """A product, and kernels of (name, parameters that it reads, values) that read it. Without a
    bias in the product, its partner is missing if every kernel adds the bias."""
    kernels = [
        (name, "Kernel", "", ("mm", *added), np.tanh(values)) for name, added, values in readers
    ]
    end = np.sum([kernel[4] for kernel in kernels], axis=0)
    return run(
        ("mm", kind, "up", inputs, product),
        *kernels,
        ("end", "Sum", "", [kernel[0] for kernel in kernels], end),
        inputs=[("x", X)],
        parameters=[("w", WEIGHT), ("b", BIAS), *parameters],
        outputs=[("end", end)],
    )


def pair_by_hand(target, reference):
    """A matching in which the two products are paired first: its pairs, its reasons
    and what it hides."""
    matching = match(target, reference, [First("by hand"), *chain()])
    pairs = {
        p.target.op.op: p.reference.op.op for p in matching.pairs if p.target.role is Role.OUTPUT
    }
    reasons = {(u.side, u.key.op.op): u.reason.detail for u in matching.unmatched()}
    hidden = {(side, key.op.op) for side, key in matching.hidden}
    return pairs, reasons, hidden


def biased_reference(branches=2, parameters=()):
    """A linear layer with its bias, whose result several ops read."""
    biased = PRODUCT + BIAS
    factors = [2.0**i for i in range(branches)]
    ops = [(f"k{i}", "Kernel", "", ("linear",), np.tanh(f * biased)) for i, f in enumerate(factors)]
    end = np.sum([op[4] for op in ops], axis=0)
    return run(
        ("linear", "aten.linear.default", "up", ("x", "w", "b"), biased),
        *ops,
        ("end", "Sum", "", [op[0] for op in ops], end),
        inputs=[("x", X)],
        parameters=[("w", WEIGHT), ("b", BIAS), *parameters],
        outputs=[("end", end)],
    )


def reading(*names):
    """Kernels that compute what those of `biased_reference` do, and the parameters they read."""
    return [(f"k{i}", reads, 2.0**i * (PRODUCT + BIAS)) for i, reads in enumerate(names)]


@pytest.mark.parametrize("kind", ["MatMul", "Conv"])
@pytest.mark.parametrize("names", [[("b",)], [("b",), ("b",)], [("b", "s"), ("s", "b")]])
def test_a_product_whose_bias_every_reader_adds_has_no_counterpart(names, kind):
    """A compiler fused the sum into each kernel that reads the product."""
    target = product_in(reading(*names), parameters=[("s", SCALE)], kind=kind)
    pairs, reasons, hidden = pair_by_hand(target, biased_reference(len(names)))
    assert "mm" not in pairs and "linear" not in pairs.values()
    assert reasons["target", "mm"] == "inside linear, before its bias"
    assert reasons["reference", "linear"] == "the ops that read mm add the bias themselves"
    assert hidden >= {("target", "mm"), ("reference", "linear")}
    assert all(pairs[f"k{i}"] == f"k{i}" for i in range(len(names))) and pairs["end"] == "end"


@pytest.mark.parametrize("names", [[()], [("b",), ()], [(), ("b",)], [("b",), ("s",)]])
def test_a_product_that_one_reader_reads_without_the_bias_keeps_its_pair(names):
    """A bias that this reader dropped must show."""
    target = product_in(reading(*names), parameters=[("s", SCALE)])
    pairs, _, hidden = pair_by_hand(target, biased_reference(len(names)))
    assert pairs["mm"] == "linear"
    assert not {("target", "mm"), ("reference", "linear")} & hidden


def test_a_product_with_a_bias_of_its_own_keeps_its_pair():
    """Its readers would add the bias twice."""
    target = product_in(
        reading(("b",), ("b",)), product=PRODUCT + BIAS, inputs=("x", "w", "b"), kind="Gemm"
    )
    pairs, _, _ = pair_by_hand(target, biased_reference())
    assert pairs["mm"] == "linear"


def test_readers_of_another_parameter_say_nothing_about_the_bias():
    target = product_in(reading(("s",), ("s",)), parameters=[("s", SCALE)])
    pairs, _, _ = pair_by_hand(target, biased_reference(parameters=[("s", SCALE)]))
    assert pairs["mm"] == "linear"


def test_a_product_that_nothing_reads_keeps_its_pair():
    """Nothing after it could add the bias."""
    target = run(
        ("mm", "MatMul", "up", ("x", "w"), PRODUCT),
        inputs=[("x", X)],
        parameters=[("w", WEIGHT)],
        outputs=[("mm", PRODUCT)],
    )
    pairs, _, _ = pair_by_hand(target, biased_reference(1))
    assert pairs["mm"] == "linear"


def test_a_product_that_a_map_pairs_keeps_its_pair_though_its_readers_add_the_bias():
    first = First("pinned", kind=EvidenceKind.MAP)
    matching = match(product_in(reading(("b",))), biased_reference(1), [first, *chain()])
    assert {"mm": "linear"}.items() <= {
        p.target.op.op: p.reference.op.op for p in matching.pairs
    }.items()
