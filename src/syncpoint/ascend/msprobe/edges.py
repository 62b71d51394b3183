"""Reconstruct which op reads which tensor in an msProbe dump, which does not say it, from order and
equal content.

Three facts are certain. A module is recorded when it returns, after everything that was called
inside it. A backward call reads what its forward call left. An op whose input equals an earlier
op's output reads it from there. Constant tensors are equal wherever they come from, so they prove
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from syncpoint.ascend.msprobe.names import GRADIENTS, HookedName
from syncpoint.run.model import Edge, OpKey, Role, Tensor, TensorKey

Content = tuple[object, ...]


@dataclass
class Entry:
    """An entry of dump.json, with what is needed to trace its edges."""

    key: OpKey
    named: HookedName
    parent: str = ""
    """Name of the module that called it."""
    tensors: list[Tensor] = field(default_factory=list)


def content(tensor: Tensor) -> Content | None:
    """Return what identifies the values of a tensor, or None."""
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


def trace_edges(entries: Sequence[Entry]) -> list[tuple[Edge, ...]]:
    """Return what each entry reads from earlier entries, in the order of its arguments."""
    tracing = _EdgeTracer(entries)
    edges_read = []
    for entry in entries:
        edges_read.append(tracing.reads(entry))
        tracing.remember(entry)
    return edges_read


class _EdgeTracer:
    """Facts about the entries so far."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._weights = _weights(entries)
        self._produced: dict[Content, Edge] = {}
        self._inside: dict[str, list[Edge]] = {}
        self._keys_by_name: dict[str, OpKey] = {}
        self._returning = ""
        """The last backward call so far: gradients without another source come after it."""

    def reads(self, entry: Entry) -> tuple[Edge, ...]:
        """Return what an entry reads."""
        named = entry.named
        edges_read: dict[Edge, None] = {}
        is_traced = True
        for tensor in entry.tensors:
            edge = self._source_of(entry, tensor)
            if edge is not None:
                edges_read[edge] = None
            elif tensor.key.role is Role.INPUT:
                is_traced = False
        edges_read.update(dict.fromkeys(self._inside.get(named.name, [])))
        if named.way == GRADIENTS:
            # The gradients of a module's parameters come from its backward pass.
            backward = named.of("backward")
            edges_read.update(dict.fromkeys(self._inside.get(backward, [])))
            producers = (self._producer(tensor) for tensor in entry.tensors)
            edges_read.update({edge: None for edge in producers if edge is not None})
            is_traced = backward in self._keys_by_name
            edges_read.update(self._named(backward))
        if named.way in ("backward", GRADIENTS):
            edges_read.update(self._named(named.of("forward")))
            edges_read.update({} if is_traced else self._named(self._returning))
        return tuple(edges_read)

    def remember(self, entry: Entry) -> None:
        """Store what later entries may read of an entry."""
        self._keys_by_name[entry.named.name] = entry.key
        if entry.named.way == "backward":
            self._returning = entry.named.name
        for tensor in entry.tensors:
            if tensor.key.role is not Role.OUTPUT:
                continue
            output_edge = Edge(entry.key, tensor.key.index)
            if entry.parent:
                self._inside.setdefault(entry.parent, []).append(output_edge)
            content_key = content(tensor)
            if content_key is not None:
                self._produced[content_key] = output_edge

    def _source_of(self, entry: Entry, tensor: Tensor) -> Edge | None:
        """Return where an argument or a parameter comes from."""
        if tensor.key.role is Role.PARAMETER:
            return Edge(tensor.key.op, tensor.key.index, Role.PARAMETER)
        if tensor.key.role is not Role.INPUT:
            return None
        weight = self._weights.get((entry.parent, content(tensor)))
        if weight is not None:
            return Edge(weight.op, weight.index, Role.PARAMETER)
        return self._producer(tensor)

    def _producer(self, tensor: Tensor) -> Edge | None:
        content_key = content(tensor)
        return self._produced.get(content_key) if content_key is not None else None

    def _named(self, name: str) -> dict[Edge, None]:
        return {Edge(self._keys_by_name[name]): None} if name in self._keys_by_name else {}


def _weights(entries: Sequence[Entry]) -> dict[tuple[str, Content | None], TensorKey]:
    """Return the parameters by module and content: functions inside a module get them as ordinary
    arguments."""
    parameters: dict[tuple[str, Content | None], TensorKey] = {}
    for entry in entries:
        for tensor in entry.tensors:
            if tensor.key.role is Role.PARAMETER:
                content_key = content(tensor)
                if content_key is not None:
                    parameters[entry.named.name, content_key] = tensor.key
    return parameters
