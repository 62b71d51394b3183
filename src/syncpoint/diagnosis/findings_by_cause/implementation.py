"""Findings about ops that compute something else than the reference's: a matching variant,
arguments that differ, extra ops, unexplained ops; next steps.

Their introduced error is far beyond what their precision allows. Where a known variant of the op
gives the target's values, the finding names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.unfused_target import can_be_unfused, find_fusing_runtime
from syncpoint.diagnosis.finding_text import (
    describe_change,
    finding_at,
    join_names,
    name_inner_op,
    name_op,
    name_reference_op,
    name_target_op,
    name_tensor,
)
from syncpoint.diagnosis.findings_by_cause.fusion import name_fault_in_fused_op
from syncpoint.diagnosis.processing.one_sided_ops import OneSidedOps, find_one_sided_ops
from syncpoint.diagnosis.variants.search import (
    VariantMatch,
    find_subtle_variants,
    find_variant,
)
from syncpoint.diagnosis.weights.recorded_parameters import find_target_parameters_behind
from syncpoint.matching.op_kinds import TRANSPARENT, op_class
from syncpoint.metrics.ratio_text import ratio_text
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import long_name
from syncpoint.run.model import RECORDER_ATTRIBUTES, Edge, Op, Role

_MAX_GUILTY_OPS = 8
"""Guilty ops to look into. Later ones are mostly consequences of these."""
_MAX_QUIET_OPS = 24
"""Ops to search for variants below the rounding."""
_SUBTLE = frozenset({"gelu", "silu", "softmax"})
"""Classes of ops with variants that hide below the rounding of 16 bits. Norms are not among them:
their parameters are rounded too, and the error is the same in a whole channel."""


_MOVERS = TRANSPARENT - {"quantize", "dequantize"} | {
    "concat",
    "split",
    "slice",
    "embedding",
    "pad",
}
"""Ops that compute nothing: each element of the result is an element of an input."""
_ORDER_OF_INPUTS = frozenset(
    {"halves-exchanged", "parts-exchanged", "operands-swapped", "concat-order", "joined-order"}
)
"""Variants that read the same inputs in another order."""
_MAX_NAMED_OPS = 5
"""Maximum number of ops that a title names."""
_MISSING_FOR_QUIET = "a run of the target in float32, whose rounding does not hide the fault"
_MAX_SIGMAS_TO_STATE = 1000
"""A distance from chance above this is beyond doubt, and its number says nothing."""
_PREPARING = TRANSPARENT - {"identity", "quantize", "dequantize"} | {
    *("add", "sub", "mul", "div", "slice", "concat", "pad", "resize", "clamp")
}


class Implementation:
    """Ops that are implemented differently."""

    name = "implementation"
    title = "an op is implemented differently"

    def look(self, case: Case) -> Iterable[Finding]:
        """Yield one finding per guilty op, and one for all ops that the same variant explains."""
        variants: dict[tuple[str, str], list[tuple[Row, VariantMatch]]] = {}
        explained = _explained_places(case)
        open_rows: list[Row] = []
        for row in case.guilty[:_MAX_GUILTY_OPS]:
            if case.place[row.target.key] in explained or _is_noted(case, row):
                continue
            best, covered = find_variant(case, row)
            open_rows = [r for r in open_rows if r.target.key not in covered]
            if best is not None:
                if not _is_reported_as_weight(case, row, best) and not _add_to_fusion(
                    case, row, best
                ):
                    _add_variant(variants, row, best)
            elif not _is_broken(case, row):
                experiment = case.experiment(row)
                extra_ops = find_one_sided_ops(case, experiment) if experiment is not None else None
                if extra_ops is not None:
                    yield self._report_extra_ops(case, row, extra_ops)
                else:
                    open_rows.append(row)
        for row in open_rows:
            yield self._report_unexplained(case, row)
        if not case.guilty:
            for row, best in self._find_quiet_variants(case):
                _add_variant(variants, row, best)
        for pairs in variants.values():
            yield self._report_variant(case, pairs)

    def _find_quiet_variants(self, case: Case) -> Iterator[tuple[Row, VariantMatch]]:
        """Yield variants of ops whose verdicts are fine: the rounding of 16 bits may hide one."""
        coarse = [
            row
            for row in case.computed
            if row.target.dtype in ("f16", "bf16") and op_class(row.reference.type) in _SUBTLE
        ]
        for row in coarse[:_MAX_QUIET_OPS]:
            experiment = case.experiment(row)
            variants = find_subtle_variants(experiment) if experiment is not None else []
            if variants:
                yield row, variants[0]

    def _report_variant(self, case: Case, pairs: list[tuple[Row, VariantMatch]]) -> Finding:
        row, best = pairs[0]
        subject = _name_subject(case, pairs)
        is_quiet = not case.is_off
        evidence = [_describe_introduced(row)] if row.introduced and row.introduced.rmse else []
        if (best.is_complete or best.share > 0.5) and best.variant_rms < best.reference_rms:
            evidence.append(
                describe_change(
                    "with this fault put into the reference's op",
                    best.reference_rms,
                    best.variant_rms,
                    "RMS",
                    _describe_remainder(row, best),
                )
            )
        if best.sigmas and not best.is_complete:
            evidence.append(
                "the fault also explains the size of the error (best-fit factor"
                f" {best.projection:.2f}{_describe_sigmas(best.sigmas)})"
            )
        evidence += (
            _list_differing_attributes(case, row) if best.hypothesis.kind != "attributes" else []
        )
        advice = _advise(case, row, best)
        pad = _find_separate_pad(case, row, best)
        if pad is not None:
            evidence.append(f"in the target, a separate op pads its input: {pad.key}")
            advice = f"change {pad.key} in the target to pad as {best.op.key} does in the reference"
        return finding_at(
            case,
            row,
            _cause(case, row, best),
            best.hypothesis.kind,
            f"{subject} {best.hypothesis.text}",
            # Many variants look alike through integers.
            min(best.confidence, 0.88 if row.preset in ("int8", "int4") else 1.0),
            evidence,
            best.hypothesis.next or advice,
            level=Level.SUSPECT if is_quiet else Level.CAUSE,
            missing=(_MISSING_FOR_QUIET,) if is_quiet else (),
            ops=dict.fromkeys(_label(case, r) for r, _ in pairs),
            reference_ops=dict.fromkeys(str(e.op.key) for _, e in pairs),
            rows=[r for r, _ in pairs],
        )

    def _report_extra_ops(self, case: Case, row: Row, extra_ops: OneSidedOps) -> Finding:
        """Make the finding that one side alone has ops before the op of a row."""
        names = [str(op.key) for op in extra_ops.ops]
        joined = join_names(names)
        prepares = extra_ops.edge.role is Role.MODEL_INPUT and all(
            _is_preparing(op) for op in extra_ops.ops
        )
        label = _label(case, row)
        subject, tensor = name_op(row, label), name_tensor(extra_ops.edge)
        if extra_ops.added:
            count, these = ("an extra op", "op") if len(names) == 1 else ("extra ops", "ops")
            title = (
                f"the target has {count} {joined} before {subject}; the reference has no such"
                f" {these}"
            )
            change = f"with {joined} added to the reference"
            cure = f"remove {joined} from the target"
            if prepares:
                cure += f", or prepare {tensor} without this step"
        else:
            title = (
                f"the target's {subject} reads {tensor} directly; the reference applies {joined}"
                " first"
            )
            change = f"without {joined} in the reference"
            cure = f"find where the conversion drops {joined}"
            if prepares:
                cure = f"add {joined} to the target, or prepare {tensor} with this step"
        return finding_at(
            case,
            row,
            "processing" if prepares else self.name,
            "ops-added" if extra_ops.added else "ops-dropped",
            title,
            # An op that the reference does not have may be nondeterministic.
            0.8 if extra_ops.added and not prepares else 0.96,
            (extra_ops.proof.words(change, label),),
            cure,
            ops=(*names, label) if extra_ops.added else (label,),
            reference_ops=(
                (_reference_label(case, row),)
                if extra_ops.added
                else (*names, _reference_label(case, row))
            ),
        )

    def _report_unexplained(self, case: Case, row: Row) -> Finding:
        alike = [r for r in case.computed if r.target.type == row.target.type]
        off = [r for r in alike if r.introduced_verdict is Verdict.LARGE]
        evidence = [_describe_introduced(row)] if row.introduced is not None else []
        has_peers = bool(row.target.type) and len(alike) > 1
        if has_peers and len(off) == len(alike):
            evidence.append(f"all {len(alike)} ops of type {row.target.type} have a large error")
        elif has_peers and row.introduced is not None:
            evidence.append(_describe_peers(row.target.type, len(alike), len(off)))
        evidence += _list_differing_attributes(case, row)
        label, reference_label = _label(case, row), _reference_label(case, row)
        is_same = label == reference_label
        origin = (
            "the reference's op"
            if is_same
            else f"its counterpart in the reference, {reference_label}"
        )
        return finding_at(
            case,
            row,
            self.name,
            "unexplained",
            f"{name_target_op(row, label)} differs from {origin}{'' if is_same else ','} on the"
            " same inputs; no known fault explains it"
            if row.introduced is not None
            else f"{name_target_op(row, label)} differs from {origin}; no known fault explains it",
            0.5,
            evidence,
            _advise_inspection(case, row),
            level=_weight(row),
            ops=(label,),
            reference_ops=(reference_label,),
        )


def _explained_places(case: Case) -> set[int]:
    """Return the positions of rows that earlier causes explain for certain."""
    facts = (
        finding
        for finding in case.findings
        if finding.level is Level.CAUSE and finding.confidence >= 0.9 and _is_fact(case, finding)
    )
    return {place for finding in facts for place in finding.rows}


def _add_variant(
    variants: dict[tuple[str, str], list[tuple[Row, VariantMatch]]], row: Row, best: VariantMatch
) -> None:
    """Add a row to those that the same variant of the same type of op explains."""
    variants.setdefault((best.op.type, best.hypothesis.kind), []).append((row, best))


def _is_reported_as_weight(case: Case, row: Row, best: VariantMatch) -> bool:
    """Whether a finding about the weights themselves reports it already."""
    place = case.place[row.target.key]
    return best.hypothesis.kind.startswith("weight-") and any(
        f.cause == "weights" and f.level is Level.CAUSE and place in f.rows for f in case.findings
    )


def _is_noted(case: Case, row: Row) -> bool:
    """Whether the op is reported to lose bits without an effect on the output."""
    place = case.place[row.target.key]
    return any(
        f.cause == "precision" and f.level is not Level.CAUSE and place in f.rows
        for f in case.findings
    )


def _is_broken(case: Case, row: Row) -> bool:
    """Whether an overflow is reported for the op, which says more than that its values differ."""
    place = case.place[row.target.key]
    return any(f.cause == "overflow" and place in f.rows for f in case.findings)


def _is_fact(case: Case, finding: Finding) -> bool:
    """Whether an earlier finding leaves nothing open. Inferred weights, outputs and fusions may
    still be explained by an op."""
    if finding.cause == "weights":
        return any(case.rows[place].target.key.role is Role.PARAMETER for place in finding.rows)
    return finding.cause not in ("fusion", "processing")


def _add_to_fusion(case: Case, row: Row, best: VariantMatch) -> bool:
    """Whether an earlier fusion finding covers the row; if so, add the variant to its evidence."""
    place = case.place[row.target.key]
    for index, finding in enumerate(case.findings):
        if finding.cause == "fusion" and finding.level is Level.CAUSE and place in finding.rows:
            title, evidence = name_fault_in_fused_op(
                finding, str(best.op.key), best.hypothesis.text
            )
            case.findings[index] = replace(
                finding,
                confidence=max(finding.confidence, 0.98),
                title=title,
                evidence=evidence,
            )
            return True
    return False


def _cause(case: Case, row: Row, best: VariantMatch) -> str:
    """Return the cause of a variant. A weight that is read in another layout and one that is stored
    in another layout give the same values; only recorded weights tell which it is."""
    if not best.hypothesis.kind.startswith("weight-"):
        return best.hypothesis.cause
    parameters = find_target_parameters_behind(case, row.target.key)
    close = {r.target.key for r in case.rows if r.verdict is Verdict.CLOSE}
    return best.hypothesis.cause if parameters and close.issuperset(parameters) else "weights"


def _weight(row: Row) -> Level:
    """Return the level of an unexplained op: a moderate error matters only where the row is off."""
    if row.introduced_verdict is not Verdict.MODERATE or row.first_non_finite:
        return Level.CAUSE
    return Level.SUSPECT if row.verdict.severity else Level.NOTE


def _is_preparing(op: Op) -> bool:
    """Whether an op is of a type that preprocessing uses."""
    return op_class(op.type) in _PREPARING


def _name_subject(case: Case, pairs: list[tuple[Row, VariantMatch]]) -> str:
    """Return the subject of the title: the op, and the target's op that contains it if the target
    has no tensor of its own for it. For several rows, `every gelu of the target (12 ops: ...)` if
    that is all of a type."""
    row, best = pairs[0]
    if len(pairs) == 1:
        is_own = best.op.key == row.reference.key.op
        return name_inner_op(row, best.op, _label(case, row), is_part=not is_own)
    kind = op_class(best.op.type)
    run = case.reference
    alike = [op for op in run.ops if op.type == best.op.type] if run is not None else []
    if len({match.op.key for _, match in pairs}) == 1:
        labels = [_label(case, r) for r, _ in pairs]
        return name_reference_op(
            best.op, f"inside each of the target's {join_names(_shorten(labels))}"
        )
    listed = ", ".join(_shorten([_name_briefly(_label(case, r), m.op) for r, m in pairs]))
    if len(alike) == len({r.reference.key.op for r, _ in pairs}):
        return f"every {kind} of the target ({len(pairs)} ops: {listed})"
    return f"each of {len(pairs)} {kind} ops of the target ({listed})"


def _is_fused(case: Case, row: Row) -> bool:
    """Whether the target's op computes several ops of the reference."""
    op = case.op("target", row.target.key.op)
    has_region = row.introduced is not None and len(row.introduced.region) > 1
    return has_region or (op is not None and len(op.origins) > 1)


def _shorten(names: list[str]) -> list[str]:
    """Return the first names and how many more there are."""
    more = len(names) - _MAX_NAMED_OPS
    return [*names[:_MAX_NAMED_OPS], f"{more} more"] if more > 0 else names


def _name_briefly(label: str, op: Op) -> str:
    """Name an op of the reference in a list, with the target's op if that has another name."""
    return label if str(op.key) == label else f"{op.key} in {label}"


def _describe_remainder(row: Row, best: VariantMatch) -> str:
    """Say whether rounding explains the difference that the fault leaves."""
    introduced = row.introduced
    precision = long_name(introduced.preset) if introduced is not None else ""
    if best.is_complete:
        return f"{precision} rounding explains the rest".lstrip()
    if introduced is None or not introduced.expected:
        return ""
    return f"{precision} rounding explains {introduced.expected:.2g} of the rest"


def _advise(case: Case, row: Row, best: VariantMatch) -> str:
    """Return the next step for a variant, by its kind."""
    name, kind, op = _label(case, row), best.hypothesis.kind, str(best.op.key)
    is_inside = _is_fused(case, row) and name != op
    kernel = f"in the code of the target's kernel {name}, " if is_inside else ""
    if best.hypothesis.setting:
        argument, value = best.hypothesis.setting
        return f"{kernel}set {argument} of {op if is_inside else name} to {value}"
    if change := _advise_on_dropped_or_added(kind, op, name, kernel):
        return change
    # A separate pad may stand before an op that pads nothing: its attribute alone is no cure.
    is_padding = kind.startswith("padding-") or kind == "pool-pad-value"
    settings = _list_right_attributes(case, row) if best.op.key == row.reference.key.op else []
    if settings and not is_padding:
        return f"set {' and '.join(settings)} in the target"
    if change := _advise_on_order_or_weight(best.op, kind, name, kernel):
        return change
    if kind.endswith("-twice"):
        return f"check whether the conversion folds {op} into another op and also keeps {op}"
    if kind.endswith("-instead"):
        right, wrong = op_class(best.op.type), kind.removesuffix("-instead")
        return f"{kernel or 'in the target, '}replace {wrong} with {right} ({op} of the reference)"
    if is_inside:
        return f"look in the code of the target's kernel {name} for the part that computes {op}"
    if name == op:
        return f"compare the attributes of {op} in the target and in the reference"
    return f"compare the attributes of {name} in the target with those of {op} in the reference"


def _advise_on_order_or_weight(reference_op: Op, kind: str, name: str, kernel: str) -> str:
    """Return the next step for inputs, axes or weights that are passed differently; "" for other
    kinds."""
    op = str(reference_op.key)
    if kind in _ORDER_OF_INPUTS and len(reference_op.inputs) > 1:
        order = ", ".join(_name_edge(edge) for edge in reference_op.inputs)
        return f"{kernel}pass the inputs of {op} in the order of the reference: {order}"
    if kind in _ORDER_OF_INPUTS:
        return f"compare the order of the axes that {op} merges in the target and in the reference"
    if kind == "batch_norm-unloaded":
        return f"check that the target loads the running mean and variance of {op}"
    if kind.startswith(("weight-", "kernel-", "groups-")):
        return f"check the layout in which the conversion passes the weight of {op}"
    if kind == "layout-order":
        return f"{kernel}pass the input of {op} in the axis order of the reference"
    if kind.startswith(("layout-", "axes-", "transpose-", "concat-", "shifted")):
        return f"compare the axis order of {name} in the target with that of {op} in the reference"
    return ""


def _advise_on_dropped_or_added(kind: str, op: str, name: str, kernel: str) -> str:
    """Return the next step for what the conversion drops or adds; "" for other kinds."""
    if kind == "transpose-missing":
        return f"{kernel or 'in the target, '}write {op} as a transpose, not as a reshape"
    if kind.endswith("-missing"):
        what = f"the bias of {op}" if kind == "bias-missing" else op
        return f"find where the conversion drops {what}"
    if kind == "mask-ignored":
        return f"find where the conversion drops the mask of {op}"
    of_target = op if op == name else f"the target's {name} ({op} of the reference)"
    if kind.endswith("-added"):
        extra = kind.removesuffix("-added").replace("-", " ").replace("causal", "causal mask")
        return f"find where the conversion adds the {extra} to {of_target}"
    if kind.endswith("-before"):
        extra = kind.removesuffix("-before")
        return f"find where the conversion adds the {extra} before {of_target}"
    return ""


def _name_edge(edge: Edge) -> str:
    """Name an input of an op, with its index if it is not the first output of its op."""
    return f"{name_tensor(edge)}[{edge.index}]" if edge.index else name_tensor(edge)


def _advise_inspection(case: Case, row: Row) -> str:
    """Return the next step for an op that nothing explains. A fused op can be run unfused; a dump
    may have no types."""
    kind, runtime = row.target.type, find_fusing_runtime(case)
    if runtime is not None and can_be_unfused(case) and kind.startswith(runtime.fused_types):
        options = " ".join(f"--target-set {k}={v}" for k, v in runtime.unfused_options().items())
        return f"compare again with {options}, which runs the ops of {kind} one by one"
    if not kind:
        return f"inspect the op that produced {_label(case, row)}"
    return (
        f"run {_label(case, row)} ({kind}) alone with the recorded inputs; if its result is still"
        " wrong, its implementation is at fault; if it is right, check how the whole model is"
        " compiled and recorded"
    )


def _label(case: Case, row: Row) -> str:
    """Return the label of the target's op, also if the row is of a model output."""
    key = row.target.key
    if key.role is Role.MODEL_OUTPUT and case.op("target", key.op) is not None:
        return str(key.op)
    return row.target.label


def _reference_label(case: Case, row: Row) -> str:
    maker = case.maker(row)
    return str(maker.op) if maker is not None else row.reference.label


def _describe_introduced(row: Row) -> str:
    introduced = row.introduced
    assert introduced is not None
    precision = long_name(introduced.preset)
    if introduced.ratio is None or introduced.ratio == float("inf"):
        reason = f"{precision} rounding explains none of it"
        if len(introduced.region) <= 1 and op_class(row.reference.type) in _MOVERS:
            reason = (
                "in eval mode a dropout must return its input unchanged"
                if "dropout" in row.reference.type
                else "this op only moves values, so its result must be equal bit for bit"
            )
        return (
            "given the target's inputs, the reference's op gives a result that differs from the"
            f" target's by {introduced.rmse:.3g} (RMS); {reason}"
        )
    ratio = ratio_text(introduced.ratio).removesuffix("×")
    return (
        "given the target's inputs, the reference's op gives a result that differs from the"
        f" target's by {ratio} times what {precision} rounding explains"
    )


def _describe_sigmas(sigmas: float) -> str:
    """Return how far a fitted effect is from chance; "" if that is beyond doubt."""
    return (
        f", {sigmas:,.0f} standard deviations from chance" if sigmas < _MAX_SIGMAS_TO_STATE else ""
    )


def _describe_peers(kind: str, count: int, off: int) -> str:
    """Describe how many of the other ops of one type are correct."""
    correct, others = count - off, count - 1
    if others == 1:
        return f"the other op of type {kind} is correct"
    if correct == others:
        return f"the other {others} ops of type {kind} are correct"
    are = "is" if correct == 1 else "are"
    return f"{correct} of the {others} other ops of type {kind} {are} correct"


def _find_separate_pad(case: Case, row: Row, best: VariantMatch) -> Op | None:
    """Return the target's op that pads the input of a convolution or pool; None if there is none.
    Converters write one where the padding of the op itself is symmetric only."""
    op = case.op("target", row.target.key.op)
    is_padding_fault = best.hypothesis.kind.startswith("padding-")
    if op is None or not op.inputs or not is_padding_fault or op_class(best.op.type) == "pad":
        return None
    edge = op.inputs[0]
    producer = case.op("target", edge.op) if edge.role is Role.OUTPUT else None
    return producer if producer is not None and op_class(producer.type) == "pad" else None


def _list_differing_attributes(case: Case, row: Row) -> list[str]:
    """List attributes of one name that differ, if both ops are of one type."""
    return [
        f"its argument `{name}` is {_short(target)} in the target, {_short(reference)} in the"
        " reference"
        for name, target, reference in _differing_attributes(case, row)
    ]


def _list_right_attributes(case: Case, row: Row) -> list[str]:
    """List the attributes to set in the target, with the reference's values."""
    return [
        f"`{name}` of {_label(case, row)} to {_short(reference)}"
        for name, _, reference in _differing_attributes(case, row)
    ]


def _differing_attributes(case: Case, row: Row) -> list[tuple[str, object, object]]:
    """Return name and both values of attributes that differ, if both ops are of one type."""
    target_op = case.op("target", row.target.key.op)
    reference_op = case.op("reference", row.reference.key.op)
    if target_op is None or reference_op is None or target_op.type != reference_op.type:
        return []
    target, reference = target_op.attributes, reference_op.attributes
    return [
        (name, target[name], reference[name])
        for name in reference
        if name in target
        and name not in RECORDER_ATTRIBUTES
        and bool(target[name] != reference[name])
    ][:2]


def _short(value: object) -> str:
    """Format an attribute; a float with six digits."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
