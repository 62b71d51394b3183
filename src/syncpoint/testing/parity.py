"""`assert_parity`: compares two models or runs inside a test, and raises AssertionError with the
first divergence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncpoint.api import compare

if TYPE_CHECKING:
    from syncpoint.api import Comparison


def assert_parity(
    target: object,
    reference: object,
    *,
    preset: str = "auto",
    fail_on: str = "large",
    min_coverage: float | None = None,
    **options: Any,
) -> Comparison:
    """Compare, and raise an AssertionError that says where the two diverge if a verdict is large
    (or whatever `fail_on` names)."""
    comparison = compare(target, reference, preset=preset, min_coverage=min_coverage, **options)
    if comparison.exit_code(fail_on):
        from syncpoint.reports.assertion_message import assertion_text

        raise AssertionError(assertion_text(comparison, fail_on))
    return comparison
