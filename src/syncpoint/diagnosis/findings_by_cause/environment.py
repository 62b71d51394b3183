"""Where the runs were made: versions, processors and switches. A cause only where numbers show it;
what merely differs is told, and what is not known is never taken to be the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.proof import Proof
from syncpoint.diagnosis.numerics.fast_math import approximate
from syncpoint.diagnosis.numerics.subnormals import flushed
from syncpoint.diagnosis.numerics.tf32 import has_rounded_products, is_product, rounded_product
from syncpoint.diagnosis.symptom import upgraded
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Role

_HARMLESS = frozenset({"python", "platform", "numpy", "cores", "onnx", "hostname"})
"""Facts that change no number of a model's run."""


class Environment:
    """Environment and hardware differences."""

    name = "environment"
    title = "the runs were made in different environments"

    def look(self, case: Case) -> Iterable[Finding]:
        """What the numbers show, then what the records say."""
        if not case.is_off:
            return
        yield from self._tf32(case)
        yield from self._fast_math(case)
        yield from self._flushed(case)
        yield from self._fell_back(case)
        yield from self._records(case)

    # What the numbers show

    def _tf32(self, case: Case) -> Iterator[Finding]:
        """Products whose inputs were rounded to ten bits."""
        guilty = [row for row in case.guilty if is_product(row) and row.target.dtype == "f32"]
        others = [row for row in case.guilty if row not in guilty]
        if not guilty or not all(has_rounded_products(case, row) for row in others):
            return
        proven: list[tuple[Row, Proof]] = []
        for row in guilty[:6]:
            experiment = case.experiment(row)
            found = rounded_product(experiment) if experiment is not None else None
            if found is None:
                return
            proven.append((row, found))
        of_kind = [row for row in case.computed if is_product(row) and row.introduced is not None]
        told = f"{len(guilty)} of {len(of_kind)} matrix products make error"
        told += f", and {len(others)} attentions about as much" if others else ", and nothing else"
        all_of_them = len(guilty) == len(of_kind)
        row, first = proven[0]
        yield self._proven(
            case,
            "tf32",
            "matrix products are computed in TF32",
            0.95 if all_of_them and len(guilty) > 1 else 0.7,
            [*guilty, *others],
            (
                told,
                first.words("with inputs rounded to 10 bits", row.target.label),
            ),
            "turn TF32 off: torch.set_float32_matmul_precision('highest'), NVIDIA_TF32_OVERRIDE=0",
        )

    def _fast_math(self, case: Case) -> Iterator[Finding]:
        """Steep functions that are right to a few bits, all of them."""
        found = approximate(case)
        told = _switches(case)
        if found is None or (len(found.rows) < 2 and not told):
            return
        yield self._proven(
            case,
            "fast-math",
            f"{', '.join(found.kinds)} are approximated: right to {found.bits:.0f} bits",
            0.95 if told else 0.8,
            found.rows,
            (
                f"{len(found.rows)} ops make error, all of them steep functions",
                f"nine elements in ten are within 2^-{found.bits:.1f} of their own size",
                *told,
            ),
            "build the target without -ffast-math, or ask it for exact functions",
        )

    def _flushed(self, case: Case) -> Iterator[Finding]:
        """Numbers below the least normal one are zero in the target."""
        for row in case.guilty[:8]:
            experiment = case.experiment(row)
            lost = flushed(experiment) if experiment is not None else None
            if lost is None:
                continue
            yield self._proven(
                case,
                "flush-to-zero",
                f"{row.target.label} takes subnormal numbers for zero",
                0.93,
                [row],
                (
                    f"{lost.count:,} {lost.where} below {lost.least:.3g} are zero in the target",
                    lost.proof.words("with these at zero", row.target.label),
                ),
                "turn flush-to-zero off: torch.set_flush_denormal(False), no -ffast-math",
            )

    def _proven(
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

    # What the records say

    def _fell_back(self, case: Case) -> Iterator[Finding]:
        """Another precision or provider than was asked for."""
        for side, about in (("target", case.result.target), ("reference", case.result.reference)):
            asked = str((about.get("options") or {}).get("dtype") or "")
            got = str(about.get("precision") or "")
            if asked in DTYPES and got and asked not in got.split("+"):
                yield self._told(
                    "precision",
                    f"the {side} was asked for {asked} and computed in {got}",
                    Level.SUSPECT,
                    (),
                    f"check which precisions the runtime of the {side} supports",
                )
            provider = str((about.get("options") or {}).get("provider") or "")
            device = str(about.get("device") or "")
            if provider and device and provider not in device.split("+"):
                said = f"{provider} was asked for, and {device} executed the model"
                yield self._told("fallback", f"the {side} fell back", Level.NOTE, (said,), "")

    def _records(self, case: Case) -> Iterator[Finding]:
        ours, theirs = case.result.target, case.result.reference
        new, old = (dict(about.get("environment") or {}) for about in (ours, theirs))
        moved = upgraded(case.result)
        unlike = _unlike(new, old)
        if moved or (unlike and ours.get("runtime") == theirs.get("runtime")):
            said = list(dict.fromkeys([*moved, *unlike]))
            same = bool(moved) and _given_the_same(case)
            evidence = tuple(said[:4])
            if same:
                evidence += ("model, inputs and weights are the same to the bit",)
            level = Level.SUSPECT if moved else Level.NOTE
            yield self._told(
                "changed",
                f"the environment changed: {said[0]}",
                level,
                evidence,
                "run the target in the reference's environment and compare again" if moved else "",
                0.7 if same else 0.5,
            )
        unknown = [s for s, e in (("target", new), ("reference", old)) if not e]
        if unknown and not case.sure:
            yield self._told(
                "unknown",
                f"the environment of the {' and the '.join(unknown)} is not known",
                Level.NOTE,
                (),
                "lay an env.json beside the dump",
                0.2,
            )

    def _told(
        self,
        kind: str,
        title: str,
        level: Level,
        evidence: tuple[str, ...],
        after: str,
        confidence: float = 0.5,
    ) -> Finding:
        return Finding(
            cause=self.name,
            kind=kind,
            title=title,
            level=level,
            confidence=confidence,
            evidence=evidence,
            next=after,
        )


def _switches(case: Case) -> list[str]:
    """Switches of fast mathematics that the target says were on."""
    said = dict(case.result.target.get("environment") or {})
    on = [n for n in said if "fast" in n.lower() and str(said[n]).lower() in ("true", "1", "on")]
    on += [n for n in said if "fast-math" in str(said[n]) or "Ofast" in str(said[n])]
    return [f"the target says: {n} {str(said[n])[:60]}" for n in dict.fromkeys(on)][:1]


def _unlike(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    """What both say, and not alike, of that which changes numbers."""
    names = [n for n in new if n in old and n not in _HARMLESS and new[n] != old[n]]
    return [f"{name} {old[name][:40]} became {new[name][:40]}" for name in names]


def _given_the_same(case: Case) -> bool:
    """Whether inputs and parameters were compared, and are equal in every bit."""
    seen = set()
    for row in case.rows:
        role = row.target.key.role
        if role not in (Role.MODEL_INPUT, Role.PARAMETER):
            continue
        if (row.numbers or {}).get("max_abs") != 0:
            return False
        seen.add(role)
    return len(seen) == 2
