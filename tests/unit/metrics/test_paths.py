"""The fast path against the general one: the same reference in float64 takes the latter."""

import numpy as np
import pytest

from helpers import tensor_generators as tensors
from syncpoint.metrics import Operand, Pair, measure
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Quantization

COUNT = 37_003  # several chunks, many blocks, and a rest

SUMS = {
    *("mae", "mse", "rmse", "rel_l2", "euclid", "norm_ratio", "target_l2", "reference_l2"),
    *("mean_rel", "acc_rel", "mean_rel_robust", "lsb", "target_std", "reference_std"),
    "bulk_rmse",
}


def both_ways(target: Operand, reference: np.ndarray, name: str) -> None:
    mask = -DTYPES[name].max / 2
    wide = Operand(reference.astype(np.float64), "f64", mask_below=mask)
    fast, general = (
        measure([Pair(target, side, rtol=1e-3, atol=1e-5)], robust=True)[0].as_dict()
        for side in (Operand(reference, name), wide)
    )
    for key, value in general.items():
        if value is None or (
            key not in (*SUMS, "psnr", "sqnr", "bulk_sqnr", "cosine") and "mean" not in key
        ):
            assert fast[key] == value, key
        elif key in SUMS:
            assert fast[key] == pytest.approx(value, rel=1e-12, abs=0), key
        elif key.endswith("_mean"):
            size = general[key.replace("mean", "l2")] / general["compared"] ** 0.5
            assert abs(fast[key] - value) <= 1e-12 * size, key
        else:
            assert fast[key] == pytest.approx(value, rel=0, abs=1e-9), key


def changed(rng: np.random.Generator, array: np.ndarray, name: str, how: str) -> None:
    if how == "holes":
        tensors.sprinkle(rng, array, name, 0.003)
    elif how == "zeros":
        array[rng.random(array.size) < 0.3] = 0
    elif how == "limit":
        array[rng.integers(array.size, size=5)] = DTYPES[name].max


@pytest.mark.parametrize("how", ["plain", "holes", "zeros", "limit"])
@pytest.mark.parametrize(
    "recipe",
    ["normal", "exponents", "tiny floats", "offset", "masks", "small integers", "outliers"],
)
@pytest.mark.parametrize(
    "names", [("f32", "f32"), ("f16", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("bf16", "f32")]
)
def test_every_kind_of_block(names, recipe, how):
    rng = np.random.default_rng([COUNT, len(recipe), len(how)])
    for relation in ("equal", "near", "one off", "unrelated"):
        with np.errstate(all="ignore"):
            if recipe == "tiny floats":
                scale = 2.0 ** rng.integers(-150, -100, COUNT)
                t, r = (
                    (rng.standard_normal(COUNT) * scale).astype(DTYPES[name].numpy)
                    for name in names
                )
            else:
                t, r = tensors.make_pair(rng, names, recipe, relation, COUNT)
            changed(rng, t, names[0], how)
            if how == "zeros":
                changed(rng, r, names[1], how)
            both_ways(Operand(t, names[0]), r, names[1])


@pytest.mark.parametrize("scale", [0.03, 0.03125, -0.5, 1.0])
@pytest.mark.parametrize("name", ["i8", "u8", "f8_e4m3fn"])
def test_scales(name, scale):
    rng = np.random.default_rng(4)
    stored = tensors.random_bits(rng, COUNT, DTYPES[name].numpy)
    zero = 0 if name.startswith("f") else 3
    with np.errstate(all="ignore"):
        real = (scale * (stored.astype(np.float64) - zero)).astype(np.float32)
    real[::3] += np.float32(0.01)
    both_ways(Operand(stored, name, Quantization((scale,), (zero,))), real, "f32")
