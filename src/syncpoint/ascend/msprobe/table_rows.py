"""Build the rows of `msprobe compare` for two dump.json dumps: column names by task, types, shapes,
statistics, differences; not the table of `torchair`.

The table is for users who know it, and for scripts that read it. `syncpoint compare` judges by
other rules, because these let errors pass: a row is an error only if an op is worse than its
inputs.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TypeGuard

from syncpoint.ascend.msprobe.entry_values import FIGURES, parse_number
from syncpoint.ascend.msprobe.row_levels import RowLevel, set_levels
from syncpoint.ascend.msprobe.tensor_metrics import (
    NOT_APPLICABLE,
    UNSUPPORTED,
    figure_difference,
    measure_tensors,
)
from syncpoint.errors import InputError
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Kept, Op, OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

NAMES = (
    *("NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype"),
    *("NPU Tensor Shape", "Bench Tensor Shape", "NPU Requires_grad", "Bench Requires_grad"),
)
REAL_DATA = (
    *("Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr"),
    *("One Thousandth Err Ratio", "Five Thousandths Err Ratio"),
)
DIFFERENCES = (
    *("Max diff", "Min diff", "Mean diff", "L2norm diff"),
    *("MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"),
)
SIDES = (
    *("NPU max", "NPU min", "NPU mean", "NPU l2norm"),
    *("Bench max", "Bench min", "Bench mean", "Bench l2norm"),
)
DIGESTS = ("NPU MD5", "BENCH MD5")
LAST = ("Requires_grad Consistent", "Result", "Err_message", "NPU_Stack_Info")
NO_BENCH = "No bench data matched."


def columns(task: str) -> tuple[str, ...]:
    """Return the header for `tensor`, `statistics` or `md5`."""
    if task == "tensor":
        return (*NAMES, *REAL_DATA, *SIDES, *LAST, "Data_name")
    if task == "statistics":
        return (*NAMES, *DIFFERENCES, *SIDES, *LAST)
    return (*NAMES, *DIGESTS, *LAST)


def task_of(target: Run, reference: Run) -> str:
    """Return what both dumps can be compared by, in the words of msProbe."""
    modes = [{tensor.kept for tensor in run.tensors} for run in (target, reference)]
    if all(Kept.VALUES in values_kept for values_kept in modes):
        return "tensor"
    return "md5" if all(Kept.DIGEST in values_kept for values_kept in modes) else "statistics"


@dataclass(frozen=True, kw_only=True)
class Value:
    """A value of an op on one side, as msProbe shows it."""

    dtype: str = NOT_APPLICABLE
    shape: str = NOT_APPLICABLE
    requires_grad: str = NOT_APPLICABLE
    figures: tuple[Any, ...] = (None,) * 4
    """Max, Min, Mean, Norm."""
    digest: str = NOT_APPLICABLE
    file: str = "-1"
    tensor: Tensor | None = None


@dataclass
class TableRow:
    """A row under construction: its cells by column, its level and its messages."""

    role: Role
    cells: dict[str, Any]
    matched: bool
    level: RowLevel = RowLevel.PASS
    messages: list[str] = field(default_factory=list)


def build_rows(target: Run, reference: Run) -> Iterator[dict[str, Any]]:
    """Yield the rows in the target's order, as cells by column."""
    task = task_of(target, reference)
    for run in (target, reference):
        _check_run(run)
    for op in target.ops:
        bench_value = reference.op(op.key)
        op_lines = list(_build_op_rows(target, reference, op, bench_value, task))
        set_levels(op_lines, _api(op), task)
        for index, row in enumerate(op_lines):
            stack = op.attributes.get("stack") if index == 0 else None
            row.cells["Result"] = str(row.level) if row.matched or task == "md5" else NOT_APPLICABLE
            row.cells["Err_message"] = json.dumps(row.messages, ensure_ascii=False)
            row.cells["NPU_Stack_Info"] = str(stack) if stack else NOT_APPLICABLE
            yield row.cells


def _check_run(run: Run) -> None:
    """Refuse runs that are not one step of one process of an msProbe dump."""
    parts = {tensor.key.part for tensor in run.tensors}
    if run.info.options.get("format") != "msprobe":
        raise InputError(
            f"msProbe's table needs two msProbe dumps, but {run.info.model} is not one",
            cure="compare two dumps of msProbe, or leave out --msprobe-csv and --msprobe-xlsx",
        )
    if len(parts) > 1:
        raise InputError(
            f"msProbe's table takes one step and one rank, but {run.info.model} has {len(parts)}",
            cure="give the path of one of them: .../step0/rank0",
        )


def _api(op: Op) -> str:
    """Return the hooked function, without its call number."""
    return op.key.op.split(".")[1] if op.key.op.count(".") else op.key.op


def _build_op_rows(
    target: Run, reference: Run, op: Op, other: Op | None, task: str
) -> Iterator[TableRow]:
    bench = dict(_values(reference, other)) if other is not None else {}
    for (name, role), npu_value in _values(target, op):
        bench_value = bench.get((name, role))
        if bench_value is not None and not _are_compatible(npu_value, bench_value):
            bench_value = None
        full = f"{op.key.op}.{name}"
        cells: dict[str, Any] = {
            "NPU Name": full,
            "Bench Name": full if bench_value is not None else NOT_APPLICABLE,
        }
        row = TableRow(role, cells, bench_value is not None)
        if bench_value is None:
            row.messages.append(NO_BENCH)
            bench_value = Value(figures=(NOT_APPLICABLE,) * 4)
        for column, attribute in (("Dtype", "dtype"), ("Tensor Shape", "shape")):
            cells[f"NPU {column}"] = getattr(npu_value, attribute)
            cells[f"Bench {column}"] = getattr(bench_value, attribute)
        cells["NPU Requires_grad"] = npu_value.requires_grad
        cells["Bench Requires_grad"] = bench_value.requires_grad
        is_same = npu_value.requires_grad == bench_value.requires_grad
        cells["Requires_grad Consistent"] = str(is_same) if row.matched else NOT_APPLICABLE
        cells |= dict(zip(SIDES, (*npu_value.figures, *bench_value.figures), strict=True))
        if task == "tensor":
            _fill_real_data(row, target, npu_value, reference, bench_value)
            cells["Data_name"] = str([npu_value.file, bench_value.file])
        elif task == "statistics":
            cells |= _differences(npu_value.figures, bench_value.figures)
        else:
            cells |= dict(zip(DIGESTS, (npu_value.digest, bench_value.digest), strict=True))
        yield row


def _values(run: Run, op: Op) -> Iterator[tuple[tuple[str, Role], Value]]:
    """Yield the values of an op in the order of msProbe."""
    counts: dict[Role, int] = {}
    part = next((tensor.key.part for tensor in run.tensors), TensorKey(op.key).part)
    arguments = op.attributes.get("arguments", {})
    figures = op.attributes.get("figures", {})
    for name in op.attributes.get("values", ()):
        role = _role(name, op)
        index = counts.get(role, 0)
        counts[role] = index + 1
        if name in arguments:
            yield (name, role), _describe_argument(arguments[name])
            continue
        key = TensorKey(op.key, role, index, part)
        if role is Role.PARAMETER:
            parameter = name.removeprefix("parameters.")
            path = f"{op.module}.{parameter}" if op.module else parameter
            key = TensorKey(OpKey(path, int(op.attributes.get("call", 0))), role, 0, part)
        tensor = run.tensor(key)
        if tensor is not None:
            yield (name, role), _describe_tensor(tensor, figures.get(name))


def _role(name: str, op: Op) -> Role:
    kind = name.split(".", 1)[0]
    if op.attributes.get("way") == "parameters_grad" or kind == "output":
        return Role.OUTPUT
    return Role.PARAMETER if kind == "parameters" else Role.INPUT


def _describe_argument(body: Any) -> Value:
    if body is None:
        return Value()
    if not isinstance(body, dict):
        body = {"type": type(body).__name__, "value": body}
    value = body.get("value")
    return Value(
        dtype=f"<class '{body.get('type')}'>",
        shape="[]",
        figures=(value,) * 4,
        digest=f"{zlib.crc32(str(value).encode('utf-8', 'replace')):08x}",
    )


def _describe_tensor(tensor: Tensor, other_figures: Mapping[str, Any] | None) -> Value:
    statistics = tensor.statistics
    if other_figures is not None:
        figures = tuple(
            _number(other_figures[n]) if n in other_figures else NOT_APPLICABLE for n in FIGURES
        )
    elif statistics is not None:
        figures = (statistics.max, statistics.min, statistics.mean, statistics.l2)
    else:
        figures = (NOT_APPLICABLE,) * 4
    grad = tensor.requires_grad
    return Value(
        dtype=f"torch.{DTYPES[tensor.dtype].long_name}",
        shape=str(list(tensor.shape)),
        requires_grad=NOT_APPLICABLE if grad is None else str(grad),
        figures=figures,
        digest=tensor.digest if tensor.kept is Kept.DIGEST else NOT_APPLICABLE,
        file=PurePosixPath(tensor.shard).name if tensor.shard else "-1",
        tensor=tensor,
    )


def _number(value: Any) -> Any:
    """Convert a figure that a run keeps as text."""
    number = parse_number(value) if isinstance(value, str) else None
    return value if number is None else number


def _are_compatible(npu_value: Value, bench_value: Value) -> bool:
    """Whether msProbe pairs two values: any two floats, or equal types."""
    floats = ("torch.float", "torch.bfloat")
    return npu_value.dtype == bench_value.dtype or (
        npu_value.dtype.startswith(floats) and bench_value.dtype.startswith(floats)
    )


def _fill_real_data(
    row: TableRow, target: Run, npu_value: Value, reference: Run, bench_value: Value
) -> None:
    if not row.matched:
        cells: tuple[Any, ...] = (NOT_APPLICABLE,) * 6
    elif not (_has_values(npu_value.tensor) and _has_values(bench_value.tensor)):
        cells = (UNSUPPORTED,) * 6
    else:
        metrics = measure_tensors(target, npu_value.tensor, reference, bench_value.tensor)
        cells = metrics.cells
        if metrics.message:
            row.messages.append(metrics.message)
    row.cells |= dict(zip(REAL_DATA, cells, strict=True))


def _has_values(tensor: Tensor | None) -> TypeGuard[Tensor]:
    return tensor is not None and tensor.kept is Kept.VALUES


def _differences(npu_value: tuple[Any, ...], bench_value: tuple[Any, ...]) -> dict[str, Any]:
    pairs = [figure_difference(n, b) for n, b in zip(npu_value, bench_value, strict=True)]
    return dict(zip(DIFFERENCES, (*(p[0] for p in pairs), *(p[1] for p in pairs)), strict=True))
