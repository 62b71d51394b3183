"""The rows of msProbe's own comparison of two dumps: its columns, one for each value of the target.

For users who know them, and for the scripts that read them. `syncpoint compare` judges by other
means, since these let errors pass: a row is an error only where an op made things worse than they
were given to it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TypeGuard

from syncpoint.ascend.msprobe.entry_values import FIGURES, figure
from syncpoint.ascend.msprobe.row_levels import Level, judge
from syncpoint.ascend.msprobe.tensor_metrics import (
    NOT_APPLICABLE,
    UNSUPPORTED,
    figure_difference,
    measure,
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
    """The header for `tensor`, `statistics` or `md5`."""
    if task == "tensor":
        return (*NAMES, *REAL_DATA, *SIDES, *LAST, "Data_name")
    if task == "statistics":
        return (*NAMES, *DIFFERENCES, *SIDES, *LAST)
    return (*NAMES, *DIGESTS, *LAST)


def task_of(target: Run, reference: Run) -> str:
    """What both dumps can be compared by, as the tool calls it."""
    kept = [{tensor.kept for tensor in run.tensors} for run in (target, reference)]
    if all(Kept.VALUES in found for found in kept):
        return "tensor"
    return "md5" if all(Kept.DIGEST in found for found in kept) else "statistics"


@dataclass(frozen=True, kw_only=True)
class Value:
    """One value of an op on one side, as the tool shows it."""

    dtype: str = NOT_APPLICABLE
    shape: str = NOT_APPLICABLE
    requires_grad: str = NOT_APPLICABLE
    figures: tuple[Any, ...] = (None,) * 4
    """Max, Min, Mean, Norm."""
    digest: str = NOT_APPLICABLE
    file: str = "-1"
    tensor: Tensor | None = None


@dataclass
class Line:
    """One row while it is made: its cells by column, and what was found wrong with it."""

    role: Role
    cells: dict[str, Any]
    matched: bool
    level: Level = Level.PASS
    messages: list[str] = field(default_factory=list)


def lines(target: Run, reference: Run) -> Iterator[dict[str, Any]]:
    """The rows in the target's order, by column."""
    task = task_of(target, reference)
    for run in (target, reference):
        _check(run)
    for op in target.ops:
        theirs = reference.op(op.key)
        made = list(_of_op(target, reference, op, theirs, task))
        judge(made, _api(op), task)
        for at, line in enumerate(made):
            stack = op.attributes.get("stack") if at == 0 else None
            line.cells["Result"] = (
                str(line.level) if line.matched or task == "md5" else NOT_APPLICABLE
            )
            line.cells["Err_message"] = json.dumps(line.messages, ensure_ascii=False)
            line.cells["NPU_Stack_Info"] = str(stack) if stack else NOT_APPLICABLE
            yield line.cells


def _check(run: Run) -> None:
    """One step of one process, as the tool's tables are of one."""
    parts = {tensor.key.part for tensor in run.tensors}
    if run.info.options.get("format") != "msprobe":
        raise InputError("two dumps of msProbe", f"{run.info.model}", "only these have its columns")
    if len(parts) > 1:
        raise InputError(
            "dumps of one step and one rank",
            f"{len(parts)} of them in {run.info.model}",
            "name one: .../step0/rank0",
        )


def _api(op: Op) -> str:
    """The function that was hooked, without its number."""
    return op.key.op.split(".")[1] if op.key.op.count(".") else op.key.op


def _of_op(target: Run, reference: Run, op: Op, other: Op | None, task: str) -> Iterator[Line]:
    bench = dict(_values(reference, other)) if other is not None else {}
    for (name, role), mine in _values(target, op):
        theirs = bench.get((name, role))
        if theirs is not None and not _compatible(mine, theirs):
            theirs = None
        full = f"{op.key.op}.{name}"
        cells: dict[str, Any] = {
            "NPU Name": full,
            "Bench Name": full if theirs is not None else NOT_APPLICABLE,
        }
        line = Line(role, cells, theirs is not None)
        if theirs is None:
            line.messages.append(NO_BENCH)
            theirs = Value(figures=(NOT_APPLICABLE,) * 4)
        for column, what in (("Dtype", "dtype"), ("Tensor Shape", "shape")):
            cells[f"NPU {column}"] = getattr(mine, what)
            cells[f"Bench {column}"] = getattr(theirs, what)
        cells["NPU Requires_grad"] = mine.requires_grad
        cells["Bench Requires_grad"] = theirs.requires_grad
        same = mine.requires_grad == theirs.requires_grad
        cells["Requires_grad Consistent"] = str(same) if line.matched else NOT_APPLICABLE
        cells |= dict(zip(SIDES, (*mine.figures, *theirs.figures), strict=True))
        if task == "tensor":
            _real_data(line, target, mine, reference, theirs)
            cells["Data_name"] = str([mine.file, theirs.file])
        elif task == "statistics":
            cells |= _differences(mine.figures, theirs.figures)
        else:
            cells |= dict(zip(DIGESTS, (mine.digest, theirs.digest), strict=True))
        yield line


def _values(run: Run, op: Op) -> Iterator[tuple[tuple[str, Role], Value]]:
    """The values of an op in the tool's order, tensors and others."""
    counts: dict[Role, int] = {}
    part = next((tensor.key.part for tensor in run.tensors), TensorKey(op.key).part)
    arguments = op.attributes.get("arguments", {})
    figures = op.attributes.get("figures", {})
    for name in op.attributes.get("values", ()):
        role = _role(name, op)
        at = counts.get(role, 0)
        counts[role] = at + 1
        if name in arguments:
            yield (name, role), _argument(arguments[name])
            continue
        key = TensorKey(op.key, role, at, part)
        if role is Role.PARAMETER:
            parameter = name.removeprefix("parameters.")
            path = f"{op.module}.{parameter}" if op.module else parameter
            key = TensorKey(OpKey(path, int(op.attributes.get("call", 0))), role, 0, part)
        tensor = run.tensor(key)
        if tensor is not None:
            yield (name, role), _tensor(tensor, figures.get(name))


def _role(name: str, op: Op) -> Role:
    kind = name.split(".", 1)[0]
    if op.attributes.get("way") == "parameters_grad" or kind == "output":
        return Role.OUTPUT
    return Role.PARAMETER if kind == "parameters" else Role.INPUT


def _argument(body: Any) -> Value:
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


def _tensor(tensor: Tensor, said: Mapping[str, Any] | None) -> Value:
    found = tensor.statistics
    if said is not None:
        figures = tuple(_number(said[n]) if n in said else NOT_APPLICABLE for n in FIGURES)
    elif found is not None:
        figures = (found.max, found.min, found.mean, found.l2)
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
    """A figure that a run keeps as text, as a number again."""
    found = figure(value) if isinstance(value, str) else None
    return value if found is None else found


def _compatible(mine: Value, theirs: Value) -> bool:
    """The tool pairs any two floats; other types only with themselves."""
    floats = ("torch.float", "torch.bfloat")
    return mine.dtype == theirs.dtype or (
        mine.dtype.startswith(floats) and theirs.dtype.startswith(floats)
    )


def _real_data(line: Line, target: Run, mine: Value, reference: Run, theirs: Value) -> None:
    if not line.matched:
        cells: tuple[Any, ...] = (NOT_APPLICABLE,) * 6
    elif not (_has_values(mine.tensor) and _has_values(theirs.tensor)):
        cells = (UNSUPPORTED,) * 6
    else:
        found = measure(target, mine.tensor, reference, theirs.tensor)
        cells = found.cells
        if found.message:
            line.messages.append(found.message)
    line.cells |= dict(zip(REAL_DATA, cells, strict=True))


def _has_values(tensor: Tensor | None) -> TypeGuard[Tensor]:
    return tensor is not None and tensor.kept is Kept.VALUES


def _differences(mine: tuple[Any, ...], theirs: tuple[Any, ...]) -> dict[str, Any]:
    pairs = [figure_difference(n, b) for n, b in zip(mine, theirs, strict=True)]
    return dict(zip(DIFFERENCES, (*(p[0] for p in pairs), *(p[1] for p in pairs)), strict=True))
