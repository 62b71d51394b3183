"""The padding of blocked layouts: how far each axis of a padded tensor is cropped."""

from __future__ import annotations

Shape = tuple[int, ...]

_MAX_RANK = 8
"""Beyond it shapes are matched only axis by axis."""


def crop_sizes(padded: Shape, blocks: Shape, wanted: Shape, strict: bool = False) -> Shape | None:
    """The size of each padded axis without its padding, so that axes of length one apart they are
    the wanted ones; None where they cannot be, or not in one way only."""
    if len(padded) == len(wanted) and all(map(_fits, padded, blocks, wanted)):
        return wanted
    if strict or max(len(padded), len(wanted)) > _MAX_RANK:
        return None
    found: set[Shape] = set()

    def search(made: Shape, at: int) -> None:
        axis = len(made)
        if at < len(wanted) and wanted[at] == 1:
            search(made, at + 1)
        if axis == len(padded):
            if at == len(wanted):
                found.add(made)
            return
        if at < len(wanted) and wanted[at] != 1 and _fits(padded[axis], blocks[axis], wanted[at]):
            search((*made, wanted[at]), at + 1)
        if _fits(padded[axis], blocks[axis], 1):
            search((*made, 1), at)

    search((), 0)
    return found.pop() if len(found) == 1 else None


def _fits(padded: int, block: int, wanted: int) -> bool:
    return padded == wanted or (0 < wanted < padded and -(-wanted // block) * block == padded)


def is_within(small: Shape, large: Shape) -> bool:
    """Whether no axis of one shape is longer than that of the other."""
    return len(small) == len(large) and all(s <= n for s, n in zip(small, large, strict=True))
