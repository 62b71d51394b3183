"""Run coroutines in an event loop of a thread of its own, so that captures also work in
notebooks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

_T = TypeVar("_T")


class EventLoop:
    """Runs coroutines, and keeps async context managers open until `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="syncpoint-coreai", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine and return what it returns; its exceptions are raised."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def enter(self, manager: Any) -> Any:
        """Enter an async context manager; it is exited when the loop is closed."""
        return self.run(self._stack.enter_async_context(manager))

    def close(self) -> None:
        """Exit the context managers and end the thread."""
        if self._loop.is_closed():
            return
        self.run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
