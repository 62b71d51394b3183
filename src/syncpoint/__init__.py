"""Syncpoint: where, by how much and why two executions of the same model disagree.

import syncpoint as sp

reference = sp.capture(model, inputs)
target = sp.capture(model, inputs, dtype="bf16")
print(sp.compare(target, reference))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncpoint.version import __version__

if TYPE_CHECKING:
    from syncpoint.api import (
        Analysis,
        Bisection,
        Comparison,
        analyze,
        bisect,
        capture,
        compare,
        compare_offline,
        compare_torchair,
        convert,
        diagnose,
        doctor,
        open_comparison,
        open_run,
        record,
        reduce,
        save_intermediates,
        session,
        verify,
        view,
        write_msprobe_tables,
    )
    from syncpoint.errors import (
        CaptureError,
        DamagedError,
        FormatError,
        InputError,
        MissingExtra,
        SyncpointError,
        SyncpointWarning,
        Unsupported,
        WriteError,
    )
    from syncpoint.testing.parity import assert_parity
    from syncpoint.workflow.manual_recording import Recording

__all__ = [
    "Analysis",
    "Bisection",
    "CaptureError",
    "Comparison",
    "DamagedError",
    "FormatError",
    "InputError",
    "MissingExtra",
    "Recording",
    "SyncpointError",
    "SyncpointWarning",
    "Unsupported",
    "WriteError",
    "__version__",
    "analyze",
    "assert_parity",
    "bisect",
    "capture",
    "compare",
    "compare_offline",
    "compare_torchair",
    "convert",
    "diagnose",
    "doctor",
    "open_comparison",
    "open_run",
    "record",
    "reduce",
    "save_intermediates",
    "session",
    "verify",
    "view",
    "write_msprobe_tables",
]

_MODULES = {
    **dict.fromkeys(
        (
            *("SyncpointError", "InputError", "WriteError", "FormatError", "DamagedError"),
            *("MissingExtra", "CaptureError", "Unsupported", "SyncpointWarning"),
        ),
        ".errors",
    ),
    "Recording": ".workflow.manual_recording",
    "assert_parity": ".testing.parity",
}
"""The modules of the public names that are not in `syncpoint.api`."""


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that importing the package is cheap."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES.get(name, ".api"), __name__), name)
