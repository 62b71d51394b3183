"""Pairs of arrays for the float32 metrics; also made by processes with another instruction set."""

import ml_dtypes
import numpy as np

FLOATS = [np.float32, np.float16, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]
RECIPES = ["near", "apart", "bits", "halves", "tiny", "huge", "equal", "constant", "holes"]


def made(recipe, size, dtypes, seed):
    """Two arrays; float64 in `bits` and `huge` also leaves the range of float32."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        if recipe == "bits":
            return [np.frombuffer(rng.bytes(size * np.dtype(t).itemsize), t) for t in dtypes]
        y = rng.standard_normal(size)
        x = y + 1e-3 * rng.standard_normal(size)
        if recipe == "apart":
            x = rng.standard_normal(size)
        elif recipe == "halves":
            x, y = np.maximum(x, 0), np.maximum(y, 0)
        elif recipe in ("tiny", "huge"):
            scale = 10.0 ** rng.uniform(-46, -15, size)
            x, y = (v * (scale if recipe == "tiny" else 1 / scale) for v in (x, y))
        elif recipe == "equal":
            x = y
        elif recipe == "constant":
            x, y = np.full((2, size), rng.standard_normal(2)[:, None])
        elif recipe == "holes":
            x[rng.integers(size)] = rng.choice([np.nan, np.inf, -np.inf])
        return [side.astype(t) for side, t in zip((x, y), dtypes, strict=True)]
