"""An exception raised by a model or a framework, as one line: type, message, and the line of the
user's code that raised it."""

from __future__ import annotations

import traceback
from pathlib import Path


def one_line(error: BaseException) -> str:
    """Type and message of an exception, and the line of the user's code that raised it."""
    message = " ".join(str(error).strip().partition("\n\n")[0].split())
    if len(message) > 300:
        message = message[:300] + "..."
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    place = find_raising_line(error)
    return f"{text} (at {place})" if place else text


def find_raising_line(error: BaseException) -> str:
    """`file:line` of the innermost frame in the user's code, else in an installed package."""
    installed = ""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        name = frame.filename
        if name.startswith(("<", _OWN)) or _TORCH in name:
            continue
        place = f"{name}:{frame.lineno}"
        if "site-packages" not in name and not name.startswith(_STANDARD):
            return place
        installed = installed or place
    return installed


_OWN = str(Path(__file__).parents[1])


_STANDARD = str(Path(traceback.__file__).parent)


_TORCH = str(Path("site-packages", "torch")) + "/"
