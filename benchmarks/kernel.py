"""The kernel against NumPy: all metrics in one call, and each metric by itself in float64.

One JSON line a figure. Both sides of a ratio take turns in one process, so that a busy machine
slows both; `low` and `high` are the extremes over the rounds.
"""

import argparse
import json
from statistics import median
from time import perf_counter

import ml_dtypes
import numpy as np

from syncpoint.metrics import Pair, measure, operand


def wide(t, r):
    return t.astype(np.float64), r.astype(np.float64)


def per_pair(formula):
    """A metric as one would write it down: promote both sides, apply the formula."""
    return lambda t, r: formula(*wide(t, r))


def per_side(formula):
    return lambda t, r: (formula(t.astype(np.float64)), formula(r.astype(np.float64)))


def relative(t, r):
    return np.abs(t - r)[r != 0] / np.abs(r[r != 0])


NUMPY = {
    "psnr": per_pair(lambda t, r: 10 * np.log10(np.abs(r).max() ** 2 / np.mean((t - r) ** 2))),
    "sqnr": per_pair(lambda t, r: 10 * np.log10(np.sum(r * r) / np.sum((t - r) ** 2))),
    "mae": per_pair(lambda t, r: np.mean(np.abs(t - r))),
    "mse": per_pair(lambda t, r: np.mean((t - r) ** 2)),
    "max_abs": per_pair(lambda t, r: np.abs(t - r).max()),
    "max_abs_index": per_pair(lambda t, r: np.abs(t - r).argmax()),
    "rel_l2": per_pair(lambda t, r: np.linalg.norm(t - r) / np.linalg.norm(r)),
    "cosine": per_pair(lambda t, r: np.dot(t, r) / np.linalg.norm(t) / np.linalg.norm(r)),
    "exact": per_pair(lambda t, r: np.mean(t == r)),
    "mean": per_side(np.mean),
    "std": per_side(np.std),
    "min": per_side(np.min),
    "max": per_side(np.max),
    "l2": per_side(np.linalg.norm),
    "nan": per_side(lambda x: np.count_nonzero(np.isnan(x))),
    "inf": per_side(lambda x: np.count_nonzero(np.isinf(x))),
    "zero": per_side(lambda x: np.count_nonzero(x == 0)),
    "overflow": per_side(lambda x: np.count_nonzero(np.abs(x) >= 3.4e38)),
    "max_rel": per_pair(lambda t, r: relative(t, r).max()),
    "mean_rel": per_pair(lambda t, r: relative(t, r).mean()),
    "within_1e3": per_pair(lambda t, r: np.mean(relative(t, r) < 1e-3)),
    "within_5e3": per_pair(lambda t, r: np.mean(relative(t, r) < 5e-3)),
    "allclose": per_pair(lambda t, r: np.mean(np.abs(t - r) <= 1e-5 + 1.3e-6 * np.abs(r))),
    "robust": per_pair(
        lambda t, r: np.mean(np.abs(t - r) / np.maximum(np.abs(r), 1e-3 * np.sqrt(np.mean(r * r))))
    ),
    "histogram": per_pair(lambda t, r: np.unique(np.frexp(t - r)[1], return_counts=True)),
}


def seconds(call):
    start = perf_counter()
    call()
    return perf_counter() - start


def figure(name, slow, fast, rounds):
    """How many times longer `slow` takes than `fast`."""
    slow(), fast()
    ratios = [seconds(slow) / seconds(fast) for _ in range(rounds)]
    print(
        json.dumps(
            {
                "figure": name,
                "ratio": round(median(ratios), 2),
                "low": round(min(ratios), 2),
                "high": round(max(ratios), 2),
            }
        ),
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=1 << 22)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    r = rng.standard_normal(options.elements, dtype=np.float32)
    noisy = r + 1e-4 * rng.standard_normal(options.elements, dtype=np.float32)
    for name, t in (("f32", noisy), ("bf16 against f32", noisy.astype(ml_dtypes.bfloat16))):
        pair = Pair(operand(t), operand(r))
        figure(
            f"kernel {name} vs numpy",
            lambda t=t: [metric(t, r) for metric in NUMPY.values()],
            lambda pair=pair: measure([pair], threads=1),
            options.rounds,
        )
    pairs = [Pair(operand(noisy[k::8]), operand(r[k::8])) for k in range(8)]
    figure(
        "kernel f32, all cores vs one",
        lambda: measure(pairs, threads=1),
        lambda: measure(pairs),
        options.rounds,
    )
    small = [Pair(operand(noisy[k : k + 64]), operand(r[k : k + 64])) for k in range(0, 64000, 64)]
    figure(
        "kernel f32, 1000 calls of 64 elements vs one batch",
        lambda: [measure([pair], threads=1) for pair in small],
        lambda: measure(small, threads=1),
        options.rounds,
    )


if __name__ == "__main__":
    main()
