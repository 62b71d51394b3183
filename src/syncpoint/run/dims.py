"""Names of the axes of a tensor: `b s h(tp) d`.

One word an axis. A word in parentheses after it names the group of ranks along which this axis is
cut into shards, so that each rank holds a piece; two groups are parted by a comma, the outer one
first. `1` stands for an axis of length one that has no name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from syncpoint.errors import InputError

_AXIS = re.compile(r"(?P<name>[A-Za-z_]\w*|1)(?:\((?P<groups>[^()]*)\))?(?:\s+|$)")
_GROUP = re.compile(r"[A-Za-z_]\w*")
_CURE = 'write one word an axis, and where it is sharded the group of ranks: "b s h(tp) d"'


@dataclass(frozen=True)
class Axis:
    """One axis of a tensor."""

    name: str
    sharded: tuple[str, ...] = ()
    """The groups of ranks that hold pieces of it, the outermost first; () if each has it whole."""

    def __str__(self) -> str:
        return f"{self.name}({','.join(self.sharded)})" if self.sharded else self.name


@dataclass(frozen=True)
class Dims:
    """The axes of a tensor in order; its text is what `layout` holds in tensors.parquet."""

    axes: tuple[Axis, ...]

    @classmethod
    def parse(cls, text: str) -> Dims:
        """What `text` says; an InputError where it is not of the form above."""
        if not isinstance(text, str):
            raise InputError("names of axes as text", repr(text)[:80], _CURE)
        stripped = text.strip()
        axes, at = [], 0
        while at < len(stripped):
            found = _AXIS.match(stripped, at)
            if found is None:
                raise InputError("names of axes", repr(text), _CURE)
            axes.append(Axis(found["name"], _groups(found["groups"], text)))
            at = found.end()
        named = [axis.name for axis in axes if axis.name != "1"]
        groups = [group for axis in axes for group in axis.sharded]
        for what, words in (("a name", named), ("a group of ranks", groups)):
            again = next((word for word in words if words.count(word) > 1), None)
            if again is not None:
                raise InputError(f"{what} once in the axes {text!r}", f"{again} twice")
        return cls(tuple(axes))

    def check(self, shape: tuple[int, ...]) -> None:
        """An InputError unless these can be the axes of a tensor of this shape."""
        if len(self.axes) != len(shape):
            raise InputError(
                f"{len(shape)} axes for the shape {list(shape)}",
                f"{len(self.axes)} in {str(self)!r}",
                _CURE,
            )
        for axis, length in zip(self.axes, shape, strict=True):
            if axis.name == "1" and length != 1:
                raise InputError(
                    f"an axis of length one where {str(self)!r} has 1", f"the shape {list(shape)}"
                )

    def __str__(self) -> str:
        return " ".join(map(str, self.axes))


def format_shape(shape: Iterable[int]) -> str:
    """A shape as people write it: 1x3x224x224."""
    return "x".join(map(str, shape)) or "scalar"


def _groups(said: str | None, text: str) -> tuple[str, ...]:
    if said is None:
        return ()
    groups = tuple(word.strip() for word in said.split(","))
    if not all(_GROUP.fullmatch(group) for group in groups):
        raise InputError("names of groups of ranks in parentheses", repr(text), _CURE)
    return groups
