"""The verdict in one line: the verdict, the coverage, the preset, and what it rests on."""

from __future__ import annotations

from syncpoint.comparison.coverage import Coverage
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row, has_same_bytes, is_unproven
from syncpoint.metrics.limits import PRESETS
from syncpoint.metrics.verdict import ReasonCode, Verdict


def headline(result: Result) -> str:
    """The verdict with its mark, and the coverage, one line."""
    return f"{result.verdict.glyph} {verdict_line(result)}"


def verdict_line(result: Result) -> str:
    """The verdict and the coverage, one line."""
    coverage = result.coverage
    compared = "" if _is_close_in_part(result.verdict, coverage) else "compared "
    return (
        f"{verdict_text(result)}: {compared}{coverage.compared} of"
        f" {coverage.target_tensors} target tensors ({coverage.target:.0%}) and of"
        f" {coverage.reference_tensors} reference tensors ({coverage.reference:.0%}),"
        f" preset {preset_text(result)}{_basis_text(result)}"
    )


def verdict_text(result: Result) -> str:
    """The verdict in words. What only statistics speak for is not close as values are, and what
    was compared in part is close only as far as that."""
    if result.verdict is Verdict.CLOSE and any(map(is_unproven, result.rows)):
        text = f"{result.verdict} as far as statistics tell"
        in_part = _is_close_in_part(result.verdict, result.coverage)
        return f"{text}, and as far as compared" if in_part else text
    return qualify_verdict(result.verdict.value, result.coverage)


def qualify_verdict(verdict: str, coverage: Coverage) -> str:
    """A verdict on the whole, or on that part of it that was compared."""
    return f"{verdict} as far as compared" if _is_close_in_part(verdict, coverage) else verdict


def _is_close_in_part(verdict: str, coverage: Coverage) -> bool:
    """Whether what was compared is close, and not all was."""
    return verdict == Verdict.CLOSE and not coverage.is_whole


def row_text(row: Row) -> str:
    """The verdict of one row in a word or two, with its basis where that is less than values."""
    if row.first_non_finite:
        return "first non-finite"
    if row.verdict is Verdict.NONE:
        code = row.why.code
        return row.reason if code is ReasonCode.SHAPE or code is None else code.value
    return f"{row.verdict} by statistics" if is_unproven(row) else row.verdict.value


def _basis_text(result: Result) -> str:
    """A reminder where the answer rests on less than values."""
    said = []
    bases = result.bases
    if bases["statistics"]:
        judged = [r for r in result.rows if r.basis == "statistics"]
        same = sum(r.verdict is not Verdict.NONE and has_same_bytes(r) for r in judged)
        caveat = "which can prove a difference, hardly equality"
        if same == bases["statistics"]:
            caveat = "all with the same bytes"
        elif same:
            caveat += f" ({same} have the same bytes)"
        said.append(f"{bases['statistics']} by statistics, {caveat}")
    if bases["digest"]:
        said.append(f"{bases['digest']} by digest, which tell equal from unequal only")
    ends = sum(r.ends_only and r.verdict is not Verdict.NONE for r in result.rows)
    if ends:
        said.append(
            f"{ends} by their least and greatest value alone, which can prove a difference, hardly"
            " equality"
        )
    return f"; {'; '.join(said)}" if said else ""


def preset_text(result: Result) -> str:
    """The limits in words; for `auto`, what it assumed."""
    if result.preset_name != "auto":
        return result.preset_name
    used: dict[str, int] = {}
    for row in result.rows:
        if row.verdict is not Verdict.NONE:
            used[row.preset] = used.get(row.preset, 0) + 1
    order = list(PRESETS)
    assumed = ", ".join(sorted(used, key=order.index))
    return f"auto (assumed {assumed})" if assumed else "auto"
