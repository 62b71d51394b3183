"""Every metric: its id, its name for people, its unit, and what it tells in plain words.

The ids are those of the command line, of the result table and of every report. `t` is the target,
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
    """In which direction the target is nearer to the reference; None where it says nothing."""
    tier: Literal["base", "default", "on demand"]
    """`on demand` ones are in no measurement; `metrics.on_demand` computes them."""
    explanation: str


def _counts() -> Iterator[Metric]:
    def count(
        id: str, title: str, explanation: str, better: Better | None = None, unit: str = "elements"
    ) -> Metric:
        return Metric(
            id=id, title=title, unit=unit, better=better, tier="base", explanation=explanation
        )

    yield count("count", "Elements", "How many elements each side has.")
    yield count(
        "compared",
        "Compared",
        "Elements that enter the sums: finite on both sides, not masked, not mismatched.",
    )
    yield count(
        "masked",
        "Masked",
        "Attention-mask positions: at or below half the lowest finite value of their type, or "
        "-inf, on both sides. They are left out of sums, peak and overflow.",
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
        "Peak signal-to-noise ratio, 10 log10(max|r|² / mean d²). 20 dB more is an error ten times "
        "smaller against the greatest reference value.",
    )
    yield error(
        "sqnr",
        "SQNR",
        "dB",
        "higher",
        "Signal-to-noise ratio, 10 log10(Σr² / Σd²): the error against the whole signal, not its "
        "peak.",
    )
    yield error("mae", "Mean absolute error", "", "lower", "Mean of |d|.")
    yield error("mse", "Mean squared error", "", "lower", "Mean of d².")
    yield error("rmse", "Root mean squared error", "", "lower", "Root of the mean of d².")
    yield error("max_abs", "Greatest absolute error", "", "lower", "Greatest |d|.")
    yield error(
        "max_abs_index",
        "Where it is",
        "index",
        None,
        "Row-major index of the greatest |d|; the lowest of several.",
    )
    yield error("rel_l2", "Relative L2 error", "", "lower", "‖d‖ / ‖r‖; n/a when r is all zero.")
    yield error("euclid", "Euclidean distance", "", "lower", "‖d‖, the root of the sum of d².")
    yield error(
        "cosine",
        "Cosine similarity",
        "",
        "one",
        "Whether both point the same way. Blind to scale: read it with the norm ratio. n/a for "
        "one element and when a norm is 0.",
    )
    yield error(
        "norm_ratio",
        "Norm ratio",
        "",
        "one",
        "‖t‖ / ‖r‖: the scale that cosine similarity does not see.",
    )
    yield error("peak", "Peak", "", None, "Greatest |r| of the compared elements.")


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
    yield of("std", "deviation", f"Standard deviation (population) {compared}.")
    yield of("min", "least", f"Least value {compared}.")
    yield of("max", "greatest", f"Greatest value {compared}.")
    yield of("l2", "norm", f"L2 norm of the {side}'s compared elements.")
    yield of("nan", "NaN", f"NaN elements of the {side}.", "elements")
    yield of("inf", "infinite", f"Infinite elements of the {side}, masked ones too.", "elements")
    yield of(
        "overflow",
        "overflowing",
        f"Elements of the {side} at or beyond the greatest finite value of the target's type; n/a "
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
    yield relative(
        "max_rel", "Greatest relative error", "", "lower", f"Greatest |d| / |r| {where}."
    )
    yield relative("mean_rel", "Mean relative error", "", "lower", f"Mean of |d| / |r| {where}.")
    yield relative(
        "acc_rel", "Accumulated relative error", "", "lower", f"Sum of |t / r - 1| {where}."
    )
    yield relative(
        "rel_count",
        "Relative errors",
        "elements",
        None,
        "Compared elements whose reference is not 0, so that a relative error exists.",
    )
    yield relative(
        "rel_undefined",
        "Undefined relative errors",
        "elements",
        "lower",
        "Compared elements whose reference is 0 while the target is not.",
    )
    yield relative(
        "mean_rel_robust",
        "Robust mean relative error",
        "",
        "lower",
        "Mean of |d| / max(|r|, 1/1000 of the rms of r): near-zero references do not dominate it. "
        "N/a where mean_rel is so small that it could change no verdict.",
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
        "torch.testing for the coarser type unless others are given.",
    )


def _steps() -> Iterator[Metric]:
    yield Metric(
        id="max_ulp",
        title="Greatest distance in ulp",
        unit="ulp",
        better="lower",
        tier="default",
        explanation="How many representable numbers of the coarser type lie between the two, "
        "at worst; for integers their distance. n/a for booleans and quantized tensors.",
    )
    yield Metric(
        id="lsb",
        title="Error in quantization steps",
        unit="steps",
        better="lower",
        tier="default",
        explanation="Rms of d / quantization step; rounding alone gives 0.289. n/a unless a side "
        "is quantized to evenly spaced integers.",
    )
    yield Metric(
        id="outliers",
        title="Outliers",
        unit="elements",
        better=None,
        tier="default",
        explanation="Elements whose |r| is at least `outliers_from`; n/a where there are some that "
        "do not dominate the sums, or that hide nothing.",
    )
    yield Metric(
        id="outliers_from",
        title="Outliers from",
        unit="",
        better=None,
        tier="default",
        explanation="The |r| from which an element is an outlier, 32 times what is typical: "
        "2^(m + 5), where m is the mean of floor(log2 |r|) over r that is not 0, rounded.",
    )
    bulk = "over the elements that are no outliers; n/a unless a few outliers, at most one element "
    bulk += "in 32, hide them from the other metrics."
    yield Metric(
        id="bulk_sqnr",
        title="SQNR of the bulk",
        unit="dB",
        better="higher",
        tier="default",
        explanation=f"Sqnr {bulk}",
    )
    yield Metric(
        id="bulk_rmse",
        title="Rms error of the bulk",
        unit="",
        better="lower",
        tier="default",
        explanation=f"Rmse {bulk}",
    )
    yield Metric(
        id="bulk_max_abs",
        title="Greatest error of the bulk",
        unit="",
        better="lower",
        tier="default",
        explanation=f"Greatest |d| {bulk}",
    )
    yield Metric(
        id="error_histogram",
        title="Error histogram",
        unit="",
        better=None,
        tier="default",
        explanation="How many differences have each floor(log2 |d|); exact elements are left out.",
    )


def _on_demand() -> Iterator[Metric]:
    def asked(id: str, title: str, unit: str, better: Better | None, explanation: str) -> Metric:
        return Metric(
            id=id, title=title, unit=unit, better=better, tier="on demand", explanation=explanation
        )

    yield asked(
        "worst_slice",
        "Worst slice",
        "",
        "lower",
        "Relative L2 error of the worst slice along the channel and token axes (axis 1 and the "
        "last): one ruined channel is not seen in the whole. The norm of r counts as at least a "
        "tenth of the rms over the slices. Also measured for pairs that are not close.",
    )
    yield asked(
        "worst_slice_axis", "Axis of the worst slice", "index", None, "The axis that it lies on."
    )
    yield asked(
        "worst_slice_index",
        "Where the worst slice is",
        "index",
        None,
        "Its index on that axis; the lowest of several.",
    )
    yield asked(
        "value_histograms",
        "Value histograms",
        "",
        None,
        "How often each value occurs on each side, over common bins.",
    )
    yield asked(
        "top1",
        "Top-1 agreement",
        "share",
        "higher",
        "Share of rows whose greatest score is in the same place, judged by the reference's scores "
        "so that a tie agrees.",
    )
    yield asked(
        "topk",
        "Top-k agreement",
        "share",
        "higher",
        "Share of the k greatest scores of a row that are in the same places, judged by the "
        "reference's scores so that a tie agrees, averaged over the rows; of equal scores the "
        "target chooses the lower index.",
    )
    yield asked(
        "kl",
        "KL divergence",
        "nats",
        "lower",
        "KL(softmax r ‖ softmax t) of logits along the last axis, averaged over the rows.",
    )
    yield asked(
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
"""All metrics by id, in the order in which they are shown."""

METRIC_IDS = tuple(metric.id for metric in CATALOGUE.values() if metric.tier != "on demand")
"""Those that every measurement has."""
