"""The interface for events: base class, sinks that forward, ignore or count them, and the event of
a recorded op.

The code that does the work sends events and does not know the listeners. Other interfaces, such as
the public callbacks `progress` and `watch`, are adapters to the sink.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Event:
    """Something that happened while a model was captured or two runs were compared."""


@dataclass(frozen=True)
class OpsRecorded(Event):
    """The recorder has recorded another op."""

    count: int
    """Ops recorded so far."""


class EventSink(Protocol):
    """Receives the events of a capture or a comparison."""

    def send(self, event: Event) -> None:
        """Receive an event; kinds that do not matter to the sink are ignored."""


class NullSink:
    """Ignores every event."""

    def send(self, event: Event) -> None:
        """Do nothing."""


NULL_SINK = NullSink()


class FanOut:
    """Forwards every event to several sinks, in order."""

    def __init__(self, *sinks: EventSink) -> None:
        self._sinks = sinks

    def send(self, event: Event) -> None:
        """Forward the event."""
        for sink in self._sinks:
            sink.send(event)


class OpCounter:
    """Calls a callback, the public `progress` of `capture`, with the number of recorded ops."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        self._progress = progress

    def send(self, event: Event) -> None:
        """Report the number of ops."""
        if isinstance(event, OpsRecorded):
            self._progress(event.count)
