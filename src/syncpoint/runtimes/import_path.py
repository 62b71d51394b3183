"""Loads what a user names in code: `package.module:attribute` or `file.py:attribute`.

Models and input functions are code and run because the user named them; nothing from a run or
a dump ever comes here.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from syncpoint.errors import CaptureError, InputError
from syncpoint.runtimes.exception_text import one_line

_REFERENCE = re.compile(
    r"^(?P<where>[^:]+(?:\.py)?):(?P<attribute>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)$"
)
_MODULE = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")


def is_reference(text: object) -> bool:
    """Whether `text` has the form of a thing this module loads."""
    match = _REFERENCE.match(text) if isinstance(text, str) else None
    if match is None:
        return False
    where = match["where"]
    return where.endswith(".py") or _MODULE.match(where) is not None


def load_object(reference: str) -> Any:  # whatever the user has there
    """The attribute that `reference` names; the current folder is importable."""
    match = _REFERENCE.match(reference)
    if match is None or not is_reference(reference):
        raise InputError("package.module:attribute or file.py:attribute", repr(reference))
    where, attribute = match["where"], match["attribute"]
    _make_importable(Path.cwd(), first=True)
    module = _load_file(Path(where)) if where.endswith(".py") else _load_module(where)
    found: Any = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise InputError(
                f"the attribute {name!r} in {where}", "no such attribute", _near(found, name)
            )
        found = getattr(found, name)
    return found


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
                f"a module {name!r}",
                f"no module named {error.name!r}",
                "run from the folder that holds it, or name its file: file.py:attribute",
            ) from None
        raise _import_failed(name, error) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(name, error) from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError("a Python file", f"no file {str(path)!r}")
    path = path.resolve()
    _make_importable(path.parent, first=False)
    name = path.stem
    known = sys.modules.get(name)
    if known is not None:
        if getattr(known, "__file__", None) == str(path):
            return known
        name = f"{name}_{abs(hash(path)):x}"
        if name in sys.modules:
            return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError("a Python file", f"{str(path)!r}, which Python cannot load")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _import_failed(path.name, error) from error
    return module


def _import_failed(name: str, error: BaseException) -> CaptureError:
    return CaptureError(f"{name} to be imported", f"it raised {one_line(error)}")


def _near(holder: object, name: str) -> str:
    public = [n for n in dir(holder) if not n.startswith("_")]
    near = difflib.get_close_matches(name, public, n=5, cutoff=0.5)
    if near:
        return f"near names: {', '.join(near)}"
    return f"it has: {', '.join(public[:10])}" if public else "it is empty"
