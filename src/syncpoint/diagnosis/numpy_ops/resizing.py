"""NumPy functions of recorded interpolation and resizing in float64: parse sizes, scales,
coordinate and rounding modes of torch and ONNX (Resize, Upsample)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from syncpoint.diagnosis.numpy_ops.recorded_op import (
    Array,
    Bound,
    Reader,
    RecordedOp,
    UnknownForm,
    named,
)

COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def resized(
    x: Array,
    *,
    sizes: Sequence[int],
    scales: Sequence[float],
    kind: str,
    coordinates: str = "half_pixel",
    rounding: str = "floor",
    cubic: float = -0.75,
    antialias: bool = False,
) -> Array:
    """The last axes resized one after the other; `scales` are output over input."""
    rank = len(sizes)
    for axis, size, scale in zip(range(x.ndim - rank, x.ndim), sizes, scales, strict=True):
        if size == x.shape[axis] and scale == 1:
            continue
        matrix = _matrix(
            x.shape[axis], int(size), float(scale), kind, coordinates, rounding, cubic, antialias
        )
        x = np.moveaxis(np.moveaxis(x, axis, -1) @ matrix.T, -1, axis)
    return x


def _matrix(
    n: int, size: int, scale: float, kind: str, coordinates: str, rounding: str, cubic: float,
    antialias: bool,
) -> Array:  # fmt: skip
    """Row i: with what weight output i reads each input."""
    positions = _where(n, size, scale, coordinates)
    output = np.zeros((size, n))
    rows = np.arange(size)
    if kind == "nearest":
        output[rows, np.clip(_rounded(positions, rounding), 0, n - 1)] = 1
        return output
    if antialias:
        wide = max(1 / scale, 1.0)
        distance = (np.arange(n)[None] - positions[:, None]) / wide
        weights = _hat(distance) if kind == "linear" else _cubic(distance, cubic)
        return np.asarray(weights / weights.sum(1, keepdims=True))
    if kind == "linear":
        positions = np.clip(positions, 0, n - 1)
    low = np.floor(positions).astype(np.int64)
    reach = (0, 1) if kind == "linear" else (-1, 0, 1, 2)
    for step in reach:
        distance = positions - (low + step)
        weight = _hat(distance) if kind == "linear" else _cubic(distance, cubic)
        np.add.at(output, (rows, np.clip(low + step, 0, n - 1)), weight)
    return output


def _where(n: int, size: int, scale: float, coordinates: str) -> Array:
    place = np.arange(size, dtype=np.float64)
    if coordinates == "align_corners":
        return np.asarray(place * (n - 1) / (size - 1)) if size > 1 else np.zeros(size)
    if coordinates == "asymmetric":
        return np.asarray(place / scale)
    if coordinates == "pytorch_half_pixel" and size == 1:
        return np.zeros(1)
    return np.asarray((place + 0.5) / scale - 0.5)


def _rounded(positions: Array, rounding: str) -> Array:
    if rounding == "floor":
        output = np.floor(positions)
    elif rounding == "ceil":
        output = np.ceil(positions)
    elif rounding == "round_prefer_floor":
        output = np.ceil(positions - 0.5)
    else:
        output = np.floor(positions + 0.5)
    return output.astype(np.int64)


def _hat(distance: Array) -> Array:
    return np.asarray(np.maximum(1 - np.abs(distance), 0))


def _cubic(distance: Array, a: float) -> Array:
    d = np.abs(distance)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _torch(recorded: RecordedOp) -> Iterable[Bound]:
    x = recorded.need(0)
    name = recorded.name.lower()
    rank = 1 if "linear1d" in name or "nearest1d" in name else 3 if "3d" in name else 2
    if x.ndim != rank + 2:
        raise UnknownForm("an image without batch")
    sizes, scales = _torch_sizes(recorded, x.shape[2:])
    settings: dict[str, Any] = {"sizes": sizes, "scales": scales, **_torch_mode(recorded, name)}
    yield Bound(resized, (x,), settings)


def _torch_sizes(
    recorded: RecordedOp, spatial: tuple[int, ...]
) -> tuple[Sequence[int], Sequence[float]]:
    """The lengths of the resized axes, and by what they were multiplied."""
    scales = recorded.get("scale_factors")
    if scales is None and len(spatial) == 2:
        by_axis = [recorded.get("scales_h"), recorded.get("scales_w")]
        scales = by_axis if None not in by_axis else None
    sizes = recorded.get("output_size")
    if sizes is None and scales is not None:
        sizes = [int(np.floor(n * s)) for n, s in zip(spatial, scales, strict=True)]
    if sizes is None:
        raise UnknownForm("a resize without sizes")
    own = [m / n for m, n in zip(sizes, spatial, strict=True)]
    return sizes, scales or own


def _torch_mode(recorded: RecordedOp, name: str) -> dict[str, Any]:
    """Interpolation and coordinates, which are in the name of the op."""
    if "nearest" in name:
        exact = "exact" in name
        kind, coordinates = "nearest", "half_pixel" if exact else "asymmetric"
        rounding = {"rounding": "round_prefer_ceil" if exact else "floor"}
    else:
        corners = bool(recorded.get("align_corners", default=False))
        kind, coordinates = "cubic" if "bicubic" in name else "linear", "half_pixel"
        coordinates = "align_corners" if corners else coordinates
        rounding = {}
    antialias = "_aa" in name
    return {
        "kind": kind,
        "coordinates": coordinates,
        "antialias": antialias,
        "cubic": -0.5 if antialias else -0.75,
        **rounding,
    }


def _onnx(recorded: RecordedOp) -> Iterable[Bound]:
    x = recorded.need(0)
    last = recorded.need(len(recorded.arguments) - 1).reshape(-1)
    if last.size != x.ndim or len(recorded.arguments) < 2 or recorded.get("axes"):
        raise UnknownForm("a resize of some axes")
    if last.dtype.kind == "f":
        scales = [float(v) for v in last]
        sizes = [int(np.floor(n * s)) for n, s in zip(x.shape, scales, strict=True)]
    else:
        sizes = [int(v) for v in last]
        scales = [m / n for m, n in zip(sizes, x.shape, strict=True)]
    coordinates = str(recorded.get("coordinate_transformation_mode", default="half_pixel"))
    if coordinates not in COORDINATES or recorded.get("exclude_outside"):
        raise UnknownForm(f"coordinates {coordinates}")
    if recorded.name == "Upsample":
        coordinates = "asymmetric"
    rounding = str(recorded.get("nearest_mode", default="round_prefer_floor"))
    yield Bound(
        resized,
        (x,),
        {
            "sizes": sizes,
            "scales": scales,
            "kind": str(recorded.get("mode", default="nearest")),
            "coordinates": coordinates,
            "rounding": "floor" if recorded.name == "Upsample" else rounding,
            "cubic": float(recorded.get("cubic_coeff_a", default=-0.75)),
            "antialias": bool(recorded.get("antialias", default=False)),
        },
    )


READERS: dict[str, Reader] = {
    **named(
        "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact2d"
        " _upsample_nearest_exact1d upsample_linear1d upsample_bilinear2d upsample_trilinear3d"
        " upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa",
        _torch,
    ),
    **dict.fromkeys(("resize", "upsample"), _onnx),
}
