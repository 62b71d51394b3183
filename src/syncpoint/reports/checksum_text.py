"""Lines about checksums: how many tensors were verified, and files that could not be verified."""

from __future__ import annotations

from collections.abc import Mapping

from syncpoint.comparison.result import Result


def verified_line(result: Result) -> str:
    """How many of the tensors that were read match their checksums; "" if not counted."""
    sides = {side: verified_text(counts) for side, counts in result.verified.items()}
    if len(sides) == 2 and len(set(sides.values())) == 1:
        return f"{sides['target']}, on both sides"
    return "; ".join(f"{side} {text}" for side, text in sides.items())


def verified_text(counts: Mapping[str, int]) -> str:
    """The counts of one side, to follow the word `verified`."""
    tensors, unverified = counts["tensors"], counts["unverified"]
    if tensors and unverified == tensors:
        return f"0 of {tensors} tensors read (no checksums)"
    text = f"{counts['verified']} of {tensors} tensors read"
    if counts["damaged"]:
        text += f", {counts['damaged']} damaged"
    if unverified:
        text += f", {unverified} without a checksum"
    return text


def unverified_lines(result: Result) -> list[str]:
    """The line about a comparison whose files could not be verified."""
    return [f"this comparison is unverified: {result.unverified}"] if result.unverified else []
