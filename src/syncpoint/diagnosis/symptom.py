"""What the person who asks sees: the outputs, before any cause is looked for."""

from __future__ import annotations

from syncpoint.comparison.findings import Symptom
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.metrics.verdict import FAILING_REASONS, Verdict

_VERSIONS = ("torch", "onnxruntime", "coreai", "coreai-core", "driver", "cann", "cuda")


def symptom(result: Result) -> tuple[Symptom, str]:
    """The symptom, and what is known of it in one sentence."""
    outputs = [row for row in result.outputs if row.verdict is not Verdict.NONE]
    inside = [row for row in result.rows if not row.output and row.verdict is not Verdict.NONE]
    if not outputs:
        count = sum(row.verdict.severity > 0 for row in inside)
        return Symptom.UNKNOWN, f"{count} of {len(inside)} compared tensors are off"
    worst = min(outputs, key=_score)
    said = f"{worst.target.label}: {_in_words(worst)}"
    greatly = any(row.verdict in (Verdict.LARGE, Verdict.AMPLIFIED) for row in outputs)
    slightly = any(row.verdict is not Verdict.CLOSE for row in outputs)
    if greatly or slightly:
        moved = upgraded(result)
        if moved:
            return Symptom.UPGRADE, f"{said}; {', '.join(moved)}"
        return (Symptom.GREATLY if greatly else Symptom.SLIGHTLY), said
    if any(row.verdict.severity > 0 for row in inside):
        count = sum(row.verdict.severity > 0 for row in inside)
        return Symptom.INSIDE, f"{said}; {count} tensors inside are off"
    lost = sum(row.unmeasured.code in FAILING_REASONS for row in result.rows)
    if lost:
        return Symptom.PARTLY, f"{said}; {lost} of {len(result.rows)} tensors could not be compared"
    return Symptom.NONE, said


def upgraded(result: Result) -> list[str]:
    """What changed between two runs of the same model on the same runtime, in words."""
    ours, theirs = result.target, result.reference
    if ours["runtime"] != theirs["runtime"] or ours["model"] != theirs["model"]:
        return []
    if not ours["model"]:
        return []
    moved = []
    if ours["runtime_version"] != theirs["runtime_version"]:
        moved.append(
            f"{ours['runtime']} {theirs['runtime_version'] or 'unknown'} became"
            f" {ours['runtime_version'] or 'unknown'}"
        )
    new, old = ours.get("environment") or {}, theirs.get("environment") or {}
    for name in _VERSIONS:
        if name in new and name in old and new[name] != old[name]:
            moved.append(f"{name} {old[name]} became {new[name]}")
    return list(dict.fromkeys(moved))


def _score(row: Row) -> tuple[int, float]:
    psnr = (row.numbers or {}).get("psnr")
    return (-row.verdict.severity, psnr if psnr is not None and psnr == psnr else float("inf"))


def _in_words(row: Row) -> str:
    numbers = row.numbers or {}
    if numbers.get("mismatched"):
        return f"{numbers['mismatched']:,} of {numbers['count']:,} elements not finite on one side"
    psnr = numbers.get("psnr")
    if psnr is None:
        return row.reason or str(row.verdict)
    return f"{psnr:.1f} dB ({row.verdict})"
