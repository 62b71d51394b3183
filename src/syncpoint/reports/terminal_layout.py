"""Fit tables and lines to the width of a terminal: shorten or drop columns, wrap lines with an
indent.

On a terminal a row is one line, and a sentence breaks between words. A pipe has no width, so its
lines are complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich.cells import cell_len

from syncpoint.reports.console import Console, RichText, Table, Text, as_cell

_COLUMN_GAP = 2
"""Spaces between two columns."""
_MIN_COLUMN_WIDTH = 8
"""Width to which every column is cut if nothing else helps."""


@dataclass(frozen=True)
class Column:
    """A column before it is fitted to the width of the terminal."""

    header: str
    cells: Sequence[RichText]
    right: bool = False
    min_width: int = 0
    """Minimum width if the column is cut; 0 if it must not be cut."""
    cut: Literal["start", "end"] = "end"
    """Which end of a long cell is cut; the end of a name is more useful than its start."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", [as_cell(cell) for cell in self.cells])

    @property
    def width(self) -> int:
        """Width of its longest cell."""
        return max(map(cell_len, (self.header, *(cell.plain for cell in self.cells))))

    @property
    def floor(self) -> int:
        """The minimum width of the column."""
        return (
            min(self.width, max(self.min_width, cell_len(self.header)))
            if self.min_width
            else self.width
        )


NarrowingStep = Callable[[list[Column]], list[Column]]
"""A step that makes a table narrower."""


def drop_column(header: str) -> NarrowingStep:
    """The step that drops a column."""
    return lambda columns: [c for c in columns if c.header != header]


def shorten_column(header: str, short: Callable[[str], str], min_width: int) -> NarrowingStep:
    """The step that shortens the texts of a column and allows to cut it."""

    def step(columns: list[Column]) -> list[Column]:
        return [
            replace(c, cells=[Text(short(t.plain), t.style) for t in c.cells], min_width=min_width)
            if c.header == header
            else c
            for c in columns
        ]

    return step


def fit_columns(columns: list[Column], width: int, steps: Iterable[NarrowingStep]) -> list[Column]:
    """The columns, narrowed so that every row fits one line of this width.

    If they do not fit, empty columns are dropped, the first step is applied, then further steps one
    by one until the rest fits with long cells cut.
    """
    if _total_width(c.width for c in columns) <= width:
        return columns
    columns = _narrow_columns(columns, width, steps)
    return [
        replace(c, cells=[_cut_cell(cell, column_width, c.cut) for cell in c.cells])
        for c, column_width in zip(columns, _share_width(columns, width), strict=True)
    ]


def _narrow_columns(
    columns: list[Column], width: int, steps: Iterable[NarrowingStep]
) -> list[Column]:
    """The columns after as many steps as needed for their minimum widths to fit."""
    columns = [c for c in columns if any(cell.plain for cell in c.cells)]
    for index, step in enumerate(steps):
        if index and _total_width(c.floor for c in columns) <= width:
            break
        columns = step(columns)
    if _total_width(c.floor for c in columns) > width:
        columns = [
            replace(c, min_width=min(c.min_width or _MIN_COLUMN_WIDTH, _MIN_COLUMN_WIDTH))
            for c in columns
        ]
    return columns


def _share_width(columns: list[Column], width: int) -> list[int]:
    """The width of each column: its minimum, and a share of the rest, narrowest first."""
    widths = [c.floor for c in columns]
    for _ in range(width - _total_width(widths)):
        cut_columns = [index for index, c in enumerate(columns) if widths[index] < c.width]
        if not cut_columns:
            break
        widths[min(cut_columns, key=lambda index: widths[index])] += 1
    return widths


def _total_width(widths: Iterable[int]) -> int:
    every = list(widths)
    return sum(every) + _COLUMN_GAP * (len(every) - 1)


def _cut_cell(cell: RichText, room: int, side: Literal["start", "end"]) -> RichText:
    text = cell.plain
    if cell_len(text) <= room:
        return cell
    while text and cell_len(text) >= room:
        text = text[1:] if side == "start" else text[:-1]
    return Text(f"…{text}" if side == "start" else f"{text}…", cell.style)


def build_table(columns: list[Column], one_line: bool) -> Table:
    """The columns as a table; unless a row must be one line, long cells wrap."""
    table = Table()
    for column in columns:
        table.add_column(
            column.header,
            justify="right" if column.right else "left",
            no_wrap=one_line or not column.min_width,
            overflow="fold" if column.cut == "start" else "ellipsis",
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    return table


def print_line(text: RichText, console: Console, hang: int = 0, indent: int = 0) -> None:
    """Print a line; on a terminal a long line breaks between words, with a hanging indent.

    Words longer than a line, such as paths, stay whole so that they can be copied.
    """
    if not console.is_terminal:
        console.print(_indent_text(indent, text), soft_wrap=True)
        return
    print_wrapped(text, console, hang, indent)


def print_wrapped(text: RichText, console: Console, hang: int = 0, indent: int = 0) -> None:
    """Print a line that breaks between words, also if the output is no terminal."""
    leading_spaces = len(text.plain) - len(text.plain.lstrip())
    text, indent = text[leading_spaces:], indent + leading_spaces
    for line_number, line in enumerate(
        text.divide(_line_starts(text.plain, console.width - indent, hang))
    ):
        line.rstrip()
        console.print(_indent_text(indent + hang if line_number else indent, line), soft_wrap=True)


def _line_starts(text: str, width: int, hang: int) -> list[int]:
    """The positions where the lines after the first start."""
    starts: list[int] = []
    line_start = 0
    for word in re.finditer(r"\S+", text):
        room = width - (hang if starts else 0)
        if word.start() > line_start and cell_len(text[line_start : word.end()]) > room:
            line_start = word.start()
            starts.append(line_start)
    return starts


def _indent_text(indent: int, text: RichText) -> RichText:
    return Text(" " * indent) + text if indent else text
