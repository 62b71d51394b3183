"""The progress bar over the sync points on a terminal; nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def measuring() -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar over the sync points on stderr; remove it at the end."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import Progress

    from syncpoint.reports.console import Console

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("measuring", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
