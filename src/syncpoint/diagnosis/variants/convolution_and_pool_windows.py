"""Variants of the windows of convolutions and pools: padding (borders), stride, dilation, pool
kind; adaptive pools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod

import numpy as np

from syncpoint.diagnosis.variants.protocol import Hypothesis, OpUnderTest, variant_with_settings

_TEXT_BY_PADDING_MODE = {
    "replicate": "the repeated edge",
    "reflect": "a mirror image",
    "circular": "values of the opposite edge",
}
_TEXT_BY_SIDE = {
    "start": {2: " (left, top)", 3: " (left, top, front)"},
    "end": {2: " (right, bottom)", 3: " (right, bottom, back)"},
}
"""Side -> number of padded axes -> where the side is; one axis needs no explanation."""


def vary_windows(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary convolutions and pools."""
    if tested_op.kind not in ("conv", "max_pool", "avg_pool", "global_pool"):
        return
    bound = tested_op.bound
    if bound is None:
        return
    settings = bound.settings
    if "pads" not in settings:
        yield from _vary_adaptive_pool(tested_op)
        return
    pads = [(int(a), int(b)) for a, b in settings["pads"]]
    stride = [int(s) for s in settings["stride"]]
    for kind, text, changed_pads in _change_borders(pads):
        right = ("the total padding (own and separate)", f"{pads} (start, end)")
        yield from variant_with_settings(tested_op, kind, text, 2, right, pads=changed_pads)
    if any(s > 1 for s in stride):
        # Move the padding so that all windows start one element later.
        later_pads = [
            (a - 1, b + 1) if s > 1 else (a, b) for (a, b), s in zip(pads, stride, strict=True)
        ]
        yield from variant_with_settings(
            tested_op, "stride-offset", "starts its windows one element later", 1, pads=later_pads
        )
    dilation = [int(d) for d in settings["dilation"]]
    if any(d > 1 for d in dilation):
        kernel = _kernel_size(tested_op)
        extra = [(d - 1) * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        ones = [1] * len(dilation)
        for kind, text, changed_pads in (
            (
                "dilation-ignored",
                f"ignores its dilation {dilation} and pads to keep its size",
                [(a - m // 2, b - (m - m // 2)) for (a, b), m in zip(pads, extra, strict=True)],
            ),
            ("dilation-ignored", f"ignores its dilation {dilation}", pads),
            (
                "dilation-ignored",
                f"ignores its dilation {dilation} and starts all windows at the first element",
                [(a, b - m) for (a, b), m in zip(pads, extra, strict=True)],
            ),
        ):
            right = ("the dilation", str(dilation))
            yield from variant_with_settings(
                tested_op, kind, text, 2, right, pads=changed_pads, dilation=ones
            )
    if tested_op.kind == "conv":
        yield from _vary_conv(tested_op, pads)
    else:
        yield from _vary_pool(tested_op, pads)


def _kernel_size(tested_op: OpUnderTest) -> list[int]:
    assert tested_op.bound is not None
    kernel = tested_op.bound.settings.get("kernel")
    return list(kernel) if kernel is not None else list(tested_op.bound.arrays[1].shape[2:])


def _change_borders(
    pads: list[tuple[int, int]],
) -> Iterator[tuple[str, str, list[tuple[int, int]]]]:
    if not any(a or b for a, b in pads):
        return
    start_only = [(a + b, 0) for a, b in pads]
    end_only = [(0, a + b) for a, b in pads]
    reference_padding = "on both sides" if all(a == b for a, b in pads) else f"{pads} (start, end)"
    comparison = f"; the reference pads {reference_padding}"
    for side, changed_pads in (("start", start_only), ("end", end_only)):
        place = f"{side}{_TEXT_BY_SIDE[side].get(len(pads), '')}"
        yield "padding-side", f"pads only at the {place}{comparison}", changed_pads
    if any(a != b for a, b in pads):
        yield (
            "padding-side",
            f"swaps the padding of start and end{comparison}",
            [(b, a) for a, b in pads],
        )
    later = [(a - 1, b + 1) if a else (a, b) for a, b in pads]
    earlier = [(a + 1, b - 1) if b else (a, b) for a, b in pads]
    yield (
        "padding-side",
        f"pads one element less at the start and one more at the end{comparison}",
        later,
    )
    yield (
        "padding-side",
        f"pads one element more at the start and one less at the end{comparison}",
        earlier,
    )
    if len(pads) == 2 and pads[0] != pads[1]:
        yield "padding-axes", "swaps the padding of height and width", pads[::-1]


def _vary_conv(tested_op: OpUnderTest, pads: list[tuple[int, int]]) -> Iterator[Hypothesis]:
    assert tested_op.bound is not None
    settings = tested_op.bound.settings
    if any(a or b for a, b in pads):
        reference_mode = str(settings.get("mode", "zeros"))
        for mode, fill_text in _TEXT_BY_PADDING_MODE.items():
            yield from variant_with_settings(
                tested_op,
                "padding-mode",
                f"pads with {fill_text} (mode {mode}) instead of {reference_mode}",
                2,
                ("the padding mode (own or separate)", reference_mode),
                mode=mode,
            )
    groups = int(settings["groups"])
    if groups > 1 and tested_op.output.shape[1] > groups:
        out, channels = tested_op.output, tested_op.output.shape[1]
        grouped = out.reshape(out.shape[0], groups, channels // groups, *out.shape[2:])
        value = np.swapaxes(grouped, 1, 2).reshape(out.shape)
        yield Hypothesis(
            "groups-interleaved", "interleaves the output channels of its groups", value
        )
    if groups > 1 and tested_op.is_requested("groups-misread"):
        x = tested_op.bound.arrays[0]
        parts = x.reshape(x.shape[0], -1, groups, *x.shape[2:])
        regrouped = tested_op.run_bound(
            tested_op.bound.on(np.swapaxes(parts, 1, 2).reshape(x.shape))
        )
        if regrouped is not None:
            text = "assigns interleaved input channels to its groups"
            yield Hypothesis("groups-misread", text, regrouped)


def _vary_pool(tested_op: OpUnderTest, pads: list[tuple[int, int]]) -> Iterator[Hypothesis]:
    assert tested_op.bound is not None
    settings = tested_op.bound.settings
    has_border = any(a or b for a, b in pads) or settings["ceil"]
    other_kind = "avg" if settings["kind"] == "max" else "max"
    names = {"avg": "mean", "max": "maximum"}
    text = (
        f"returns the {names[other_kind]} of each window instead of the {names[settings['kind']]}"
    )
    right = ("the kind of the pool", settings["kind"])
    yield from variant_with_settings(tested_op, "pool-kind", text, 1, right, kind=other_kind)
    rounding = "down instead of up" if settings["ceil"] else "up instead of down"
    text = f"rounds its output size {rounding} (ceil_mode)"
    right = ("`ceil_mode`", str(bool(settings["ceil"])))
    yield from variant_with_settings(
        tested_op, "pool-ceil-mode", text, 1, right, ceil=not settings["ceil"]
    )
    if settings["kind"] == "max":
        if has_border:
            text = "pads with 0 instead of -inf"
            advice = f"in the target, pad the input of {tested_op.op.key} with -inf, not with 0"
            for hypothesis in variant_with_settings(
                tested_op, "pool-pad-value", text, 2, border=0.0
            ):
                yield replace(hypothesis, next=advice)
        return
    size = prod(settings["kernel"])
    if has_border:
        counts_padding = settings["include_pad"]
        text = (
            "leaves the padding out of its means (count_include_pad is True in the reference)"
            if counts_padding
            else "counts the padding in its means (count_include_pad is False in the reference)"
        )
        changes = {"include_pad": not counts_padding, "divisor": None}
        right = ("`count_include_pad`", str(bool(counts_padding)))
        yield from variant_with_settings(
            tested_op, "pool-count-include-pad", text, 2, right, **changes
        )
        text = f"divides every sum by {size}, the size of a whole window"
        yield from variant_with_settings(tested_op, "pool-divisor", text, 1, divisor=float(size))
    for hypothesis in variant_with_settings(
        tested_op, "pool-sum", "returns sums instead of means", 1, divisor=1.0
    ):
        yield replace(hypothesis, next=_advise_on_sums(tested_op))


def _advise_on_sums(tested_op: OpUnderTest) -> str:
    return f"in the target, divide each sum of {tested_op.op.key} by the size of its window"


def _vary_adaptive_pool(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    """Vary adaptive and global pools."""
    assert tested_op.bound is not None
    if tested_op.bound.settings.get("kind") == "avg":
        yield from variant_with_settings(
            tested_op,
            "pool-kind",
            "returns the maximum of each window instead of the mean",
            1,
            kind="max",
        )
        x = tested_op.bound.arrays[0]
        size = x[0, 0].size / max(tested_op.output[0, 0].size, 1) if x.ndim > 2 else 1.0
        yield Hypothesis(
            "pool-sum",
            "returns sums instead of means",
            tested_op.output * size,
            next=_advise_on_sums(tested_op),
            simplicity=1,
        )
    else:
        yield from variant_with_settings(
            tested_op,
            "pool-kind",
            "returns the mean of each window instead of the maximum",
            1,
            kind="avg",
        )
