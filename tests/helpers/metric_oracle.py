"""The metrics of METRICS.md again, in exact arithmetic and as plainly as possible.

Test helper. It shares no code with the kernel: elements become Python ints and Fractions, roots
are taken to 200 bits, and each rule is one line of Python. `check` compares a measurement with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import ml_dtypes
import numpy as np

from syncpoint.metrics import Measurement, Operand, Pair
from syncpoint.run.dtypes import DTYPES

FLOATS = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8_e5m2": ml_dtypes.float8_e5m2,
}
INTS = ("i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "i4", "u4")
TORCH_TOLERANCES = {
    "f16": (1e-3, 1e-5),
    "bf16": (1.6e-2, 1e-5),
    "f32": (1.3e-6, 1e-5),
    "f64": (1e-7, 1e-7),
}
INF = math.inf
LARGEST = Fraction(np.finfo(np.float64).max)
LEAST = Fraction(5e-324)
ROBUST_ABOVE = 6 * 10**-4.5
BULK_BELOW = 90
SUM = Fraction(1, 10**12)
"""Allowed error of a sum, as a share of the sum of the magnitudes of its terms."""


@dataclass
class Expected:
    """What a measurement must say."""

    exact: dict[str, object] = field(default_factory=dict)
    near: dict[str, tuple[Fraction, Fraction]] = field(default_factory=dict)
    """Value and allowed error."""
    decibels: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Element:
    """One number: its components, finite ones as ints or Fractions, others as floats."""

    re: int | float | Fraction
    im: int | float | Fraction = 0

    @property
    def nan(self) -> bool:
        return any(isinstance(x, float) and math.isnan(x) for x in (self.re, self.im))

    @property
    def inf(self) -> bool:
        return not self.nan and any(isinstance(x, float) for x in (self.re, self.im))

    @property
    def finite(self) -> bool:
        return not self.nan and not self.inf


# --- numbers ---------------------------------------------------------------------------------


def root(x: Fraction) -> Fraction:
    """The square root to 200 bits and more."""
    if x == 0:
        return Fraction(0)
    shift = 400 + 2 * max(0, x.denominator.bit_length() - x.numerator.bit_length())
    return Fraction(math.isqrt((x.numerator << shift) // x.denominator), 1 << (shift // 2))


def rounded(x: Fraction | int) -> float:
    """The nearest float64; infinite beyond the greatest."""
    try:
        return float(x)
    except OverflowError:
        return INF if x > 0 else -INF


def decibels(signal: Fraction, noise: Fraction) -> float:
    if noise == 0:
        return INF
    if signal == 0:
        return -INF
    ratio = signal / noise
    return 10 * (math.log10(ratio.numerator) - math.log10(ratio.denominator))


def floor_log2(x: Fraction) -> int:
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


def modulus(re: Fraction | int, im: Fraction | int) -> Fraction:
    return abs(Fraction(re)) if im == 0 else root(Fraction(re) ** 2 + Fraction(im) ** 2)


# --- elements --------------------------------------------------------------------------------


def component(x: float) -> float | Fraction:
    return Fraction(x) if math.isfinite(x) else float(x)


def stored(side: Operand) -> np.ndarray:
    """The stored numbers as an object array of Python numbers, in the logical shape."""
    data, name = side.data, side.dtype
    if side.shape is None and data.dtype.newbyteorder("=") != DTYPES[name].numpy:
        data = data.view(DTYPES[name].numpy)
    if side.shape is not None:
        count = math.prod(side.shape)
        nibbles = [(int(data[k // 2]) >> (4 * (k % 2))) & 15 for k in range(count)]
        if name == "i4":
            nibbles = [n - 16 if n > 7 else n for n in nibbles]
        out = np.empty(count, object)
        out[:] = nibbles
        return out.reshape(side.shape)
    if name in FLOATS:
        with np.errstate(invalid="ignore"):  # signalling NaN
            numbers = data.astype(np.float64).ravel().tolist()
    elif name in ("c64", "c128"):
        numbers = data.astype(np.complex128).ravel().tolist()
    else:
        numbers = [int(x) for x in data.ravel()]
    out = np.empty(len(numbers), object)
    out[:] = numbers
    return out.reshape(data.shape)


def scale_index(side: Operand, where: tuple[int, ...]) -> int:
    q = side.quantization
    if q.axis is None or len(q.scale) == 1:
        return 0
    return where[q.axis] // max(q.block, 1)


def step(side: Operand, where: tuple[int, ...]) -> Fraction:
    return abs(Fraction(side.quantization.scale[scale_index(side, where)]))


def real(side: Operand, number: object, where: tuple[int, ...]) -> Element:
    q = side.quantization
    if q is not None:
        k = scale_index(side, where)
        number = number - q.zero_point[k if len(q.zero_point) > 1 else 0]
        if q.table:
            inside = 0 <= number < len(q.table)
            number = q.table[int(number)] if inside else math.nan
        number = float(number)
        return Element(component(q.scale[k] * number))
    if isinstance(number, complex):
        return Element(component(number.real), component(number.imag))
    return Element(number if isinstance(number, int) else component(number))


def elements(side: Operand) -> tuple[list[Element], list[tuple[int, ...]]]:
    numbers = stored(side)
    places = list(np.ndindex(numbers.shape))
    return [real(side, numbers[p], p) for p in places], places


# --- rules -----------------------------------------------------------------------------------


def arithmetic(side: Operand) -> str:
    if side.quantization is not None:
        return "f32"
    return {"c64": "f32", "c128": "f64"}.get(side.dtype, side.dtype)


def coarser(pair: Pair) -> str:
    floats = [n for n in (arithmetic(pair.target), arithmetic(pair.reference)) if n in FLOATS]
    by_bits = sorted(floats, key=lambda n: ml_dtypes.finfo(FLOATS[n]).nmant)
    return by_bits[0] if by_bits else arithmetic(pair.target)


def is_mask(side: Operand, x: Element) -> bool:
    if side.dtype in ("c64", "c128") or x.nan:
        return False
    if x.re == -INF:
        return True
    threshold = side.mask_below
    if threshold is None:
        if side.quantization is not None or side.dtype not in TORCH_TOLERANCES:
            return False
        threshold = float(ml_dtypes.finfo(FLOATS[side.dtype]).min) / 2
    return x.re <= threshold


def is_lowest(side: Operand, x: Element) -> bool:
    """Whether a side that may hold masks holds the lowest number of some type that may."""
    can_mask = side.dtype in TORCH_TOLERANCES and side.quantization is None
    if side.dtype in ("c64", "c128") or not (can_mask or side.mask_below is not None):
        return False
    if side.mask_below == -INF:  # finite masks are turned off
        return False
    return x.finite and x.re in {
        float(ml_dtypes.finfo(FLOATS[n]).min) for n in ("f64", "f32", "f16", "bf16")
    }


def same(a: object, b: object) -> bool:
    both_nan = all(isinstance(x, float) and math.isnan(x) for x in (a, b))
    return both_nan or a == b


def ordinal(x: Fraction, name: str) -> Fraction:
    """How many positive numbers of the type lie up to |x|, fractions between two of them."""
    info = ml_dtypes.finfo(FLOATS[name])
    least_exponent = floor_log2(Fraction(float(info.smallest_normal)))
    if x == 0:
        return Fraction(0)
    e = max(floor_log2(abs(x)), least_exponent)
    below = (e - least_exponent) * 2**info.nmant
    inside = abs(x) / Fraction(2) ** (e - info.nmant)
    return (below + inside) * (1 if x > 0 else -1)


def ulp(pair: Pair, pairs: list[tuple[Element, Element]]) -> Fraction | None:
    sides = (pair.target, pair.reference)
    if any(s.quantization is not None or s.dtype == "bool" for s in sides) or not pairs:
        return None
    if all(s.dtype in INTS for s in sides):
        return Fraction(max(abs(t.re - r.re) for t, r in pairs))
    name = coarser(pair)
    return max(
        abs(ordinal(Fraction(a), name) - ordinal(Fraction(b), name))
        for t, r in pairs
        for a, b in ((t.re, r.re), (t.im, r.im))
    )


# --- the metrics -----------------------------------------------------------------------------


def expected(pair: Pair) -> Expected:
    ts, places = elements(pair.target)
    rs, _ = elements(pair.reference)
    out = Expected()
    rtol_type, atol_type = TORCH_TOLERANCES.get(coarser(pair), (0.0, 0.0))
    rtol = rtol_type if pair.rtol is None else pair.rtol
    atol = atol_type if pair.atol is None else pair.atol

    compared, masked, mismatched = [], [], 0
    for k, (t, r) in enumerate(zip(ts, rs, strict=True)):
        low = is_mask(pair.target, t), is_mask(pair.reference, r)
        lowest = is_lowest(pair.target, t), is_lowest(pair.reference, r)
        if all(low) or (low[0] and lowest[1]) or (low[1] and lowest[0]):
            masked.append(k)
        elif not (t.finite and r.finite):
            mismatched += not (same(t.re, r.re) and same(t.im, r.im))
        elif any(low):
            if modulus(t.re - r.re, t.im - r.im) <= Fraction(rtol_type) * modulus(r.re, r.im):
                masked.append(k)
            else:
                mismatched += 1
        else:
            compared.append(k)

    n = len(compared)
    equal = sum(same(t.re, r.re) and same(t.im, r.im) for t, r in zip(ts, rs, strict=True))
    out.exact |= {
        "count": len(ts),
        "compared": n,
        "masked": len(masked),
        "mismatched": mismatched,
        "equal": equal,
        "exact": equal / len(ts) if ts else None,
    }
    rough = any(s.dtype in ("c64", "c128") for s in (pair.target, pair.reference)) or (
        any(s.dtype in ("i64", "u64") for s in (pair.target, pair.reference))
        and any(s.dtype in FLOATS for s in (pair.target, pair.reference))
    )
    describe(out, "target", pair, ts, compared, masked)
    describe(out, "reference", pair, rs, compared, masked)

    both = [(ts[k], rs[k]) for k in compared]
    d = [modulus(t.re - r.re, t.im - r.im) for t, r in both]
    size_t = [modulus(t.re, t.im) for t, _ in both]
    size_r = [modulus(r.re, r.im) for _, r in both]
    differences(out, d, size_t, size_r, both, compared, rough)
    relative(out, d, size_r, mismatched, rtol, atol, rough)
    bulk(out, d, size_r)
    distance = ulp(pair, both)
    if distance is None:
        out.exact["max_ulp"] = None
    elif distance.denominator == 1 and distance < 2**53:
        out.exact["max_ulp"] = float(distance)
    else:
        out.near["max_ulp"] = (distance, distance * Fraction(4, 2**53))
    stepped = [
        s
        for s in (pair.target, pair.reference)
        if s.quantization is not None and not s.quantization.table and s.dtype in INTS
    ]
    if not stepped or n == 0:
        out.exact["lsb"] = None
    else:
        ratios = [(x / step(stepped[0], places[k])) ** 2 for x, k in zip(d, compared, strict=True)]
        lsb = root(sum(ratios) / n)
        out.near["lsb"] = (lsb, SUM * lsb)
    return out


def describe(
    out: Expected,
    name: str,
    pair: Pair,
    xs: list[Element],
    compared: list[int],
    masked: list[int],
) -> None:
    limit = None
    if pair.target.dtype in FLOATS and pair.target.quantization is None:
        limit = Fraction(float(ml_dtypes.finfo(FLOATS[pair.target.dtype]).max))
    is_complex = any(isinstance(x.im, Fraction) for x in xs if x.finite)
    values = [modulus(xs[k].re, xs[k].im) if is_complex else Fraction(xs[k].re) for k in compared]
    hidden = set(masked)
    out.exact |= {
        f"{name}_nan": sum(x.nan for x in xs),
        f"{name}_inf": sum(x.inf for x in xs),
        f"{name}_zero": sum(x.re == 0 and x.im == 0 for x in xs),
        f"{name}_overflow": None
        if limit is None
        else sum(abs(v) >= limit for v in values)
        + sum(x.inf and k not in hidden for k, x in enumerate(xs)),
    }
    if not values:
        out.exact |= {f"{name}_{what}": None for what in ("mean", "std", "min", "max", "l2")}
        return
    n = len(values)
    total, absolute = sum(values), sum(map(abs, values))
    mean = total / n
    squares = sum(v * v for v in values)
    std = root(sum((v - mean) ** 2 for v in values) / n)
    # Moduli are themselves rounded before they are summed.
    fuzz = Fraction(4, 2**53) * root(squares / n) if is_complex else 0
    out.near[f"{name}_mean"] = (mean, SUM * absolute / n)
    out.near[f"{name}_std"] = (std, SUM * std + fuzz)
    out.near[f"{name}_l2"] = (root(squares), SUM * root(squares))
    for what, value in (("min", min(values)), ("max", max(values))):
        if is_complex:
            out.near[f"{name}_{what}"] = (value, value * Fraction(2, 2**53))
        else:
            out.exact[f"{name}_{what}"] = rounded(value)


def differences(
    out: Expected,
    d: list[Fraction],
    size_t: list[Fraction],
    size_r: list[Fraction],
    both: list[tuple[Element, Element]],
    compared: list[int],
    rough: bool,
) -> None:
    n = len(d)
    if n == 0:
        names = "mae mse rmse max_abs max_abs_index rel_l2 euclid cosine norm_ratio peak psnr sqnr"
        out.exact |= dict.fromkeys(names.split())
        out.exact["error_histogram"] = ()
        return
    squares, t_squares, r_squares = (sum(x * x for x in xs) for xs in (d, size_t, size_r))
    peak = max(size_r)
    out.decibels["psnr"] = decibels(peak**2, squares / n)
    out.decibels["sqnr"] = decibels(r_squares, squares)
    out.near |= {
        "mae": (sum(d) / n, SUM * sum(d) / n),
        "mse": (squares / n, SUM * squares / n),
        "rmse": (root(squares / n), SUM * root(squares / n)),
        "euclid": (root(squares), SUM * root(squares)),
    }
    if r_squares:
        rel_l2 = root(squares / r_squares)
        ratio = root(t_squares / r_squares)
        out.near["rel_l2"] = (rel_l2, SUM * rel_l2)
        out.near["norm_ratio"] = (ratio, SUM * ratio)
    else:
        out.exact |= {"rel_l2": None, "norm_ratio": None}
    if n > 1 and r_squares and t_squares:
        terms = [p for t, r in both for p in (t.re * r.re, t.im * r.im)]
        norms = root(t_squares * r_squares)
        out.near["cosine"] = (
            sum(terms) / norms,
            SUM * sum(map(abs, terms)) / norms + Fraction(4, 2**53),
        )
    else:
        out.exact["cosine"] = None
    if rough:
        # Moduli, and 64-bit integers less floats, may be off by a bit, so of two almost equal
        # errors either may be found.
        for name, value in (("max_abs", max(d)), ("peak", peak)):
            out.near[name] = (value, value * Fraction(2, 2**53))
        return
    # Scaled down, so that rounding to 53 bits does not overflow.
    sizes = [rounded(x / 8) if x > 1 else rounded(x) / 8 for x in d]
    at = sizes.index(max(sizes))
    out.exact |= {
        "max_abs": rounded(max(d)),
        "max_abs_index": compared[at],
        "peak": rounded(peak),
    }
    counts: dict[int, int] = {}
    for x in d:
        if x:
            value = rounded(x)
            e = 1024 if math.isinf(value) else floor_log2(Fraction(value))
            counts[e] = counts.get(e, 0) + 1
    out.exact["error_histogram"] = tuple(sorted(counts.items()))


def relative(
    out: Expected,
    d: list[Fraction],
    size_r: list[Fraction],
    mismatched: int,
    rtol: float,
    atol: float,
    rough: bool,
) -> None:
    n = len(d)
    defined = [(x, r) for x, r in zip(d, size_r, strict=True) if r]
    out.exact["rel_count"] = len(defined)
    out.exact["rel_undefined"] = sum(1 for x, r in zip(d, size_r, strict=True) if not r and x)
    close = sum(rounded(x) <= atol + rtol * rounded(r) for x, r in zip(d, size_r, strict=True))
    out.exact["allclose"] = close / (n + mismatched) if n + mismatched else None
    if not defined:
        names = "max_rel mean_rel acc_rel within_1e3 within_5e3 mean_rel_robust"
        out.exact |= dict.fromkeys(names.split())
        return
    quotients = [quotient(x, r) for x, r in defined]
    rated = len(defined) + mismatched
    out.exact["within_1e3"] = sum(q < 1e-3 for q in quotients) / rated
    out.exact["within_5e3"] = sum(q < 5e-3 for q in quotients) / rated
    if rough:
        worst = max(x / r for x, r in defined)
        out.near["max_rel"] = (worst, SUM * worst)
    else:
        out.exact["max_rel"] = max(quotients)
    total = sum(x / r for x, r in defined)
    if INF in quotients:
        # A quotient that float64 cannot hold makes its sum and mean infinite.
        out.exact |= {"acc_rel": INF, "mean_rel": INF}
    else:
        out.near["acc_rel"] = (total, SUM * total)
        out.near["mean_rel"] = (total / len(defined), SUM * total / len(defined))
    floor = root(sum(r * r for r in size_r) / n) / 1000
    robust = sum(x / max(r, floor) for x, r in zip(d, size_r, strict=True)) / n
    out.near["mean_rel_robust"] = (robust, SUM * robust)
    needless = total / len(defined) <= ROBUST_ABOVE and not out.exact["rel_undefined"]
    if needless and any(d):
        # It could change no verdict, so it is not measured unless asked for.
        del out.near["mean_rel_robust"]
        out.exact["mean_rel_robust"] = None


def bulk(out: Expected, d: list[Fraction], size_r: list[Fraction]) -> None:
    """The elements that a few great ones hide."""
    names = ("outliers", "outliers_from", "bulk_sqnr", "bulk_rmse", "bulk_max_abs")
    out.exact |= dict.fromkeys(names)
    # As float64 has them, of which a 64-bit integer or a modulus may be rounded to a power of two.
    sizes = [Fraction(rounded(r)) if r <= LARGEST else r for r in size_r]
    exponents = [max(floor_log2(r), -127) for r in sizes if r]
    if not exponents:
        return
    m = len(exponents)
    border = Fraction(2) ** (math.floor(Fraction(sum(exponents), m) + Fraction(1, 2)) + 5)
    if max(sizes) < border:
        out.exact |= {"outliers": 0, "outliers_from": rounded(border)}
        return
    if sum(r * r for r in size_r) <= m * (border / 8) ** 2 or not any(d):
        return
    if not may_hide(d, max(sizes), border, m):
        return
    kept = [(x, r) for x, r, size in zip(d, size_r, sizes, strict=True) if size < border]
    outliers = len(d) - len(kept)
    out.exact |= {"outliers": outliers, "outliers_from": rounded(border)}
    if outliers > m / 32:
        return
    squares = sum(x * x for x, _ in kept)
    for name in names[2:]:
        del out.exact[name]
    rmse, most = root(squares / len(kept)), max(x for x, _ in kept)
    out.decibels["bulk_sqnr"] = decibels(sum(r * r for _, r in kept), squares)
    out.near["bulk_rmse"] = (rmse, SUM * rmse)
    out.near["bulk_max_abs"] = (most, most * Fraction(2, 2**53))


def may_hide(d: list[Fraction], peak: Fraction, border: Fraction, m: int) -> bool:
    """Whether it is not plain at once that the bulk has 90 dB."""
    typical = floor_log2(border) - 5
    if typical < -100:
        return True
    mean = typical - 0.5
    least = mean - (floor_log2(peak) - mean) / 31
    signal = 10 * math.log10(m * 31 / 32) + 20 * least * math.log10(2)
    noise = decibels(sum(x * x for x in d), Fraction(1))
    return signal - noise < BULK_BELOW or max(d) > 7 * border * Fraction(10 ** (-BULK_BELOW / 20))


def quotient(x: Fraction, r: Fraction) -> float:
    """|d| / |r| as float64 divides them; the difference alone may overflow."""
    if math.isinf(rounded(x)) or math.isinf(rounded(r)):
        # Of a subnormal reference nothing is left after that; the quotient is infinite anyway.
        return rounded(x / 8) / rounded(r / 8) if rounded(r / 8) else rounded(x / r)
    return rounded(x) / rounded(r)


# --- comparing -------------------------------------------------------------------------------


def faults(measurement: Measurement, want: Expected) -> list[str]:
    """Every metric that is not what it must be."""
    found = []
    got = measurement.as_dict()
    for name, value in want.exact.items():
        if got[name] != value or type(got[name]) is not type(value):
            found.append(f"{name}: {got[name]!r}, exactly {value!r} expected")
    for name, (value, allowed) in want.near.items():
        if not is_near(got[name], value, allowed):
            found.append(f"{name}: {got[name]!r}, {rounded(value)!r} expected")
    for name, value in want.decibels.items():
        ours = got[name]
        if ours != value and not (ours is not None and abs(ours - value) <= 1e-9):
            found.append(f"{name}: {ours!r} dB, {value!r} expected")
    unnamed = set(got) - set(want.exact) - set(want.near) - set(want.decibels)
    if unnamed - {"max_abs_index", "error_histogram"}:
        found.append(f"no expectation for {unnamed}")
    return found


def is_near(ours: object, value: Fraction, allowed: Fraction) -> bool:
    if not isinstance(ours, float) or math.isnan(ours):
        return False
    if math.isinf(ours):
        return abs(value) * (1 + SUM) > LARGEST and (ours > 0) == (value > 0)
    # Results below the normal range have only so many bits.
    return abs(Fraction(ours) - value) <= allowed + abs(value) * Fraction(1, 2**52) + 2 * LEAST


def check(measurement: Measurement, pair: Pair) -> None:
    found = faults(measurement, expected(pair))
    assert not found, "\n".join([*found, repr(pair)])
