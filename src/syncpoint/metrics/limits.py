"""Limits: the bounds of close and moderate for each precision preset; load from YAML, order and
names of presets, limit of a metric.

They are separate from the measurements, so that a saved comparison can be judged again by other
limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from syncpoint.errors import FormatError, InputError
from syncpoint.files.yaml_toml import read_yaml
from syncpoint.run.dtypes import DTYPES, Kind, long_name

Numbers = Mapping[str, Any]
"""Metric ids of the catalogue to numbers; None where a metric cannot be computed."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of one precision: pairs of the bound of close and the bound of moderate, in dB."""

    name: str
    psnr: tuple[float, float] = (0.0, 0.0)
    sqnr: tuple[float, float] = (0.0, 0.0)
    exact: bool = False
    """Every element must be equal."""
    bulk_sqnr: tuple[float, float] | None = None
    """SQNR of the elements that are not outliers; None means `_BULK_SLACK_DB` below sqnr."""
    introduced: tuple[float, float] = (30.0, 100.0)
    """Introduced / expected error: close up to the first number, large from the second."""


PRESETS: dict[str, Limits] = {
    limits.name: limits
    for limits in (
        Limits(name="f32", psnr=(100, 80), sqnr=(90, 70)),
        Limits(name="tf32", psnr=(60, 50), sqnr=(50, 40)),
        Limits(name="f16", psnr=(50, 40), sqnr=(42, 32), introduced=(4, 10)),
        Limits(name="bf16", psnr=(40, 30), sqnr=(30, 20), introduced=(4, 10)),
        Limits(name="int8", psnr=(35, 25), sqnr=(22, 12), introduced=(4, 10)),
        Limits(name="fp8", psnr=(30, 20), sqnr=(22, 12), introduced=(4, 10)),
        Limits(name="int4", psnr=(30, 20), sqnr=(14, 5), introduced=(4, 10)),
        Limits(name="exact", exact=True),
    )
}
"""From the finest to the coarsest precision, then `exact`."""

_MAX_LIMIT = 1e9
"""Maximum absolute value of a limit in a file."""
_BULK_SLACK_DB = 3.0
"""By how much the SQNR of the bulk may be lower than that of the whole tensor
(docs/decisions/0012)."""
_BULK_MAX_ABS_SLACK = 4.0
"""Maximum absolute error of the bulk, as a multiple of the limit for a peak of its size."""

_COARSENESS = {name: rank for rank, name in enumerate(PRESETS)}
_PRECISION_NAMES = {"fp8": "float8", "int8": "8-bit integers", "int4": "4-bit integers"}
"""Names of presets that are not named after an element type."""
_PRESET_OF_DTYPE = {
    "f64": "f32",
    "f32": "f32",
    "f16": "f16",
    "bf16": "bf16",
    "f8_e4m3fn": "fp8",
    "f8_e5m2": "fp8",
    "c64": "f32",
    "c128": "f32",
}


def precision_name(preset: str) -> str:
    """The precision of a preset as people write it: float32 for f32."""
    return _PRECISION_NAMES.get(preset) or long_name(preset)


def preset_of(dtype: str, quantized: bool = False) -> str:
    """The preset of an element type alone."""
    if quantized:
        return "int4" if DTYPES[dtype].bits <= 4 else "int8"
    if DTYPES[dtype].kind in (Kind.INT, Kind.BOOL):
        return "exact"
    return _PRESET_OF_DTYPE[dtype]


def coarsest(presets: list[str]) -> str:
    """The coarsest of several presets; `exact` only if there is no other."""
    float_presets = [p for p in presets if p != "exact"]
    return max(float_presets, key=_COARSENESS.__getitem__) if float_presets else "exact"


def is_coarser(a: str, b: str) -> bool:
    """Whether preset `a` is coarser than preset `b`."""
    return _COARSENESS[a] > _COARSENESS[b]


def preset(name: str) -> Limits:
    """The preset called `name`."""
    if name not in PRESETS:
        raise InputError(
            f"there is no preset {name!r}",
            cure=f"choose auto, {', '.join(PRESETS)}, or --limits FILE",
        )
    return PRESETS[name]


def limits_in_force(preset: str, chosen: Limits | None) -> Limits | None:
    """The limits of a row with this preset: those of the user, unless the preset is exact."""
    preset_limits = PRESETS.get(preset)
    return preset_limits if chosen is None or (preset_limits and preset_limits.exact) else chosen


def load_limits(path: Path) -> Limits:
    """Limits from a YAML file.

    `preset` is the base; `psnr`, `sqnr`, `bulk_sqnr` and `introduced` are [close, moderate] pairs.
    """
    document = read_yaml(path, "a readable limits file")
    keys = ("preset", "psnr", "sqnr", "bulk_sqnr", "introduced")
    if not isinstance(document, dict) or not set(document) <= set(keys):
        raise FormatError(
            f"{path} must be a mapping with the keys {', '.join(keys)}, not {str(document)[:60]!r}",
            cure="see docs/limits.md",
        )
    base = preset(str(document.get("preset", "f32")))
    changes: dict[str, tuple[float, float]] = {}
    for key in keys[1:]:
        if key not in document:
            continue
        value = document[key]
        if not (
            isinstance(value, list)
            and len(value) == 2
            and all(type(v) in (int, float) and abs(v) <= _MAX_LIMIT for v in value)
        ):
            raise FormatError(
                f"{key} in {path} must be a pair of numbers [close, moderate], not {value!r}",
                cure="see docs/limits.md",
            )
        first, second = value if key != "introduced" else value[::-1]
        if not first >= second:
            raise FormatError(
                f"{key} in {path} must have the stricter limit first, not {value!r}",
                cure="swap the two numbers",
            )
        changes[key] = (float(value[0]), float(value[1]))
    return replace(base, name=path.stem, exact=False if changes else base.exact, **changes)


def metric_bound(metric: str, numbers: Numbers, limits: Limits, level: int) -> float | None:
    """The limit of a metric, derived from those of psnr and sqnr so that colours agree.

    `level` 0 is the bound of close, 1 of moderate; None if the metric has no limit, or one that
    float64 cannot hold.
    """
    peak = numbers["peak"] or 0.0
    signal = float(10.0 ** (-limits.sqnr[level] / 20))
    rmse = float(peak * 10.0 ** (-limits.psnr[level] / 20))
    if metric in ("psnr", "sqnr"):
        return float(getattr(limits, metric)[level])
    if metric == "bulk_sqnr":
        own = limits.bulk_sqnr
        return float(own[level] if own else limits.sqnr[level] - _BULK_SLACK_DB)
    if metric == "bulk_max_abs":
        relative = 6 * 10.0 ** (-limits.psnr[level] / 20) + unit_of(limits)
        return float(_BULK_MAX_ABS_SLACK * (numbers.get("outliers_from") or 0.0) * relative)
    if metric == "mse":
        return rmse * rmse if rmse * rmse < inf else None
    if metric == "rmse":
        return rmse
    if metric == "mae":
        return 0.8 * rmse
    if metric == "max_abs":
        return 6 * rmse + peak * unit_of(limits)
    if metric == "rel_l2":
        return signal
    if metric == "cosine":
        return 1 - signal * signal / 2
    if metric == "mean_rel":
        # Constant noise on Gaussian values gives 4.7 times rel_l2; see judge_metric.
        return 6 * signal
    return None


def unit_of(limits: Limits) -> float:
    """The relative distance of adjacent numbers in the precision of these limits."""
    for name, preset_name in _PRESET_OF_DTYPE.items():
        if preset_name == limits.name and name in ("f32", "f16", "bf16", "f8_e4m3fn"):
            return 2 * DTYPES[name].unit
    return 2 * DTYPES["f32"].unit
