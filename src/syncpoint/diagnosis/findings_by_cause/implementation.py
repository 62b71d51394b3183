"""An op that computes something else than the reference's: introduced error far beyond what its
precision allows, with what explains it where a known variant gives the target's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.unfused_target import can_be_unfused, fusing_runtime
from syncpoint.diagnosis.finding_text import finding_at
from syncpoint.diagnosis.processing.one_sided_ops import Extra, extra
from syncpoint.diagnosis.variants.search import (
    Explained,
    below_rounding,
    find_variant,
)
from syncpoint.diagnosis.weights.recorded_parameters import target_parameters_behind
from syncpoint.matching.op_kinds import TRANSPARENT, op_class
from syncpoint.metrics.ratio_text import ratio_text
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import long_name
from syncpoint.run.model import Op, Role

_MOST = 8
"""Guilty ops that are looked into; what is guilty after so many others seldom is on its own."""
_QUIET = 24
"""Ops that are searched for variants below the rounding."""
_SUBTLE = frozenset({"gelu", "silu", "softmax"})
"""Classes of ops with variants that hide below the rounding of 16 bits. Norms are none: their
parameters are rounded too, and err alike in all of a channel."""


_PREPARING = TRANSPARENT - {"identity", "quantize", "dequantize"} | {
    *("add", "sub", "mul", "div", "slice", "concat", "pad", "resize", "clamp")
}


class Implementation:
    """Operator implementation difference."""

    name = "implementation"
    title = "an op is implemented differently"

    def look(self, case: Case) -> Iterable[Finding]:
        """One finding an op that makes error; of ops that one variant explains, one for all."""
        variants: dict[tuple[str, str], list[tuple[Row, Explained]]] = {}
        explained = _explained_places(case)
        open_rows: list[Row] = []
        for row in case.guilty[:_MOST]:
            if case.place[row.target.key] in explained or _is_noted(case, row):
                continue
            best, covered = find_variant(case, row)
            open_rows = [r for r in open_rows if r.target.key not in covered]
            if best is not None:
                if not _is_told(case, row, best) and not _in_fusion(case, row, best):
                    _add_variant(variants, row, best)
            elif not _is_broken(case, row):
                experiment = case.experiment(row)
                more = extra(case, experiment) if experiment is not None else None
                if more is not None:
                    yield self._extra(case, row, more)
                else:
                    open_rows.append(row)
        for row in open_rows:
            yield self._unexplained(case, row)
        if not case.guilty:
            for row, best in self._quiet(case):
                _add_variant(variants, row, best)
        for pairs in variants.values():
            yield self._explained(case, pairs)

    def _quiet(self, case: Case) -> Iterator[tuple[Row, Explained]]:
        """Variants in ops that no verdict speaks against, where 16 bits may hide one."""
        coarse = [
            row
            for row in case.computed
            if row.target.dtype in ("f16", "bf16") and op_class(row.reference.type) in _SUBTLE
        ]
        for row in coarse[:_QUIET]:
            experiment = case.experiment(row)
            found = below_rounding(experiment) if experiment is not None else []
            if found:
                yield row, found[0]

    def _explained(self, case: Case, pairs: list[tuple[Row, Explained]]) -> Finding:
        row, best = pairs[0]
        where = _where(case, [r for r, _ in pairs], best)
        quiet = not case.is_off
        evidence = [_measured(row)] if row.introduced is not None else []
        if best.whole or best.share > 0.5:
            evidence.append(
                f"with this variant the reference's op gives the target's numbers to"
                f" {best.after:.2g} (root mean square), without it to {best.before:.2g}"
            )
        if best.sigmas and not best.whole:
            evidence.append(
                f"the error projects to {best.projection:.2f} on the variant"
                f" ({min(best.sigmas, 1e6):.0f} standard deviations)"
            )
        evidence += _attributes(case, row) if best.hypothesis.kind != "attributes" else []
        advice = _advice(best, _name(case, row))
        return finding_at(
            case,
            row,
            _cause(case, row, best),
            best.hypothesis.kind,
            f"{where} {'compute' if where.endswith(' more') else 'computes'}"
            f" {best.hypothesis.text}",
            # Through integers many things look alike.
            min(best.confidence, 0.88 if row.preset in ("int8", "int4") else 1.0),
            evidence,
            best.hypothesis.next or advice,
            level=Level.SUSPECT if quiet else Level.CAUSE,
            ops=dict.fromkeys(_name(case, r) for r, _ in pairs),
            reference_ops=dict.fromkeys(str(e.op.key) for _, e in pairs),
            rows=[r for r, _ in pairs],
        )

    def _extra(self, case: Case, row: Row, more: Extra) -> Finding:
        """Ops that one side alone has before the op of a row."""
        names = [str(op.key) for op in more.ops]
        said = _list(names)
        prepares = more.edge.role is Role.MODEL_INPUT and all(_prepares(op) for op in more.ops)
        where = _name(case, row)
        if more.added:
            title = f"{where} reads the result of {said}, which the reference does not have"
            change = "reading that,"
            cure = f"take {said} out of the target"
            if prepares:
                cure += f", or prepare its {more.edge.op} without"
        else:
            title = f"{where} reads {more.edge.op} without {said} of the reference"
            change = f"without {said}"
            cure = f"see where the conversion drops {said}"
            if prepares:
                cure = f"put {said} into the target, or prepare its {more.edge.op} with them"
        return finding_at(
            case,
            row,
            "processing" if prepares else self.name,
            "ops-added" if more.added else "ops-dropped",
            title,
            # What an op that the reference does not have makes need not be the same twice.
            0.8 if more.added and not prepares else 0.96,
            (more.proof.words(change, where),),
            cure,
            ops=(*names, where) if more.added else (where,),
            reference_ops=(_maker(case, row),) if more.added else (*names, _maker(case, row)),
        )

    def _unexplained(self, case: Case, row: Row) -> Finding:
        alike = [r for r in case.computed if r.target.type == row.target.type]
        off = [r for r in alike if r.introduced_verdict is Verdict.LARGE]
        evidence = [_measured(row)] if row.introduced is not None else []
        known = bool(row.target.type) and len(alike) > 1
        if known and len(off) == len(alike):
            evidence.append(f"so do all {len(alike)} ops of type {row.target.type}")
        elif known and row.introduced is not None:
            evidence.append(f"{len(alike) - len(off)} of {len(alike)} ops of its type do not")
        evidence += _attributes(case, row)
        name, maker = _name(case, row), _maker(case, row)
        return finding_at(
            case,
            row,
            self.name,
            "unexplained",
            f"{name} computes something else than {maker}",
            0.5,
            evidence,
            _look_at(case, row),
            level=_weight(row),
            ops=(name,),
            reference_ops=(maker,),
        )


def _explained_places(case: Case) -> set[int]:
    """Places of rows that causes before this one explain for certain."""
    facts = (
        finding
        for finding in case.found
        if finding.level is Level.CAUSE and finding.confidence >= 0.9 and _is_fact(case, finding)
    )
    return {place for finding in facts for place in finding.rows}


def _add_variant(
    variants: dict[tuple[str, str], list[tuple[Row, Explained]]], row: Row, best: Explained
) -> None:
    """Put a row with the others that the same variant of the same type of op explains."""
    variants.setdefault((best.op.type, best.hypothesis.kind), []).append((row, best))


def _is_told(case: Case, row: Row, best: Explained) -> bool:
    """Whether a look at the weights themselves has said it already."""
    place = case.place[row.target.key]
    return best.hypothesis.kind.startswith("weight-") and any(
        f.cause == "weights" and f.level is Level.CAUSE and place in f.rows for f in case.found
    )


def _is_noted(case: Case, row: Row) -> bool:
    """Whether an op is known to lose bits, and that does not show in the output."""
    place = case.place[row.target.key]
    return any(
        f.cause == "precision" and f.level is not Level.CAUSE and place in f.rows
        for f in case.found
    )


def _is_broken(case: Case, row: Row) -> bool:
    """Whether it is said already that the op makes NaN or inf, which tells more than that it
    computes something else."""
    place = case.place[row.target.key]
    return any(f.cause == "overflow" and place in f.rows for f in case.found)


def _is_fact(case: Case, finding: Finding) -> bool:
    """Whether a finding before this one leaves nothing to guess: of weights, those that the
    target shows; outputs and fusions may still be explained by an op."""
    if finding.cause == "weights":
        return any(case.rows[at].target.key.role is Role.PARAMETER for at in finding.rows)
    return finding.cause not in ("fusion", "processing")


def _in_fusion(case: Case, row: Row, best: Explained) -> bool:
    """Whether a fusion before this answers for the row; it is then told what it computes."""
    place = case.place[row.target.key]
    for at, finding in enumerate(case.found):
        if finding.cause == "fusion" and finding.level is Level.CAUSE and place in finding.rows:
            said = f"{best.op.key} in it computes {best.hypothesis.text}"
            case.found[at] = replace(
                finding,
                confidence=max(finding.confidence, 0.98),
                evidence=tuple(dict.fromkeys((*finding.evidence, said))),
            )
            return True
    return False


def _cause(case: Case, row: Row, best: Explained) -> str:
    """A weight that is read another way and one that lies another way give the same numbers; which
    it is can be told only where the target shows its weights."""
    if not best.hypothesis.kind.startswith("weight-"):
        return best.hypothesis.cause
    shown = target_parameters_behind(case, row.target.key)
    close = {r.target.key for r in case.rows if r.verdict is Verdict.CLOSE}
    return best.hypothesis.cause if shown and close.issuperset(shown) else "weights"


def _weight(row: Row) -> Level:
    """A little more than the precision allows is worth a word only where it shows."""
    if row.introduced_verdict is not Verdict.MODERATE or row.first_non_finite:
        return Level.CAUSE
    return Level.SUSPECT if row.verdict.severity else Level.NOTE


def _prepares(op: Op) -> bool:
    """Whether an op is of those that bring raw samples into the form a model was trained on."""
    return op_class(op.type) in _PREPARING


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _where(case: Case, rows: list[Row], best: Explained) -> str:
    """The op, and where its error shows if it has no tensor of its own in the target. Of several,
    `every gelu (12)` where no op of this type is without."""
    row = rows[0]
    if len(rows) == 1:
        if best.op.key == row.reference.key.op and row.target.key.role is Role.OUTPUT:
            return row.target.label
        return f"{best.op.key} (seen at {row.target.label})"
    kind = op_class(best.op.type)
    run = case.reference
    alike = [op for op in run.ops if op.type == best.op.type] if run is not None else []
    if len(alike) == len({r.reference.key.op for r in rows}):
        return f"every {kind} ({len(rows)})"
    return f"{row.target.label} and {len(rows) - 1} more"


def _advice(best: Explained, name: str) -> str:
    """What to do about it: the last part of the kind says what is wrong."""
    kind, op = best.hypothesis.kind, str(best.op.key)
    if kind.endswith("-missing"):
        what = "bias" if kind == "bias-missing" else op_class(best.op.type)
        return f"see where the conversion drops the {what} of {op}"
    if kind.endswith("-twice"):
        return f"see whether the conversion folds {op} into its neighbour and keeps it too"
    if kind.startswith(("weight-", "kernel-", "groups-")):
        return f"see in which order the weight of {op} is handed to the target"
    if kind.startswith(("layout-", "axes-", "transpose-", "concat-", "shifted")):
        return f"compare the order of axes that {name} and {op} assume"
    what = best.op.type.removeprefix("aten.").partition(".")[0]
    return f"compare the attributes of {name} with those of {op} ({what}) in the reference"


def _look_at(case: Case, row: Row) -> str:
    """What to do about an op that nothing explains. One that the runtime fused can be taken apart;
    a dump may know no types."""
    kind, runtime = row.target.type, fusing_runtime(case)
    if runtime is not None and can_be_unfused(case) and kind.startswith(runtime.fused_types):
        options = " ".join(f"--target-set {k}={v}" for k, v in runtime.unfused_options().items())
        return f"compare once more with {options}, which takes {kind} apart"
    if not kind:
        return f"look at what made {_name(case, row)}"
    return f"look at {kind} and its attributes on both sides"


def _name(case: Case, row: Row) -> str:
    """The target's op, also where the row is of a model output."""
    key = row.target.key
    if key.role is Role.MODEL_OUTPUT and case.op("target", key.op) is not None:
        return str(key.op)
    return row.target.label


def _maker(case: Case, row: Row) -> str:
    maker = case.maker(row)
    return str(maker.op) if maker is not None else row.reference.label


def _measured(row: Row) -> str:
    made = row.introduced
    assert made is not None
    allowed = long_name(made.preset)
    if made.ratio is None or made.ratio == float("inf"):
        return f"it introduces {made.rmse:.3g}, where {allowed} allows nothing"
    return f"it introduces {ratio_text(made.ratio)} what {allowed} allows"


def _attributes(case: Case, row: Row) -> list[str]:
    """Attributes of the same name that differ, where both sides call the op alike."""
    ours = case.op("target", row.target.key.op)
    theirs = case.op("reference", row.reference.key.op)
    if ours is None or theirs is None or ours.type != theirs.type:
        return []
    return [
        f"its {name} is {ours.attributes[name]}, the reference's {theirs.attributes[name]}"
        for name in theirs.attributes
        if name in ours.attributes and _unlike(ours.attributes, theirs.attributes, name)
    ][:2]


def _unlike(ours: Mapping[str, Any], theirs: Mapping[str, Any], name: str) -> bool:
    return bool(ours[name] != theirs[name])
