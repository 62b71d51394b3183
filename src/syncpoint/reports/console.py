"""The one way to a terminal: nothing printed through here interprets what a name contains.

`Text`, `Table` and `Console` are those of rich with foreign strings made visible and without its
markup. Single lines are printed by `syncpoint.cli.output`. A rule of the linter keeps every other
module from the originals, so that a new report cannot forget it.
"""

from __future__ import annotations

from typing import IO, Any

import rich.console
import rich.table
import rich.text

from syncpoint.foreign_text import MAX_NAME_CHARS, make_visible

RichText = rich.text.Text
"""Parts of a `Text`: already visible."""
WIDE = 200
"""Columns where the output has no width of its own."""


class Text(rich.text.Text):
    """One line. What it is made of or given later is shown, never obeyed."""

    def __init__(self, text: str = "", style: Any = "", **options: Any) -> None:
        super().__init__(make_visible(text), style, **options)

    def append(self, text: Any, style: Any = None) -> Text:
        """Add to its end."""
        super().append(make_visible(text) if isinstance(text, str) else text, style)
        return self


class Table(rich.table.Table):
    """Columns without lines between them; cells are text, long ones are cut in the middle."""

    def __init__(self) -> None:
        super().__init__(box=None, pad_edge=False, header_style="dim", padding=(0, 1))

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row of strings or texts."""
        super().add_row(*map(as_cell, cells), **options)


def as_cell(cell: str | RichText) -> RichText:
    """What stands in a cell of a table."""
    if isinstance(cell, str):
        return Text(make_visible(cell, MAX_NAME_CHARS))
    if len(cell.plain) > MAX_NAME_CHARS:
        return Text(make_visible(cell.plain, MAX_NAME_CHARS), cell.style)
    return cell


class Console(rich.console.Console):
    """Where a report is printed; a plain string is one line of text."""

    def __init__(
        self,
        file: IO[str] | None = None,
        width: int | None = None,
        piped_width: int = WIDE,
        stderr: bool = False,
    ) -> None:
        """`width` for what is no terminal at all; `piped_width` for a pipe."""
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
        """The reader went away, as `head` does. Rich would end Python with exit code 1, which
        means "diverges"; the command line knows what to do."""
        self.quiet = True
        raise BrokenPipeError

    def render_str(self, text: str, **options: Any) -> rich.text.Text:
        """A plain string as text."""
        return super().render_str(make_visible(text), **options)
