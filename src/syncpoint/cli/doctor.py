"""`syncpoint doctor`: what this installation can do, and what it lacks."""

from __future__ import annotations

import platform

from syncpoint import __version__
from syncpoint.cli.output import echo


def doctor() -> None:
    """Show versions, runtimes with their options, and dump formats."""
    from syncpoint.dumps.protocol import Saves
    from syncpoint.dumps.registry import formats
    from syncpoint.metrics import _kernel
    from syncpoint.runtimes.registry import runtimes

    echo(f"syncpoint  {__version__}, Python {platform.python_version()}, {platform.platform()}")
    echo(f"kernel     {_kernel.isa()}")
    for runtime in runtimes():
        version = runtime.version()
        if version is None:
            cure = f"pip install 'syncpoint[{runtime.extra}]'"
            echo(f"runtime    {runtime.name}: not installed ({cure})")
            continue
        echo(f"runtime    {runtime.name} {version}")
        for option in runtime.options():
            allowed = f" ({', '.join(map(str, option.choices))})" if option.choices else ""
            default = option.default if option.default != "" else "as is"
            echo(f"    --set {option.name}={default}{allowed}  {option.help}")
    for dump in formats():
        saves = "read and written" if isinstance(dump, Saves) else "read"
        echo(f"format     {dump.name}: {saves}")
