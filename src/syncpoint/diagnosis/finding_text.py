"""Text helpers of findings: name ops and tensors with their location, join names, describe a
change, format numbers, shares and ratios; make a finding."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.run.model import Edge, Op, Role

if TYPE_CHECKING:
    from syncpoint.diagnosis.case import Case


_NUMBERED = re.compile(r"\d(_default|_(Quantize|Dequantize)Linear_Output)?$")
"""Labels that a compiler or exporter numbered: `add_8`, `linear_3_QuantizeLinear_Output`."""
_GENERIC = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "neg",
        "cat",
        "view",
        "reshape",
        "permute",
        "transpose",
        "slice",
        "select",
        "getitem",
        "clone",
        "expand",
        "squeeze",
        "unsqueeze",
        "contiguous",
        "chunk",
        "split",
        "where",
    ]
)
"""Labels that are no more than the type of an op."""


def name_op(row: Row, label: str = "") -> str:
    """Return an op's label, with its module and source line if the label alone does not say where
    the op is. Example: `add_8 (blocks.0.attention, model.py:41)`. Its position if neither is
    recorded: `add_8 (op 17 in execution order)`. A model output stands in quotes."""
    label = label or row.target.label
    if row.target.key.role is Role.MODEL_OUTPUT and label == row.target.label:
        return f"output '{label}'"
    if not _NUMBERED.search(label) and label.removesuffix("_default") not in _GENERIC:
        return label
    location = locate(row)
    if not location and row.target.order >= 0:
        location = f"op {row.target.order + 1} in execution order"
    return f"{label} ({location})" if location else label


def name_target_op(row: Row, label: str = "") -> str:
    """Name an op of the target as the subject of a title: `the target's add_8 (model.py:41)`."""
    return f"the target's {name_op(row, label)}"


def name_inner_op(row: Row, op: Op, label: str = "", *, is_part: bool = True) -> str:
    """Name an op of the reference with the op of the target that computes it, alone or as a part.
    Example: `silu_1 (inside the target's mul_1; blocks.0.mlp, model.py:84)`, or alone
    `the target's mul_1 (silu_1 of the reference; blocks.0.mlp, model.py:84)`."""
    label = label or row.target.label
    if str(op.key) == label:
        return name_target_op(row, label)
    if is_part:
        return name_reference_op(op, f"inside the target's {label}")
    return f"the target's {label} ({_join_place(f'{op.key} of the reference', op)})"


def name_reference_op(op: Op, inside: str) -> str:
    """Name an op of the reference with the ops of the target that compute it, and where it is."""
    return f"{op.key} ({_join_place(inside, op)})"


def _join_place(text: str, op: Op) -> str:
    """Add module and source line of an op of the reference to a text, as far as they are known."""
    source = _short_source(str(op.source[-1])) if op.source else ""
    location = ", ".join(part for part in (op.module, source) if part)
    return "; ".join(part for part in (text, location) if part)


def name_tensor(edge: Edge) -> str:
    """Name a tensor that an op reads; model inputs and outputs stand in quotes."""
    is_boundary = edge.role in (Role.MODEL_INPUT, Role.MODEL_OUTPUT)
    return f"'{edge.op}'" if is_boundary else str(edge.op)


def locate(row: Row) -> str:
    """Return module and source line of a row's op: `blocks.0.attention, model.py:41`.

    Some runtimes know modules only as class and number (`Block$1.Linear$3`). The reference's name
    of the module stands in for them; without one they are spelled out: `Linear 3 in Block 1`.
    """
    module = row.target.module
    if not module or "$" in module:
        module = row.reference.module or module
    if "$" in module:
        module = " in ".join(part.replace("$", " ") for part in reversed(module.split(".")))
    source = _short_source(row.target.source or row.reference.source)
    return ", ".join(part for part in (module, source) if part)


def _short_source(source: str) -> str:
    return source.replace("\\", "/").rpartition("/")[2]


def describe_change(
    change: str,
    before: float,
    after: float,
    unit: str,
    remainder: str = "",
    results: str = "the two results",
) -> str:
    """Return the sentence that a change makes both sides alike, with the difference before and
    after. `change` is an adverbial phrase: `with this fault put into the reference's op`."""
    if after == 0 and before != inf:
        return f"{change}, {results} are equal; without it they differ by {_brief(before)} ({unit})"
    if before == inf:
        return (
            f"{change}, {results} are NaN or inf in the same places, and differ by {_brief(after)}"
            f" ({unit}) elsewhere; without it those places differ"
        )
    line = f"{change}, {results} differ by {_brief(after)} instead of {_brief(before)} ({unit})"
    return f"{line}; {remainder}" if remainder else line


def _brief(value: float) -> str:
    return number(value) if 100 <= value < inf else f"{value:.2g}"


def join_names(names: list[str]) -> str:
    """Join names to a list in words: `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def finding_at(
    case: Case,
    row: Row,
    cause: str,
    kind: str,
    title: str,
    confidence: float,
    evidence: Iterable[str] = (),
    next: str = "",
    missing: Iterable[str] = (),
    level: Level = Level.CAUSE,
    *,
    ops: Iterable[str] | None = None,
    reference_ops: Iterable[str] | None = None,
    rows: Iterable[Row] | None = None,
) -> Finding:
    """Make a finding about one sync point; its ops and rows are those of the sync point by default.

    Empty lines of evidence are left out.
    """
    return Finding(
        cause=cause,
        kind=kind,
        title=title,
        level=level,
        confidence=confidence,
        ops=(row.target.label,) if ops is None else tuple(ops),
        reference_ops=(row.reference.label,) if reference_ops is None else tuple(reference_ops),
        module=row.target.module or row.reference.module,
        source=row.target.source or row.reference.source,
        evidence=tuple(line for line in evidence if line),
        next=next,
        missing=tuple(missing),
        rows=tuple(case.place[r.target.key] for r in rows or (row,)),
    )


def number(value: float) -> str:
    """Format a number with three digits, and with separators if it is long."""
    size = abs(value)
    if size == inf or value != value:
        return str(value)
    if size and (size >= 1e7 or size < 1e-3):
        return f"{value:.2e}"
    return f"{value:,.0f}" if size >= 1000 else f"{value:.3g}"


def share(count: float, total: float) -> str:
    """Format a share in percent; a small share is never shown as 0."""
    percent = 100 * count / total if total else 0.0
    if count and percent < 0.1:
        return f"{percent:.1g} %"
    return f"{percent:.1f} %" if percent < 99.95 or count == total else "99.9 %"


def of_norm(ratio: float, whose: str = "its") -> str:
    """Format a ratio to a norm: a percentage, or from 2 on a multiple."""
    return f"{ratio:.2%} of {whose} norm" if ratio < 2 else f"{number(ratio)} times {whose} norm"
