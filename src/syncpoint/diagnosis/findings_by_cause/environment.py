"""Findings about different environments: versions, CPUs, switches (TF32, fast math, subnormals),
fallbacks; whether inputs and weights are bit-equal.

A difference is a cause only if the values show it. Otherwise it is reported as a suspect or a note.
What is not recorded is never taken to be the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.proof import Proof
from syncpoint.diagnosis.finding_text import name_target_op
from syncpoint.diagnosis.numerics.fast_math import find_approximate_functions
from syncpoint.diagnosis.numerics.subnormals import find_flushed_subnormals
from syncpoint.diagnosis.numerics.tf32 import has_rounded_products, is_product, prove_tf32_rounding
from syncpoint.diagnosis.symptom import list_upgrades
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Role

_HARMLESS = frozenset({"python", "platform", "numpy", "cores", "onnx", "hostname"})
"""Facts that do not change the values of a run."""

_FLUSHED_WORDS = {
    "results": "in the reference are zero in the target",
    "inputs": "count as zero in the target",
}
"""What happens to subnormal numbers, by where they are."""


class Environment:
    """Environments and hardware that differ."""

    name = "environment"
    title = "the runs were made in different environments"

    def look(self, case: Case) -> Iterable[Finding]:
        """Yield findings from the values, then from the records of the environments."""
        if not case.is_off:
            return
        yield from self._report_tf32(case)
        yield from self._report_fast_math(case)
        yield from self._report_flushed(case)
        yield from self._report_fallback(case)
        yield from self._report_records(case)

    # From the values

    def _report_tf32(self, case: Case) -> Iterator[Finding]:
        """Report matrix products whose inputs were rounded to ten bits."""
        guilty = [row for row in case.guilty if is_product(row) and row.target.dtype == "f32"]
        others = [row for row in case.guilty if row not in guilty]
        if not guilty or not all(has_rounded_products(case, row) for row in others):
            return
        proven: list[tuple[Row, Proof]] = []
        for row in guilty[:6]:
            experiment = case.experiment(row)
            proof = prove_tf32_rounding(experiment) if experiment is not None else None
            if proof is None:
                return
            proven.append((row, proof))
        of_kind = [row for row in case.computed if is_product(row) and row.introduced is not None]
        extent = f"{len(guilty)} of {len(of_kind)} matrix products introduce error"
        extent += f" and {len(others)} attentions about as much" if others else "; no other op does"
        all_of_them = len(guilty) == len(of_kind)
        row, first = proven[0]
        yield self._finding_by_values(
            case,
            "tf32",
            "the target computes matrix products in TF32 (10-bit inputs) instead of float32",
            0.95 if all_of_them and len(guilty) > 1 else 0.7,
            [*guilty, *others],
            (
                extent,
                first.words("with inputs rounded to 10 bits in the reference", row.target.label),
            ),
            "turn TF32 off: torch.set_float32_matmul_precision('highest') or"
            " NVIDIA_TF32_OVERRIDE=0",
        )

    def _report_fast_math(self, case: Case) -> Iterator[Finding]:
        """Report steep functions (exp, sigmoid, tanh ...) that are all exact to a few bits only."""
        approximation = find_approximate_functions(case)
        switches = _find_switches(case)
        if approximation is None or (len(approximation.rows) < 2 and not switches):
            return
        kinds = ", ".join(approximation.kinds)
        yield self._finding_by_values(
            case,
            "fast-math",
            f"the target approximates {kinds} to {approximation.bits:.0f} bits (fast math)",
            0.95 if switches else 0.8,
            approximation.rows,
            (
                f"ops that introduce error: {len(approximation.rows)}; all are of type {kinds}",
                f"90 % of their elements have a relative error below 2^-{approximation.bits:.1f}",
                *switches,
            ),
            "build the target without -ffast-math, or turn its fast-math option off",
        )

    def _report_flushed(self, case: Case) -> Iterator[Finding]:
        """Report subnormal numbers that are zero in the target."""
        for row in case.guilty[:8]:
            experiment = case.experiment(row)
            lost = find_flushed_subnormals(experiment) if experiment is not None else None
            if lost is None:
                continue
            yield self._finding_by_values(
                case,
                "flush-to-zero",
                f"{name_target_op(row)} flushes subnormal numbers to zero; the reference's keeps"
                " them",
                0.93,
                [row],
                (
                    f"{lost.count:,} {lost.where} with a magnitude below {lost.min_normal:.3g}"
                    f" {_FLUSHED_WORDS[lost.where]}",
                    lost.proof.words("with these set to zero in the reference", row.target.label),
                ),
                "turn flush-to-zero off: torch.set_flush_denormal(False), or build without"
                " -ffast-math",
            )

    def _finding_by_values(
        self,
        case: Case,
        kind: str,
        title: str,
        confidence: float,
        rows: list[Row],
        evidence: tuple[str, ...],
        after: str,
    ) -> Finding:
        first = rows[0]
        return Finding(
            cause=self.name,
            kind=kind,
            title=title,
            level=Level.CAUSE,
            confidence=confidence,
            ops=tuple(row.target.label for row in rows[:8]),
            reference_ops=tuple(row.reference.label for row in rows[:8]),
            module=first.target.module or first.reference.module if len(rows) == 1 else "",
            source=first.target.source or first.reference.source,
            evidence=evidence,
            next=after,
            rows=tuple(case.place[row.target.key] for row in rows),
        )

    # From the records

    def _report_fallback(self, case: Case) -> Iterator[Finding]:
        """Report a precision or provider other than the requested one."""
        for side, about in (("target", case.result.target), ("reference", case.result.reference)):
            requested = str((about.get("options") or {}).get("dtype") or "")
            actual = str(about.get("precision") or "")
            if requested in DTYPES and actual and requested not in actual.split("+"):
                yield self._finding_by_records(
                    "precision",
                    f"the {side} computed in {actual} instead of the requested {requested}",
                    Level.SUSPECT,
                    (),
                    f"check which precisions the runtime of the {side} supports",
                    missing=(f"a run of the {side} in {requested}",),
                )
            provider = str((about.get("options") or {}).get("provider") or "")
            device = str(about.get("device") or "")
            if provider and device and provider not in device.split("+"):
                yield self._finding_by_records(
                    "fallback",
                    f"the {side} ran on {device} instead of the requested {provider}",
                    Level.NOTE,
                    (),
                    "",
                )

    def _report_records(self, case: Case) -> Iterator[Finding]:
        target, reference = case.result.target, case.result.reference
        new, old = (dict(about.get("environment") or {}) for about in (target, reference))
        upgrades = list_upgrades(case.result)
        differing = _list_differing(new, old)
        if upgrades or (differing and target.get("runtime") == reference.get("runtime")):
            changes = list(dict.fromkeys([*upgrades, *differing]))
            is_same_model = bool(upgrades) and _has_same_inputs_and_weights(case)
            evidence = tuple(changes[1:4])  # the title states the first
            if is_same_model:
                evidence += ("model, inputs and weights are equal to the last bit",)
            level = Level.SUSPECT if upgrades else Level.NOTE
            yield self._finding_by_records(
                "changed",
                f"the environments differ: {changes[0]}",
                level,
                evidence,
                "run the target in the reference's environment and compare again"
                if upgrades
                else "",
                0.7 if is_same_model else 0.5,
                ("a run of the target in the reference's environment",) if upgrades else (),
            )
        unknown = [s for s, e in (("target", new), ("reference", old)) if not e]
        if unknown and not case.is_explained:
            yield self._finding_by_records(
                "unknown",
                f"the environment of the {' and the '.join(unknown)} was not recorded",
                Level.NOTE,
                (),
                "put an env.json beside the dump",
                0.2,
            )

    def _finding_by_records(
        self,
        kind: str,
        title: str,
        level: Level,
        evidence: tuple[str, ...],
        after: str,
        confidence: float = 0.5,
        missing: tuple[str, ...] = (),
    ) -> Finding:
        return Finding(
            cause=self.name,
            kind=kind,
            title=title,
            level=level,
            confidence=confidence,
            evidence=evidence,
            next=after,
            missing=missing,
        )


def _find_switches(case: Case) -> list[str]:
    """Return the first fast-math switch that the target's record says was on, as a line."""
    facts = {
        name: str(fact) for name, fact in (case.result.target.get("environment") or {}).items()
    }
    on = [n for n in facts if "fast" in n.lower() and facts[n].lower() in ("true", "1", "on")]
    on += [n for n in facts if "fast-math" in facts[n] or "Ofast" in facts[n]]
    return [f"the target's record says: {n} {facts[n][:60]}" for n in dict.fromkeys(on)][:1]


def _list_differing(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    """List facts that both sides recorded with different values and that may change results."""
    names = [n for n in new if n in old and n not in _HARMLESS and new[n] != old[n]]
    return [
        f"{name} is {new[name][:40]} in the target, {old[name][:40]} in the reference"
        for name in names
    ]


def _has_same_inputs_and_weights(case: Case) -> bool:
    """Whether inputs and parameters were compared and are equal to the last bit."""
    roles = set()
    for row in case.rows:
        role = row.target.key.role
        if role not in (Role.MODEL_INPUT, Role.PARAMETER):
            continue
        if (row.numbers or {}).get("max_abs") != 0:
            return False
        roles.add(role)
    return len(roles) == 2
