"""Preview a path that the user typed or chose (defaults for what is unknown): kind, size,
precision, inputs, names in a Python file; runs no model.

Recordings are opened, models are previewed where their runtime can, Python files are parsed and
never imported; other models are recognised by their name until they are run.
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
from syncpoint.runtimes.protocol import ModelPreview, Previews, Runtime
from syncpoint.runtimes.registry import RUNTIMES, find_runtimes_accepting
from syncpoint.server.allowed_files import AllowedFolders
from syncpoint.server.session_schema import InputForm, PathPreview, RuntimeForm

_MAX_SOURCE_BYTES = 4 << 20
_MAX_FILES = 10_000
_MAX_CANDIDATES = 24
_MAX_INPUTS = 32


def preview_path(folders: AllowedFolders, text: str) -> PathPreview:
    """Return what `text` names; an error is part of the preview."""
    path = text.strip()
    try:
        return _preview(folders, path)
    except SyncpointError as error:
        return _build_preview(path, "nothing", str(error), problem=Problem.of(error))


def _preview(folders: AllowedFolders, text: str) -> PathPreview:
    if not text:
        return _build_preview(text, "nothing", "")
    folders.check_path(text)
    if is_import_path(text):
        return _preview_reference(folders, text)
    path = folders.resolve(text)
    if not path.exists():
        raise InputError(f"no such file or folder: {text}", cure="check the path")
    if path.suffix == ".py" and path.is_file():
        names = _list_definitions(path)
        return _build_preview(
            text,
            "nothing",
            "choose what in this file gives the model" if names else "this file defines nothing",
            candidates=[f"{text}:{name}" for name in names[:_MAX_CANDIDATES]],
        )
    # In the order of a comparison, which takes a recording for one whatever its name is.
    dump_format = find_format(path)
    if dump_format is not None:
        return _preview_recording(open_as(dump_format, path), path, text)
    runtimes = find_runtimes_accepting(text)
    if runtimes:
        return _preview_model(path, text, runtimes)
    if path.is_dir():
        return _build_preview(text, "folder", "a folder that is neither a run nor a dump")
    raise InputError(
        f"{path.name} is not a model, a run or a dump that Syncpoint can open",
        cure="choose one of these",
    )


def _preview_reference(folders: AllowedFolders, text: str) -> PathPreview:
    """Preview a model in Python code, such as `net.py:model`."""
    module, _, attribute = text.rpartition(":")
    runtimes = [RuntimeForm.of(runtime) for runtime in find_runtimes_accepting(text)]
    if not module.endswith(".py"):
        message = "Models are code. It runs when you press Compare."
        return _build_preview(text, "model", message, sure=False, runtimes=runtimes)
    path = folders.resolve(module)
    if not path.is_file():
        raise InputError(f"no such Python file: {module}", cure="check the path")
    names = _list_definitions(path)
    first = attribute.partition(".")[0]
    if first not in names:
        # The module may still have it, by a star import for example; only running it shows that.
        return _build_preview(
            text,
            "model",
            f"{path.name} does not seem to define {first}",
            sure=False,
            runtimes=runtimes,
            candidates=[f"{module}:{name}" for name in names[:_MAX_CANDIDATES]],
        )
    message = f"{path.name} defines {attribute}. It runs when you press Compare."
    return _build_preview(text, "model", message, sure=False, runtimes=runtimes)


def _preview_model(path: Path, text: str, runtimes: list[Runtime]) -> PathPreview:
    size = _format_size(_measure_size(path))
    inputs: list[InputForm] = []
    precision, message, sure = "", f"{size}; it is opened when you press Compare", False
    preview = _ask_runtimes(path, runtimes)
    if preview is not None:
        sure, precision = True, preview.precision
        facts = (f"opens; {preview.ops} ops", precision, size)
        message = ", ".join(fact for fact in facts if fact)
        inputs = [
            InputForm(name=i.name, shape=None if i.shape is None else list(i.shape), dtype=i.dtype)
            for i in preview.inputs
        ]
    return _build_preview(
        text,
        "model",
        message,
        sure=sure,
        runtimes=[RuntimeForm.of(runtime) for runtime in runtimes],
        inputs=inputs,
        precision=precision,
    )


def _ask_runtimes(path: Path, runtimes: list[Runtime]) -> ModelPreview | None:
    """Return the preview of the first runtime that can preview this file."""
    for runtime in runtimes if path.is_file() else ():
        if isinstance(runtime, Previews):
            with RUNTIMES.contain_errors(runtime.name, FormatError, f"to preview {path.name}"):
                return runtime.preview(path)
    return None


def _preview_recording(run: Run, path: Path, text: str) -> PathPreview:
    inputs = [t for t in run.tensors if t.key.role is Role.MODEL_INPUT]
    float_kinds = (Kind.FLOAT, Kind.COMPLEX)
    precision = run.info.precision or "+".join(
        sorted({t.dtype for t in run.tensors if DTYPES[t.dtype].kind in float_kinds})
    )
    runtime = " ".join(name for name in (run.info.runtime, run.info.device) if name)
    facts = (f"{len(run.ops)} ops", precision, _format_size(_measure_size(path)), runtime)
    message = "opens; " + ", ".join(fact for fact in facts if fact)
    if not run.info.complete:
        message += f"; incomplete: {run.info.missing or 'the process that wrote it was killed'}"
    return _build_preview(
        text,
        "recording",
        message,
        precision=precision,
        recorded=bool(inputs),
        inputs=[
            InputForm(name=t.name or t.key.op.op, shape=list(t.shape), dtype=t.dtype)
            for t in inputs[:_MAX_INPUTS]
        ],
    )


def _build_preview(
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


def _list_definitions(path: Path) -> list[str]:
    """Return the names that a Python file defines at its top level, last ones first: models stand
    at the end of their files."""
    if path.stat().st_size > _MAX_SOURCE_BYTES:
        raise FormatError(
            f"{path.name} is larger than {_MAX_SOURCE_BYTES >> 20} MiB, the limit for a Python"
            " file",
            cure="check that the path names the right file",
        )
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise FormatError(
            f"{path.name} is not valid Python: {error}", cure="correct the file"
        ) from error
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


def _measure_size(path: Path) -> int:
    """Return the bytes of a file, or of the files in a folder."""
    if path.is_file():
        return path.stat().st_size
    total = 0
    for number, file in enumerate(path.rglob("*")):
        if number == _MAX_FILES:
            break
        if file.is_file() and not file.is_symlink():
            total += file.stat().st_size
    return total


def _format_size(nbytes: int) -> str:
    size = float(nbytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.3g} {unit}"
        size /= 1000
    raise AssertionError
