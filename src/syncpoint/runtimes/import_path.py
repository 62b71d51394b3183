"""Load objects that a user names, `package.module:attribute` or `file.py:attribute`; call a user's
function; suggest similar names.

Models and input functions are code, and run because the user named them. Nothing that is read
from a run or a dump is ever loaded here.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from syncpoint.errors import CaptureError, InputError
from syncpoint.runtimes.exception_text import one_line

_REFERENCE = re.compile(
    r"^(?P<where>[^:]+(?:\.py)?):(?P<attribute>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)$"
)
_MODULE = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")


def is_import_path(text: object) -> bool:
    """Whether `text` has the form `package.module:attribute` or `file.py:attribute`."""
    match = _REFERENCE.match(text) if isinstance(text, str) else None
    if match is None:
        return False
    where = match["where"]
    return where.endswith(".py") or _MODULE.match(where) is not None


def load_object(reference: str) -> Any:  # any object of the user
    """Load the attribute that `reference` names; the current folder is importable."""
    match = _REFERENCE.match(reference)
    if match is None or not is_import_path(reference):
        raise InputError(
            f"{reference!r} is not package.module:attribute or file.py:attribute",
            cure="write the file or module, a colon and the attribute: net.py:make_net",
        )
    where, attribute = match["where"], match["attribute"]
    _make_importable(Path.cwd(), first=True)
    module = _load_file(Path(where)) if where.endswith(".py") else _load_module(where)
    target: Any = module
    for name in attribute.split("."):
        if not hasattr(target, name):
            raise InputError(
                f"{where} has no attribute {name!r}",
                cure=_suggest_names(target, name),
            )
        target = getattr(target, name)
    return target


def call_user_function(function: Callable[[], Any], name: str, what: str) -> Any:
    """Call a function that a user named, without arguments; `what` is what it should return."""
    try:
        return function()
    except Exception as error:
        raise CaptureError(
            f"{name} returned no {what}, because it raised {one_line(error)}",
            cure="fix the error, then try again",
        ) from error


def _make_importable(folder: Path, first: bool) -> None:
    text = str(folder)
    if text in sys.path:
        return
    if first:
        sys.path.insert(0, text)
    else:
        sys.path.append(text)


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise InputError(
                f"cannot import {name!r}: no module named {error.name!r}",
                cure="run from the folder that holds it, or give its file: file.py:attribute",
            ) from None
        raise _make_import_error(name, error) from error
    except (Exception, SystemExit) as error:
        raise _make_import_error(name, error) from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(
            f"no such file: {str(path)!r}",
            cure="check the path",
        )
    path = path.resolve()
    _make_importable(path.parent, first=False)
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None:
        if getattr(loaded, "__file__", None) == str(path):
            return loaded
        name = f"{name}_{abs(hash(path)):x}"
        if name in sys.modules:
            return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(
            f"Python cannot load {str(path)!r} as a module",
            cure="give the path of a .py file",
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _make_import_error(path.name, error) from error
    return module


def _make_import_error(name: str, error: BaseException) -> CaptureError:
    return CaptureError(
        f"cannot import {name}, because it raised {one_line(error)}",
        cure="fix the error, then try again",
    )


def _suggest_names(holder: object, name: str) -> str:
    public_names = [n for n in dir(holder) if not n.startswith("_")]
    near_names = difflib.get_close_matches(name, public_names, n=5, cutoff=0.5)
    if near_names:
        return f"use one of these similar names: {', '.join(near_names)}"
    return (
        f"use one of: {', '.join(public_names[:10])}"
        if public_names
        else "choose another module: this one has no public names"
    )
