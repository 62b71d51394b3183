"""Statistics by plain NumPy in float64, over the finite elements; of complex ones the modulus."""

import numpy as np


def figures(values):
    wide = np.abs(values.astype(np.complex128)) if values.dtype.kind == "c" else values
    wide = wide.astype(np.float64)
    good = wide[np.isfinite(wide)]
    nothing = np.array([np.nan])
    some = good if good.size else nothing
    scale = np.abs(some).max() if good.any() else 1.0  # squares of 1e300 leave float64
    return {
        "count": values.size,
        "min": some.min(),
        "max": some.max(),
        "mean": some.mean(),
        "std": (some / scale).std() * scale,
        "l2": np.sqrt(((some / scale) ** 2).sum()) * scale,
        "nan": int(np.isnan(wide).sum()),
        "inf": int(np.isinf(wide).sum()),
        "zero": int((good == 0).sum()),
    }
