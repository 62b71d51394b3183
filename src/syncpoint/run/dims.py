"""Axis names of a tensor (`b s h(tp) d`, with the sharding groups): parse and check; format shapes
as text.

One word per axis. A word in parentheses after it names the group of ranks across which this axis is
sharded, so that each rank holds a piece; two groups are separated by a comma, the outer one first.
`1` stands for an axis of length one that has no name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from syncpoint.errors import InputError

_AXIS = re.compile(r"(?P<name>[A-Za-z_]\w*|1)(?:\((?P<groups>[^()]*)\))?(?:\s+|$)")
_GROUP = re.compile(r"[A-Za-z_]\w*")
_CURE = 'write one word per axis, with the group of ranks if it is sharded: "b s h(tp) d"'


@dataclass(frozen=True)
class Axis:
    """One axis of a tensor."""

    name: str
    sharded: tuple[str, ...] = ()
    """The groups of ranks that hold pieces of it, the outermost first; () if it is not sharded."""

    def __str__(self) -> str:
        return f"{self.name}({','.join(self.sharded)})" if self.sharded else self.name


@dataclass(frozen=True)
class Dims:
    """The axes of a tensor in order; their text is the column `layout` of tensors.parquet."""

    axes: tuple[Axis, ...]

    @classmethod
    def parse(cls, text: str) -> Dims:
        """Parse the form above; raise InputError for any other text."""
        if not isinstance(text, str):
            raise InputError(f"names of axes must be text, not {repr(text)[:80]}", cure=_CURE)
        stripped = text.strip()
        axes, position = [], 0
        while position < len(stripped):
            match = _AXIS.match(stripped, position)
            if match is None:
                raise InputError(f"{text!r} does not name axes", cure=_CURE)
            axes.append(Axis(match["name"], _parse_groups(match["groups"], text)))
            position = match.end()
        axis_names = [axis.name for axis in axes if axis.name != "1"]
        groups = [group for axis in axes for group in axis.sharded]
        for kind, names in (("axis", axis_names), ("group of ranks", groups)):
            repeated = next((name for name in names if names.count(name) > 1), None)
            if repeated is not None:
                raise InputError(f"the {kind} {repeated} occurs twice in {text!r}", cure=_CURE)
        return cls(tuple(axes))

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise InputError unless these can be the axes of a tensor of this shape."""
        if len(self.axes) != len(shape):
            raise InputError(
                f"shape mismatch: {str(self)!r} names {len(self.axes)} axes, "
                f"but the shape {list(shape)} has {len(shape)}",
                cure=_CURE,
            )
        for index, (axis, length) in enumerate(zip(self.axes, shape, strict=True)):
            if axis.name == "1" and length != 1:
                raise InputError(
                    f"shape mismatch: {str(self)!r} says that axis {index} has length 1, "
                    f"but the shape is {list(shape)}",
                    cure=f"give axis {index} a name",
                )

    def __str__(self) -> str:
        return " ".join(map(str, self.axes))


def format_shape(shape: Iterable[int]) -> str:
    """Format a shape: 1x3x224x224."""
    return "x".join(map(str, shape)) or "scalar"


def _parse_groups(group_names: str | None, text: str) -> tuple[str, ...]:
    if group_names is None:
        return ()
    groups = tuple(name.strip() for name in group_names.split(","))
    if not all(_GROUP.fullmatch(group) for group in groups):
        raise InputError(f"{text!r} has invalid names of rank groups in parentheses", cure=_CURE)
    return groups
