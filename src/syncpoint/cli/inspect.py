"""The command `syncpoint inspect`: prints facts of a run or dump, a table of its ops, or the
tensors of one op with statistics, digest and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncpoint.cli.output import echo
from syncpoint.errors import InputError

if TYPE_CHECKING:
    from syncpoint.run.model import Op, Tensor
    from syncpoint.run.reader import Run

_EDGE = 3


def inspect(
    run: Annotated[str, typer.Argument(help="Run or dump to show.")],
    op: Annotated[str | None, typer.Argument(help="Op to show, by name or module path.")] = None,
) -> None:
    """List the ops of a run, or show the tensors of one op."""
    from syncpoint import api

    opened = api.open_run(run)
    if op is None:
        _list(opened)
    else:
        _detail(opened, op)


def _list(run: Run) -> None:
    for label, text in _run_facts(run):
        echo(f"{label:10} {text}")
    _print_ops(run)


def _run_facts(run: Run) -> Iterator[tuple[str, str]]:
    """What is known of the whole run: a label and a text a line."""
    info = run.info
    facts = [
        ("model", info.model),
        ("runtime", f"{info.runtime} {info.runtime_version}".strip()),
        ("device", info.device),
        ("precision", info.precision),
        ("options", ", ".join(f"{k}={v}" for k, v in info.options.items() if v not in ("", None))),
        ("recorded", info.record),
    ]
    yield from ((label, text) for label, text in facts if text)
    if info.observer is not None:
        equal = "yes" if info.observer.equal else f"no: {info.observer.detail}"
        yield "observer", f"same bits as an uninstrumented run: {equal}"
    if not info.complete:
        yield "incomplete", info.missing or "its writer died"
    if run.unverified:
        yield "unverified", run.unverified
    yield from (("note", note) for note in info.notes)
    yield "tensors", f"{len(run.tensors)} ({_count_roles(run)})"


def _count_roles(run: Run) -> str:
    """How many tensors there are of each role, in the order of the roles."""
    from syncpoint.run.model import Role

    counts = {role: sum(t.key.role is role for t in run.tensors) for role in Role}
    return ", ".join(f"{count} {role}" for role, count in counts.items() if count)


def _print_ops(run: Run) -> None:
    """Print the table of all ops."""
    from syncpoint.reports.console import Console, Table
    from syncpoint.run.model import Role

    outputs: dict[Any, list[Tensor]] = {}
    for tensor in run.tensors:
        if tensor.key.role is Role.OUTPUT:
            outputs.setdefault(tensor.key.op, []).append(tensor)
    table = Table()
    for heading in ("op", "type", "output", "kept", "module", "source"):
        table.add_column(heading, overflow="fold")
    for item in run.ops:
        tensors = outputs.get(item.key, [])
        table.add_row(
            str(item.key),
            item.type,
            " ".join(_form(t) for t in tensors),
            "/".join(sorted({str(t.kept) for t in tensors})),
            item.module,
            str(item.source[-1]) if item.source else "",
        )
    Console().print(table)


def _form(tensor: Tensor) -> str:
    from syncpoint.run.dims import format_shape

    return f"{format_shape(tensor.shape)}:{tensor.dtype}"


def _detail(run: Run, name: str) -> None:
    ops = [op for op in run.ops if name in (op.key.op, str(op.key), op.module)]
    keys = {op.key for op in ops}
    tensors = [t for t in run.tensors if t.key.op in keys or name in (t.key.op.op, t.name)]
    if not ops and not tensors:
        from difflib import get_close_matches

        names = [op.key.op for op in run.ops]
        near = ", ".join(get_close_matches(name, names, 3)) or ", ".join(names[:3])
        raise InputError(f"{run.path} has no op or tensor {name!r}", cure=f"similar names: {near}")
    for op in ops:
        _show_op(op)
    for tensor in tensors:
        _show_tensor(run, tensor)


def _show_op(op: Op) -> None:
    echo(f"{op.key}  {op.type}")
    if op.module:
        echo(f"  module     {op.module} ({op.module_type})")
    for frame in op.source[-3:]:
        echo(f"  source     {frame} {frame.function}".rstrip())
    for edge in op.inputs:
        index = f":{edge.index}" if edge.index else ""
        role = f" ({edge.role})" if edge.role != "output" else ""
        echo(f"  reads      {edge.op}{index}{role}")
    for key, value in op.attributes.items():
        echo(f"  {key:10} {value}")


def _show_tensor(run: Run, tensor: Tensor) -> None:
    import numpy as np

    from syncpoint.metrics import Operand, statistics
    from syncpoint.run.model import Kept

    echo(f"{tensor.key}  {_form(tensor)}  {tensor.kept}")
    figures, remark = tensor.statistics, ""
    if tensor.quantization is not None and tensor.kept is not Kept.VALUES:
        remark = "  (of the stored integers)"
    if tensor.kept is Kept.VALUES:
        values = run.values(tensor)
        figures = statistics(Operand(values, tensor.dtype, tensor.quantization))
    if figures is not None:
        echo(
            f"  min {_figure(figures.min)}  max {_figure(figures.max)}"
            f"  mean {_figure(figures.mean)}"
            f"  std {_figure(figures.std)}  l2 {_figure(figures.l2)}"
            f"  nan {_number(figures.nan)}  inf {_number(figures.inf)}"
            f"  zero {_number(figures.zero)}"
            f"{remark}"
        )
    if tensor.digest:
        echo(f"  {tensor.digest_kind} {tensor.digest}")
    if tensor.kept is Kept.VALUES:
        with np.printoptions(threshold=20, edgeitems=_EDGE, linewidth=120, precision=6):
            shown = values.astype(np.float64) if values.dtype.kind == "V" else values
            for line in str(shown).splitlines()[:40]:
                echo(f"  {line}")


def _figure(value: float) -> str:
    """A statistic over the finite elements; a dash where there is none."""
    return f"{value:.6g}" if value == value else "–"


def _number(count: int) -> str:
    """A number of elements; other tools do not count them all."""
    return str(count) if count >= 0 else "?"
