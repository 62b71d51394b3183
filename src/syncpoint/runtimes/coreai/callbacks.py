"""The callbacks that the Core AI runtime calls while a function is loaded and executed.

The profiler says which kernel runs; the logger shows what it reads before it runs and what it
has written after.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncpoint.errors import CaptureError, SyncpointError
from syncpoint.runtimes.coreai.arrays import seen
from syncpoint.runtimes.coreai.asset_constants import Constants
from syncpoint.runtimes.exception_text import one_line

if TYPE_CHECKING:
    from syncpoint.runtimes.coreai.capture import Capture


CALL = "call."


_MEMORY = ("NDArray.alloc", "Context.")


_EXECUTE = "Function Execute"
"""The phase that computes results; others find out shapes, with kernels of the same names."""


_CONSTANT = "NDArray.alloc_const"


class Watch:
    """The callbacks of one loaded function; hands on to the capture that is going on."""

    def __init__(self) -> None:
        self.constants = Constants()
        self.capture: Capture | None = None
        self.error: BaseException | None = None
        self._running: list[tuple[int, str]] = []

    def begin(self, event: Any) -> int:
        """A kernel or a phase begins."""
        self._running.append((event.compile_ids.id, event.event_id))
        return len(self._running)

    def end(self, event: Any, _interval: int) -> None:
        """It has ended."""
        ended = (event.compile_ids.id, event.event_id)
        if ended in self._running:
            del self._running[self._running.index(ended) :]

    def values(self, arrays: Sequence[Any], kind: str, ids: Any) -> None:
        """What a kernel reads or has written. Nothing may be raised into the runtime."""
        if self.error is not None or not self._running:
            return
        kernel, event = self._running[-1]
        if kernel != ids.id or not event.startswith(CALL):
            return
        executes = any(phase == _EXECUTE for _, phase in self._running)
        name = event.removeprefix(CALL)
        try:
            if name == _CONSTANT and kind == "output":
                for raw in arrays:
                    if raw is not None:
                        self.constants.add(kernel, seen(raw))
            elif executes and self.capture is not None and not name.startswith(_MEMORY):
                self.capture.values(kernel, name, kind, [r for r in arrays if r is not None])
        except BaseException as error:
            self.error = error

    def raise_error(self, name: str) -> None:
        """Raise what a callback failed with, for the asset of this name."""
        error = self.error
        self.error = None
        if isinstance(error, SyncpointError):
            raise error
        if error is not None:
            raise CaptureError(f"the values inside {name} to be read", one_line(error)) from error
