"""Classify the symptom of a comparison by how far its outputs are off, with a sentence on the worst
one; list versions that changed between the runs."""

from __future__ import annotations

from syncpoint.comparison.findings import Symptom
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.metrics.verdict import FAILING_REASONS, Verdict

_VERSION_NAMES = ("torch", "onnxruntime", "coreai", "coreai-core", "driver", "cann", "cuda")


def describe_symptom(result: Result) -> tuple[Symptom, str]:
    """Return the symptom and one sentence about it."""
    outputs = [row for row in result.outputs if row.verdict is not Verdict.NONE]
    inside = [row for row in result.rows if not row.output and row.verdict is not Verdict.NONE]
    if not outputs:
        count = sum(row.verdict.severity > 0 for row in inside)
        return Symptom.UNKNOWN, f"{count} of {len(inside)} compared tensors are off"
    worst = min(outputs, key=_score)
    sentence = f"{worst.target.label}: {_describe_output(worst)}"
    is_large = any(row.verdict in (Verdict.LARGE, Verdict.AMPLIFIED) for row in outputs)
    is_off = any(row.verdict is not Verdict.CLOSE for row in outputs)
    if is_large or is_off:
        upgrades = list_upgrades(result)
        if upgrades:
            return Symptom.UPGRADE, f"{sentence}; {', '.join(upgrades)}"
        return (Symptom.GREATLY if is_large else Symptom.SLIGHTLY), sentence
    if any(row.verdict.severity > 0 for row in inside):
        count = sum(row.verdict.severity > 0 for row in inside)
        return Symptom.INSIDE, f"{sentence}; {count} tensors inside the model are off"
    uncompared = sum(row.unmeasured.code in FAILING_REASONS for row in result.rows)
    if uncompared:
        return (
            Symptom.PARTLY,
            f"{sentence}; {uncompared} of {len(result.rows)} tensors could not be compared",
        )
    return Symptom.NONE, sentence


def list_upgrades(result: Result) -> list[str]:
    """List the versions that changed between two runs of one model on one runtime."""
    target, reference = result.target, result.reference
    if target["runtime"] != reference["runtime"] or target["model"] != reference["model"]:
        return []
    if not target["model"]:
        return []
    upgrades = []
    if target["runtime_version"] != reference["runtime_version"]:
        upgrades.append(
            f"{target['runtime']} is {target['runtime_version'] or 'unknown'} in the target,"
            f" {reference['runtime_version'] or 'unknown'} in the reference"
        )
    new, old = target.get("environment") or {}, reference.get("environment") or {}
    for name in _VERSION_NAMES:
        if name in new and name in old and new[name] != old[name]:
            upgrades.append(f"{name} is {new[name]} in the target, {old[name]} in the reference")
    return list(dict.fromkeys(upgrades))


def _score(row: Row) -> tuple[int, float]:
    psnr = (row.numbers or {}).get("psnr")
    return (-row.verdict.severity, psnr if psnr is not None and psnr == psnr else float("inf"))


def _describe_output(row: Row) -> str:
    numbers = row.numbers or {}
    if numbers.get("mismatched"):
        return (
            f"{numbers['mismatched']:,} of {numbers['count']:,} elements are not finite on one"
            " side only"
        )
    psnr = numbers.get("psnr")
    if psnr is None:
        return row.reason or str(row.verdict)
    return f"{psnr:.1f} dB ({row.verdict})"
