"""Tables and lines in the width of a terminal: a row is one line, a sentence breaks between words.

A pipe has no width: what goes there is whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich.cells import cell_len

from syncpoint.reports.console import Console, RichText, Table, Text, as_cell

_COLUMN_GAP = 2
"""Blanks between two columns."""
_MIN_COLUMN_WIDTH = 8
"""Where nothing else helps, every column is cut to so much."""


@dataclass(frozen=True)
class Column:
    """A column before it is known how much room there is."""

    header: str
    cells: Sequence[RichText]
    right: bool = False
    least: int = 0
    """It may be cut to so many places; 0 is whole or not at all."""
    cut: Literal["start", "end"] = "end"
    """What of a long cell goes: the end of a name tells more than its start."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", [as_cell(cell) for cell in self.cells])

    @property
    def width(self) -> int:
        """Of its longest cell."""
        return max(map(cell_len, (self.header, *(cell.plain for cell in self.cells))))

    @property
    def floor(self) -> int:
        """The least width that it can have."""
        return min(self.width, max(self.least, cell_len(self.header))) if self.least else self.width


NarrowingStep = Callable[[list[Column]], list[Column]]
"""One way to make a table narrower."""


def drop_column(header: str) -> NarrowingStep:
    """Leave a column out."""
    return lambda columns: [c for c in columns if c.header != header]


def shorten_column(header: str, short: Callable[[str], str], least: int) -> NarrowingStep:
    """Say the same in a column with fewer letters; what is still long may then be cut."""

    def step(columns: list[Column]) -> list[Column]:
        return [
            replace(c, cells=[Text(short(t.plain), t.style) for t in c.cells], least=least)
            if c.header == header
            else c
            for c in columns
        ]

    return step


def fit_columns(columns: list[Column], width: int, steps: Iterable[NarrowingStep]) -> list[Column]:
    """The columns with every row in one line: as they are where there is room; else those with
    nothing in them go, the first step is taken, and the others one by one until the rest fits with
    its long cells cut."""
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
    """The columns that remain after as many steps as it takes for their floors to fit."""
    columns = [c for c in columns if any(cell.plain for cell in c.cells)]
    for index, step in enumerate(steps):
        if index and _total_width(c.floor for c in columns) <= width:
            break
        columns = step(columns)
    if _total_width(c.floor for c in columns) > width:
        columns = [
            replace(c, least=min(c.least or _MIN_COLUMN_WIDTH, _MIN_COLUMN_WIDTH)) for c in columns
        ]
    return columns


def _share_width(columns: list[Column], width: int) -> list[int]:
    """The width of each column: its floor, and a share of the rest, the narrowest first."""
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
    """The columns as a table; where a row need not be one line, what could be cut is wrapped."""
    table = Table()
    for column in columns:
        table.add_column(
            column.header,
            justify="right" if column.right else "left",
            no_wrap=one_line or not column.least,
            overflow="fold" if column.cut == "start" else "ellipsis",
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    return table


def print_line(text: RichText, console: Console, hang: int = 0, indent: int = 0) -> None:
    """A line; on a terminal a long one breaks between words, and goes on `hang` places further in.
    Words that are longer than a line, as paths may be, stay whole: they are there to be copied."""
    if not console.is_terminal:
        console.print(_indent_text(indent, text), soft_wrap=True)
        return
    print_wrapped(text, console, hang, indent)


def print_wrapped(text: RichText, console: Console, hang: int = 0, indent: int = 0) -> None:
    """The same for whatever the console writes to."""
    lead = len(text.plain) - len(text.plain.lstrip())
    text, indent = text[lead:], indent + lead
    for at, line in enumerate(text.divide(_line_starts(text.plain, console.width - indent, hang))):
        line.rstrip()
        console.print(_indent_text(indent + hang if at else indent, line), soft_wrap=True)


def _line_starts(text: str, width: int, hang: int) -> list[int]:
    """Where the lines after the first begin."""
    found: list[int] = []
    begun = 0
    for word in re.finditer(r"\S+", text):
        room = width - (hang if found else 0)
        if word.start() > begun and cell_len(text[begun : word.end()]) > room:
            begun = word.start()
            found.append(begun)
    return found


def _indent_text(indent: int, text: RichText) -> RichText:
    return Text(" " * indent) + text if indent else text
