"""Attention in one op: its scale, its mask, its heads, and which operand is which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.variants.protocol import Hypothesis, Seen
from syncpoint.diagnosis.variants.softmax import softmax
from syncpoint.diagnosis.variants.solving import plain, solved

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Attention:
    """An attention with all its settings, over (..., heads, places, width)."""

    query: Values
    key: Values
    value: Values
    scale: float
    seen: Mask | None = None
    """Where a query may look."""
    added: Values | None = None
    """What is added to the scores."""
    tiled: bool = False
    """Fewer heads of keys are repeated as a whole, not each in its place."""

    def result(self, index: int = 0) -> Values:
        """Output 0 is the result, 1 the logarithm of the sum of the exponentials."""
        key, value = self._spread(self.key), self._spread(self.value)
        scores = self.scale * (self.query @ np.swapaxes(key, -1, -2))
        if self.added is not None:
            scores = scores + self.added
        if self.seen is not None:
            scores = np.where(self.seen, scores, -np.inf)
        if index:
            peak = scores.max(-1)
            found: Values = peak + np.log(np.exp(scores - peak[..., None]).sum(-1))
            return found
        found = softmax(scores, -1) @ value
        return found

    def _spread(self, what: Values) -> Values:
        if what.ndim < 3 or self.query.ndim < 3 or what.shape[-3] == self.query.shape[-3]:
            return what
        times = self.query.shape[-3] // max(what.shape[-3], 1)
        if self.tiled:
            return np.concatenate([what] * times, -3)
        return np.repeat(what, times, -3)


def attentions(seen: Seen) -> Iterable[Hypothesis]:
    """The variants of an attention in one op."""
    if seen.kind != "attention":
        return
    own = _read(seen)
    if own is None:
        return
    for kind, text, other, simplicity in _variants(seen, own):
        try:
            value = other.result(seen.index)
        except ValueError:  # operands of shapes that do not fit when they change places
            continue
        yield Hypothesis(kind, text, value, simplicity=simplicity)


def _read(seen: Seen) -> Attention | None:
    """The settings of the op, proven by giving its own output."""
    operands = [a for a in seen.arguments[:3] if a is not None and a.dtype.kind == "f"]
    if len(operands) < 3 or any(a.ndim < 2 for a in operands):
        return None
    query, key, value = (np.asarray(a, np.float64) for a in operands)
    scale = seen.attribute("scale")
    made = Attention(
        query=query, key=key, value=value, scale=float(scale or query.shape[-1] ** -0.5)
    )
    mask = seen.argument(3)
    if mask is not None and mask.dtype == bool:
        made = replace(made, seen=mask)
    elif mask is not None:
        made = replace(made, added=np.asarray(mask, np.float64))
    if seen.attribute("is_causal", default=False):
        made = replace(made, seen=_causal(made))
    try:
        got = made.result(seen.index)
    except ValueError:
        return None
    if got.shape != seen.output.shape:
        return None
    same = np.allclose(got, seen.output, rtol=1e-7, atol=1e-9, equal_nan=True)
    return made if same else None


def _causal(one: Attention, diagonal: int = 0) -> Mask:
    return np.tri(one.query.shape[-2], one.key.shape[-2], diagonal, dtype=np.bool_)


def _variants(seen: Seen, own: Attention) -> Iterator[tuple[str, str, Attention, int]]:
    yield from _scales(seen, own)
    yield from _masks(seen, own)
    yield from _operands(own)


def _scales(seen: Seen, own: Attention) -> Iterator[tuple[str, str, Attention, int]]:
    width = own.query.shape[-1]
    heads = own.query.shape[-3] if own.query.ndim > 2 else 1
    known = {
        1.0: ("scale-missing", "does not scale its scores", 3),
        own.scale**2: (
            "scale-twice",
            f"scales its scores twice (by {plain(own.scale**2)} in total)",
            2,
        ),
        1 / width: ("scale-by-width", f"divides its scores by the head width {width}", 3),
        (heads * width) ** -0.5: (
            "scale-of-model",
            f"divides its scores by sqrt({heads * width}), from the width of all heads",
            2,
        ),
        width**0.5: ("scale-inverted", f"multiplies its scores by sqrt({width})", 2),
    }
    for scale, (kind, text, simplicity) in known.items():
        if not np.isclose(scale, own.scale):
            said = f"{text}; the reference scales them by {plain(own.scale)}"
            yield kind, said, replace(own, scale=scale), simplicity
    starts = [own.scale * f for f in (0.1, 0.35, 0.7, 1.4, 3.0, 10.0)]
    found = solved(seen, lambda s: replace(own, scale=s).result(seen.index), starts, known)
    if found is not None and not np.isclose(found.number, own.scale, rtol=1e-3):
        text = f"scales its scores by {plain(found.number)} instead of {plain(own.scale)}"
        yield "scale-other", text, replace(own, scale=found.number), 1


def _masks(seen: Seen, own: Attention) -> Iterator[tuple[str, str, Attention, int]]:
    causal = _causal(own)
    free = own.seen is None and own.added is None
    if free:
        yield (
            "causal-added",
            "applies a causal mask; the reference applies no mask",
            replace(own, seen=causal),
            3,
        )
        return
    if own.added is not None:
        yield "mask-ignored", "ignores its mask", replace(own, added=None), 3
        yield "mask-twice", "adds its mask twice", replace(own, added=2 * own.added), 2
        yield (
            "mask-subtracted",
            "subtracts its mask instead of adding it",
            replace(own, added=-own.added),
            1,
        )
        if own.added.ndim >= 2 and own.added.shape[-1] == own.added.shape[-2]:
            turned = replace(own, added=np.swapaxes(own.added, -1, -2))
            yield "mask-transposed", "transposes its mask", turned, 2
    if own.seen is None:
        return
    is_causal = own.seen.shape == causal.shape and bool((own.seen == causal).all())
    name = "causal" if is_causal else "mask"
    what = "causal mask" if is_causal else "mask"
    missing = f"{name}-missing" if is_causal else "mask-ignored"
    yield missing, f"ignores its {what}", replace(own, seen=None), 3
    yield f"{name}-inverted", f"inverts its {what}", replace(own, seen=~own.seen), 2
    if own.seen.ndim >= 2 and own.seen.shape[-1] == own.seen.shape[-2]:
        over = replace(own, seen=np.swapaxes(own.seen, -1, -2))
        yield f"{name}-transposed", f"transposes its {what}", over, 2
        size = own.seen.shape[-1]
        own_place = np.eye(size, dtype=np.bool_)
        next_place = np.eye(size, k=1, dtype=np.bool_)
        for where, moved in (
            ("each query sees one position too many", own.seen | next_place),
            ("no query sees its own position", own.seen & ~own_place),
        ):
            text = f"shifts its {what} by one position: {where}"
            yield f"{name}-off-by-one", text, replace(own, seen=moved), 2
    if is_causal and causal.shape[0] != causal.shape[1]:
        text = "aligns its causal mask to the bottom right instead of the top left"
        lower = _causal(own, causal.shape[1] - causal.shape[0])
        yield "causal-alignment", text, replace(own, seen=lower), 2


def _operands(own: Attention) -> Iterator[tuple[str, str, Attention, int]]:
    swapped = replace(own, query=own.key, key=own.query)
    yield "query-key-exchanged", "swaps query and key", swapped, 1
    swapped = replace(own, key=own.value, value=own.key)
    yield "key-value-exchanged", "swaps key and value", swapped, 1
    swapped = replace(own, query=own.value, value=own.query)
    yield "query-value-exchanged", "swaps query and value", swapped, 0
    if own.query.ndim > 2:
        heads, kept = own.query.shape[-3], own.key.shape[-3]
        if heads != kept:
            text = "repeats its key heads as a block (0 1 0 1) instead of one by one (0 0 1 1)"
            yield "heads-repeated", text, replace(own, tiled=True), 2
        runs = _runs(own.key)
        if heads == kept and 1 < runs < heads:
            # Heads that were repeated before this op: the same ones in the other order.
            order = np.arange(heads).reshape(runs, heads // runs).T.reshape(-1)
            text = "repeats its key heads as a block (0 1 0 1) instead of one by one (0 0 1 1)"
            other = replace(own, key=own.key[..., order, :, :], value=own.value[..., order, :, :])
            yield "heads-repeated", text, other, 2
        for name, axis in (("heads", -3), ("places", -2)):
            other = replace(own, key=np.flip(own.key, axis), value=np.flip(own.value, axis))
            yield f"key-{name}-reversed", f"reverses the {name} of its keys", other, 0
    for by in (1, -1):
        text = "shifts its keys and values by one position"
        other = replace(own, key=np.roll(own.key, by, -2), value=np.roll(own.value, by, -2))
        yield "key-places-moved", text, other, 0


def _runs(key: Values) -> int:
    """How many unlike heads there are where each stands several times in a row; else all."""
    heads = key.shape[-3]
    new = [
        h == 0 or not np.array_equal(key[..., h, :, :], key[..., h - 1, :, :]) for h in range(heads)
    ]
    runs = sum(new)
    return runs if heads % runs == 0 else heads
