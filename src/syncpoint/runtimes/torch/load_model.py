"""Load a PyTorch model (module, exported program, TorchScript), detect its kind, adapt it to dtype,
device and mode; its `forward` signature."""

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
from syncpoint.runtimes.import_path import call_user_function, load_object
from syncpoint.runtimes.torch.arrays import dtype_name, torch_dtype
from syncpoint.runtimes.torch.node_metadata import class_name
from syncpoint.runtimes.torch.runtime import FILE_SUFFIXES
from syncpoint.runtimes.torch.silence import silence_torch
from syncpoint.runtimes.torch.torchscript import ScriptSource

_MODEL_FORMS = "an nn.Module, an exported program, a ScriptModule, or a function that returns one"


@dataclass(kw_only=True)
class LoadedModel:
    """One model under one set of options."""

    name: str
    plain: nn.Module
    """The model of the user: its outputs are the right ones."""
    module: nn.Module
    """The module that is captured: the same, except for TorchScript, where it is a copy."""
    signature: inspect.Signature
    exported: ExportedProgram | None = None
    script: ScriptSource | None = None
    dtype: torch.dtype | None = None
    """The dtype that floating-point inputs are cast to."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def has_modes(self) -> bool:
        """Whether it has a training and an eval mode. The module of an exported program keeps the
        mode in which it was exported: it has a `train` of its own that refuses."""
        return (
            self.exported is None
            and "train" not in vars(self.plain)
            and all(hasattr(m, "training") for m in self.plain.modules())
        )

    @property
    def positional(self) -> tuple[str, ...]:
        """Names of the inputs that have a position."""
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return tuple(p.name for p in self.signature.parameters.values() if p.kind in kinds)

    @property
    def title(self) -> str:
        """The name in messages: `Linear.forward(input)`."""
        text = str(self.signature).partition(" -> ")[0]
        if self.exported is not None:
            return f"{Path(self.name).name}{text}"
        return f"{class_name(self.plain)}.forward{text}"


def load_model(model: object, options: Mapping[str, Any]) -> LoadedModel:
    """Load a model and adapt it to the options; the given model is not changed."""
    name = str(model) if isinstance(model, str | Path) else type(model).__qualname__
    model_object = _load_named(name) if isinstance(model, str | Path) else model
    model_types = (nn.Module, ExportedProgram)
    if not isinstance(model_object, model_types) and callable(model_object):
        model_object = call_user_function(model_object, name, "model")
    if not isinstance(model_object, model_types):
        raise InputError(
            f"{name} is a {type(model_object).__qualname__}, not a model",
            cure=f"give {_MODEL_FORMS}",
        )
    dtype = torch_dtype(options["dtype"]) if options["dtype"] else None
    device = resolve_device(options["device"])
    if isinstance(model_object, ExportedProgram):
        loaded = _adapt_program(name, model_object, dtype, device, options)
    else:
        loaded = _adapt_module(name, model_object, dtype, device, options)
    loaded.dtype, loaded.device = dtype, device
    return loaded


def _load_named(name: str) -> Any:
    """Load the model in a file, or the attribute of `file.py:attribute`."""
    path = Path(name)
    if path.suffix not in FILE_SUFFIXES:
        return load_object(name)
    if not path.is_file():
        raise InputError(
            f"no such file: {name!r}",
            cure="check the path",
        )
    kind = _detect_file_kind(path)
    try:
        with silence_torch():
            return torch.export.load(name) if kind == "export" else _load_script(name)
    except Exception as error:
        made_by = "torch.export.save" if kind == "export" else "torch.jit.save"
        raise InputError(
            f"cannot load {path.name}: {one_line(error)}",
            cure=f"write it with {made_by}",
        ) from error


def _detect_file_kind(path: Path) -> str:
    """Detect by its content how a model file was saved: "export" or "script"."""
    member_names: set[str] = set()
    try:
        with zipfile.ZipFile(path) as archive:
            # In a truncated file, zipfile may find an inner archive.
            is_whole = min((m.header_offset for m in archive.infolist()), default=0) == 0
            member_names = {name.partition("/")[2] for name in archive.namelist() if is_whole}
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        pass
    if any(name.startswith("models/") for name in member_names):
        return "export"
    if "constants.pkl" in member_names and any(name.startswith("code/") for name in member_names):
        return "script"
    reason, cure = "it is an unknown archive", "write it with torch.export.save or torch.jit.save"
    if any(name.startswith("data/aotinductor/") for name in member_names):
        reason, cure = (
            "it is a package of AOTInductor",
            "give the program from which it was compiled",
        )
    elif "data.pkl" in member_names:
        reason = "it is a file of torch.save, with weights or a pickled module"
        cure = "give the code that makes the model: file.py:attribute"
    elif not member_names:
        reason = "it is not a ZIP file, or a damaged one"
    raise InputError(
        f"{path.name} is neither an exported program nor TorchScript: {reason}",
        cure=cure,
    )


def _adapt_module(
    name: str,
    model: nn.Module,
    dtype: torch.dtype | None,
    device: torch.device,
    options: Mapping[str, Any],
) -> LoadedModel:
    is_script = isinstance(model, ScriptModule)
    if is_script and options["capture"] == "export":
        raise InputError(
            "TorchScript cannot be captured with capture=export",
            cure="use capture=auto or capture=dispatch",
        )
    tensors = [*model.parameters(), *model.buffers()]
    must_move = any(t.device != device for t in tensors)
    must_cast = dtype is not None and any(
        t.is_floating_point() and t.dtype != dtype for t in tensors
    )
    if must_move or must_cast:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = copy.deepcopy(model).to(device=device, dtype=dtype)
        except Exception as error:
            raise CaptureError(
                f"cannot copy {name} to {options['dtype'] or device}, because it raised"
                f" {one_line(error)}",
                cure="leave the options dtype and device out",
            ) from error
    if not is_script:
        return LoadedModel(
            name=name, plain=model, module=model, signature=inspect.signature(model.forward)
        )
    archive = io.BytesIO()
    try:
        torch.jit.save(model, archive)
        archive.seek(0)
        # The interpreter knows source lines only of a loaded archive, so that one is captured.
        reloaded = _load_script(archive, device)
        archive.seek(0)
        script_source = ScriptSource(archive)
    except Exception as error:
        raise CaptureError(
            f"torch.jit cannot save and load {name}, because it raised {one_line(error)}",
            cure="give the code that makes the model: file.py:attribute",
        ) from error
    return LoadedModel(
        name=name,
        plain=model,
        module=reloaded,
        signature=_script_signature(model),
        script=script_source,
    )


def _load_script(file: str | io.BytesIO, device: torch.device | None = None) -> nn.Module:
    script: nn.Module = torch.jit.load(file, map_location=device)  # type: ignore[no-untyped-call]
    return script


def _script_signature(model: nn.Module) -> inspect.Signature:
    """The inputs in the schema of the script; its first argument is the module itself."""
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


def _adapt_program(
    name: str,
    program: ExportedProgram,
    dtype: torch.dtype | None,
    device: torch.device,
    options: Mapping[str, Any],
) -> LoadedModel:
    """Adapt an exported program, whose dtypes, mode and ops are fixed."""
    for option, fixed in (("capture", "dispatch"), ("mode", "train")):
        if options[option] == fixed:
            raise InputError(
                f"an exported program does not support {option}={fixed}",
                cure=f"remove {option}",
            )
    floats = {t.dtype for t in program.state_dict.values() if t.is_floating_point()}
    if dtype is not None and floats and dtype not in floats:
        raise InputError(
            f"{Path(name).name} is an exported program in"
            f" {' and '.join(sorted(dtype_name(d) for d in floats))}, not in"
            f" {options['dtype']}",
            cure=f"export the model in {options['dtype']}",
        )
    with silence_torch():
        if any(t.device != device for t in program.state_dict.values()):
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, device)
        module = program.module()
    return LoadedModel(
        name=name,
        plain=module,
        module=module,
        signature=_program_signature(program),
        exported=program,
    )


def _program_signature(program: ExportedProgram) -> inspect.Signature:
    """The signature of the exported forward; inputs without a name are named by position."""
    args, kwargs = program.call_spec.in_spec.children()
    signature = program.module_call_graph[0].signature
    argument_names = list(getattr(signature, "forward_arg_names", None) or ())
    positional = [
        argument_names[i]
        if i < len(argument_names) and argument_names[i].isidentifier()
        else f"input_{i}"
        for i in range(args.num_children)
    ]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in positional
    ]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in kwargs.context
    ]
    return inspect.Signature(parameters)


def resolve_device(name: str) -> torch.device:
    """The torch device called `name`, with its index where it has one."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(
            f"torch cannot use the device {name!r}: {one_line(error)}",
            cure="choose a device such as cpu or cuda:0",
        ) from None
    return torch.empty(0, device=device).device
