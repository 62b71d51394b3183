"""Windows of convolutions and pools: borders, strides, dilation, and what a pool takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

import numpy as np

from syncpoint.diagnosis.variants.protocol import Hypothesis, Seen, variant_with_settings

_MODES = {
    "replicate": "the repeated edge",
    "reflect": "a mirror image",
    "circular": "values of the opposite edge",
}


def windows(seen: Seen) -> Iterable[Hypothesis]:
    """For convolutions and pools."""
    if seen.kind not in ("conv", "max_pool", "avg_pool", "global_pool"):
        return
    bound = seen.bound
    if bound is None:
        return
    settings = bound.settings
    if "pads" not in settings:
        yield from _whole(seen)
        return
    pads = [(int(a), int(b)) for a, b in settings["pads"]]
    stride = [int(s) for s in settings["stride"]]
    for kind, text, changed in _borders(pads):
        yield from variant_with_settings(seen, kind, text, 2, pads=changed)
    if any(s > 1 for s in stride):
        # Windows that begin one later: the same borders read from another start.
        late = [(a - 1, b + 1) if s > 1 else (a, b) for (a, b), s in zip(pads, stride, strict=True)]
        yield from variant_with_settings(
            seen, "stride-offset", "starts its windows one element later", 1, pads=late
        )
    dilation = [int(d) for d in settings["dilation"]]
    if any(d > 1 for d in dilation):
        kernel = _kernel(seen)
        more = [(d - 1) * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        ones = [1] * len(dilation)
        for kind, text, given in (
            (
                "dilation-ignored",
                f"ignores its dilation {dilation} and pads to keep its size",
                [(a - m // 2, b - (m - m // 2)) for (a, b), m in zip(pads, more, strict=True)],
            ),
            ("dilation-ignored", f"ignores its dilation {dilation}", pads),
            (
                "dilation-ignored",
                f"ignores its dilation {dilation} and starts all windows at the first element",
                [(a, b - m) for (a, b), m in zip(pads, more, strict=True)],
            ),
        ):
            yield from variant_with_settings(seen, kind, text, 2, pads=given, dilation=ones)
    if seen.kind == "conv":
        yield from _conv(seen, pads)
    else:
        yield from _pool(seen, pads)


def _kernel(seen: Seen) -> list[int]:
    assert seen.bound is not None
    given = seen.bound.settings.get("kernel")
    return list(given) if given is not None else list(seen.bound.arrays[1].shape[2:])


def _borders(pads: list[tuple[int, int]]) -> Iterator[tuple[str, str, list[tuple[int, int]]]]:
    if not any(a or b for a, b in pads):
        return
    back = [(a + b, 0) for a, b in pads]
    front = [(0, a + b) for a, b in pads]
    own = "on both sides" if all(a == b for a, b in pads) else f"{pads} (start, end)"
    said = f"; the reference pads {own}"
    yield "padding-side", f"pads only at the start (left, top){said}", back
    yield "padding-side", f"pads only at the end (right, bottom){said}", front
    if any(a != b for a, b in pads):
        yield (
            "padding-side",
            f"swaps the padding of start and end{said}",
            [(b, a) for a, b in pads],
        )
    later = [(a - 1, b + 1) if a else (a, b) for a, b in pads]
    sooner = [(a + 1, b - 1) if b else (a, b) for a, b in pads]
    yield "padding-side", f"pads one element less at the start and one more at the end{said}", later
    yield (
        "padding-side",
        f"pads one element more at the start and one less at the end{said}",
        sooner,
    )
    if len(pads) == 2 and pads[0] != pads[1]:
        yield "padding-axes", "swaps the padding of height and width", pads[::-1]


def _conv(seen: Seen, pads: list[tuple[int, int]]) -> Iterator[Hypothesis]:
    assert seen.bound is not None
    settings = seen.bound.settings
    if any(a or b for a, b in pads):
        for mode, what in _MODES.items():
            yield from variant_with_settings(
                seen,
                "padding-mode",
                f"pads with {what} (mode {mode}) instead of {settings.get('mode', 'zeros')}",
                2,
                mode=mode,
            )
    groups = int(settings["groups"])
    if groups > 1 and seen.output.shape[1] > groups:
        out, channels = seen.output, seen.output.shape[1]
        apart = out.reshape(out.shape[0], groups, channels // groups, *out.shape[2:])
        value = np.swapaxes(apart, 1, 2).reshape(out.shape)
        yield Hypothesis(
            "groups-interleaved", "interleaves the output channels of its groups", value
        )
    if groups > 1 and seen.wants("groups-misread"):
        x = seen.bound.arrays[0]
        parts = x.reshape(x.shape[0], -1, groups, *x.shape[2:])
        other = seen.ran(seen.bound.on(np.swapaxes(parts, 1, 2).reshape(x.shape)))
        if other is not None:
            text = "assigns interleaved input channels to its groups"
            yield Hypothesis("groups-misread", text, other)


def _pool(seen: Seen, pads: list[tuple[int, int]]) -> Iterator[Hypothesis]:
    assert seen.bound is not None
    settings = seen.bound.settings
    bordered = any(a or b for a, b in pads) or settings["ceil"]
    other = "avg" if settings["kind"] == "max" else "max"
    names = {"avg": "mean", "max": "maximum"}
    text = f"returns the {names[other]} of each window instead of the {names[settings['kind']]}"
    yield from variant_with_settings(seen, "pool-kind", text, 1, kind=other)
    rounding = "down instead of up" if settings["ceil"] else "up instead of down"
    text = f"rounds its output size {rounding} (ceil_mode)"
    yield from variant_with_settings(seen, "pool-ceil-mode", text, 1, ceil=not settings["ceil"])
    if settings["kind"] == "max":
        if bordered:
            text = "pads with 0 instead of -inf"
            yield from variant_with_settings(seen, "pool-pad-value", text, 2, border=0.0)
        return
    size = prod(settings["kernel"])
    if bordered:
        counted = settings["include_pad"]
        text = (
            "leaves the padding out of its means (count_include_pad is True in the reference)"
            if counted
            else "counts the padding in its means (count_include_pad is False in the reference)"
        )
        changed = {"include_pad": not counted, "divisor": None}
        yield from variant_with_settings(seen, "pool-count-include-pad", text, 2, **changed)
        text = f"divides every sum by {size}, the size of a whole window"
        yield from variant_with_settings(seen, "pool-divisor", text, 1, divisor=float(size))
    yield from variant_with_settings(
        seen, "pool-sum", "returns sums instead of means", 1, divisor=1.0
    )


def _whole(seen: Seen) -> Iterator[Hypothesis]:
    """Pools that adapt to their input."""
    assert seen.bound is not None
    if seen.bound.settings.get("kind") == "avg":
        yield from variant_with_settings(
            seen,
            "pool-kind",
            "returns the maximum of each window instead of the mean",
            1,
            kind="max",
        )
        x = seen.bound.arrays[0]
        size = x[0, 0].size / max(seen.output[0, 0].size, 1) if x.ndim > 2 else 1.0
        yield Hypothesis(
            "pool-sum", "returns sums instead of means", seen.output * size, simplicity=1
        )
    else:
        yield from variant_with_settings(
            seen,
            "pool-kind",
            "returns the mean of each window instead of the maximum",
            1,
            kind="avg",
        )
