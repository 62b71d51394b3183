"""The command `syncpoint doctor`: prints the installed versions, runtimes with their options, dump
formats and plugins, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncpoint.cli.output import echo

if TYPE_CHECKING:
    from syncpoint.workflow.installation import RuntimeInfo


def doctor() -> None:
    """Show versions, runtimes with their options, dump formats and plugins."""
    # Not through the API, which imports all that comparing needs.
    from syncpoint.workflow.installation import describe_installation

    installed = describe_installation()
    echo(f"syncpoint  {installed.version}, Python {installed.python}, {installed.platform}")
    echo(f"kernel     {installed.kernel}")
    for runtime in installed.runtimes:
        _show_runtime(runtime)
    for dump in installed.formats:
        echo(f"format     {dump.name}: {'read and written' if dump.is_written else 'read'}")
    for plugin in installed.plugins:
        echo(f"{plugin.kind:<10} {plugin.name}: of {plugin.package}")
    for line in installed.left_out:
        echo(f"left out   {line}")


def _show_runtime(runtime: RuntimeInfo) -> None:
    if runtime.version is None:
        echo(f"runtime    {runtime.name}: not installed ({runtime.cure})")
        return
    echo(f"runtime    {runtime.name} {runtime.version}")
    for option in runtime.options:
        allowed = f" ({', '.join(map(str, option.choices))})" if option.choices else ""
        default = option.default if option.default != "" else "as is"
        echo(f"    --set {option.name}={default}{allowed}  {option.help}")
