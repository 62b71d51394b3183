"""The report of an analysis, on a terminal and as JSON: headline, outputs, guilty kernels, the
table of buffers."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

from syncpoint.analysis.float64_distances import NEARER, OutputErrors
from syncpoint.analysis.result import AnalysisResult
from syncpoint.comparison.judge_rows import is_excused
from syncpoint.comparison.rows import Row, worst_first_key
from syncpoint.errors import EXIT_UNCOVERED
from syncpoint.files.outputs import write_output
from syncpoint.metrics.verdict import Verdict
from syncpoint.reports.console import Console, Table, Text
from syncpoint.reports.json_report import SCHEMA, as_json, to_strict_json
from syncpoint.reports.number_and_name_format import (
    metric_text,
    more_text,
    ratio_text,
    run_text,
    short_source,
)
from syncpoint.reports.terminal_report import COLOURS
from syncpoint.run.dims import format_shape
from syncpoint.run.model import Op, Role

_MAX_NAMES = 6


def print_analysis(analysis: AnalysisResult, console: Console, rows: int = 24) -> None:
    """Print the report of an analysis."""
    result = analysis.result
    console.print(Text(f"compiled   {run_text(result.target)}"), soft_wrap=True)
    for line in [*_run_notes(analysis), *result.warnings, *analysis.notes]:
        console.print(Text(f"note       {line}", style="yellow"), soft_wrap=True)
    for line in _steadiness_lines(analysis):
        console.print(Text(line), soft_wrap=True)
    console.print()
    console.print(_outputs_table(analysis.outputs))
    for line in _output_lines(analysis):
        console.print(Text(line), soft_wrap=True)
    console.print()
    console.print(_table(analysis, rows))
    hidden = len(_buffer_rows(analysis)) - rows
    if rows and hidden > 0:
        more = f"… {more_text(hidden, 'row')}; --rows 0 shows all, --csv writes all"
        console.print(Text(more, "dim"))
    for line in _lines_after_table(analysis):
        console.print(Text(line, style="dim"), soft_wrap=True)
    for line in _guilty_lines(analysis):
        console.print(Text(line, style=COLOURS[Verdict.LARGE]), soft_wrap=True)
    console.print()
    console.print(Text(headline(analysis), style=COLOURS[analysis.verdict]), soft_wrap=True)


def headline(analysis: AnalysisResult) -> str:
    """The verdict in one line."""
    coverage = analysis.result.coverage
    compared = f"compared {coverage.compared} of {coverage.target_tensors} buffers"
    uncompiled_count = len(analysis.uncompiled_ops())
    if uncompiled_count:
        verb = "op was" if uncompiled_count == 1 else "ops were"
        compared += f"; {uncompiled_count} {verb} not compiled"
    if all(output.truth.passes is None for output in analysis.outputs):
        compared += "; without a float64 run it is unknown which side is right"
    if analysis.exit_code == EXIT_UNCOVERED:
        return f"nothing compared: {compared}"
    verdict = analysis.verdict
    why = ""
    if verdict is Verdict.LARGE:
        if analysis.guilty:
            kernels = dict.fromkeys(_kernel_name(analysis, row) for row in analysis.guilty)
            why = f"error introduced in {_list_names(list(kernels))}; "
        elif analysis.lowering:
            why = "the compiled graph differs from the model; "
        else:
            why = "outputs diverge; "
    return f"{verdict.glyph} {verdict.value}: {why}{compared}"


def _run_notes(analysis: AnalysisResult) -> Iterator[str]:
    for name in ("eager", "compiled"):
        run = getattr(analysis.runs, name)
        if run is None:
            continue
        for note in run.info.notes:
            yield f"{name}: {note}"


def _steadiness_lines(analysis: AnalysisResult) -> Iterator[str]:
    unsteady = {name: ops for name, ops in analysis.runs.unsteady.items() if ops}
    if not unsteady:
        yield f"steady     {', '.join(analysis.runs.unsteady)}: the same bits in two runs each"
    for name, ops in unsteady.items():
        yield f"unsteady   {name} gives different bits in a second run at {_list_names(ops)}"


def _outputs_table(outputs: tuple[OutputErrors, ...]) -> Table:
    table = Table()
    table.add_column("output", overflow="fold")
    for name in ("compiled − float64", "eager − float64", "float64 rms"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("nearer to float64")
    table.add_column("torch's rule")
    table.add_column("metadata", overflow="fold")
    for output in outputs:
        truth = output.truth
        word = {True: "pass", False: "fail", None: "–"}[truth.passes]
        style = COLOURS[Verdict.LARGE] if truth.passes is False else ""
        table.add_row(
            output.path,
            metric_text("rmse", truth.compiled),
            metric_text("rmse", truth.eager),
            metric_text("rmse", truth.scale or None),
            truth.nearer or "–",
            Text(word, style=style),
            "; ".join(output.differences) or "as eager",
        )
    return table


def _output_lines(analysis: AnalysisResult) -> Iterator[str]:
    for output in analysis.outputs:
        if output.truth.nearer == "compiled":
            yield f"{output.path}: {NEARER}"
    if analysis.lowering:
        yield analysis.lowering
    if analysis.emulated:
        yield analysis.emulated


def _table(analysis: AnalysisResult, count: int) -> Table:
    chosen = sorted(_buffer_rows(analysis), key=lambda row: worst_first_key(row, "psnr"))
    if count:
        chosen = chosen[:count]
    table = Table()
    for name in ("", "buffer", "op"):
        table.add_column(name, no_wrap=True)
    for name in ("psnr dB", "introduced", "compiled − f64", "eager − f64"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("kernel", overflow="fold", max_width=44)
    table.add_column("shape", no_wrap=True)
    table.add_column("module", overflow="fold")
    table.add_column("source", overflow="fold")
    for row in chosen:
        table.add_row(*_cells(analysis, row))
    return table


def _buffer_rows(analysis: AnalysisResult) -> list[Row]:
    roles = (Role.OUTPUT, Role.INPUT)
    return [row for row in analysis.result.rows if row.target.key.role in roles]


def _cells(analysis: AnalysisResult, row: Row) -> list[Text]:
    colour = COLOURS[row.verdict]
    introduced, truth = row.introduced, analysis.truths.get(row.reference.key)
    word = row.verdict.value if row.verdict is not Verdict.NONE else row.why.code or ""
    if is_excused(row, analysis.result.choice):
        word = "nearer"
    numbers = row.numbers or {}
    return [
        Text(f"{row.verdict.glyph} {word}", style=colour),
        Text(row.target.label),
        Text(row.reference.label, style="dim"),
        Text(metric_text("psnr", numbers.get("psnr")), style=colour),
        Text(
            ratio_text(introduced.ratio) if introduced else "",
            style=COLOURS[row.introduced_verdict],
        ),
        Text(metric_text("rmse", truth.compiled if truth else None)),
        Text(metric_text("rmse", truth.eager if truth else None)),
        Text(_kernel_name(analysis, row), style="dim"),
        Text(f"{format_shape(row.target.shape)} {row.target.dtype}", style="dim"),
        Text(row.target.module),
        Text(short_source(row.target.source), style="dim"),
    ]


def _lines_after_table(analysis: AnalysisResult) -> Iterator[str]:
    unmatched = [u for u in analysis.result.unmatched if u.side == "target" and u.counted]
    if unmatched:
        yield f"no op of the graph has the value of {_list_names([u.op for u in unmatched])}"
    for code in analysis.uncompiled:
        names = _list_names([_place(op) for op in code.ops])
        yield (
            f"not compiled, so without buffers: {names}; {code.label} is the first recorded value"
            " after it"
        )
    hidden = analysis.hidden()
    if hidden:
        kernels = len(set(hidden.values()))
        yield (
            f"ops without a buffer of their own: {len(hidden)}, computed by kernels: {kernels}"
            " (all in --json)"
        )
    if analysis.metadata:
        first, differences = next(iter(analysis.metadata.items()))
        yield (
            f"{len(analysis.metadata)} buffers differ from the eager op in layout or dtype:"
            f" {first}: {'; '.join(differences)}"
        )


def _place(op: Op) -> str:
    """An op with its module and source line."""
    source = short_source(str(op.source[-1])) if op.source else ""
    return f"{op.key} ({', '.join(part for part in (op.module, source) if part)})"


def _guilty_lines(analysis: AnalysisResult) -> Iterator[str]:
    contribution_of = {c.op: c for c in analysis.contributions}
    kernel_of = analysis.hidden()
    for row in analysis.guilty[:_MAX_NAMES]:
        kernel = _kernel_name(analysis, row)
        where = ", ".join(p for p in (row.target.module, row.target.source) if p)
        yield ""
        yield f"■ {row.target.label} in {kernel} ({where or 'no source'})"
        yield f"  introduces {_introduced_text(row)}"
        hidden = [op for op, owner in kernel_of.items() if owner == kernel]
        if hidden:
            yield f"  the kernel also computes {_list_names(hidden)}, which have no buffer"
        if row.target.label in contribution_of:
            contribution = contribution_of[row.target.label]
            yield (
                "  with the value of eager in its place, the final error falls by"
                f" {contribution.share:.0%} ({contribution.before:.2g} to {contribution.after:.2g}"
                " relative L2)"
            )
    if len(analysis.guilty) > _MAX_NAMES:
        yield f"… and {len(analysis.guilty) - _MAX_NAMES} more guilty buffers"


def _introduced_text(row: Row) -> str:
    if row.introduced is None:
        return "an error of unknown size"
    if row.introduced.ratio == inf:
        return f"an error of {row.introduced.rmse:.2g} where its precision allows none"
    return f"{ratio_text(row.introduced.ratio)} the error that its precision allows"


def _kernel_name(analysis: AnalysisResult, row: Row) -> str:
    op = analysis.runs.compiled.op(row.target.key.op)
    return str(op.attributes.get("kernel", op.type)) if op is not None else ""


def _list_names(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def as_text(analysis: AnalysisResult, rows: int = 24) -> str:
    """The report as plain text."""
    out = io.StringIO()
    print_analysis(analysis, Console(out, width=200), rows)
    return out.getvalue()


def analysis_json(analysis: AnalysisResult) -> dict[str, Any]:
    """The analysis as plain data; non-finite numbers are strings, n/a is None."""
    document = {
        "schema": SCHEMA,
        "verdict": analysis.verdict.value,
        "exit_code": analysis.exit_code,
        "outputs": [
            {
                "path": output.path,
                "compiled_rmse": output.truth.compiled,
                "eager_rmse": output.truth.eager,
                "float64_rms": output.truth.scale,
                "nearer": output.truth.nearer or None,
                "torch_rule": output.truth.passes,
                "metadata": list(output.differences),
            }
            for output in analysis.outputs
        ],
        "unsteady": analysis.runs.unsteady,
        "missing": analysis.runs.missing,
        "lowering": analysis.lowering or None,
        "emulate_precision_casts": analysis.emulated or None,
        "guilty": [
            {"op": row.target.label, "kernel": _kernel_name(analysis, row)}
            for row in analysis.guilty
        ],
        "contributions": [
            {"op": c.op, "before": c.before, "after": c.after, "share": c.share}
            for c in analysis.contributions
        ],
        "truth": {
            str(key): {"compiled_rmse": t.compiled, "eager_rmse": t.eager, "nearer": t.nearer}
            for key, t in analysis.truths.items()
        },
        "metadata": {label: list(differences) for label, differences in analysis.metadata.items()},
        "hidden": analysis.hidden(),
        "not_compiled": [
            {"value": code.label, "ops": [str(op.key) for op in code.ops]}
            for code in analysis.uncompiled
        ],
        "comparison": as_json(analysis.result),
    }
    strict = to_strict_json(document)
    return strict if isinstance(strict, dict) else {}


def write_analysis_json(analysis: AnalysisResult, path: Path) -> Path:
    """Write the analysis as JSON."""
    return write_output(path, json.dumps(analysis_json(analysis), indent=1, allow_nan=False))
