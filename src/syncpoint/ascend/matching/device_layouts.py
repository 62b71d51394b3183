"""Undo the layouts of a device (blocks, fractal formats, padding): shape, transposition, and slices
that crop each padded axis, as a view.

A device splits axes into blocks of about 16 (C into C1 and C0), pads the last block, and reorders
the pieces. Each layout here is undone by reshape and transpose alone; the padding is then cropped
at the end of each axis. Where a header does not say enough, or no view can gather the elements of a
layout, there is no view: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

_MAX_RANK = 8
"""Above this rank shapes are matched only axis by axis."""

ND = "ND"
"""Axes without names."""
AXIS_ORDERS = {4: ("NCHW", "NHWC", "HWCN", "CHWN"), 5: ("NCDHW", "NDHWC", "DHWCN", "DHWNC")}
"""The usual orders of the axes of images and weights, by rank."""
_PLAIN = {n: n for n in (*AXIS_ORDERS[4], *AXIS_ORDERS[5], "CN", "NC", "NCL")} | {
    "FILTER_HWCK": "HWCN"
}
"""Layouts that only order the axes."""
FOLDED_LAYOUTS = frozenset(
    {"FRACTAL_Z", "FRACTAL_Z_G", "FRACTAL_Z_C04", "FRACTAL_Z_3D", "FRACTAL_Z_3D_TRANSPOSE"}
)
"""Layouts that merge axes, so that the logical shape must be known to split them."""
_MAX_AXIS_SIZE = 1 << 40

Shape = tuple[int, ...]


def crop_sizes(padded: Shape, blocks: Shape, shape: Shape, strict: bool = False) -> Shape | None:
    """The size of each padded axis without padding, so that the result is `shape`, apart from axes
    of length one. None if there is no such crop, or more than one."""
    if len(padded) == len(shape) and all(map(_fits, padded, blocks, shape)):
        return shape
    if strict or max(len(padded), len(shape)) > _MAX_RANK:
        return None
    crops: set[Shape] = set()

    def search(crop: Shape, index: int) -> None:
        """Extend a crop of the first axes; `index` is the next axis of the shape."""
        axis = len(crop)
        size = shape[index] if index < len(shape) else None
        if size == 1:
            search(crop, index + 1)
        if axis == len(padded):
            if size is None:
                crops.add(crop)
            return
        if size is not None and size != 1 and _fits(padded[axis], blocks[axis], size):
            search((*crop, size), index + 1)
        if _fits(padded[axis], blocks[axis], 1):
            search((*crop, 1), index)

    search((), 0)
    return crops.pop() if len(crops) == 1 else None


def _fits(padded: int, block: int, size: int) -> bool:
    """Whether an axis of this size is padded to `padded`."""
    return padded == size or (0 < size < padded and -(-size // block) * block == padded)


def is_within(small: Shape, large: Shape) -> bool:
    """Whether no axis of one shape is longer than the same axis of the other."""
    return len(small) == len(large) and all(s <= n for s, n in zip(small, large, strict=True))


@dataclass(frozen=True)
class Logical:
    """How a tensor of a device becomes the logical tensor."""

    view: str
    axes: str
    """One letter per axis, such as NCHW; "ND" if the axes have no names."""
    shape: Shape
    """The shape after the view."""
    blocks: Shape = ()
    """For each axis the block size that it is padded to; 1 if it is not padded."""
    cropped: bool = False
    """Whether the padding is cropped already."""


class ViewSteps:
    """Builds the text of a view; steps without an effect are omitted."""

    def __init__(self, shape: Shape, view: str = "") -> None:
        self.shape = shape
        self._steps = [view] if view else []

    def transpose(self, *axes: int) -> ViewSteps:
        """Put the axes in this order."""
        self.shape = tuple(self.shape[a] for a in axes)
        if list(axes) != sorted(axes):
            self._steps.append(f"transpose({','.join(map(str, axes))})")
        return self

    def reshape(self, *shape: int) -> ViewSteps:
        """Give the elements another shape, in row-major order."""
        if shape != self.shape:
            self._steps.append(f"reshape({','.join(map(str, shape))})")
        self.shape = shape
        return self

    def crop(self, shape: Shape) -> ViewSteps:
        """Cut off the end of each axis that is longer than this."""
        for axis, (size, end) in enumerate(zip(self.shape, shape, strict=True)):
            if size != end:
                self._steps.append(f"slice({axis},0,{end})")
        self.shape = shape
        return self

    def __str__(self) -> str:
        return " ".join(self._steps)


def to_logical(
    shape: Sequence[int], layout: str, original_shape: Sequence[int] = (), sub_format: int = 0
) -> Logical | None:
    """The logical tensor in the natural axis order of its layout; None if it is not known. The
    padding is cropped if the original shape is known."""
    shape, original = tuple(shape), positive_shape(original_shape)
    candidates: dict[str, Logical] = {}
    orders = AXIS_ORDERS.get(len(original), ()) if original else ()
    for order in (*orders, ND):
        sizes = dict(zip(order, original, strict=True)) if order != ND else {}
        logical = unfold_layout(shape, layout, sizes, sub_format)
        if logical is None:
            continue
        if not original:
            return logical
        crop = _crop_to_original(logical, order, original)
        if crop is not None:
            steps = ViewSteps(logical.shape, logical.view).crop(crop)
            candidates[str(steps)] = replace(logical, view=str(steps), shape=crop, cropped=True)
    return next(iter(candidates.values())) if len(candidates) == 1 else None


def _crop_to_original(logical: Logical, order: str, original: Shape) -> Shape | None:
    """The sizes without padding, in the order of the logical axes; None if they do not fit."""
    if order == ND or logical.axes == ND:
        # An original shape without axis names is used only in its own order.
        return crop_sizes(logical.shape, logical.blocks, original)
    if sorted(order) != sorted(logical.axes):
        return None
    sizes = dict(zip(order, original, strict=True))
    return crop_sizes(
        logical.shape, logical.blocks, tuple(sizes[a] for a in logical.axes), strict=True
    )


def transpose_axes(axes_from: str, axes_to: str) -> str | None:
    """The view from one order of axes to another; None if the axes are not the same."""
    if axes_from == axes_to:
        return ""
    if sorted(axes_from) != sorted(axes_to) or ND in (axes_from, axes_to):
        return None
    return f"transpose({','.join(str(axes_from.index(a)) for a in axes_to)})"


def positive_shape(shape: Sequence[int]) -> Shape:
    """The shape that a device declares; () if it is not valid, such as one with dynamic axes."""
    return tuple(shape) if all(0 < d < _MAX_AXIS_SIZE for d in shape) else ()


def unfold_layout(
    shape: Shape, layout: str, sizes: Mapping[str, int], sub_format: int
) -> Logical | None:
    """The logical tensor with its padding; `sizes` has the true sizes of the known axes."""
    if layout in _PLAIN and len(shape) == len(_PLAIN[layout]):
        return Logical("", _PLAIN[layout], shape, (1,) * len(shape))
    if layout in _PLAIN or layout in ("", ND):
        return Logical("", ND, shape, (1,) * len(shape))
    if layout in ("FRACTAL_NZ", "FRACTAL_ZZ"):
        return _fractal_matrix(shape, layout)
    if layout in _SPLIT and len(shape) == len(_SPLIT[layout][0]):
        return _join_channels(shape, *_SPLIT[layout])
    if len(shape) != 4 or 0 in shape or 0 in sizes.values():
        return None
    if layout in ("FRACTAL_Z", "FRACTAL_Z_G"):
        return _fractal_z(shape, sizes, max(sub_format, 1))
    if layout == "FRACTAL_Z_C04":
        return _fractal_z_c04(shape, sizes)
    if layout in ("FRACTAL_Z_3D", "FRACTAL_Z_3D_TRANSPOSE"):
        return _fractal_z_3d(shape, sizes, swapped=layout.endswith("TRANSPOSE"))
    return None


_SPLIT = {
    "NC1HWC0": ("N1HW0", "NCHW"),
    "NC1HWC0_C04": ("N1HW0", "NCHW"),
    "C1HWNC0": ("1HWN0", "NCHW"),
    "C1HWC0": ("1HW0", "CHW"),
    "NHWC1C0": ("NHW10", "NHWC"),
    "NDC1HWC0": ("ND1HW0", "NCDHW"),
}
"""Layouts with C in two pieces, 1 and 0, and the natural order of their axes."""


def _join_channels(shape: Shape, letters: str, axes: str) -> Logical:
    order = [letters.index(a) for a in axes.replace("C", "10")]
    sizes = dict(zip(letters, shape, strict=True))
    sizes["C"] = sizes["1"] * sizes["0"]
    steps = ViewSteps(shape).transpose(*order).reshape(*(sizes[a] for a in axes))
    blocks = tuple(sizes["0"] if a == "C" else 1 for a in axes)
    return Logical(str(steps), axes, steps.shape, blocks)


def _fractal_matrix(shape: Shape, layout: str) -> Logical | None:
    """Matrices in blocks: rows of blocks after columns of blocks (NZ), or before (ZZ)."""
    if len(shape) < 4:
        return None
    lead = len(shape) - 4
    rows, columns = (lead + 1, lead) if layout == "FRACTAL_NZ" else (lead, lead + 1)
    row, column = lead + 2, lead + 3
    steps = ViewSteps(shape).transpose(*range(lead), rows, row, columns, column)
    matrix = (shape[rows] * shape[row], shape[columns] * shape[column])
    steps.reshape(*shape[:lead], *matrix)
    blocks = (*(1,) * lead, shape[row], shape[column])
    return Logical(str(steps), ND, steps.shape, blocks)


def _fractal_z(shape: Shape, sizes: Mapping[str, int], groups: int) -> Logical | None:
    """Weights as (C1 H W, N1, N0, C0); of a grouped convolution, one such block for each group."""
    first, n1, n0, c0 = shape
    if {"N", "C", "H", "W"} != sizes.keys() or sizes["N"] % groups:
        return None
    n, c, h, w = sizes["N"] // groups, sizes["C"], sizes["H"], sizes["W"]
    if groups > 1 and (c % c0 or n % n0):
        return None  # several groups share a block, along its diagonal: no view gathers them
    c1 = -(-c // c0)
    if first != groups * c1 * h * w or n1 != -(-n // n0):
        return None
    steps = ViewSteps(shape).reshape(groups, c1, h, w, n1, n0, c0).transpose(0, 4, 5, 1, 6, 2, 3)
    steps.reshape(groups * n1 * n0, c1 * c0, h, w)
    return Logical(str(steps), "NCHW", steps.shape, (n0 if groups == 1 else 1, c0, 1, 1))


def _fractal_z_c04(shape: Shape, sizes: Mapping[str, int]) -> Logical | None:
    """Weights with at most four channels: H, W and C, padded to four, in one axis of blocks."""
    k1, n1, n0, k0 = shape
    if {"N", "C", "H", "W"} != sizes.keys() or sizes["C"] > 4:
        return None
    h, w = sizes["H"], sizes["W"]
    if k1 != -(-h * w * 4 // k0) or n1 != -(-sizes["N"] // n0):
        return None
    steps = ViewSteps(shape).transpose(1, 2, 0, 3).reshape(n1 * n0, k1 * k0)
    steps.crop((n1 * n0, h * w * 4)).reshape(n1 * n0, h, w, 4)
    return Logical(str(steps), "NHWC", steps.shape, (n0, 1, 1, 4))


def _fractal_z_3d(shape: Shape, sizes: Mapping[str, int], swapped: bool) -> Logical | None:
    """Weights as (D C1 H W, N1, N0, C0), or with the parts of N and C exchanged."""
    if {"N", "C", "D", "H", "W"} != sizes.keys():
        return None
    first, n1, n0, c0 = shape
    outer, inner = ("N", "C") if swapped else ("C", "N")
    d, h, w = sizes["D"], sizes["H"], sizes["W"]
    c1 = -(-sizes[outer] // c0)
    if first != d * c1 * h * w or n1 != -(-sizes[inner] // n0):
        return None
    steps = ViewSteps(shape).reshape(d, c1, h, w, n1, n0, c0)
    blocks = {inner: n0, outer: c0}
    pieces = {inner: (4, 5), outer: (1, 6)}
    steps.transpose(*pieces["N"], *pieces["C"], 0, 2, 3)
    merged = {inner: n1 * n0, outer: c1 * c0}
    steps.reshape(merged["N"], merged["C"], d, h, w)
    return Logical(str(steps), "NCDHW", steps.shape, (blocks["N"], blocks["C"], 1, 1, 1))
