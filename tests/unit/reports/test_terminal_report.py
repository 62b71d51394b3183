"""What a person sees on a terminal, which may be narrow, and what a pipe gets, which never is."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from helpers.small_runs import run
from syncpoint.comparison.engine import compare
from syncpoint.metrics.verdict import Reason, ReasonCode, Verdict
from syncpoint.reports.diagnosis_report import print_diagnosis
from syncpoint.reports.terminal_report import print_comparison

RNG = np.random.default_rng(0)
TYPES = ("com.microsoft.nchwc.Conv", "aten.relu.default", "aten.add.Tensor", "Gemm")
LONG = "model.encoder.layers.11.self_attention.output.dense."


def compared(prefix="", known=True):
    """Four ops of which the third differs, and of which types and sources are known or not."""
    values = [RNG.standard_normal((4, 24, 16, 16)).astype(np.float32) for _ in TYPES]

    def side(*arrays):
        names = [f"{prefix}step_{at}" for at in range(4)]
        reads = [(), *((name,) for name in names)]
        kinds = TYPES if known else ("",) * 4
        modules = [f"{prefix}b{at}" if known else "" for at in range(4)]
        return run(*zip(names, kinds, modules, reads, arrays, strict=False))

    found = compare(side(*values[:3], values[3] + 0.5), side(*values))
    source = "/far/away/models.py:42" if known else ""
    rows = [replace(row, target=replace(row.target, source=source)) for row in found.rows]
    return replace(found, rows=rows)


def shown(result, width, terminal=True):
    console = Console(
        file=io.StringIO(), width=width, force_terminal=terminal, color_system=None, highlight=False
    )
    print_comparison(result, console)
    return console.file.getvalue().splitlines()


def table(lines):
    """The header and the rows."""
    begin = next(at for at, line in enumerate(lines) if "psnr dB" in line)
    return lines[begin], lines[begin + 1 : begin + 5]


@pytest.mark.parametrize("prefix", ["", LONG])
@pytest.mark.parametrize("width", [50, 64, 80, 100, 120])
def test_a_row_is_one_line_on_a_narrow_terminal(width, prefix):
    header, rows = table(shown(compared(prefix), width))
    assert all(cell_len(line) <= width for line in [header, *rows])
    assert all(row[0] in "■●" and "models.py:42" in row for row in rows)
    assert sorted(row.split("step_")[1][0] for row in rows) == list("0123")


def test_the_least_missed_goes_first():
    found = compared()
    header = table(shown(found, 200))[0].split()
    assert header == ["target", "psnr", "dB", "type", "shape", "module", "source"]
    seen = []
    for width in range(120, 40, -1):
        names, rows = table(shown(found, width))
        kept = [name for name in ("type", "shape", "module") if name in names]
        text = "\n".join(rows)
        if "type" in kept and "nchwc" in text:
            kept[0] = "whole type"
        elif "type" in kept:
            assert all(name in text for name in ("Conv", "relu", "add", "Gemm")), text
            assert "aten" not in text and "default" not in text and "Tensor" not in text
        if kept not in seen:
            seen.append(kept)
    assert seen == [
        ["whole type", "shape", "module"],
        ["type", "shape", "module"],
        ["type", "module"],
        ["type"],
        [],
    ]


def test_a_long_name_keeps_its_end():
    rows = table(shown(compared(LONG), 80))[1]
    assert all("…" in row and ".dense.step_" in row for row in rows)


def test_columns_with_nothing_in_them_go_before_names_are_cut():
    found = compared("b1.short.1.convolution.", known=False)
    assert "module" in table(shown(found, 120))[0]
    header, rows = table(shown(found, 70))
    assert header.split() == ["target", "psnr", "dB", "shape"]
    assert all("b1.short.1.convolution.step_" in row for row in rows)


def test_a_pipe_gets_everything_whole():
    found = compared(LONG)
    lines = shown(found, 250, terminal=False)
    assert any(
        f"{LONG}step_2" in line and TYPES[2] in line and f"{LONG}b2" in line for line in lines
    )
    narrow = shown(found, 40, terminal=False)
    assert lines[-1] == narrow[-1] and len(lines[-1]) > 100


@pytest.mark.parametrize("width", [60, 80, 100])
def test_sentences_break_between_words_and_go_on_further_in(width):
    found = compared()
    found = replace(found, warnings=["this was seen while looking " * 6])
    whole, lines = shown(found, 400), shown(found, width)
    head = next(at for at, line in enumerate(lines) if line.startswith("■ large: compared"))
    rest = lines[head + 1 :]
    assert rest and all(line.startswith("  ") and line[2] != " " for line in rest)
    assert " ".join(line.strip() for line in lines[head:]) == whole[-1]
    note = next(at for at, line in enumerate(lines) if line.startswith("note "))
    assert not lines[note + 1][:11].strip() and lines[note + 1][11] != " "
    sentences = [line for line in lines if "models.py" not in line and "psnr dB" not in line]
    assert all(cell_len(line) <= width and line == line.rstrip() for line in sentences)


def test_a_path_stays_whole_on_a_line_of_its_own():
    found = compared()
    path = "/srv/" + "x" * 70 + "/t.run"
    target = {**found.target, "model": path}
    lines = shown(replace(found, target=target), 60)
    assert any(path in line for line in lines)


def test_what_cannot_be_read_is_named_with_the_reason_and_the_cure():
    found = compared()
    assert not any("unreadable" in line for line in shown(found, 200))
    detail = "the bytes of the target's step_1 are not those that were recorded"
    why = Reason(ReasonCode.UNREADABLE, detail)
    hurt = {"numbers": None, "verdict": Verdict.NONE, "why": why}
    rows = [replace(r, **hurt) if r.target.label.startswith("step_1") else r for r in found.rows]
    found = replace(found, rows=rows)
    line = f"■ unreadable: step_1 (b1, /far/away/models.py:42): {detail}"
    assert f"{line}; record that run again, then compare" in shown(found, 200)
    console = Console(file=io.StringIO(), width=300, color_system=None)
    print_diagnosis(found, console)
    assert line in console.file.getvalue()
    found = replace(found, rows=[replace(r, **hurt) for r in found.rows])
    assert "  and 1 more; --csv has all with their reasons" in shown(found, 200)
