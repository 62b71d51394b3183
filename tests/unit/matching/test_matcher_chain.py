"""Pairs by graph structure and by values, and what must stay unpaired."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from helpers.paths import ROOT
from helpers.small_runs import run
from syncpoint.matching.fingerprints import choose_by_margin
from syncpoint.matching.matcher_chain import chain, match
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.model import Frame, Op, OpKey, Role, RunInfo, TensorKey
from syncpoint.run.reader import in_memory

RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((1, 4, 6, 5)).astype(np.float32)


def noise(shape=(1, 4, 6, 5)):
    return RNG.standard_normal(shape).astype(np.float32)


def build_run(*ops, x=IMAGE):
    return run(*ops, inputs=[("x", x)], outputs=[(ops[-1][0], ops[-1][4])])


def pairs(target, reference):
    matching = match(target, reference, chain())
    outputs = [p for p in matching.pairs if p.target.role is Role.OUTPUT]
    return {p.target.op.op: p.reference.op.op for p in outputs}, matching


def details(matching, side):
    return {
        u.key.op.op: (u.reason.code, u.reason.detail)
        for u in matching.unmatched()
        if u.side == side and u.key.role is Role.OUTPUT
    }


def test_values_choose_only_with_a_margin_in_row_and_column():
    assert choose_by_margin([[1e-6, 0.5], [0.5, 1e-6]], 1e-3) == [(0, 0), (1, 1)]
    assert choose_by_margin([[1e-6, 5e-6], [5e-6, 1e-6]], 1e-3) == []
    assert choose_by_margin([[2e-3]], 1e-3) == []


def test_tensors_that_differ_too_little_stay_ambiguous():
    value = noise()
    near = [(f"t{i}", "Foo", "", ("x",), value * (1 + i * 2e-6)) for i in range(2)]
    target = build_run(*near, ("end", "Bar", "", ("t0", "t1"), noise()))
    reference = build_run(
        ("r0", "aten.baz.default", "m", ("x",), value * (1 + 1e-6)),
        ("end", "aten.bar.default", "m", ("r0",), noise()),
    )
    paired, matching = pairs(target, reference)
    assert "r0" not in paired.values()
    assert details(matching, "reference")["r0"][0] is ReasonCode.AMBIGUOUS


@pytest.mark.parametrize("value", [np.zeros((1, 4, 6, 5)), np.full((1, 4, 6, 5), 3.0)])
def test_constant_tensors_are_no_evidence(value):
    value = value.astype(np.float32)
    target = build_run(("t", "Foo", "", ("x",), value), ("end", "Bar", "", ("t",), noise()))
    reference = build_run(
        ("r", "aten.baz.default", "m", ("x",), value),
        ("end", "aten.qux.default", "m", ("r",), noise()),
    )
    assert pairs(target, reference)[0] == {}


def test_what_depends_on_no_input_is_no_evidence():
    value = noise()
    target = build_run(("t", "Foo", "", (), value), ("end", "Bar", "", ("x", "t"), noise()))
    reference = build_run(
        ("r", "aten.baz.default", "m", (), value),
        ("end", "aten.qux.default", "m", ("x", "r"), noise()),
    )
    assert pairs(target, reference)[0] == {}


def test_equal_values_pair_where_a_larger_op_was_decomposed():
    norm, end = noise(), noise()
    target = build_run(
        ("mean", "ReduceMean", "", ("x",), noise((1, 4, 6, 1))),
        ("sub", "Sub", "", ("x", "mean"), noise()),
        ("scaled", "Mul", "", ("sub",), norm),
        ("end", "Relu", "", ("scaled",), end),
    )
    reference = build_run(
        ("layer_norm", "aten.layer_norm.default", "n", ("x",), norm * np.float32(1 + 1e-6)),
        ("relu", "aten.relu.default", "", ("layer_norm",), end),
    )
    paired, matching = pairs(target, reference)
    assert paired == {"scaled": "layer_norm", "end": "relu"}
    assert details(matching, "target")["sub"] == (ReasonCode.NO_COUNTERPART, "inside layer_norm")


@pytest.mark.parametrize("order", [("clamp_min", "clamp_max"), ("clamp_max", "clamp_min")])
def test_a_clamp_is_paired_with_its_second_bound(order):
    first_bound, clamped, end = noise(), noise(), noise()
    target = build_run(
        ("first", f"aten.{order[0]}.default", "", ("x",), first_bound),
        ("second", f"aten.{order[1]}.default", "", ("first",), clamped),
        ("end", "aten.tanh.default", "", ("second",), end),
    )
    reference = build_run(
        ("relu6", "aten.relu6.default", "m", ("x",), clamped + noise()),
        ("tanh", "aten.tanh.default", "", ("relu6",), end),
    )
    paired, _ = pairs(target, reference)
    assert paired == {"second": "relu6", "end": "tanh"}
    paired, _ = pairs(target, target)
    assert paired == {"first": "first", "second": "second", "end": "end"}


def build_layers(weights, kind, bare=False):
    """Layers that all compute the same from the same weights: only their order differs."""
    ops, last, value = [], "x", IMAGE
    for i, weight in enumerate(weights):
        value = (np.tanh(value * weight) + 0.1 * value).astype(np.float32)
        name = f"n{i}" if bare else f"layer_{i}"
        ops.append((name, kind, "" if bare else f"layers.{i}", (last,), value))
        last = name
    return build_run(*ops)


def test_repeated_layers_are_never_cross_paired_without_names():
    reference = build_layers([1.0] * 6, "aten.tanh.default")
    paired, _ = pairs(build_layers([1.0] * 6, "Tanh", bare=True), reference)
    assert paired == {f"n{i}": f"layer_{i}" for i in range(6)}
    paired, _ = pairs(build_layers([1.0, 1.0, 1.5, 1.0, 1.0, 1.0], "Tanh", bare=True), reference)
    assert all(f"layer_{t[1:]}" == r for t, r in paired.items())


def with_origin(plain_run, op, origin):
    ops = [replace(o, origins=(origin,)) if o.key.op == op else o for o in plain_run.ops]
    return in_memory(RunInfo(), ops, [(t, plain_run.values(t)) for t in plain_run.tensors])


def build_folded_runs(after, names=("conv", "norm", "relu")):
    """A convolution with the batch norm's values under the convolution's name."""
    conv, norm = noise(), noise()
    relu, end = np.maximum(norm, 0), noise()
    reference = build_run(
        (names[0], "aten.conv2d.default", "c", ("x",), conv),
        (names[1], "aten.batch_norm.default", "b", (names[0],), norm),
        (names[2], "aten.relu.default", "r", (names[1],), relu),
        ("end", "aten.gelu.default", "e", (names[2],), end),
    )
    target = build_run(
        ("t_conv", "Conv", "c", ("x",), norm),
        ("t_relu", "Relu", "r", ("t_conv",), relu if after else noise()),
        ("t_end", "Gelu", "e", ("t_relu",), end if after else noise()),
    )
    return with_origin(target, "t_conv", names[0]), reference


def test_a_fold_moves_the_pair_if_the_next_sync_points_agree():
    paired, matching = pairs(*build_folded_runs(after=True))
    assert paired == {"t_conv": "norm", "t_relu": "relu", "t_end": "end"}
    assert details(matching, "reference")["conv"][1] == "folded into t_conv"
    assert any("norm folded into t_conv" in p.evidence for p in matching.pairs)


def test_a_pair_that_looks_folded_stays_if_the_next_sync_points_disagree():
    paired, matching = pairs(*build_folded_runs(after=False))
    assert paired["t_conv"] == "conv"
    assert any("equals norm" in p.note for p in matching.pairs)


def test_a_missing_activation_is_not_taken_for_a_fold():
    conv, end = noise(), noise()
    reference = build_run(
        ("conv", "aten.conv2d.default", "c", ("x",), conv),
        ("relu", "aten.relu.default", "c", ("conv",), np.maximum(conv, 0)),
        ("end", "aten.gelu.default", "e", ("relu",), end),
    )
    target = build_run(
        ("t_conv", "com.microsoft.FusedConv", "c", ("x",), conv),
        ("t_end", "Gelu", "e", ("t_conv",), noise()),
    )
    target = with_origin(target, "t_conv", "relu")
    paired, matching = pairs(target, reference)
    assert paired["t_conv"] == "relu"
    pair = next(p for p in matching.pairs if p.target.op.op == "t_conv")
    assert "equals conv: relu folded elsewhere or missing" in pair.note


def test_a_relu_that_was_folded_into_quantization_is_paired_after_it():
    conv = noise()
    relu = np.maximum(conv, 0)
    rounded = (np.round(relu * 64) / 64).astype(np.float32)
    reference = build_run(
        ("conv", "aten.conv2d.default", "c", ("x",), conv),
        ("relu", "aten.relu.default", "", ("conv",), relu),
        ("end", "aten.gelu.default", "e", ("relu",), noise()),
    )
    target = build_run(
        ("q_conv", "Conv", "", ("x",), conv),
        ("q", "QuantizeLinear", "", ("q_conv",), rounded),
        ("dq", "DequantizeLinear", "", ("q",), rounded),
        ("t_end", "Gelu", "e", ("dq",), noise()),
        x=IMAGE.astype(np.float16),
    )
    target = with_origin(target, "q_conv", "relu")
    paired, _ = pairs(target, reference)
    assert (paired["q_conv"], paired["dq"]) == ("conv", "relu")


def build_nhwc_runs(count):
    """A target in NHWC at its first `count` ops."""
    values = [noise() for _ in range(5)]
    reference, target, last = [], [], "x"
    for i, value in enumerate(values):
        target_value = value.transpose(0, 2, 3, 1).copy() if i < count else value
        reference.append((f"op{i}", "aten.foo.default", f"m{i}", (last,), value))
        target.append((f"op{i}", "aten.foo.default", f"m{i}", (last,), target_value))
        last = f"op{i}"
    return build_run(*target), build_run(*reference)


def test_an_order_of_axes_that_several_sync_points_need_is_the_targets_layout():
    matching = match(*build_nhwc_runs(4), chain())
    views = {p.target.op.op: str(p.view) for p in matching.pairs if p.target.role is Role.OUTPUT}
    assert views == {**{f"op{i}": "transpose(0,3,1,2)" for i in range(4)}, "op4": ""}


def test_an_order_of_axes_that_one_op_needs_is_a_finding():
    matching = match(*build_nhwc_runs(1), chain())
    pair = next(p for p in matching.pairs if p.target.op.op == "op0")
    assert not pair.view and "transpose(0,3,1,2)" in pair.note


def test_a_name_of_another_program_does_not_pair_against_the_source_line():
    def with_lines(plain_run, lines, origins=()):
        ops = []
        for op, line in zip(plain_run.ops, lines, strict=True):
            frame = (Frame("net.py", line),)
            ops.append(replace(op, source=frame, origins=origins.get(op.key.op, ())))
        return in_memory(RunInfo(), ops, [(t, plain_run.values(t)) for t in plain_run.tensors])

    first, second = noise(), noise()
    reference = build_run(
        ("flatten", "aten.sin.default", "", ("x",), first),
        ("sin", "aten.sin.default", "", ("flatten",), second),
    )
    target = build_run(("a", "Sin", "", ("x",), first), ("b", "Sin", "", ("a",), second))
    paired, _ = pairs(
        with_lines(target, (3, 4), {"a": ("sin",), "b": ("sin_1",)}),
        with_lines(reference, (3, 4), {}),
    )
    assert paired == {"a": "flatten", "b": "sin"}


def test_the_work_grows_with_the_net_and_not_with_its_square():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import matching as benchmark
    finally:
        sys.path.pop(0)
    work = []
    for size in (300, 1200):
        matching = match(benchmark.net(size, named=False, seed=1), benchmark.net(size), chain())
        paired = sum(p.target.role is Role.OUTPUT for p in matching.pairs)
        assert paired >= size
        work.append(
            (
                matching.workspace.fingerprints.comparison_count,
                matching.workspace.fingerprints.read_count,
            )
        )
    assert all(large <= 4.5 * small for small, large in zip(*work, strict=True))


def test_an_op_without_values_does_not_stop_the_matching():
    target = build_run(("t", "Foo", "", ("x",), noise()))
    bare = in_memory(
        RunInfo(),
        [*target.ops, Op(OpKey("ghost"), "Relu")],
        [(t, target.values(t)) for t in target.tensors],
    )
    matching = match(bare, target, chain())
    assert TensorKey(OpKey("t")) in {p.target for p in matching.pairs}
