"""Text helpers of findings: name ops and tensors with their location, format numbers and shares;
make a finding about one row."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.run.model import Edge, Role

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
    the op is. Example: `add_8 (blocks.0.attention, model.py:41)`.
    A model output stands in quotes."""
    label = label or row.target.label
    if row.target.key.role is Role.MODEL_OUTPUT and label == row.target.label:
        return f"output '{label}'"
    if not _NUMBERED.search(label) and label.removesuffix("_default") not in _GENERIC:
        return label
    location = locate(row)
    return f"{label} ({location})" if location else label


def name_inner_op(row: Row, inner: str, label: str = "") -> str:
    """Name an op of the reference that the target computes as part of another op. Example:
    `silu_1 (recorded as part of mul_1, blocks.0.mlp, model.py:84)`."""
    label = label or row.target.label
    if inner == label:
        return name_op(row, label)
    location = ", ".join(part for part in (label, locate(row)) if part)
    return f"{inner} (recorded as part of {location})"


def name_tensor(edge: Edge) -> str:
    """Name a tensor that an op reads; model inputs and outputs stand in quotes."""
    is_boundary = edge.role in (Role.MODEL_INPUT, Role.MODEL_OUTPUT)
    return f"'{edge.op}'" if is_boundary else str(edge.op)


def locate(row: Row) -> str:
    """Return module and source line of a row's op: `blocks.0.attention, model.py:41`."""
    source = (row.target.source or row.reference.source).replace("\\", "/").rpartition("/")[2]
    parts = (row.target.module or row.reference.module, source)
    return ", ".join(part for part in parts if part)


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
