"""Events of a capture or a comparison, and the one sink that they are sent to.

Whoever does the work sends events and knows nothing of who listens. Listeners that need something
else, such as the public callbacks `progress` and `watch`, are adapters onto the sink.
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
        """Take an event; kinds that are of no interest are ignored."""


class NullSink:
    """Ignores every event."""

    def send(self, event: Event) -> None:
        """Do nothing."""


NULL_SINK = NullSink()


class FanOut:
    """Sends every event on to several sinks, in order."""

    def __init__(self, *sinks: EventSink) -> None:
        self._sinks = sinks

    def send(self, event: Event) -> None:
        """Pass the event on."""
        for sink in self._sinks:
            sink.send(event)


class OpCounter:
    """Tells a callback, the public `progress` of `capture`, how many ops are recorded."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        self._progress = progress

    def send(self, event: Event) -> None:
        """Report the number of ops."""
        if isinstance(event, OpsRecorded):
            self._progress(event.count)
