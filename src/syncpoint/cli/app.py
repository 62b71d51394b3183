"""The application: registers the commands, adds `--version` and defaults from the config file,
guards exit codes against exits of models.

Nothing heavy is imported here or in the command files: each command imports what it needs when
it runs, so that help is quick and works without any runtime installed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from syncpoint import __version__
from syncpoint.cli.analyze import analyze
from syncpoint.cli.bisect import bisect
from syncpoint.cli.capture import capture
from syncpoint.cli.compare import compare
from syncpoint.cli.config_file import defaults
from syncpoint.cli.convert import convert
from syncpoint.cli.demo import demo
from syncpoint.cli.diagnose import diagnose
from syncpoint.cli.doctor import doctor
from syncpoint.cli.examples import EXAMPLES
from syncpoint.cli.inspect import inspect
from syncpoint.cli.option_groups import PanelCommand, flatten
from syncpoint.cli.output import echo
from syncpoint.cli.reduce import reduce
from syncpoint.cli.report import report
from syncpoint.cli.session import session
from syncpoint.cli.verify import verify
from syncpoint.cli.view import view
from syncpoint.errors import contain_exit
from syncpoint.foreign_text import make_visible


class Commands(TyperGroup):
    """All commands. Escapes file names that a usage error quotes."""

    def invoke(self, ctx: Any) -> Any:
        """Parse and run one of them."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if hasattr(error, "format_message") and hasattr(error, "message"):
                error.message = make_visible(str(error.message))
            raise


app = typer.Typer(
    name="syncpoint",
    cls=Commands,
    help="Finds where, by how much and why two executions of the same model differ.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(is_requested: bool) -> None:
    if is_requested:
        echo(f"syncpoint {__version__}")
        raise typer.Exit


@app.callback()
def _all(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    commands: Any = context.command
    context.default_map = defaults(commands.commands)


class Escaped(Exception):
    """Wraps an exception that the argument parser would otherwise turn into exit code 1."""


def _contained(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that only typer.Exit decides its exit code.

    SystemExit comes from a model or a library, and its code says nothing about the comparison.
    For EOFError and a closed pipe the argument parser exits with 1, which means "diverges".
    """

    @wraps(command)
    def contained(*args: Any, **options: Any) -> None:
        try:
            with contain_exit():
                command(*args, **options)
        except (EOFError, OSError) as error:
            raise Escaped from error

    return contained


for command in (
    *(capture, compare, diagnose, bisect, analyze, report, view, session),
    *(inspect, verify, convert, reduce, doctor, demo),
):
    examples = "\n".join(EXAMPLES.get(command.__name__, ()))
    app.command(cls=PanelCommand, epilog=examples)(_contained(flatten(command)))
