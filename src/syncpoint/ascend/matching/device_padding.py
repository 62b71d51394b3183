"""The padding of blocked layouts: the size that each padded axis is cropped to."""

from __future__ import annotations

Shape = tuple[int, ...]

_MAX_RANK = 8
"""Above this rank shapes are matched only axis by axis."""


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
