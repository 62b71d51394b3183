"""The steps of an attention that is spread over ops: scale, mask, heads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.variants.normalization import constant
from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, Seen
from syncpoint.diagnosis.variants.solving import plain, solved

Values = NDArray[np.float64]
_MASKED = -1e4
"""What is added or filled in to keep a place out of a softmax is at most this."""


def scores(seen: Seen) -> Iterable[Hypothesis]:
    """The variants of a scaling, a mask, or a rearrangement of heads."""
    if seen.kind in ("mul", "div"):
        yield from _scales(seen)
    elif seen.kind == "where":
        yield from _filled(seen)
    elif seen.kind == "add":
        yield from _added(seen)
    elif seen.kind in ("triu", "tril"):
        yield from _triangles(seen)
    elif seen.kind in ("ge", "le", "greater", "less", "greaterorequal", "lessorequal"):
        yield from _compared(seen)
    elif seen.kind in ("reshape", "transpose"):
        yield from _rearranged(seen)


def _scales(seen: Seen) -> Iterator[Hypothesis]:
    found = constant(seen)
    if found is None or found[0].dtype.kind != "f" or found[0].shape != seen.output.shape:
        return
    x, number = np.asarray(found[0], np.float64), found[1]
    if number == 0 or not np.isfinite(number):
        return
    factor = 1 / number if seen.kind == "div" else number
    if not np.allclose(x * factor, seen.output, rtol=1e-9) or factor == 1:
        return
    text = f"does not apply the scale {plain(factor)}"
    yield Hypothesis("scale-missing", text, x, simplicity=3)
    text = f"applies the scale {plain(factor)} twice"
    yield Hypothesis("scale-twice", text, x * factor**2, simplicity=2)
    text = f"divides by the scale {plain(factor)} instead of multiplying by it"
    yield Hypothesis("scale-inverted", text, x / factor, simplicity=1)
    if factor > 0:
        starts = [factor * f for f in (0.1, 0.35, 0.7, 1.4, 3.0, 10.0)]
        best = solved(seen, lambda s: x * s, starts)
        if best is not None and not np.isclose(best.number, factor, rtol=1e-3):
            text = f"applies the scale {plain(best.number)} instead of {plain(factor)}"
            yield Hypothesis("scale-other", text, best.value, simplicity=1)


def _filled(seen: Seen) -> Iterator[Hypothesis]:
    """A place that is filled with a number where a mask says so."""
    known = [a for a in seen.arguments if a is not None]
    masks = [a for a in known if a.dtype == bool]
    others = [a for a in known if a.dtype.kind == "f"]
    if len(masks) != 1 or not others:
        return
    mask = np.broadcast_to(masks[0], seen.output.shape)
    x = max(others, key=lambda a: a.size)
    if x.size == 1 or not mask.any():
        return
    x = np.broadcast_to(np.asarray(x, np.float64), seen.output.shape)
    # Which of the two ways a place is filled is not the same in all runtimes.
    kept = np.isclose(seen.output, x, rtol=1e-12, atol=0, equal_nan=True)
    hidden = mask if not (kept & ~mask).sum() < (~mask).sum() else ~mask
    filled = seen.output[hidden]
    if not filled.size or not (filled == filled[0]).all():
        return
    yield from _hidden(x, hidden, float(filled[0]))


def _added(seen: Seen) -> Iterator[Hypothesis]:
    """A mask that is added: very low where nothing is to be seen, 0 elsewhere."""
    pair = [a for a in seen.arguments if a is not None and a.dtype.kind == "f"]
    if len(pair) != 2:
        return
    masks = [a for a in pair if a.size > 1 and (a <= _MASKED).any() and (a <= 0).all()]
    if len(masks) != 1 or not (masks[0] == 0).any():
        return
    (x,) = (a for a in pair if a is not masks[0])
    shape = seen.output.shape
    x, mask = np.broadcast_to(x, shape), np.broadcast_to(masks[0], shape)
    yield from _hidden(np.asarray(x, np.float64), mask <= _MASKED, float(mask.min()), added=True)


def _hidden(x: Values, hidden: Array, low: float, added: bool = False) -> Iterator[Hypothesis]:
    def with_mask(where: Array) -> Values:
        if added:
            return x + np.where(where, low, 0.0)
        return np.where(where, low, x)

    rank_square = x.ndim >= 2 and x.shape[-1] == x.shape[-2]
    causal = rank_square and bool((hidden == ~np.tri(x.shape[-1], dtype=bool)).all())
    name, what = ("causal", "causal mask") if causal else ("mask", "mask")
    missing = "causal-missing" if causal else "mask-ignored"
    yield Hypothesis(missing, f"ignores its {what}", x, simplicity=3)
    text = f"inverts its {what}"
    yield Hypothesis(f"{name}-inverted", text, with_mask(~hidden), simplicity=2)
    if added:
        text = "adds its mask twice"
        yield Hypothesis("mask-twice", text, with_mask(hidden) + np.where(hidden, low, 0.0))
    if not rank_square:
        return
    text = f"transposes its {what}"
    turned = np.swapaxes(hidden, -1, -2)
    yield Hypothesis(f"{name}-transposed", text, with_mask(turned), simplicity=2)
    size = x.shape[-1]
    beyond = np.tri(size, k=1, dtype=bool) & ~np.tri(size, dtype=bool)
    text = f"shifts its {what} by one position: one position too many is visible"
    yield Hypothesis(f"{name}-off-by-one", text, with_mask(hidden & ~beyond), simplicity=2)
    here = hidden | np.eye(size, dtype=bool)
    text = f"shifts its {what} by one position: no query sees its own position"
    yield Hypothesis(f"{name}-off-by-one", text, with_mask(here), simplicity=2)


def _triangles(seen: Seen) -> Iterator[Hypothesis]:
    x = seen.argument(0)
    if x is None or x.ndim < 2:
        return
    own = np.triu if seen.kind == "triu" else np.tril
    other = np.tril if seen.kind == "triu" else np.triu
    diagonal = int(seen.attribute("diagonal", "k", default=0))
    for by in (1, -1):
        text = f"cuts its triangle at diagonal {diagonal + by} instead of {diagonal}"
        yield Hypothesis("causal-off-by-one", text, own(x, diagonal + by), simplicity=3)
    yield Hypothesis(
        "causal-missing",
        f"returns its input unchanged; the reference applies {seen.kind}",
        x,
        simplicity=2,
    )
    text = f"computes {'tril' if seen.kind == 'triu' else 'triu'} instead of {seen.kind}"
    yield Hypothesis("causal-transposed", text, other(x, -diagonal), simplicity=2)
    rest = np.asarray(np.where(own(np.ones_like(x), diagonal), 0, x), x.dtype)
    yield Hypothesis("causal-inverted", "keeps what lies outside its triangle", rest, simplicity=1)


def _compared(seen: Seen) -> Iterator[Hypothesis]:
    a, b = seen.argument(0), seen.argument(1)
    number = seen.attribute("other")
    if b is None and isinstance(number, int | float):
        b = np.asarray(number)
    if a is None or b is None:
        return
    own = {
        **{"ge": np.greater_equal, "greaterorequal": np.greater_equal, "greater": np.greater},
        **{"le": np.less_equal, "lessorequal": np.less_equal, "less": np.less},
    }[seen.kind]
    strict = {
        np.greater_equal: np.greater,
        np.greater: np.greater_equal,
        np.less_equal: np.less,
        np.less: np.less_equal,
    }[own]
    strict_text = "compares strictly; the reference counts equal positions too"
    loose_text = "counts equal positions too; the reference compares strictly"
    text = strict_text if own in (np.greater_equal, np.less_equal) else loose_text
    yield Hypothesis("causal-off-by-one", text, strict(a, b), simplicity=3)
    text = "compares its operands in the opposite order"
    yield Hypothesis("causal-transposed", text, own(b, a), simplicity=1)
    yield Hypothesis(
        "causal-inverted", "returns the opposite of its comparison", ~own(a, b), simplicity=2
    )


def _rearranged(seen: Seen) -> Iterator[Hypothesis]:
    x = seen.argument(0)
    if x is None or x.size != seen.output.size or x.ndim < 2:
        return
    if seen.kind == "transpose":
        text = "reshapes instead of transposing: heads and positions are mixed up"
        yield Hypothesis("transpose-missing", text, x.reshape(seen.output.shape), simplicity=1)
        return
    at = _merged(x.shape, seen.output.shape)
    if at is None:
        return
    other = np.swapaxes(x, at, at + 1).reshape(seen.output.shape)
    first = np.take(x, [0], at + 1)
    if x.shape[at + 1] > 1 and np.array_equal(np.broadcast_to(first, x.shape), x):
        text = "repeats its heads as a block (0 1 0 1) instead of one by one (0 0 1 1)"
        yield Hypothesis("heads-repeated", text, other, simplicity=3)
    else:
        text = f"merges axes {at} and {at + 1} in the opposite order"
        yield Hypothesis("joined-order", text, other, simplicity=1)


def _merged(before: tuple[int, ...], after: tuple[int, ...]) -> int | None:
    """The axis that was joined with the next, where that is all that was done."""
    if len(before) != len(after) + 1:
        return None
    for at in range(len(after)):
        joined = (*before[:at], before[at] * before[at + 1], *before[at + 2 :])
        if joined == after and before[at] > 1 and before[at + 1] > 1:
            return at
    return None
