"""The catalogue of metrics: id, title, unit, better direction, explanation with formula; no
calculation.

The command line, the result table and every report use the same ids. `t` is the target,
`r` the reference, `d = t - r`; sums run over the *compared* elements: finite on both sides, not
masked, not mismatched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Better = Literal["higher", "lower", "one"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One entry of the catalogue."""

    id: str
    title: str
    unit: str
    """"" for plain numbers; "share" is a number from 0 to 1."""
    better: Better | None
    """The direction in which the target is closer to the reference; None if there is none."""
    tier: Literal["base", "default", "on demand"]
    """`on demand` metrics are not part of a measurement; `metrics.on_demand` computes them."""
    explanation: str


def _counts() -> Iterator[Metric]:
    def count(
        id: str, title: str, explanation: str, better: Better | None = None, unit: str = "elements"
    ) -> Metric:
        return Metric(
            id=id, title=title, unit=unit, better=better, tier="base", explanation=explanation
        )

    yield count("count", "Elements", "Number of elements of each side.")
    yield count(
        "compared",
        "Compared",
        "Elements that enter the sums: finite on both sides, not masked, not mismatched.",
    )
    yield count(
        "masked",
        "Masked",
        "Attention-mask positions: at or below half the lowest finite value of their type, or "
        "-inf, on both sides. They are excluded from sums, peak and overflow.",
    )
    yield count(
        "mismatched",
        "Mismatched",
        "Elements that are NaN, infinite or masked on one side only, or infinite with opposite "
        "signs.",
        "lower",
    )
    yield count("equal", "Equal", "Elements equal on both sides; -0 = 0, NaN = NaN.", "higher")
    yield count(
        "exact", "Equal share", "Share of all elements that are equal.", "higher", unit="share"
    )


def _errors() -> Iterator[Metric]:
    def error(id: str, title: str, unit: str, better: Better | None, explanation: str) -> Metric:
        return Metric(
            id=id, title=title, unit=unit, better=better, tier="base", explanation=explanation
        )

    yield error(
        "psnr",
        "PSNR",
        "dB",
        "higher",
        "Peak signal-to-noise ratio, 10 log10(max|r|² / mean d²). 20 dB more means an error ten "
        "times smaller relative to the maximum of |r|.",
    )
    yield error(
        "sqnr",
        "SQNR",
        "dB",
        "higher",
        "Signal-to-noise ratio, 10 log10(Σr² / Σd²): the error relative to the whole signal, not "
        "to its peak.",
    )
    yield error("mae", "Mean Absolute Error (MAE)", "", "lower", "Mean of |d|.")
    yield error("mse", "Mean Squared Error (MSE)", "", "lower", "Mean of d².")
    yield error(
        "rmse", "Root Mean Squared Error (RMSE)", "", "lower", "Square root of the mean of d²."
    )
    yield error("max_abs", "Max Absolute Error", "", "lower", "Maximum of |d|.")
    yield error(
        "max_abs_index",
        "Index of Max Absolute Error",
        "index",
        None,
        "Row-major index of the maximum of |d|; the lowest if there are several.",
    )
    yield error("rel_l2", "Relative L2 error", "", "lower", "‖d‖ / ‖r‖; n/a if r is all zeros.")
    yield error(
        "euclid", "Euclidean distance", "", "lower", "‖d‖, the square root of the sum of d²."
    )
    yield error(
        "cosine",
        "Cosine similarity",
        "",
        "one",
        "Whether both sides have the same direction. It ignores scale: read it with the norm "
        "ratio. n/a for one element and if a norm is 0.",
    )
    yield error(
        "norm_ratio",
        "Norm ratio",
        "",
        "one",
        "‖t‖ / ‖r‖: the scale that cosine similarity ignores.",
    )
    yield error("peak", "Peak", "", None, "Maximum of |r| over the compared elements.")


def _side(side: str) -> Iterator[Metric]:
    name = side.capitalize()

    def of(what: str, title: str, explanation: str, unit: str = "") -> Metric:
        return Metric(
            id=f"{side}_{what}",
            title=f"{name} {title}",
            unit=unit,
            better=None,
            tier="base",
            explanation=explanation,
        )

    compared = f"of the {side}'s compared elements; of the modulus if complex"
    yield of("mean", "mean", f"Mean {compared}.")
    yield of("std", "standard deviation", f"Standard deviation (population) {compared}.")
    yield of("min", "minimum", f"Minimum {compared}.")
    yield of("max", "maximum", f"Maximum {compared}.")
    yield of("l2", "L2 norm", f"L2 norm of the {side}'s compared elements.")
    yield of("nan", "NaN", f"NaN elements of the {side}.", "elements")
    yield of(
        "inf", "infinite", f"Infinite elements of the {side}, including masked ones.", "elements"
    )
    yield of(
        "overflow",
        "overflowing",
        f"Elements of the {side} at or beyond the maximum finite value of the target's type; n/a "
        "unless that is a plain float.",
        "elements",
    )
    yield of("zero", "zeros", f"Zero elements of the {side}.", "elements")


def _relative() -> Iterator[Metric]:
    def relative(id: str, title: str, unit: str, better: Better | None, explanation: str) -> Metric:
        return Metric(
            id=id, title=title, unit=unit, better=better, tier="default", explanation=explanation
        )

    where = "over elements whose reference is not 0"
    yield relative("max_rel", "Max Relative Error", "", "lower", f"Maximum of |d| / |r| {where}.")
    yield relative("mean_rel", "Mean Relative Error", "", "lower", f"Mean of |d| / |r| {where}.")
    yield relative(
        "acc_rel", "Accumulated relative error", "", "lower", f"Sum of |t / r - 1| {where}."
    )
    yield relative(
        "rel_count",
        "Relative errors",
        "elements",
        None,
        "Compared elements whose reference is not 0, for which a relative error is defined.",
    )
    yield relative(
        "rel_undefined",
        "Undefined relative errors",
        "elements",
        "lower",
        "Compared elements whose reference is 0 and whose target is not.",
    )
    yield relative(
        "mean_rel_robust",
        "Robust Mean Relative Error",
        "",
        "lower",
        "Mean of |d| / max(|r|, 1/1000 of the RMS of r), which references near zero do not "
        "dominate. N/a where mean_rel is so small that it cannot change a verdict.",
    )
    share = f"Mismatched elements count as failures; {where}."
    yield relative(
        "within_1e3",
        "Within 1/1000",
        "share",
        "higher",
        f"Share of elements with a relative error below 1/1000. {share}",
    )
    yield relative(
        "within_5e3",
        "Within 5/1000",
        "share",
        "higher",
        f"Share of elements with a relative error below 5/1000. {share}",
    )
    yield relative(
        "allclose",
        "All close",
        "share",
        "higher",
        "Share of compared and mismatched elements with |d| ≤ atol + rtol·|r|; the tolerances of "
        "torch.testing for the coarser type by default.",
    )


def _steps() -> Iterator[Metric]:
    yield Metric(
        id="max_ulp",
        title="Max error in ULP",
        unit="ulp",
        better="lower",
        tier="default",
        explanation="Maximum error in units in the last place of the coarser type; for integers "
        "the difference. n/a for booleans and quantized tensors.",
    )
    yield Metric(
        id="lsb",
        title="Error in quantization steps",
        unit="steps",
        better="lower",
        tier="default",
        explanation="RMS of d / quantization step; rounding alone gives 0.289. n/a unless a side "
        "is quantized to evenly spaced integers.",
    )
    yield Metric(
        id="outliers",
        title="Outliers",
        unit="elements",
        better=None,
        tier="default",
        explanation="Elements whose |r| is at least `outliers_from`; n/a if they do not dominate "
        "the sums or hide nothing.",
    )
    yield Metric(
        id="outliers_from",
        title="Outliers from",
        unit="",
        better=None,
        tier="default",
        explanation="The |r| from which an element is an outlier, 32 times the typical |r|: "
        "2^(m + 5), where m is the mean of floor(log2 |r|) over r that is not 0, rounded.",
    )
    bulk = (
        "over the elements that are not outliers; n/a unless a few outliers, at most one element "
    )
    bulk += "of 32, hide them from the other metrics."
    yield Metric(
        id="bulk_sqnr",
        title="SQNR of the bulk",
        unit="dB",
        better="higher",
        tier="default",
        explanation=f"SQNR {bulk}",
    )
    yield Metric(
        id="bulk_rmse",
        title="RMSE of the bulk",
        unit="",
        better="lower",
        tier="default",
        explanation=f"RMSE {bulk}",
    )
    yield Metric(
        id="bulk_max_abs",
        title="Max Absolute Error of the bulk",
        unit="",
        better="lower",
        tier="default",
        explanation=f"Maximum of |d| {bulk}",
    )
    yield Metric(
        id="error_histogram",
        title="Error histogram",
        unit="",
        better=None,
        tier="default",
        explanation="Number of elements by floor(log2 |d|), without equal elements.",
    )


def _on_demand() -> Iterator[Metric]:
    def on_demand(
        id: str, title: str, unit: str, better: Better | None, explanation: str
    ) -> Metric:
        return Metric(
            id=id, title=title, unit=unit, better=better, tier="on demand", explanation=explanation
        )

    yield on_demand(
        "worst_slice",
        "Worst slice",
        "",
        "lower",
        "Relative L2 error of the worst slice along the channel and token axes (axis 1 and the "
        "last): one wrong channel is invisible in the whole tensor. The norm of r counts as at "
        "least a tenth of its RMS over the slices. Also measured for pairs that are not close.",
    )
    yield on_demand(
        "worst_slice_axis", "Axis of the worst slice", "index", None, "The axis of the worst slice."
    )
    yield on_demand(
        "worst_slice_index",
        "Index of the worst slice",
        "index",
        None,
        "Index on that axis; the lowest if there are several.",
    )
    yield on_demand(
        "value_histograms",
        "Value histograms",
        "",
        None,
        "Number of elements by value on each side, over common bins.",
    )
    yield on_demand(
        "top1",
        "Top-1 agreement",
        "share",
        "higher",
        "Share of rows whose maximum score has the same index, judged by the reference's scores so "
        "that ties agree.",
    )
    yield on_demand(
        "topk",
        "Top-k agreement",
        "share",
        "higher",
        "Share of the k highest scores of a row that have the same indices, judged by the "
        "reference's scores so that ties agree, averaged over the rows. Of equal scores the target "
        "chooses the lower index.",
    )
    yield on_demand(
        "kl",
        "KL divergence",
        "nats",
        "lower",
        "KL(softmax r ‖ softmax t) of logits along the last axis, averaged over the rows.",
    )
    yield on_demand(
        "kl_minmax",
        "KL divergence, min-max form",
        "nats",
        "lower",
        "KL(t ‖ r) of the values scaled to [0, 1], floored at the epsilon of float32 and divided "
        "by their sum, as other tools report it.",
    )


CATALOGUE: Mapping[str, Metric] = MappingProxyType(
    {
        metric.id: metric
        for group in (
            _counts(),
            _errors(),
            _side("target"),
            _side("reference"),
            _relative(),
            _steps(),
            _on_demand(),
        )
        for metric in group
    }
)
"""All metrics by id, in the order in which reports show them."""

METRIC_IDS = tuple(metric.id for metric in CATALOGUE.values() if metric.tier != "on demand")
"""Ids of the metrics of every measurement."""
