"""Receive the callbacks of the Core AI runtime (profiler and logger), pass their values to the
capture in progress, raise their errors later.

The profiler reports which kernel runs. The logger shows what it reads before it runs, and what it
has written after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncpoint.errors import CaptureError, SyncpointError
from syncpoint.runtimes.coreai.arrays import wrap_raw
from syncpoint.runtimes.coreai.asset_constants import AssetConstants
from syncpoint.runtimes.exception_text import one_line

if TYPE_CHECKING:
    from syncpoint.runtimes.coreai.capture import CoreAICapture

CALL = "call."
_MEMORY_KERNELS = ("NDArray.alloc", "Context.")
_EXECUTE = "Function Execute"
"""The phase that computes values; others compute shapes, with kernels of the same names."""
_CONSTANT = "NDArray.alloc_const"


class RuntimeCallbacks:
    """The callbacks of one loaded function; they pass values to the capture in progress."""

    def __init__(self) -> None:
        self.constants = AssetConstants()
        self.capture: CoreAICapture | None = None
        self.error: BaseException | None = None
        self._running: list[tuple[int, str]] = []

    def begin(self, event: Any) -> int:
        """Called when a kernel or a phase begins."""
        self._running.append((event.compile_ids.id, event.event_id))
        return len(self._running)

    def end(self, event: Any, _interval: int) -> None:
        """Called when a kernel or a phase has ended."""
        ended = (event.compile_ids.id, event.event_id)
        if ended in self._running:
            del self._running[self._running.index(ended) :]

    def values(self, arrays: Sequence[Any], kind: str, ids: Any) -> None:
        """Called with what a kernel reads or has written. It must not raise into the runtime."""
        if self.error is not None or not self._running:
            return
        kernel, event = self._running[-1]
        if kernel != ids.id or not event.startswith(CALL):
            return
        is_executing = any(phase == _EXECUTE for _, phase in self._running)
        name = event.removeprefix(CALL)
        try:
            if name == _CONSTANT and kind == "output":
                for raw in arrays:
                    if raw is not None:
                        self.constants.add(kernel, wrap_raw(raw))
            elif is_executing and self.capture is not None and not name.startswith(_MEMORY_KERNELS):
                self.capture.add_values(kernel, name, kind, [r for r in arrays if r is not None])
        except BaseException as error:
            self.error = error

    def raise_error(self, name: str) -> None:
        """Raise the error of a callback, if there was one; `name` is the asset."""
        error = self.error
        self.error = None
        if isinstance(error, SyncpointError):
            raise error
        if error is not None:
            raise CaptureError(
                f"the values inside {name} could not be read: {one_line(error)}"
            ) from error
