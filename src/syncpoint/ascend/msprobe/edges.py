"""Who reads what in a dump that does not say it.

What is known for certain: a module's record is written when it returns, after those of everything
that was called inside it; a backward call works on what its forward call left; and an op that was
given the very content that an earlier op gave out reads it from there. Constant tensors are alike
wherever they come from, so they prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from syncpoint.ascend.msprobe.names import GRADIENTS, Named
from syncpoint.run.model import Edge, OpKey, Role, Tensor, TensorKey

Content = tuple[object, ...]


@dataclass
class Entry:
    """One entry of dump.json as far as edges go."""

    key: OpKey
    named: Named
    parent: str = ""
    """Name of the module that called it."""
    tensors: list[Tensor] = field(default_factory=list)


def content(tensor: Tensor) -> Content | None:
    """What identifies the values of a tensor; None where nothing does."""
    figures = tensor.statistics
    if figures is None or not math.isfinite(figures.max) or not math.isfinite(figures.min):
        return None
    if figures.max == figures.min:
        return None
    shaped = (tensor.dtype, tensor.shape)
    if tensor.digest:
        return (*shaped, tensor.digest_kind, tensor.digest)
    if math.isnan(figures.mean) or math.isnan(figures.l2):
        return None
    return (*shaped, figures.max, figures.min, figures.mean, figures.l2)


def edges(entries: Sequence[Entry]) -> list[tuple[Edge, ...]]:
    """What each entry reads, in the order of its arguments; only from entries before it."""
    tracing = _Tracing(entries)
    found = []
    for entry in entries:
        found.append(tracing.reads(entry))
        tracing.remember(entry)
    return found


class _Tracing:
    """What is known of the entries so far."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._weights = _weights(entries)
        self._produced: dict[Content, Edge] = {}
        self._inside: dict[str, list[Edge]] = {}
        self._seen: dict[str, OpKey] = {}
        self._returning = ""
        """The last backward call so far: gradients of which nothing else is known come after
        it."""

    def reads(self, entry: Entry) -> tuple[Edge, ...]:
        """What an entry reads."""
        named = entry.named
        found: dict[Edge, None] = {}
        traced = True
        for tensor in entry.tensors:
            edge = self._given(entry, tensor)
            if edge is not None:
                found[edge] = None
            elif tensor.key.role is Role.INPUT:
                traced = False
        found.update(dict.fromkeys(self._inside.get(named.name, [])))
        if named.way == GRADIENTS:
            # What a module's parameters are given is made by its backward pass.
            backward = named.of("backward")
            found.update(dict.fromkeys(self._inside.get(backward, [])))
            made = (self._producer(tensor) for tensor in entry.tensors)
            found.update({edge: None for edge in made if edge is not None})
            traced = backward in self._seen
            found.update(self._named(backward))
        if named.way in ("backward", GRADIENTS):
            found.update(self._named(named.of("forward")))
            found.update({} if traced else self._named(self._returning))
        return tuple(found)

    def remember(self, entry: Entry) -> None:
        """What later entries may read of an entry."""
        self._seen[entry.named.name] = entry.key
        if entry.named.way == "backward":
            self._returning = entry.named.name
        for tensor in entry.tensors:
            if tensor.key.role is not Role.OUTPUT:
                continue
            made = Edge(entry.key, tensor.key.index)
            if entry.parent:
                self._inside.setdefault(entry.parent, []).append(made)
            what = content(tensor)
            if what is not None:
                self._produced[what] = made

    def _given(self, entry: Entry, tensor: Tensor) -> Edge | None:
        """Where an argument or a parameter comes from."""
        if tensor.key.role is Role.PARAMETER:
            return Edge(tensor.key.op, tensor.key.index, Role.PARAMETER)
        if tensor.key.role is not Role.INPUT:
            return None
        weight = self._weights.get((entry.parent, content(tensor)))
        if weight is not None:
            return Edge(weight.op, weight.index, Role.PARAMETER)
        return self._producer(tensor)

    def _producer(self, tensor: Tensor) -> Edge | None:
        what = content(tensor)
        return self._produced.get(what) if what is not None else None

    def _named(self, name: str) -> dict[Edge, None]:
        return {Edge(self._seen[name]): None} if name in self._seen else {}


def _weights(entries: Sequence[Entry]) -> dict[tuple[str, Content | None], TensorKey]:
    """Parameters by the module that has them and by content: a function inside is given them as
    ordinary arguments."""
    found: dict[tuple[str, Content | None], TensorKey] = {}
    for entry in entries:
        for tensor in entry.tensors:
            if tensor.key.role is Role.PARAMETER:
                what = content(tensor)
                if what is not None:
                    found[entry.named.name, what] = tensor.key
    return found
