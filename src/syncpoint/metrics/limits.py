"""Limits: what close and moderate mean for each precision.

They stand beside the measurements and not in them, so that a saved comparison can be judged
again under others. A verdict needs only a mapping of metric ids to numbers, which is what both
a fresh measurement and a row of a saved table are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from syncpoint.errors import FormatError, InputError
from syncpoint.files.yaml_toml import read_yaml
from syncpoint.metrics.empty_pairs import code_of_values
from syncpoint.metrics.verdict import Reason, Verdict
from syncpoint.run.dtypes import DTYPES, Kind, long_name

Numbers = Mapping[str, Any]
"""Metric ids of the catalogue to numbers; None where a metric cannot be computed."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The bounds of one precision: pairs of what is still close and still moderate, in dB."""

    name: str
    psnr: tuple[float, float] = (0.0, 0.0)
    sqnr: tuple[float, float] = (0.0, 0.0)
    exact: bool = False
    """Every element must be equal."""
    bulk_sqnr: tuple[float, float] | None = None
    """Of the elements beside outliers; None: `_BULK_SLACK_DB` below sqnr."""
    introduced: tuple[float, float] = (30.0, 100.0)
    """Introduced as a multiple of expected error: up to the first close, from the second large."""


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
"""From the finest to the coarsest precision; `exact` stands apart."""

_LARGEST_LIMIT = 1e9
"""Of what a file may ask for; NaN is below no number."""
_BULK_SLACK_DB = 3.0
"""How much lower the sqnr of the bulk may be: its clean tail reaches a little below that of whole
tensors (docs/decisions/0012)."""
_BULK_MAX_ABS_SLACK = 4.0
"""The greatest difference of the bulk in multiples of what a peak of its size would be allowed."""
LARGEST_SHARE = 1.0 + 1e-6
"""Up to where a value may be a probability that was rounded."""

_COARSENESS = {name: rank for rank, name in enumerate(PRESETS)}
_PRECISION_NAMES = {"fp8": "float8", "int8": "8-bit integers", "int4": "4-bit integers"}
"""Of presets that are not called after an element type."""
_OF_DTYPE = {
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
    """The precision that a preset is for, in the words for people: float32 for f32."""
    return _PRECISION_NAMES.get(preset) or long_name(preset)


def preset_of(dtype: str, quantized: bool = False) -> str:
    """The preset of a tensor judged by its own element type alone."""
    if quantized:
        return "int4" if DTYPES[dtype].bits <= 4 else "int8"
    if DTYPES[dtype].kind in (Kind.INT, Kind.BOOL):
        return "exact"
    return _OF_DTYPE[dtype]


def coarsest(presets: list[str]) -> str:
    """The coarsest of several presets; `exact` gives way to any other, and is all that is left
    when nothing else is named."""
    real = [p for p in presets if p != "exact"]
    return max(real, key=_COARSENESS.__getitem__) if real else "exact"


def coarser(a: str, b: str) -> bool:
    """Whether preset `a` allows more than preset `b`."""
    return _COARSENESS[a] > _COARSENESS[b]


def preset(name: str) -> Limits:
    """The preset called `name`."""
    if name not in PRESETS:
        raise InputError(
            "a preset", repr(name), f"known are: auto, {', '.join(PRESETS)}, or --limits FILE"
        )
    return PRESETS[name]


def limits_in_force(preset: str, chosen: Limits | None) -> Limits | None:
    """The limits that a row of this preset is judged by: those that the user chose, unless the
    preset allows no difference."""
    own = PRESETS.get(preset)
    return own if chosen is None or (own and own.exact) else chosen


def load_limits(path: Path) -> Limits:
    """Limits from a YAML file: `preset` to start from, `psnr`, `sqnr`, `bulk_sqnr` and
    `introduced` as [close, moderate] pairs."""
    said = read_yaml(path, "a readable limits file")
    known = ("preset", "psnr", "sqnr", "bulk_sqnr", "introduced")
    if not isinstance(said, dict) or not set(said) <= set(known):
        raise FormatError(
            f"a mapping with {', '.join(known)} in {path}", f"{str(said)[:60]!r}", "see docs/limits"
        )
    base = preset(str(said.get("preset", "f32")))
    changes: dict[str, tuple[float, float]] = {}
    for key in known[1:]:
        if key not in said:
            continue
        value = said[key]
        if not (
            isinstance(value, list)
            and len(value) == 2
            and all(type(v) in (int, float) and abs(v) <= _LARGEST_LIMIT for v in value)
        ):
            raise FormatError(f"{key}: [close, moderate] in {path}", repr(value))
        first, second = value if key != "introduced" else value[::-1]
        if not first >= second:
            raise FormatError(f"{key} in {path} with the stricter limit first", repr(value))
        changes[key] = (float(value[0]), float(value[1]))
    return replace(base, name=path.stem, exact=False if changes else base.exact, **changes)


def judge(numbers: Numbers, limits: Limits) -> tuple[Verdict, Reason]:
    """The verdict on total error, and why it is not close or why there is none.

    The worst of psnr, sqnr, the greatest difference, the same of the bulk where outliers hide it,
    and values that are non-finite or masked on one side only.
    """
    if numbers["mismatched"]:
        mismatched = f"{numbers['mismatched']} non-finite or masked on one side only"
        return Verdict.LARGE, Reason(detail=mismatched)
    nothing_left = code_of_values(numbers)
    if nothing_left is not None:
        return Verdict.NONE, Reason(nothing_left)
    if limits.exact:
        unequal = numbers["count"] - numbers["equal"]
        if unequal:
            return Verdict.LARGE, Reason(detail=f"{unequal} unequal")
        return Verdict.CLOSE, Reason()
    worst = max(_level(numbers[m], getattr(limits, m)) for m in ("psnr", "sqnr"))
    reasons = []
    bounds = [bound("max_abs", numbers, limits, level) or 0.0 for level in (0, 1)]
    lone = sum((numbers["max_abs"] or 0.0) > b for b in bounds)
    if lone > worst:
        # One wild element among a million is lost in every mean.
        worst = lone
        reasons.append(f"max_abs {numbers['max_abs']:.3g} above {bounds[lone - 1]:.3g}")
    hidden = bulk_level(numbers, limits)
    if hidden > worst:
        worst = hidden
        reasons.append(_bulk_reason(numbers, limits, hidden))
    if worst == 0:
        return Verdict.CLOSE, Reason()
    for metric in ("psnr", "sqnr"):
        least = getattr(limits, metric)
        level = _level(numbers[metric], least)
        if level:
            reasons.append(f"{metric} {numbers[metric]:.1f} dB below {least[level - 1]:g}")
    verdict = Verdict.MODERATE if worst == 1 else Verdict.LARGE
    return verdict, Reason(detail=", ".join(reasons))


def bulk_reason(numbers: Numbers, limits: Limits) -> str:
    """In words what outliers hide; "" where the rest is close too."""
    level = 0 if limits.exact else bulk_level(numbers, limits)
    return _bulk_reason(numbers, limits, level) if level else ""


def bulk_level(numbers: Numbers, limits: Limits) -> int:
    """0 close, 1 moderate, 2 large, by the elements that outliers hide from every other metric.

    Close where the bulk was not measured: there are no outliers, too many of them, or they hide
    nothing; and in tables that are older than the metric.
    """
    if not _has_hidden_bulk(numbers):
        return 0
    sqnr = [bound("bulk_sqnr", numbers, limits, level) or 0.0 for level in (0, 1)]
    lone = [bound("bulk_max_abs", numbers, limits, level) or 0.0 for level in (0, 1)]
    greatest: float = numbers.get("bulk_max_abs") or 0.0
    by_sqnr = _level(numbers["bulk_sqnr"], (sqnr[0], sqnr[1]))
    return max(by_sqnr, sum(greatest > most for most in lone))


def _has_hidden_bulk(numbers: Numbers) -> bool:
    """Whether the bulk counts on its own. Of probabilities it does not: they weigh other values,
    so that what is small among them has little effect however far it is off."""
    if numbers.get("bulk_sqnr") is None:
        return False
    peak = numbers["peak"] or 0.0
    return not ((numbers["reference_min"] or 0.0) >= 0 and 0.5 < peak <= LARGEST_SHARE)


def _bulk_reason(numbers: Numbers, limits: Limits, level: int) -> str:
    """What is off and what hides it."""
    outliers = numbers["outliers"]
    share = 1 - outliers / numbers["compared"]
    hidden_by = f"{outliers:,} outlier{'s' if outliers > 1 else ''} of up to {numbers['peak']:.2g}"
    least = bound("bulk_sqnr", numbers, limits, level - 1) or 0.0
    if numbers["bulk_sqnr"] < least:
        off = 10.0 ** (-numbers["bulk_sqnr"] / 20)
        said = f"bulk_sqnr {numbers['bulk_sqnr']:.1f} dB below {least:g}: {_percent(share)} of the"
        return f"{said} elements are {100 * off:.2g} % off, hidden by {hidden_by}"
    most = bound("bulk_max_abs", numbers, limits, level - 1) or 0.0
    return f"bulk_max_abs {numbers['bulk_max_abs']:.3g} above {most:.3g}, hidden by {hidden_by}"


def _percent(share: float) -> str:
    """Two or three digits, rounded down, so that a part is never called the whole."""
    digits = 10 if share < 0.999 else 1000
    return f"{int(share * 100 * digits) / digits:g} %"


def judge_introduced(ratio: float | None, limits: Limits) -> Verdict:
    """The verdict on introduced error, given as a multiple of the expected error."""
    if ratio is None:
        return Verdict.NONE
    close, large = limits.introduced
    if ratio <= close:
        return Verdict.CLOSE
    return Verdict.LARGE if ratio >= large else Verdict.MODERATE


HIGHER_IS_BETTER = ("psnr", "sqnr", "bulk_sqnr", "cosine")
"""Metrics with a limit that are better when they are greater."""


def _level(value: float | None, bounds: tuple[float, float]) -> int:
    """0 close, 1 moderate, 2 large, of a metric that is better when higher. What cannot be
    computed is no pass."""
    if value is None or value != value:
        return 2
    return 0 if value >= bounds[0] else 1 if value >= bounds[1] else 2


def bound(metric: str, numbers: Numbers, limits: Limits, level: int) -> float | None:
    """The limit of any metric that follows from those of psnr and sqnr, so that colours agree.

    `level` 0 is the bound of close, 1 of moderate; None where a metric has no limit.
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
        return rmse * rmse
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
        # Noise of constant size over Gaussian values gives 4.7 times rel_l2; see judge_metric.
        return 6 * signal
    return None


def judge_metric(metric: str, numbers: Numbers, limits: Limits) -> Verdict:
    """The colour of one metric on its own, for people who chose to look through it; none is better
    than the bulk where outliers hide that."""
    overall, _ = judge(numbers, limits)
    if overall is Verdict.NONE or limits.exact or numbers["mismatched"]:
        return overall
    value = numbers[metric]
    # mean_rel itself is infinite or huge near zeros; its robust twin has a floor under |r|. The
    # twin is not measured where mean_rel, which then bounds it, is small.
    if metric == "mean_rel" and numbers["mean_rel_robust"] is not None:
        value = numbers["mean_rel_robust"]
    close, moderate = (bound(metric, numbers, limits, level) for level in (0, 1))
    if close is None or moderate is None:
        return overall
    if value is None or (metric.startswith("bulk_") and not _has_hidden_bulk(numbers)):
        return Verdict.NONE
    if metric in HIGHER_IS_BETTER:
        own = 0 if value >= close else 1 if value >= moderate else 2
    else:
        own = 0 if value <= close else 1 if value <= moderate else 2
    return (Verdict.CLOSE, Verdict.MODERATE, Verdict.LARGE)[max(own, bulk_level(numbers, limits))]


def unit_of(limits: Limits) -> float:
    """The relative distance of neighbouring numbers in the precision of these limits."""
    for name, of in _OF_DTYPE.items():
        if of == limits.name and name in ("f32", "f16", "bf16", "f8_e4m3fn"):
            return 2 * DTYPES[name].unit
    return 2 * DTYPES["f32"].unit
