"""The forms in which a PyTorch model comes: a module, an exported program, TorchScript."""

from __future__ import annotations

import copy
import inspect
import io
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.jit import ScriptModule

from syncpoint.errors import CaptureError, InputError
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.import_path import load_object
from syncpoint.runtimes.torch.arrays import dtype_name, torch_dtype
from syncpoint.runtimes.torch.environment import device_named
from syncpoint.runtimes.torch.live_stack import class_name
from syncpoint.runtimes.torch.silence import silence_torch
from syncpoint.runtimes.torch.torchscript import ScriptSource

_FORMS = "an nn.Module, an exported program, a ScriptModule, or a function that returns one"


@dataclass(kw_only=True)
class Subject:
    """One model under one set of options."""

    name: str
    plain: nn.Module
    """What the user has: what it gives is right."""
    module: nn.Module
    """What is captured; the same but for TorchScript, of which a copy is run."""
    signature: inspect.Signature
    exported: ExportedProgram | None = None
    script: ScriptSource | None = None
    dtype: torch.dtype | None = None
    """What floating-point inputs are cast to."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def has_modes(self) -> bool:
        """Whether it can be put into training and eval mode."""
        return self.exported is None and all(hasattr(m, "training") for m in self.plain.modules())

    @property
    def positional(self) -> tuple[str, ...]:
        """Names of the inputs that have a position."""
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return tuple(p.name for p in self.signature.parameters.values() if p.kind in kinds)

    @property
    def title(self) -> str:
        """How messages call it: `Linear.forward(input)`."""
        text = str(self.signature).partition(" -> ")[0]
        if self.exported is not None:
            return f"{Path(self.name).name}{text}"
        return f"{class_name(self.plain)}.forward{text}"


def subject_of(model: object, options: Mapping[str, Any]) -> Subject:
    """What the user gave or named, adapted to the options; the given one is left as it was."""
    name = str(model) if isinstance(model, str | Path) else type(model).__qualname__
    found = _loaded(name) if isinstance(model, str | Path) else model
    known = (nn.Module, ExportedProgram)
    if not isinstance(found, known) and callable(found):
        try:
            found = found()
        except Exception as error:
            raise CaptureError(
                f"{name} to return a model", f"it raised {one_line(error)}"
            ) from error
    if not isinstance(found, known):
        raise InputError(f"{_FORMS} in {name}", f"a {type(found).__qualname__}")
    dtype = torch_dtype(options["dtype"]) if options["dtype"] else None
    device = device_named(options["device"])
    if isinstance(found, ExportedProgram):
        subject = _of_program(name, found, dtype, device, options)
    else:
        subject = _of_module(name, found, dtype, device, options)
    subject.dtype, subject.device = dtype, device
    return subject


def _loaded(name: str) -> Any:
    """The model in a file, or the attribute that is named in code."""
    path = Path(name)
    if path.suffix not in (".pt2", ".pt", ".ts"):
        return load_object(name)
    if not path.is_file():
        raise InputError(f"a {path.suffix} file", f"no file {name!r}")
    kind = _kind_of(path)
    try:
        with silence_torch():
            return torch.export.load(name) if kind == "export" else _script(name)
    except Exception as error:
        made_by = "torch.export.save" if kind == "export" else "torch.jit.save"
        raise InputError(f"{path.name} as {made_by} writes it", one_line(error)) from error


def _kind_of(path: Path) -> str:
    """Which way of saving a model made the file, told by what is in it."""
    inside: set[str] = set()
    try:
        with zipfile.ZipFile(path) as archive:
            # In a file that lost its end another archive, stored inside it, may be found.
            whole = min((m.header_offset for m in archive.infolist()), default=0) == 0
            inside = {name.partition("/")[2] for name in archive.namelist() if whole}
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        pass
    if any(name.startswith("models/") for name in inside):
        return "export"
    if "constants.pkl" in inside and any(name.startswith("code/") for name in inside):
        return "script"
    found, cure = "neither", ""
    if any(name.startswith("data/aotinductor/") for name in inside):
        found, cure = "a package of AOTInductor", "name the program it was compiled from"
    elif "data.pkl" in inside:
        found = "what torch.save writes, weights or a pickled module"
        cure = "name the code that makes the model: file.py:attribute"
    elif not inside:
        found = "no archive, or a broken one"
    raise InputError(f"{path.name} to be an exported program or TorchScript", found, cure)


def _of_module(
    name: str,
    model: nn.Module,
    dtype: torch.dtype | None,
    device: torch.device,
    options: Mapping[str, Any],
) -> Subject:
    scripted = isinstance(model, ScriptModule)
    if scripted and options["capture"] == "export":
        raise InputError("capture=auto or capture=dispatch for TorchScript", "capture=export")
    tensors = [*model.parameters(), *model.buffers()]
    moves = any(t.device != device for t in tensors)
    casts = dtype is not None and any(t.is_floating_point() and t.dtype != dtype for t in tensors)
    if moves or casts:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = copy.deepcopy(model).to(device=device, dtype=dtype)
        except Exception as error:
            raise CaptureError(
                f"{name} to be copied to {options['dtype'] or device}",
                f"it raised {one_line(error)}",
            ) from error
    if not scripted:
        return Subject(
            name=name, plain=model, module=model, signature=inspect.signature(model.forward)
        )
    archive = io.BytesIO()
    try:
        torch.jit.save(model, archive)
        archive.seek(0)
        # The interpreter knows the lines of an archive, so it is a loaded one that is captured.
        again = _script(archive, device)
        archive.seek(0)
        source = ScriptSource(archive)
    except Exception as error:
        raise CaptureError(
            f"{name} to be saved and loaded by torch.jit", f"it raised {one_line(error)}"
        ) from error
    return Subject(
        name=name, plain=model, module=again, signature=_script_signature(model), script=source
    )


def _script(file: str | io.BytesIO, device: torch.device | None = None) -> nn.Module:
    found: nn.Module = torch.jit.load(file, map_location=device)  # type: ignore[no-untyped-call]
    return found


def _script_signature(model: nn.Module) -> inspect.Signature:
    """The inputs as the schema of the script has them; the first is the module itself."""
    parameters = [
        inspect.Parameter(
            argument.name,
            inspect.Parameter.KEYWORD_ONLY
            if argument.kwarg_only
            else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=argument.default_value
            if argument.has_default_value()
            else inspect.Parameter.empty,
        )
        for argument in model.forward.schema.arguments[1:]  # type: ignore[attr-defined]
    ]
    return inspect.Signature(parameters)


def _of_program(
    name: str,
    program: ExportedProgram,
    dtype: torch.dtype | None,
    device: torch.device,
    options: Mapping[str, Any],
) -> Subject:
    """A program is fixed in its types, its mode and its ops."""
    for option, fixed in (("capture", "dispatch"), ("mode", "train")):
        if options[option] == fixed:
            raise InputError(f"an exported program without {option}={fixed}", f"{option}={fixed}")
    floats = {t.dtype for t in program.state_dict.values() if t.is_floating_point()}
    if dtype is not None and floats and dtype not in floats:
        raise InputError(
            f"{Path(name).name} in {options['dtype']}",
            f"an exported program in {' and '.join(sorted(dtype_name(d) for d in floats))}",
            f"export the model in {options['dtype']}",
        )
    with silence_torch():
        if any(t.device != device for t in program.state_dict.values()):
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, device)
        module = program.module()
    return Subject(
        name=name,
        plain=module,
        module=module,
        signature=_program_signature(program),
        exported=program,
    )


def _program_signature(program: ExportedProgram) -> inspect.Signature:
    """Names as the exported forward had them; where the program lost them, by position."""
    args, kwargs = program.call_spec.in_spec.children()
    signature = program.module_call_graph[0].signature
    known = list(getattr(signature, "forward_arg_names", None) or ())
    positional = [
        known[i] if i < len(known) and known[i].isidentifier() else f"input_{i}"
        for i in range(args.num_children)
    ]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in positional
    ]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in kwargs.context
    ]
    return inspect.Signature(parameters)
