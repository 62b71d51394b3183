"""Name the scales, means and standard deviations that image pipelines use, such as those of
ImageNet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

_SCALES = {
    1 / 255: "divided by 255; the reference's is not",
    255.0: "not divided by 255; the reference's is",
    1 / 127.5: "divided by 127.5; the reference's is not",
    127.5: "not divided by 127.5; the reference's is",
    1 / 256: "divided by 256; the reference's is not",
    256.0: "not divided by 256; the reference's is",
    255 / 256: "divided by 256 instead of 255",
    256 / 255: "divided by 255 instead of 256",
}
_PLAIN = "no normalization"
_NORMALIZATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    _PLAIN: ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "the ImageNet mean and std": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "the ImageNet mean only": ((0.485, 0.456, 0.406), (1.0, 1.0, 1.0)),
    "the ImageNet std only": ((0.0, 0.0, 0.0), (0.229, 0.224, 0.225)),
    "mean 0.5 and std 0.5": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "the CLIP mean and std": (
        (0.48145466, 0.4578275, 0.40821073),
        (0.26862954, 0.26130258, 0.27577711),
    ),
    "the CIFAR-10 mean and std": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
}
_MAX_RELATIVE_ERROR = 2e-4


def name_scale(factor: float) -> str:
    """Return the usual name of a factor; "" if it has none."""
    for scale, name in _SCALES.items():
        if abs(factor - scale) <= _MAX_RELATIVE_ERROR * abs(scale):
            return name
    return ""


def name_normalization(gain: Values, shift: Values) -> str:
    """Describe the change from one known normalization to another; "" if none fits.

    target = gain * reference + shift, for each channel.
    """
    if len(gain) not in (1, 3):
        return ""
    gains, shifts = (np.broadcast_to(v, (3,)) for v in (gain, shift))
    for old, (mean, deviation) in _NORMALIZATIONS.items():
        for new, (other_mean, other_deviation) in _NORMALIZATIONS.items():
            for factor, ending in ((1.0, ""), (255.0, ", and is not divided by 255")):
                for order in _orders(old, new):
                    expected_gains = np.divide(deviation, other_deviation)[list(order)] * factor
                    expected_shifts = np.subtract(np.array(mean) * factor, other_mean)[list(order)]
                    expected_shifts = expected_shifts / np.array(other_deviation)[list(order)]
                    if _is_close(gains, expected_gains) and _is_close(shifts, expected_shifts):
                        return _describe(old, new, order) + ending if old != new or ending else ""
    return ""


def _describe(old: str, new: str, order: tuple[int, ...]) -> str:
    reversed_order = ", with the channels in another order" if order != (0, 1, 2) else ""
    if old == _PLAIN:
        return f"normalized with {new}{reversed_order}; the reference's is not"
    if new == _PLAIN:
        return f"not normalized; the reference's is, with {old}{reversed_order}"
    return f"normalized with {new} instead of {old}{reversed_order}"


def _orders(old: str, new: str) -> list[tuple[int, ...]]:
    return [(0, 1, 2), (2, 1, 0)] if old != new else [(0, 1, 2)]


def _is_close(one: Values, other: Values) -> bool:
    return bool(np.abs(one - other).max() <= 2e-3 * max(1e-2, float(np.abs(other).max())))
