"""The ten columns of the report on Ascend dumps in plain NumPy: float32 arrays, one metric at a
time. Slow and simple on purpose; the tests and the benchmark hold ours against it."""

import ast
import struct
import warnings

import ml_dtypes
import numpy as np

EPSILON = np.finfo(np.float64).eps
FLOOR = np.finfo(np.float32).eps


def cosine(x, y):
    x_norm = np.linalg.norm(x, axis=-1, keepdims=True)
    y_norm = np.linalg.norm(y, axis=-1, keepdims=True)
    if x_norm <= EPSILON and y_norm < EPSILON:
        return "1.0"
    if not x_norm.any() or not y_norm.any():
        return "NaN"
    return min(((x / x_norm) * (y / y_norm)).sum(), 1.0)


def max_abs(x, y):
    return np.abs(x - y).max()


def ratios(x, y):
    return np.where(np.abs(y) > EPSILON, np.abs(x / y - 1), 0)


def acc_rel(x, y):
    return ratios(x, y).sum()


def rel_euclid(x, y):
    squares = (y**2).sum()
    if squares**0.5 <= EPSILON:
        return 0.0
    return (((x - y) ** 2).sum() / squares) ** 0.5


def shares(x):
    low, span = x.min(), x.max() - x.min()
    x = np.maximum(x if span == 0 else (x - low) / span, FLOOR)
    return x / x.sum()


def kl(x, y):
    p, q = shares(x), shares(y)
    found = (p * np.log(p / q)).sum()
    return 0.0 if abs(found) < EPSILON else found


def moments(x):
    found = np.mean(x, dtype=np.float64), np.std(x, dtype=np.float64)
    return "({:.3f};{:.3f})".format(*(0.0 if abs(v) < 0.001 else v for v in found))


def std(x, y):
    return f"{moments(x)},{moments(y)}"


def mae(x, y):
    return np.abs(x - y).mean()


def rmse(x, y):
    return np.sqrt(np.average((x - y) ** 2))


def max_rel(x, y):
    return ratios(x, y).max()


def mean_rel(x, y):
    return ratios(x, y).mean()


METRICS = {
    "CosineSimilarity": cosine,
    "MaxAbsoluteError": max_abs,
    "AccumulatedRelativeError": acc_rel,
    "RelativeEuclideanDistance": rel_euclid,
    "KullbackLeiblerDivergence": kl,
    "StandardDeviation": std,
    "MeanAbsoluteError": mae,
    "RootMeanSquareError": rmse,
    "MaxRelativeError": max_rel,
    "MeanRelativeError": mean_rel,
}


def numbers(target, golden):
    """Each metric's value, text where it is text, and "NaN" where NumPy refuses."""
    x, y = target.reshape(-1), golden.reshape(-1)
    booleans = x.dtype == y.dtype == np.bool_
    if not booleans:
        with np.errstate(all="ignore"):
            x, y = x.astype(np.float32), y.astype(np.float32)
    found = {}
    for name, metric in METRICS.items():
        if booleans and name not in ("CosineSimilarity", "RelativeEuclideanDistance"):
            found[name] = "NaN"
            continue
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the mean of nothing
                found[name] = metric(x, y)
        except (ValueError, TypeError):
            found[name] = "NaN"
    return found


def cells(target, golden, shape):
    found = numbers(target, golden)
    if sum(shape) == len(shape):
        found["CosineSimilarity"] = 1.0
    return {k: v if isinstance(v, str) else f"{v:.6f}" for k, v in found.items()}


# --- a reader of what the reference data holds, and no more ---

DTYPES = {
    1: "<f4", 2: "<f2", 3: "i1", 4: "u1", 5: "<i2", 6: "<u2", 7: "<i4", 8: "<i8", 9: "<u4",
    10: "<u8", 11: "?", 12: "<f8", 27: ml_dtypes.bfloat16, 34: ml_dtypes.float8_e5m2,
    35: ml_dtypes.float8_e4m3fn,
}  # fmt: skip


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def fields(data):
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        found.append((key >> 3, value))
    return found


def dims(data):
    found, at = [], 0
    for number, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            at = 0
            while at < len(value):
                one, at = varint(value, at)
                found.append(one)
        elif number == 1:
            found.append(value)
    return tuple(found)


def device_tensors(path):
    """Format code and mapped array of every tensor of a device file, by (role, index)."""
    data = np.memmap(path, np.uint8, "r")
    (length,) = struct.unpack("<Q", bytes(data[:8]))
    at, found = 8 + length, {}
    header = fields(bytes(data[8:at]))
    for role, number, size_field in (("input", 4, 5), ("output", 3, 6)):
        for index, message in enumerate(v for k, v in header if k == number):
            said = dict(fields(message))
            code, layout = said.get(1, 0), said.get(2, 0)
            shape, size = dims(said.get(3, b"")), said.get(size_field, 0)
            if code in DTYPES:
                dtype = np.dtype(DTYPES[code])
                count = int(np.prod(shape, dtype=np.int64))
                if count * dtype.itemsize <= size:
                    array = np.frombuffer(data, dtype, count, at).reshape(shape)
                    found[role, index] = (layout, array)
            at += size
    return found


def logical(layout, array, shape, dense=np.ascontiguousarray):
    """A device array as its golden one lies: of NC1HWC0 (3), FRACTAL_NZ (29), FRACTAL_Z (4)."""
    if layout == 3:
        n, c1, h, w, c0 = array.shape
        array = dense(array.transpose(0, 1, 4, 2, 3)).reshape(n, c1 * c0, h, w)
    elif layout == 29:
        *outer, n1, m1, m0, n0 = array.shape
        k = len(outer)
        order = (*range(k), k + 1, k + 2, k, k + 3)
        array = dense(array.transpose(order)).reshape(*outer, m1 * m0, n1 * n0)
    elif layout == 4:
        _, n1, n0, c0 = array.shape
        n, c, h, w = shape
        c1 = (c + c0 - 1) // c0
        array = array.reshape(c1, h, w, n1, n0, c0).transpose(3, 4, 0, 5, 1, 2)
        array = dense(array).reshape(n1 * n0, c1 * c0, h, w)
    else:
        return array
    return array[tuple(slice(n) for n in shape)]


def shape_of(text):
    return tuple(ast.literal_eval(text))
