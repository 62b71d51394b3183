"""Positions that the user leaves out of the measurement, as a map file says them.

mask:
  'encoder\\..*': attention_mask              # a tensor of the reference: 0 where padding is
  'decoder\\..*': '[:, 100:]'                 # these positions are left out
  scores: {drop: key_padding, axes: [0, 3]}  # 1 where padding is, along these axes
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import FormatError
from syncpoint.run.dims import format_shape
from syncpoint.run.user_regex import Pattern

Index = tuple[slice | EllipsisType, ...]
_CURE = "write the name of a tensor, a slice such as '[:, 100:]', or {keep: NAME, axes: [0, 1]}"
_SLICE = re.compile(r"\s*(-?\d{1,18})?\s*:\s*(-?\d{1,18})?\s*(?::\s*(-?\d{1,18})?\s*)?")
_INTEGER = re.compile(r"\s*-?\d{1,18}\s*")


@dataclass(frozen=True)
class Mask:
    """Which positions of some sync points do not count."""

    pattern: Pattern
    """Of names and module paths of either side."""
    tensor: str = ""
    """A tensor of the reference that tells them; "" where `index` does."""
    index: Index = ()
    keeps: bool = True
    """Whether what is chosen counts; else all but that does."""
    axes: tuple[int, ...] | None = None
    """The axes that those of the mask are; None: the first ones."""

    def __str__(self) -> str:
        return self.tensor or "the slice"

    def in_words(self) -> list[Any]:
        """What it says, as plain data."""
        axes = None if self.axes is None else list(self.axes)
        return [self.pattern.pattern, self.tensor, repr(self.index), self.keeps, axes]

    def as_entry(self) -> dict[str, Any]:
        """The entry of a map file that says the same."""
        entry: dict[str, Any] = {"keep" if self.keeps else "drop": self.tensor or self._slices()}
        if self.axes is not None:
            entry["axes"] = list(self.axes)
        return entry

    def _slices(self) -> str:
        words = ["..." if isinstance(s, EllipsisType) else _slice_text(s) for s in self.index]
        return f"[{', '.join(words)}]"

    def kept(self, shape: tuple[int, ...], values: NDArray[Any] | None) -> NDArray[np.bool_]:
        """Which elements of a tensor of this shape count. ValueError where the mask does not
        fit; `values` are those of its tensor."""
        if values is None:
            chosen = np.zeros(shape, np.bool_)
            if len(self.index) - (Ellipsis in self.index) > len(shape):
                raise ValueError(f"{len(self.index)} slices for {format_shape(shape)}")
            chosen[self.index] = True
            return chosen if self.keeps else ~chosen
        chosen = self._placed(np.asarray(values != 0), len(shape))
        if any(n not in (1, m) for n, m in zip(chosen.shape, shape, strict=True)):
            raise ValueError(f"{self} {format_shape(values.shape)} for {format_shape(shape)}")
        chosen = np.broadcast_to(chosen, shape)
        return chosen if self.keeps else ~chosen

    def _placed(self, values: NDArray[np.bool_], rank: int) -> NDArray[np.bool_]:
        """The mask with one axis for each of the tensor's."""
        axes = self.axes
        if axes is None:
            if values.ndim > rank:
                values = values.reshape([n for n in values.shape if n != 1])
            axes = tuple(range(values.ndim))
        places = [axis + rank if axis < 0 else axis for axis in axes]
        if len(places) != values.ndim or len(set(places)) < len(places):
            raise ValueError(f"{self} of {values.ndim} axes along {list(axes)}")
        if any(not 0 <= place < rank for place in places):
            raise ValueError(f"{self} of {values.ndim} axes for {rank}")
        order = np.argsort(places)
        form = [1] * rank
        for place, length in zip(places, values.shape, strict=True):
            form[place] = length
        return values.transpose(order).reshape(form)


def read_masks(said: Any, where: str) -> tuple[Mask, ...]:
    """The masks that plain data describe."""
    if not isinstance(said, dict):
        raise FormatError(f"a mapping of names under mask in {where}", repr(said)[:60], _CURE)
    return tuple(_mask(name_of(name, "mask", where), e, where) for name, e in said.items())


def masks_as_data(masks: Iterable[Mask]) -> dict[str, dict[str, Any]]:
    """Masks in the form of a map file, which `read_masks` reads."""
    return {mask.pattern.pattern: mask.as_entry() for mask in masks}


def name_of(value: Any, key: str, where: str) -> str:
    """A name in a map file; YAML reads `3` as a number, and `no` and `null` as no names at all."""
    if isinstance(value, str) or type(value) is int:
        return str(value)
    raise FormatError(f"a name under {key} in {where}", repr(value)[:60], "put it in quotes")


def _mask(name: str, entry: Any, where: str) -> Mask:
    pattern = Pattern(name, where)
    if isinstance(entry, str):
        entry = {"drop" if entry.strip().startswith("[") else "keep": entry}
    words = set(entry) if isinstance(entry, dict) else set()
    way = words & {"keep", "drop"}
    if len(way) != 1 or words - way - {"axes"}:
        raise FormatError(f"what is masked of {name!r} in {where}", repr(entry)[:60], _CURE)
    keeps = way == {"keep"}
    text = entry[way.pop()]
    axes = entry.get("axes")
    whole = isinstance(axes, list) and all(type(a) is int for a in axes)
    if not isinstance(text, str) or not text.strip() or not (axes is None or whole):
        raise FormatError(f"what is masked of {name!r} in {where}", repr(entry)[:60], _CURE)
    if not text.strip().startswith("["):
        return Mask(pattern, text, keeps=keeps, axes=None if axes is None else tuple(axes))
    if axes is not None:
        raise FormatError(f"axes with a tensor only, in {where}", repr(entry)[:60], _CURE)
    return Mask(pattern, index=_index(text, where), keeps=keeps)


def _index(text: str, where: str) -> Index:
    found: list[slice | EllipsisType] = []
    inner = text.strip()
    for word in inner[1:-1].split(",") if inner.endswith("]") else [""]:
        step = _SLICE.fullmatch(word)
        if word.strip() == "...":
            found.append(Ellipsis)
        elif step is not None:
            found.append(slice(*(None if n is None else int(n) for n in step.groups())))
        elif _INTEGER.fullmatch(word):
            at = int(word)
            found.append(slice(at, at + 1 or None))
        else:
            raise FormatError(f"a slice such as '[:, 100:]' in {where}", repr(text), _CURE)
    if found.count(Ellipsis) > 1 or any(isinstance(s, slice) and s.step == 0 for s in found):
        raise FormatError(f"a slice such as '[:, 100:]' in {where}", repr(text), _CURE)
    return tuple(found)


def _slice_text(index: slice) -> str:
    bounds = (index.start, index.stop, index.step)
    return ":".join("" if bound is None else str(bound) for bound in bounds)
