"""Detect and load the files, such as `repro.py`, that torch's compiler writes to reproduce a
failure (module and arguments)."""

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
    """Whether a Python file is a repro of torch: it defines `mod` and `load_args`."""
    file = Path(path)
    if file.suffix != ".py" or not file.is_file():
        return False
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return False
    defined_names = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    defined_names |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return set(_ATTRIBUTES) <= defined_names


def load_repro(path: str) -> Repro:
    """Load the module and its arguments; this executes the file."""
    import torch
    from torch._dynamo.debug_utils import InputReader, NopInputReader

    module, load_args = (load_object(f"{path}:{name}") for name in _ATTRIBUTES)
    version = getattr(load_args, "_version", None)
    if version != 0:
        raise InputError(
            f"{path} is of version {version!r} (load_args._version); only version 0 can be read",
            cure=f"let the installed torch {torch.__version__} write it again",
        )
    folder = _find_save_dir(Path(path))
    if folder is not None and not Path(folder).is_dir():
        folder = None
    counting_reader = NopInputReader()
    try:
        with warnings.catch_warnings(record=True) as warning_list, without_log():
            warnings.simplefilter("always")
            reader = InputReader(save_dir=folder)
            load_args(counting_reader)
            load_args(reader)
    except Exception as error:
        raise CaptureError(
            f"cannot load the arguments of {path}, because it raised {one_line(error)}",
            cure="run the file itself to see the error",
        ) from error
    random_count = sum("generating random data" in str(warning.message) for warning in warning_list)
    notes = []
    if random_count:
        notes.append(
            f"the values of {random_count} of {counting_reader.total} inputs of {path} are not"
            f" {f'in {folder}' if folder else 'saved'}: random values were used"
        )
    return Repro(module, tuple(reader.args), tuple(notes))


def _find_save_dir(path: Path) -> str | None:
    """The `save_dir` that the file itself uses when it is run."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.keyword) and node.arg == "save_dir":
            value = node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
    return None
