"""Syncpoint: where, by how much and why two executions of the same model disagree.

import syncpoint as sp

reference = sp.capture(model, inputs)
target = sp.capture(model, inputs, dtype="bf16")
print(sp.compare(target, reference))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from syncpoint.api import (
        Analysis,
        Comparison,
        analyze,
        assert_parity,
        bisect,
        capture,
        compare,
        compare_offline,
        compare_torchair,
        diagnose,
        open_comparison,
        open_run,
        record,
        reduce,
        save_intermediates,
        verify,
    )
    from syncpoint.recording import Recording

__all__ = [
    "Analysis",
    "Comparison",
    "Recording",
    "__version__",
    "analyze",
    "assert_parity",
    "bisect",
    "capture",
    "compare",
    "compare_offline",
    "compare_torchair",
    "diagnose",
    "open_comparison",
    "open_run",
    "record",
    "reduce",
    "save_intermediates",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Names come from `syncpoint.api` on first use, so that importing the package is cheap."""
    if name == "Recording":
        from syncpoint.recording import Recording

        return Recording
    if name in __all__:
        from syncpoint import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
