"""Introduced error is measured on the values that the target's op reads."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.comparison.build_rows import build_rows
from syncpoint.comparison.introduced_error.local_calculation import add_local_errors
from syncpoint.comparison.sides import build_sides
from syncpoint.matching.protocol import SyncPoint
from syncpoint.matching.views import View
from syncpoint.metrics.limits import PRESETS
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Edge, OpKey, Quantization, Role, TensorKey
from syncpoint.run.reader import in_memory

CLOSE, LARGE = PRESETS["f32"].introduced
STEP = 1 / 16
X = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
CONV = 2 * X
STORED = np.round(CONV / STEP).astype(np.int8)
REAL = STORED * np.float32(STEP)

FUNCTIONS = {
    "conv": lambda x: 2 * x,
    "dropout": lambda x: x,
    "view": lambda x: x.reshape(8, 6),
    "tanh": np.tanh,
    "other": lambda x: 3 * x,
}


class Session:
    """Evaluates the ops of the reference run in numpy."""

    def __init__(self, reference):
        self.reference = reference

    def evaluate(self, region, inputs, dtype, parameter_dtype=None):
        values = {edge: array.astype(DTYPES[dtype].numpy) for edge, array in inputs.items()}
        for key in region.ops:
            [edge] = self.reference.op(key).inputs
            values[Edge(key)] = FUNCTIONS[key.op](values[edge])
        return [values[edge] for edge in region.outputs]


def introduced_errors(target, reference, pairs):
    """The introduced errors of the rows by target op. `pairs` are (target, reference, view)."""
    quantized = [
        replace(t, quantization=Quantization((STEP,))) if t.dtype == "i8" else t
        for t in target.tensors
    ]
    target = in_memory(target.info, list(target.ops), [(t, target.values(t)) for t in quantized])
    sides = build_sides(target, reference)
    points = [
        SyncPoint(
            TensorKey(OpKey(t), Role.MODEL_INPUT if t == "x" else Role.OUTPUT),
            TensorKey(OpKey(r), Role.MODEL_INPUT if r == "x" else Role.OUTPUT),
            "by hand",
            confidence=1.0,
            view=View(*view),
        )
        for t, r, *view in [("x", "x"), *pairs]
    ]
    rows = add_local_errors(sides, build_rows(sides, points, set()), Session(reference))
    return {row.target.key.op.op: row.introduced for row in rows if row.introduced}


def reference_run(between, values):
    """A convolution, a dropout or view of its result, and two ops that read that."""
    return run(
        ("conv", "aten.conv2d.default", "", ("x",), CONV),
        (between, f"aten.{between}.default", "", ("conv",), values),
        ("tanh", "aten.tanh.default", "", (between,), np.tanh(values)),
        ("other", "aten.mul.Tensor", "", (between,), 3 * values),
        inputs=[("x", X)],
    )


def target_run(read, values, tanh=None, passed=()):
    """The same with an 8-bit copy of the convolution, which `other` reads. The tanh reads the
    tensor `read`, which holds `values`; `passed` are ops that pass the copy on."""
    return run(
        ("conv", "Conv", "", ("x",), CONV),
        ("copy", "QuantizeLinear", "", ("conv",), STORED),
        ("real", "DequantizeLinear", "", ("copy",), REAL),
        *passed,
        ("tanh", "Tanh", "", (read,), np.tanh(values) if tanh is None else tanh),
        ("other", "Mul", "", ("real",), 3 * REAL),
        inputs=[("x", X)],
    )


PAIRS = [("conv", "conv"), ("tanh", "tanh"), ("other", "other")]
VIEWS = {"dropout": (CONV, ()), "view": (CONV.reshape(8, 6), ("reshape(8,6)",))}


@pytest.mark.parametrize("between", VIEWS)
def test_an_op_is_not_blamed_for_an_8_bit_copy_that_it_does_not_read(between):
    """The copy is the counterpart of the dropout or view, and the op reads the float tensor."""
    values, view = VIEWS[between]
    pairs = [*PAIRS[:1], ("copy", between, *view), *((*p, *view) for p in PAIRS[1:])]
    errors = introduced_errors(target_run("conv", CONV), reference_run(between, values), pairs)
    assert errors["tanh"].ratio < CLOSE
    assert errors["tanh"].region == (between, "tanh")
    # The op beside it reads the copy.
    assert errors["other"].ratio < CLOSE and errors["other"].region == ()


def test_an_error_of_an_op_beside_an_8_bit_copy_still_shows():
    """It is smaller than a step of the copy."""
    wrong = np.tanh(CONV) + np.float32(STEP / 50)
    errors = introduced_errors(
        target_run("conv", CONV, wrong),
        reference_run("dropout", CONV),
        [*PAIRS, ("copy", "dropout")],
    )
    assert errors["tanh"].ratio > LARGE
    assert errors["tanh"].rmse == pytest.approx(STEP / 50, rel=1e-3)


def pass_on(*kinds):
    """Ops that pass the copy on, each with the array that it returns."""
    array, before, ops = REAL, "real", []
    for kind in kinds:
        array = array.T.copy() if kind == "Transpose" else array.reshape(4, 12)
        ops.append((kind.lower(), kind, "", (before,), array))
        before = kind.lower()
    return ops, before, array


@pytest.mark.parametrize("paired_real", [False, True], ids=["", "paired"])
@pytest.mark.parametrize("kinds", [(), ("Transpose",), ("Reshape",), ("Transpose", "Reshape")])
def test_an_op_that_reads_an_8_bit_copy_is_measured_on_it(kinds, paired_real):
    """Through ops that only dequantize and reorder; each may be a sync point of another op."""
    passed, read, array = pass_on(*kinds)
    undo = {
        (): (),
        ("Transpose",): ("transpose(1,0)",),
        ("Reshape",): ("reshape(6,8)",),
        ("Transpose", "Reshape"): ("reshape(8,6) transpose(1,0)",),
    }[kinds]
    pairs = [PAIRS[0], ("copy", "dropout"), ("tanh", "tanh", *undo)]
    pairs.append(("real", "other") if paired_real else PAIRS[2])
    errors = introduced_errors(
        target_run(read, array, passed=passed), reference_run("dropout", CONV), pairs
    )
    assert errors["tanh"].ratio < CLOSE
    assert errors["tanh"].region == ()


def test_an_op_that_reads_the_tensor_and_its_8_bit_copy_is_measured_on_the_copy():
    target = run(
        ("conv", "Conv", "", ("x",), CONV),
        ("copy", "QuantizeLinear", "", ("conv",), STORED),
        ("tanh", "FusedTanh", "", ("conv", "copy"), np.tanh(REAL)),
        inputs=[("x", X)],
    )
    pairs = [*PAIRS[:2], ("copy", "dropout")]
    errors = introduced_errors(target, reference_run("dropout", CONV), pairs)
    assert errors["tanh"].ratio < CLOSE


def test_a_float_tensor_that_the_op_does_not_read_is_no_rounded_copy():
    """Only integers are known to be rounded."""
    target = run(
        ("conv", "Conv", "", ("x",), CONV),
        ("same", "Identity", "", ("conv",), CONV),
        ("tanh", "Tanh", "", ("conv",), np.tanh(CONV)),
        inputs=[("x", X)],
    )
    pairs = [*PAIRS[:2], ("same", "dropout")]
    errors = introduced_errors(target, reference_run("dropout", CONV), pairs)
    assert errors["tanh"].region == ()


def test_rounding_to_the_steps_of_a_viewed_8_bit_tensor_is_expected():
    """A view keeps the scale, so that the step is known."""
    pairs = [PAIRS[0], ("copy", "view", "reshape(8,6)")]
    errors = introduced_errors(
        target_run("conv", CONV), reference_run("view", CONV.reshape(8, 6)), pairs
    )
    assert errors["copy"].expected == pytest.approx(STEP / np.sqrt(12))
    assert errors["copy"].ratio < PRESETS["int8"].introduced[0]
