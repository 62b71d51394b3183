"""The verdict line: verdict, coverage, preset, and a caveat if it rests on statistics or on a part;
the verdict of one row in words."""

from __future__ import annotations

from syncpoint.comparison.coverage import Coverage
from syncpoint.comparison.measuring.digest_and_statistics_pairs import has_same_bytes, is_unproven
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.metrics.limits import PRESETS
from syncpoint.metrics.verdict import ReasonCode, Verdict


def headline(result: Result) -> str:
    """The verdict line with its symbol."""
    return f"{result.verdict.glyph} {verdict_line(result)}"


def verdict_line(result: Result) -> str:
    """The verdict, the coverage, the preset and the basis, in one line."""
    coverage = result.coverage
    compared = "" if _is_close_in_part(result.verdict, coverage) else "compared "
    return (
        f"{verdict_text(result)}: {compared}{coverage.compared} of"
        f" {coverage.target_tensors} target tensors ({coverage.target:.0%}) and of"
        f" {coverage.reference_tensors} reference tensors ({coverage.reference:.0%}),"
        f" preset {preset_text(result)}{_basis_text(result)}"
    )


def verdict_text(result: Result) -> str:
    """The verdict in words; a close verdict says if it rests on statistics or on a part only."""
    if result.verdict is Verdict.CLOSE and any(map(is_unproven, result.rows)):
        text = f"{result.verdict} as far as statistics tell"
        in_part = _is_close_in_part(result.verdict, result.coverage)
        return f"{text}, and as far as compared" if in_part else text
    return qualify_verdict(result.verdict.value, result.coverage)


def qualify_verdict(verdict: str, coverage: Coverage) -> str:
    """The verdict, with a limitation if it is close and not everything was compared."""
    return f"{verdict} as far as compared" if _is_close_in_part(verdict, coverage) else verdict


def _is_close_in_part(verdict: str, coverage: Coverage) -> bool:
    """Whether the verdict is close, but not everything was compared."""
    return verdict == Verdict.CLOSE and not coverage.is_whole


def row_text(row: Row) -> str:
    """The verdict of one row in a few words, with its basis if that is not values."""
    if row.first_non_finite:
        return "first non-finite"
    if row.verdict is Verdict.NONE:
        code = row.why.code
        return row.reason if code is ReasonCode.SHAPE or code is None else code.value
    return f"{row.verdict} by statistics" if is_unproven(row) else row.verdict.value


def _basis_text(result: Result) -> str:
    """The caveat if some verdicts are not based on values."""
    caveats = []
    bases = result.bases
    if bases["statistics"]:
        judged = [r for r in result.rows if r.basis == "statistics"]
        same = sum(r.verdict is not Verdict.NONE and has_same_bytes(r) for r in judged)
        caveat = "which can prove a difference, but not equality"
        if same == bases["statistics"]:
            caveat = "all with the same bytes"
        elif same:
            caveat += f" ({same} have the same bytes)"
        caveats.append(f"{bases['statistics']} by statistics, {caveat}")
    if bases["digest"]:
        caveats.append(f"{bases['digest']} by digest, which shows only whether bytes are equal")
    ends_count = sum(r.ends_only and r.verdict is not Verdict.NONE for r in result.rows)
    if ends_count:
        caveats.append(
            f"{ends_count} by minimum and maximum alone, which can prove a difference, but not"
            " equality"
        )
    return f"; {'; '.join(caveats)}" if caveats else ""


def preset_text(result: Result) -> str:
    """The name of the limits; for `auto` with the presets that it used."""
    if result.preset_name != "auto":
        return result.preset_name
    used: dict[str, int] = {}
    for row in result.rows:
        if row.verdict is not Verdict.NONE:
            used[row.preset] = used.get(row.preset, 0) + 1
    order = list(PRESETS)
    assumed = ", ".join(sorted(used, key=order.index))
    return f"auto (assumed {assumed})" if assumed else "auto"
