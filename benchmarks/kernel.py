"""The kernel against the memory it reads, against NumPy, and against itself.

One JSON line a figure. The two sides of a ratio take turns in one process, so that a busy machine
slows both; `low` and `high` are the quartiles over the rounds. Times are CPU time of the calling
thread, except where threads are compared.

`share of read` is the time of a plain read of both arrays over the time of the kernel: 1 would be
the speed of memory.
"""

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from statistics import median, quantiles
from time import perf_counter, process_time, thread_time

import ml_dtypes
import numpy as np

from syncpoint.metrics import Operand, Pair, _kernel, measure, operand
from syncpoint.metrics.dtype_rules import rules_of
from syncpoint.metrics.kernel import BULK_BELOW, ROBUST_ABOVE, WINDOW, native_pair
from syncpoint.run.model import Quantization

TIERS = ("base", "relative", "default")


def wide(t, r):
    return t.astype(np.float64), r.astype(np.float64)


def per_pair(formula):
    """A metric as one would write it down: promote both sides, apply the formula."""
    return lambda t, r: formula(*wide(t, r))


def per_side(formula):
    return lambda t, r: (formula(t.astype(np.float64)), formula(r.astype(np.float64)))


def relative(t, r):
    return np.abs(t - r)[r != 0] / np.abs(r[r != 0])


BASE = {
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
}
RELATIVE = {
    "max_rel": per_pair(lambda t, r: relative(t, r).max()),
    "mean_rel": per_pair(lambda t, r: relative(t, r).mean()),
    "within_1e3": per_pair(lambda t, r: np.mean(relative(t, r) < 1e-3)),
    "within_5e3": per_pair(lambda t, r: np.mean(relative(t, r) < 5e-3)),
    "allclose": per_pair(lambda t, r: np.mean(np.abs(t - r) <= 1e-5 + 1.3e-6 * np.abs(r))),
}
DEFAULT = {
    "histogram": per_pair(lambda t, r: np.unique(np.frexp(t - r)[1], return_counts=True)),
}


class Native:
    """A pair ready for the native call, so that nothing but the kernel is timed."""

    def __init__(self, target, reference, robust=False):
        sides = [s if isinstance(s, Operand) else operand(s) for s in (target, reference)]
        pair = Pair(*sides)
        self.data = [side.array for side in sides]
        self.count = self.data[0].size
        self.native = native_pair(pair, rules_of(pair))
        # Otherwise the second pass depends on the noise that was chosen for the figure.
        self.above = ROBUST_ABOVE if robust else np.inf

    def run(self, tier, threads=1, bulk_below=BULK_BELOW):
        _kernel.measure([self.native], tier, threads, WINDOW, False, self.above, bulk_below)

    def read(self):
        _kernel.read_all([(x.ctypes.data, x.nbytes) for x in self.data])


def seconds(call, clock=thread_time):
    start = clock()
    call()
    return clock() - start


def emit(name, values, **more):
    low, _, high = quantiles(values, n=4)
    numbers = {"value": median(values), "low": low, "high": high, **more}
    rounded = {key: float(f"{value:.4g}") for key, value in numbers.items()}
    print(json.dumps({"figure": name, **rounded}), flush=True)


def turns(rounds, *calls, clock=thread_time):
    """Times of each call, taken in turns."""
    for call in calls:
        call()
    times = np.array([[seconds(call, clock) for call in calls] for _ in range(rounds)])
    return times.T


def shares(data, rounds):
    """Every tier as a share of reading, for every kind of pair and of data."""
    gaussian = data["f32/f32"]
    for name, pair in data.items():
        calls = [pair.read, *(lambda t=t, p=pair: p.run(t) for t in TIERS)]
        alike = [lambda t=t: gaussian.run(t) for t in TIERS]
        read, *rest = turns(rounds, *calls, *alike)
        for tier, times, usual in zip(TIERS, rest[:3], rest[3:], strict=True):
            nanoseconds = median(times) / pair.count * 1e9
            extra = median(times - usual) / pair.count * 1e9
            if "/" in name:
                emit(f"{name} {tier}: share of read", read / times, ns=nanoseconds, ns_more=extra)
            elif name == "equal":
                emit(f"{name} {tier}: share of read", read / times, ns=nanoseconds)
            else:
                emit(f"{name} {tier}: share of gaussian speed", usual / times, ns=nanoseconds)


def against_numpy(pair, rounds):
    t, r = pair.data
    for tier, metrics in (
        ("base", BASE),
        ("relative", BASE | RELATIVE),
        ("default", BASE | RELATIVE | DEFAULT),
    ):
        slow, fast = turns(
            max(rounds // 3, 3),
            lambda metrics=metrics: [metric(t, r) for metric in metrics.values()],
            lambda tier=tier: pair.run(tier),
        )
        emit(f"f32/f32 {tier}: times faster than NumPy one metric at a time", slow / fast)


def halves(pool, pair):
    """Reads what a pair reads, a half in each of two threads: what the memory itself allows."""
    places = [(x.ctypes.data, x.nbytes // 2) for x in pair.data]
    parts = [[(place + part * size, size) for place, size in places] for part in (0, 1)]
    list(pool.map(_kernel.read_all, parts))


def threads(elements, rounds):
    pair = noisy_pair(elements)
    with ThreadPoolExecutor(2) as pool:
        one, two = turns(rounds, pair.read, lambda: halves(pool, pair), clock=perf_counter)
    emit("plain read: two threads against one", one / two)
    for tier in TIERS:
        one, two = turns(
            rounds,
            lambda tier=tier: pair.run(tier, 1),
            lambda tier=tier: pair.run(tier, 2),
            clock=perf_counter,
        )
        # `best` is of the quickest round of each, when the second core was free.
        emit(f"f32/f32 {tier}: two threads against one", one / two, best=min(one) / min(two))
        # On a busy machine the second core is not free; this much of it would be put to use.
        one, two = turns(
            rounds,
            lambda tier=tier: pair.run(tier, 1),
            lambda tier=tier: pair.run(tier, 2),
            clock=process_time,
        )
        emit(f"f32/f32 {tier}: CPU time of one thread over that of two", one / two)


def batch(rounds):
    rng = np.random.default_rng(1)
    r = rng.standard_normal((20_000, 1024), dtype=np.float32)
    t = r + np.float32(1e-6) * rng.standard_normal(r.shape, dtype=np.float32)
    pairs = [Pair(operand(a), operand(b)) for a, b in zip(t, r, strict=True)]
    native = [native_pair(pair, rules_of(pair)) for pair in pairs]
    inside, whole = turns(
        max(rounds // 2, 3),
        lambda: _kernel.measure(native, "default", 1, WINDOW, False, ROBUST_ABOVE, BULK_BELOW),
        lambda: measure(pairs, threads=1),
        clock=process_time,
    )
    emit("20000 pairs of 4 KB: seconds in the native call", inside)
    emit("20000 pairs of 4 KB: seconds in all", whole)


def bulk(count, rounds):
    """What the second look at the bulk costs where outliers ask for it, a channel in 768 a thousand
    times the rest. 16-bit and 8-bit pairs take that look for the robust mean anyway; float32 pairs
    do where their error is ten times that of a clean run."""
    rng = np.random.default_rng(0)
    r = rng.standard_normal(count, dtype=np.float32)
    r[::768] *= 1000
    factor = rng.standard_normal(count, dtype=np.float32)
    stored = np.clip(np.rint(r / 30) + 3, -128, 127).astype(np.int8)
    half, brain = np.float16, ml_dtypes.bfloat16
    noisy = {size: (r * (1 + np.float32(size) * factor)) for size in (1e-7, 1e-6, 1e-3, 1e-2)}
    for name, target, reference in (
        ("f32/f32, clean", noisy[1e-7], r),
        ("f32/f32, off by 1e-6", noisy[1e-6], r),
        ("f16/f32", noisy[1e-3].astype(half), r),
        ("bf16/bf16", noisy[1e-2].astype(brain), r.astype(brain)),
        ("i8/f32", Operand(stored, "i8", Quantization((30.0,), (3,))), r),
    ):
        pair = Native(target, reference, robust=True)
        without, looked = turns(
            rounds,
            lambda pair=pair: pair.run("default", bulk_below=-np.inf),
            lambda pair=pair: pair.run("default"),
        )
        emit(f"{name} with outliers: time with the bulk over time without", looked / without)


def noisy_pair(count):
    rng = np.random.default_rng(0)
    r = rng.standard_normal(count, dtype=np.float32)
    return Native(r + np.float32(1e-3) * rng.standard_normal(count, dtype=np.float32), r)


def pairs_of(count):
    rng = np.random.default_rng(0)
    r = rng.standard_normal(count, dtype=np.float32)
    r[r == 0] = 1

    def noisy(size):
        return r + np.float32(size) * rng.standard_normal(count, dtype=np.float32)

    t = noisy(1e-3)
    half, brain = np.float16, ml_dtypes.bfloat16
    stored = np.clip(np.rint(r / 0.03125) + 3, -128, 127).astype(np.int8)
    holes, masks = t.copy(), rng.random(count) < 0.5
    holes[rng.random(count) < 0.01] = np.nan
    spread = (10.0 ** rng.uniform(-30, 30, count) * rng.choice([-1, 1], count)).astype(np.float32)
    low = np.float32(-3.4e38)
    return {
        "f32/f32": Native(t, r),
        "f16/f32": Native(t.astype(half), r),
        "bf16/bf16": Native(noisy(1e-2).astype(brain), r.astype(brain)),
        "i8/f32": Native(Operand(stored, "i8", Quantization((0.03125,), (3,))), r),
        "equal": Native(r.copy(), r),
        "1 % NaN": Native(holes, r),
        "1e-30 to 1e30": Native((spread * (1 + 1e-5 * r)).astype(np.float32), spread),
        "half zeros": Native(np.maximum(t, 0), np.maximum(r, 0)),
        "half masked": Native(np.where(masks, low, t), np.where(masks, low, r)),
        "offset 1e4": Native(t + 10000, r + 10000),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=1 << 24)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()

    data = pairs_of(options.elements)
    gaussian = data["f32/f32"]
    read = turns(options.rounds, gaussian.read)[0]
    emit("read, GB/s", sum(x.nbytes for x in gaussian.data) / read / 1e9)
    shares(data, options.rounds)
    robust = Native(*gaussian.data, robust=True)
    read, times = turns(options.rounds, gaussian.read, lambda: robust.run("default"))
    emit("f32/f32 default and robust mean: share of read", read / times)
    bulk(options.elements // 4, options.rounds)
    threads(4 * options.elements, options.rounds)
    batch(options.rounds)
    against_numpy(gaussian, options.rounds)


if __name__ == "__main__":
    main()
