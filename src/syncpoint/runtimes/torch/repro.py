"""The files that torch writes to have a failure repeated: `repro.py` and its kin."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

from syncpoint.errors import CaptureError, InputError
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.import_path import load_object
from syncpoint.runtimes.protocol import Repro
from syncpoint.runtimes.torch.silence import without_log

_ATTRIBUTES = ("mod", "load_args")


def is_repro(path: str) -> bool:
    """Whether a Python file is one of them: it gives `mod` and `load_args` and runs neither
    unless it is run itself."""
    file = Path(path)
    if file.suffix != ".py" or not file.is_file():
        return False
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return False
    given = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    given |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return set(_ATTRIBUTES) <= given


def load_repro(path: str) -> Repro:
    """The module and its arguments."""
    from torch._dynamo.debug_utils import InputReader, NopInputReader

    module, load_args = (load_object(f"{path}:{name}") for name in _ATTRIBUTES)
    version = getattr(load_args, "_version", None)
    if version != 0:
        raise InputError("load_args._version = 0", f"{version!r} in {path}")
    folder = _save_dir(Path(path))
    if folder is not None and not Path(folder).is_dir():
        folder = None
    counting = NopInputReader()
    try:
        with warnings.catch_warnings(record=True) as said, without_log():
            warnings.simplefilter("always")
            reader = InputReader(save_dir=folder)
            load_args(counting)
            load_args(reader)
    except Exception as error:
        raise CaptureError(f"the arguments of {path}", f"it raised {one_line(error)}") from error
    random = sum("generating random data" in str(warning.message) for warning in said)
    notes = []
    if random:
        notes.append(
            f"the values of {random} of {counting.total} inputs of {path} are not"
            f" {f'in {folder}' if folder else 'kept'}: random ones were used"
        )
    return Repro(module, tuple(reader.args), tuple(notes))


def _save_dir(path: Path) -> str | None:
    """What the file itself would give as `save_dir` when it is run."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.keyword) and node.arg == "save_dir":
            value = node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
    return None
