"""The same bits whatever the threads, the strides and the state of the processor."""

import math

import numpy as np
import pytest

from helpers import tensor_generators as tensors
from syncpoint.metrics import Operand, Pair, measure, operand


def big_pairs() -> list[Pair]:
    rng = np.random.default_rng(3)
    pairs = []
    for names in (("f32", "f32"), ("bf16", "f32"), ("f16", "f16"), ("f64", "f32"), ("i64", "f64")):
        for recipe in ("normal", "exponents", "masks", "outliers"):
            with np.errstate(all="ignore"):
                t, r = tensors.make_pair(rng, names, recipe, "near", 50_000)
                tensors.sprinkle(rng, t, names[0], 0.001)
            pairs.append(Pair(Operand(t, names[0]), Operand(r, names[1])))
    return pairs


def test_threads_do_not_change_a_bit():
    pairs = big_pairs()
    alone = measure(pairs, threads=1)
    assert measure(pairs, threads=2) == alone
    assert measure(pairs, threads=7) == alone
    assert [measure([pair])[0] for pair in pairs] == alone


@pytest.mark.parametrize(
    "layout", ["fortran", "permuted", "sliced", "negative", "unaligned", "swapped"]
)
@pytest.mark.parametrize("name", ["f32", "f16", "f64", "c64", "i32"])
def test_strides_do_not_change_a_bit(layout, name):
    rng = np.random.default_rng(5)
    t, r = (
        x.reshape(30, 40, 50)
        for x in tensors.make_pair(rng, (name, name), "normal", "near", 60_000)
    )
    dense = measure([Pair(operand(t), operand(r))])[0]
    moved = tensors.lay_out(t, layout, rng)
    assert np.array_equal(moved, t)
    assert measure([Pair(Operand(moved, name), operand(r))])[0] == dense


def test_an_axis_of_stride_0_repeats_its_elements():
    row = np.arange(700, dtype=np.float32)
    repeated = np.broadcast_to(row, (50, 700))
    t = repeated + np.float32(0.25)
    lazy = measure([Pair(operand(t), operand(repeated))])[0]
    assert lazy == measure([Pair(operand(t), operand(repeated.copy()))])[0]
    column = np.broadcast_to(row[:, None], (700, 50))
    assert measure([Pair(operand(column), operand(column.copy()))])[0].exact == 1.0


def test_windows_of_a_file_may_start_at_any_byte():
    numbers = np.arange(20_000, dtype=np.float64)
    memory = b"abc" + numbers.tobytes()
    unaligned = np.ndarray(numbers.shape, np.float64, memory, offset=3)
    assert measure([Pair(operand(unaligned), operand(numbers))])[0].exact == 1.0


def test_a_processor_that_flushes_subnormals_is_not_trusted():
    torch = pytest.importorskip("torch")
    r = np.full(100, 1e-40, np.float32)
    t = np.full(100, 2e-40, np.float32)
    pair = Pair(operand(t), operand(r))
    before = measure([pair], 1)[0]
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush")
    try:
        after = measure([pair], 1)[0], *measure([pair, pair], 2)
    finally:
        torch.set_flush_denormal(False)
    assert set(map(repr, after)) == {repr(before)}
    assert math.isclose(before.mean_rel, 1.0, rel_tol=1e-4)
