"""Parse the masks of a map file (`Mask`): patterns of names, slices or mask tensors that exclude
positions; they are applied in comparison/measuring/masking.py.

mask:
  'encoder\\..*': attention_mask              # a tensor of the reference: 0 at padding
  'decoder\\..*': '[:, 100:]'                 # these positions are excluded
  scores: {drop: key_padding, axes: [0, 3]}  # 1 at padding, along these axes
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
    """Positions that are excluded at the sync points whose names match a pattern."""

    pattern: Pattern
    """Matches names and module paths of either side."""
    tensor: str = ""
    """The tensor of the reference that holds the mask; "" if `index` selects the positions."""
    index: Index = ()
    keeps: bool = True
    """Whether the selected positions count; if not, all others do."""
    axes: tuple[int, ...] | None = None
    """The axes of the measured tensor that the mask has; None for the first ones."""

    def __str__(self) -> str:
        return self.tensor or "the slice"

    def as_list(self) -> list[Any]:
        """The mask as plain data, to identify a request."""
        axes = None if self.axes is None else list(self.axes)
        return [self.pattern.pattern, self.tensor, repr(self.index), self.keeps, axes]

    def as_entry(self) -> dict[str, Any]:
        """The mask as an entry of a map file."""
        entry: dict[str, Any] = {"keep" if self.keeps else "drop": self.tensor or self._slices()}
        if self.axes is not None:
            entry["axes"] = list(self.axes)
        return entry

    def _slices(self) -> str:
        texts = ["..." if isinstance(s, EllipsisType) else _slice_text(s) for s in self.index]
        return f"[{', '.join(texts)}]"

    def counted_elements(
        self, shape: tuple[int, ...], values: NDArray[Any] | None
    ) -> NDArray[np.bool_]:
        """Which elements of a tensor of this shape count; ValueError if the mask does not fit.

        `values` are those of the mask's tensor; None if the mask is a slice.
        """
        if values is None:
            selected = np.zeros(shape, np.bool_)
            if len(self.index) - (Ellipsis in self.index) > len(shape):
                raise ValueError(f"{len(self.index)} slices for the shape {format_shape(shape)}")
            selected[self.index] = True
            return selected if self.keeps else ~selected
        selected = self._align_axes(np.asarray(values != 0), len(shape))
        if any(n not in (1, m) for n, m in zip(selected.shape, shape, strict=True)):
            raise ValueError(
                f"{self} {format_shape(values.shape)} does not fit the shape {format_shape(shape)}"
            )
        selected = np.broadcast_to(selected, shape)
        return selected if self.keeps else ~selected

    def _align_axes(self, values: NDArray[np.bool_], rank: int) -> NDArray[np.bool_]:
        """Reshape the mask so that it has one axis for each axis of the tensor."""
        axes = self.axes
        if axes is None:
            if values.ndim > rank:
                values = values.reshape([n for n in values.shape if n != 1])
            axes = tuple(range(values.ndim))
        positions = [axis + rank if axis < 0 else axis for axis in axes]
        if len(positions) != values.ndim or len(set(positions)) < len(positions):
            raise ValueError(f"{self} has {values.ndim} axes, the map names {list(axes)}")
        if any(not 0 <= position < rank for position in positions):
            raise ValueError(f"axes {list(axes)} of {self} do not fit a tensor of {rank} axes")
        order = np.argsort(positions)
        mask_shape = [1] * rank
        for position, length in zip(positions, values.shape, strict=True):
            mask_shape[position] = length
        return values.transpose(order).reshape(mask_shape)


def read_masks(entries: Any, where: str) -> tuple[Mask, ...]:
    """Read masks from the plain data of a map file."""
    if not isinstance(entries, dict):
        raise FormatError(
            f"mask in {where} must map names to masks, not {repr(entries)[:60]}", cure=_CURE
        )
    return tuple(
        _read_mask(read_name(name, "mask", where), entry, where) for name, entry in entries.items()
    )


def masks_as_data(masks: Iterable[Mask]) -> dict[str, dict[str, Any]]:
    """The masks as the plain data of a map file, which `read_masks` reads."""
    return {mask.pattern.pattern: mask.as_entry() for mask in masks}


def read_name(value: Any, key: str, where: str) -> str:
    """Read a name in a map file. YAML reads `3` as a number, `no` as false and `null` as null."""
    if isinstance(value, str) or type(value) is int:
        return str(value)
    raise FormatError(
        f"{repr(value)[:60]} under {key} in {where} is not a name", cure="put it in quotes"
    )


def _read_mask(name: str, entry: Any, where: str) -> Mask:
    pattern = Pattern(name, where)
    if isinstance(entry, str):
        entry = {"drop" if entry.strip().startswith("[") else "keep": entry}
    keys = set(entry) if isinstance(entry, dict) else set()
    modes = keys & {"keep", "drop"}
    problem = f"the mask of {name!r} in {where} cannot be read: {repr(entry)[:60]}"
    if len(modes) != 1 or keys - modes - {"axes"}:
        raise FormatError(problem, cure=_CURE)
    keeps = modes == {"keep"}
    text = entry[modes.pop()]
    axes = entry.get("axes")
    is_list = isinstance(axes, list) and all(type(axis) is int for axis in axes)
    if not isinstance(text, str) or not text.strip() or not (axes is None or is_list):
        raise FormatError(problem, cure=_CURE)
    if not text.strip().startswith("["):
        return Mask(pattern, text, keeps=keeps, axes=None if axes is None else tuple(axes))
    if axes is not None:
        raise FormatError(
            f"the mask of {name!r} in {where} has axes, which apply only to a mask that names a"
            f" tensor, not to the slice {text[:60]!r}",
            cure="remove axes from this mask",
        )
    return Mask(pattern, index=_read_index(text, where), keeps=keeps)


def _read_index(text: str, where: str) -> Index:
    slices: list[slice | EllipsisType] = []
    inner = text.strip()
    problem = f"{text!r} in {where} is not a slice such as '[:, 100:]'"
    for part in inner[1:-1].split(",") if inner.endswith("]") else [""]:
        slice_match = _SLICE.fullmatch(part)
        if part.strip() == "...":
            slices.append(Ellipsis)
        elif slice_match is not None:
            slices.append(slice(*(None if n is None else int(n) for n in slice_match.groups())))
        elif _INTEGER.fullmatch(part):
            position = int(part)
            slices.append(slice(position, position + 1 or None))
        else:
            raise FormatError(problem, cure=_CURE)
    if slices.count(Ellipsis) > 1 or any(isinstance(s, slice) and s.step == 0 for s in slices):
        raise FormatError(problem, cure=_CURE)
    return tuple(slices)


def _slice_text(index: slice) -> str:
    bounds = (index.start, index.stop, index.step)
    return ":".join("" if bound is None else str(bound) for bound in bounds)
