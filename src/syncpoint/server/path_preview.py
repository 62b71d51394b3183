"""What is at a path that somebody typed or chose, said at once and without running a model.

Recordings are opened, models are previewed where their runtime can, Python files are parsed and
never imported; anything else is known by its name until it is run.
"""

from __future__ import annotations

import ast
from pathlib import Path

from syncpoint.dumps.open_dump import open_as
from syncpoint.dumps.registry import find_format
from syncpoint.errors import FormatError, InputError, SyncpointError
from syncpoint.page.schema import Problem
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Role
from syncpoint.run.reader import Run
from syncpoint.runtimes.import_path import is_import_path
from syncpoint.runtimes.protocol import ModelPreview, Option, Previews, Runtime
from syncpoint.runtimes.registry import RUNTIMES, describe_installation, find_runtimes_accepting
from syncpoint.server.allowed_files import Folders
from syncpoint.server.session_schema import InputForm, OptionForm, PathPreview, RuntimeForm

_MOST_SOURCE = 4 << 20
_MOST_FILES = 10_000
_TYPES = {bool: "boolean", int: "integer", float: "number"}


def look(folders: Folders, text: str) -> PathPreview:
    """What `text` names."""
    said = text.strip()
    try:
        return _seen(folders, said)
    except SyncpointError as error:
        return _said(said, "nothing", str(error), problem=Problem.of(error))


def _seen(folders: Folders, text: str) -> PathPreview:
    if not text:
        return _said(text, "nothing", "")
    folders.allowed(text)
    if is_import_path(text):
        return _code(folders, text)
    path = folders.resolve(text)
    if not path.exists():
        raise InputError("a model, a run or a dump", f"nothing at {text}", "check the path")
    if path.suffix == ".py" and path.is_file():
        names = _defined(path)
        return _said(
            text,
            "nothing",
            "name what gives the model in it" if names else "it defines nothing",
            candidates=[f"{text}:{name}" for name in names[:24]],
        )
    # In the order of a comparison, which takes a recording for one whatever it is called.
    found = find_format(path)
    if found is not None:
        return _recording(open_as(found, path), path, text)
    taken = find_runtimes_accepting(text)
    if taken:
        return _model(path, text, taken)
    if path.is_dir():
        return _said(text, "folder", "a folder; nothing in it is known as a run or a dump")
    raise InputError(
        "a model, a run or a dump", f"{path.name}, which nothing here recognises", "check the path"
    )


def _code(folders: Folders, text: str) -> PathPreview:
    where, _, attribute = text.rpartition(":")
    taken = _forms(find_runtimes_accepting(text))
    if not where.endswith(".py"):
        said = "Models are code. It runs when you press Compare."
        return _said(text, "model", said, sure=False, runtimes=taken)
    path = folders.resolve(where)
    if not path.is_file():
        raise InputError("a Python file", f"nothing at {where}", "check the path")
    names = _defined(path)
    first = attribute.partition(".")[0]
    if first not in names:
        # It may still be there, by a star import or a trick of the module; only running it tells.
        said = f"{path.name} does not seem to define {first}"
        candidates = [f"{where}:{name}" for name in names[:24]]
        return _said(text, "model", said, sure=False, runtimes=taken, candidates=candidates)
    said = f"{path.name} defines {attribute}. It runs when you press Compare."
    return _said(text, "model", said, sure=False, runtimes=taken)


def _model(path: Path, text: str, taken: list[Runtime]) -> PathPreview:
    size = _size(_bytes_of(path))
    inputs: list[InputForm] = []
    precision, said, sure = "", f"{size}; it is opened when you press Compare", False
    preview = _preview(path, taken)
    if preview is not None:
        sure, precision = True, preview.precision
        said = ", ".join(p for p in (f"opens; {preview.ops} ops", precision, size) if p)
        inputs = [
            InputForm(name=i.name, shape=None if i.shape is None else list(i.shape), dtype=i.dtype)
            for i in preview.inputs
        ]
    return _said(
        text, "model", said, sure=sure, runtimes=_forms(taken), inputs=inputs, precision=precision
    )


def _preview(path: Path, taken: list[Runtime]) -> ModelPreview | None:
    """What the first runtime that can preview this file says of it."""
    for runtime in taken if path.is_file() else ():
        if isinstance(runtime, Previews):
            with RUNTIMES.contain_errors(runtime.name, FormatError, f"to preview {path.name}"):
                return runtime.preview(path)
    return None


def _recording(run: Run, path: Path, text: str) -> PathPreview:
    given = [t for t in run.tensors if t.key.role is Role.MODEL_INPUT]
    floats = (Kind.FLOAT, Kind.COMPLEX)
    precision = run.info.precision or "+".join(
        sorted({t.dtype for t in run.tensors if DTYPES[t.dtype].kind in floats})
    )
    facts = [f"{len(run.ops)} ops", precision, _size(_bytes_of(path))]
    who = " ".join(p for p in (run.info.runtime, run.info.device) if p)
    said = "opens; " + ", ".join(p for p in (*facts, who) if p)
    if not run.info.complete:
        said += f"; incomplete: {run.info.missing or 'its writer died'}"
    return _said(
        text,
        "recording",
        said,
        precision=precision,
        recorded=bool(given),
        inputs=[
            InputForm(name=t.name or t.key.op.op, shape=list(t.shape), dtype=t.dtype)
            for t in given[:32]
        ],
    )


def _said(
    path: str,
    kind: str,
    text: str,
    *,
    sure: bool = True,
    precision: str = "",
    runtimes: list[RuntimeForm] | None = None,
    inputs: list[InputForm] | None = None,
    recorded: bool = False,
    candidates: list[str] | None = None,
    problem: Problem | None = None,
) -> PathPreview:
    return PathPreview(
        path=path,
        kind=kind,  # type: ignore[arg-type]
        text=text,
        sure=sure,
        precision=precision,
        runtimes=runtimes or [],
        inputs=inputs or [],
        recorded=recorded,
        candidates=candidates or [],
        problem=problem,
    )


def _defined(path: Path) -> list[str]:
    """Names that a Python file gives at its top: what is called first in it comes last, since
    models stand at the end of their files."""
    if path.stat().st_size > _MOST_SOURCE:
        raise FormatError(f"a Python file of at most {_MOST_SOURCE} bytes", path.name)
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise FormatError(f"{path.name} as Python", str(error)) from error
    names: dict[str, None] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] = None
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for leaf in ast.walk(target):
                    if isinstance(leaf, ast.Name):
                        names[leaf.id] = None
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = None
    return [name for name in reversed(names) if not name.startswith("_") and name.isidentifier()]


def _forms(taken: list[Runtime]) -> list[RuntimeForm]:
    return [
        RuntimeForm(
            name=runtime.name,
            version=runtime.version() or "",
            cure="" if runtime.version() else describe_installation(runtime),
            options=[_form(option) for option in runtime.options()],
        )
        for runtime in taken
    ]


def _form(option: Option) -> OptionForm:
    kind = "choice" if option.choices else _TYPES.get(option.type, "text")
    default = as_text(option.default)
    choices = [as_text(choice) for choice in option.choices]
    if choices and default not in choices:
        choices.insert(0, default)
    return OptionForm(
        name=option.name,
        type=kind,  # type: ignore[arg-type]
        default=default,
        help=option.help,
        choices=choices,
    )


def as_text(value: object) -> str:
    """The value of an option as the command line takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _bytes_of(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    total = 0
    for number, file in enumerate(path.rglob("*")):
        if number == _MOST_FILES:
            break
        if file.is_file() and not file.is_symlink():
            total += file.stat().st_size
    return total


def _size(nbytes: int) -> str:
    size = float(nbytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.3g} {unit}"
        size /= 1000
    raise AssertionError
