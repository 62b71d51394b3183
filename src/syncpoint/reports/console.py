"""Terminal classes (`Console`, `Table`, `Text`) that show control characters and markup in names
instead of interpreting them.

`Text`, `Table` and `Console` are those of rich, without markup and with foreign strings made
visible. `syncpoint.cli.output` prints single lines. A linter rule forbids the originals in all
other modules.
"""

from __future__ import annotations

from typing import IO, Any

import rich.console
import rich.table
import rich.text

from syncpoint.foreign_text import MAX_NAME_CHARS, make_visible

RichText = rich.text.Text
"""A part of a `Text`, whose characters are visible already."""
DEFAULT_WIDTH = 200
"""Columns if the output has no width of its own."""


class Text(rich.text.Text):
    """One line; control characters and markup in it are shown, not interpreted."""

    def __init__(self, text: str = "", style: Any = "", **options: Any) -> None:
        super().__init__(make_visible(text), style, **options)

    def append(self, text: Any, style: Any = None) -> Text:
        """Append text."""
        super().append(make_visible(text) if isinstance(text, str) else text, style)
        return self


class Table(rich.table.Table):
    """A table without lines; long cells are cut in the middle."""

    def __init__(self) -> None:
        super().__init__(box=None, pad_edge=False, header_style="dim", padding=(0, 1))

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row of strings or texts."""
        super().add_row(*map(as_cell, cells), **options)


def as_cell(cell: str | RichText) -> RichText:
    """The content of a table cell."""
    if isinstance(cell, str):
        return Text(make_visible(cell, MAX_NAME_CHARS))
    if len(cell.plain) > MAX_NAME_CHARS:
        return Text(make_visible(cell.plain, MAX_NAME_CHARS), cell.style)
    return cell


class Console(rich.console.Console):
    """The destination of a report; a plain string is one line."""

    def __init__(
        self,
        file: IO[str] | None = None,
        width: int | None = None,
        piped_width: int = DEFAULT_WIDTH,
        stderr: bool = False,
    ) -> None:
        """`width` fixes the width; `piped_width` is the width if the output is no terminal."""
        plain: dict[str, Any] = {} if file is None else {"color_system": None}
        super().__init__(
            file=file,
            width=width,
            stderr=stderr,
            highlight=False,
            markup=False,
            emoji=False,
            **plain,
        )
        if width is None and not self.is_terminal:
            self.width = piped_width

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError if the reader has closed the pipe, as `head` does.

        Rich would exit with code 1, which means "diverges"; the command line handles the error.
        """
        self.quiet = True
        raise BrokenPipeError

    def render_str(self, text: str, **options: Any) -> rich.text.Text:
        """A plain string as text, without markup."""
        return super().render_str(make_visible(text), **options)
