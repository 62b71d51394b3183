"""Makes tensors for the tests of the kernel: every type, hard values, every memory layout."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  # teaches NumPy the names of the small floats
import numpy as np
from hypothesis import strategies as st

from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Quantization

ALL = tuple(DTYPES)
FLOATS = tuple(name for name, d in DTYPES.items() if d.kind is Kind.FLOAT)
INTS = tuple(name for name, d in DTYPES.items() if d.kind is Kind.INT)

RECIPES = (
    *("normal", "bits", "exponents", "huge", "tiny", "offset", "small integers", "masks"),
    "outliers",
)

SPECIALS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 5e-324, 1e-45, 6e-8, 65504.0, -65504.0, -1e6)


def random_bits(rng: np.random.Generator, count: int, numpy: np.dtype) -> np.ndarray:
    if numpy == np.bool_:
        return rng.integers(0, 2, count).astype(bool)
    if numpy.name in ("int4", "uint4"):
        low = -8 if numpy.name == "int4" else 0
        return rng.integers(low, low + 16, count).astype(numpy)
    return np.frombuffer(rng.bytes(count * numpy.itemsize), numpy).copy()


def values(rng: np.random.Generator, recipe: str, count: int) -> np.ndarray:
    """Float64 numbers of one character."""
    normal = rng.standard_normal(count)
    match recipe:
        case "normal":
            return normal
        case "exponents":
            return normal * 2.0 ** rng.integers(-40, 40, count)
        case "huge":
            return normal * 10.0 ** rng.uniform(290, 308, count)
        case "tiny":
            return normal * 10.0 ** rng.uniform(-323, -280, count)
        case "offset":
            return 1e7 + normal
        case "ramp":  # every chunk has another mean
            return np.arange(count) / 1e3 + normal
        case "small integers":
            return rng.integers(-9, 9, count).astype(np.float64)
        case "outliers":  # as massive activations are
            return np.where(np.arange(count) % 97 == 5, 1000 * normal, normal)
        case "masks":
            low = rng.choice([-np.inf, -3.4e38, -65504.0, -65504.0, -1e6, -1.7e308], count)
            return np.where(rng.random(count) < 0.5, low, normal)
    raise AssertionError(recipe)


def cast(numbers: np.ndarray, name: str) -> np.ndarray:
    """To an element type; integers saturate, as no cast of NaN or 1e300 to them is defined."""
    dtype = DTYPES[name]
    with np.errstate(all="ignore"):
        if dtype.kind is Kind.BOOL:
            return numbers > 0
        if dtype.kind is Kind.INT:
            bits, signed = dtype.bits, not name.startswith("u")
            low = -(2.0 ** (bits - 1)) if signed else 0.0
            high = 2.0 ** (bits - signed) * (1 - 2.0**-53) - 1
            return np.clip(np.nan_to_num(numbers), low, np.floor(high)).astype(dtype.numpy)
        return numbers.astype(dtype.numpy)


def related(rng: np.random.Generator, reference: np.ndarray, how: str) -> np.ndarray:
    """A target for a reference, both in float64."""
    with np.errstate(all="ignore"):
        match how:
            case "equal":
                return reference.copy()
            case "near":
                return reference * (1 + 1e-3 * rng.standard_normal(reference.shape))
            case "negated":
                return -reference
            case "one off":
                out = reference.copy()
                if out.size:
                    out[rng.integers(out.size)] += 1
                return out
    raise AssertionError(how)


RELATIONS = ("equal", "near", "negated", "one off", "unrelated")


def make_pair(
    rng: np.random.Generator, names: tuple[str, str], recipe: str, relation: str, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Flat target and reference arrays of two types."""
    made = []
    reference = None
    for name in reversed(names):
        numpy = DTYPES[name].numpy
        if recipe == "bits":
            made.append(random_bits(rng, count, numpy))
            continue
        if reference is None:
            numbers = reference = values(rng, recipe, count)
        elif relation == "unrelated":
            numbers = values(rng, recipe, count)
        else:
            numbers = related(rng, reference, relation)
        array = cast(numbers, name)
        if DTYPES[name].kind is Kind.COMPLEX:
            imaginary = related(rng, numbers, "near") if relation != "equal" else numbers
            with np.errstate(over="ignore"):
                array.imag = imaginary
        made.append(array)
    if recipe == "bits" and names[0] == names[1] and relation != "unrelated" and count:
        made[1][: count // 2] = made[0][: count // 2]
    return made[1], made[0]


def sprinkle(rng: np.random.Generator, array: np.ndarray, name: str, share: float) -> None:
    """Put special values into some places."""
    if DTYPES[name].kind in (Kind.FLOAT, Kind.COMPLEX) and array.size:
        places = np.flatnonzero(rng.random(array.size) < share)
        with np.errstate(all="ignore"):
            array[places] = rng.choice(SPECIALS, len(places)).astype(DTYPES[name].numpy)


LAYOUTS = (
    "dense",
    "fortran",
    "permuted",
    "sliced",
    "negative",
    "broadcast",
    "unaligned",
    "swapped",
    "raw",
)


def lay_out(array: np.ndarray, layout: str, rng: np.random.Generator) -> np.ndarray:
    """The same logical values in other memory."""
    match layout:
        case "dense":
            return array.copy(order="C")
        case "fortran":
            return array.copy(order="F")
        case "permuted":
            order = rng.permutation(array.ndim)
            return array.transpose(order).copy(order="C").transpose(np.argsort(order))
        case "sliced":
            wide = np.zeros([2 * n + 1 for n in array.shape], array.dtype)
            view = wide[(*(slice(1, None, 2) for _ in array.shape), ...)]
            view[...] = array
            return view
        case "negative":
            back = (*(slice(None, None, -1) for _ in array.shape), ...)
            return array[back].copy(order="C")[back]
        case "broadcast":
            # Repeats the first index; the values are then others, in this side alone.
            return np.broadcast_to(array[:1], array.shape) if array.ndim else array
        case "unaligned":
            return np.ndarray(array.shape, array.dtype, b"\0" + array.tobytes() + b"\0", offset=1)
        case "swapped":
            if array.dtype.itemsize == 1 or array.dtype.kind == "V" or array.dtype.num > 200:
                return array
            return array.astype(array.dtype.newbyteorder())
        case "raw":
            raw = "V" if array.dtype.itemsize > 8 else "u"
            return array.copy(order="C").view(f"{raw}{array.dtype.itemsize}")
    raise AssertionError(layout)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(0, 5), max_size=4)))


@st.composite
def quantizations(draw: st.DrawFn, shape: tuple[int, ...], rng_seed: int) -> Quantization:
    rng = np.random.default_rng(rng_seed)
    axis = draw(st.none() | st.integers(0, len(shape) - 1)) if shape else None
    block = draw(st.integers(0, 3)) if axis is not None else 0
    scales = 1 if axis is None else -(-shape[axis] // max(block, 1))
    if draw(st.booleans()):
        scales = scales and 1
    scale = tuple(float(x) for x in rng.uniform(1e-3, 2.0, scales))
    zeros = scales if draw(st.booleans()) else 1
    zero_point = tuple(int(x) for x in rng.integers(-9, 9, zeros))
    table = tuple(float(x) for x in rng.standard_normal(12)) if draw(st.booleans()) else ()
    return Quantization(scale, zero_point, axis, block, table)


def pack(array: np.ndarray) -> np.ndarray:
    """4-bit integers, two a byte, low nibble first."""
    nibbles = array.astype(np.int8).ravel().view(np.uint8) & 15
    if nibbles.size % 2:
        nibbles = np.append(nibbles, np.uint8(0))
    return (nibbles[0::2] | nibbles[1::2] << 4).astype(np.uint8)
