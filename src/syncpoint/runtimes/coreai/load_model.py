"""Load a Core AI asset from its folder (checked by its hash); choose the function to run and the
compute unit."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import coreai.runtime as rt
from coreai.authoring import AIModelAsset

from syncpoint.errors import InputError, Unsupported
from syncpoint.runtimes.exception_text import one_line


def load_asset(path: Path) -> AIModelAsset:
    """Load the asset in the folder `path`; a damaged asset is refused first."""
    if not path.is_dir():
        raise InputError(f"no such folder: {path}", cure="pass the path of an .aimodel folder")
    # Core AI ends the process when it loads a damaged asset.
    if not AIModelAsset.is_valid(path):
        raise InputError(
            f"{path} is not a Core AI asset: its program or its metadata is missing or damaged",
            cure="copy it again, or convert the model again",
        )
    code, digest = path / "main.mlirb", path / "main.hash"
    if code.is_file() and digest.is_file():
        with code.open("rb") as file:
            code_digest = hashlib.file_digest(file, "sha256").digest()
        if code_digest != digest.read_bytes():
            raise InputError(
                f"{code} is damaged: its contents do not match the hash in {digest.name}",
                cure="copy it again from the original",
            )
    try:
        return AIModelAsset.load(path)
    except Exception as error:
        raise InputError(
            f"Core AI cannot load {path}: {one_line(error)}",
            cure=f"convert the model again with the installed coreai-core {version('coreai-core')},"
            " or upgrade coreai-core to the version that wrote the model",
        ) from error


def choose_function(requested: str, names: Sequence[str], path: Path) -> str:
    """Return the function to run: the requested one, `main`, or the only one."""
    functions = sorted(names)
    if requested:
        if requested in functions:
            return requested
        raise InputError(
            f"{path.name} has no function {requested!r}",
            cure=f"set function to one of: {', '.join(functions)}",
        )
    if len(functions) == 1:
        return functions[0]
    if "main" in functions:
        return "main"
    raise InputError(
        f"{path.name} has {len(functions)} functions, and none is called main",
        cure=f"set function to one of: {', '.join(functions)}",
    )


def private_attribute(owner: Any, name: str) -> Any:
    """Return an attribute of coreai-core that is not public; Unsupported if it is missing."""
    if not hasattr(owner, name):
        raise Unsupported(
            f"version {version('coreai-core')} of coreai-core has no {name}",
            cure="install coreai-core==1.0.0b3",
        )
    return getattr(owner, name)


def specialize(compute_unit: str) -> Any:
    """Return the options that compile for a compute unit; None lets the runtime choose."""
    if not compute_unit:
        return None
    options = rt.SpecializationOptions
    if not options.is_supported():
        raise InputError(
            f"the Core AI runtime on {platform.system()} cannot choose compute units, so"
            f" compute_units={compute_unit} is not possible",
            cure="use macOS with USE_OS_COREAI=1, or leave out compute_units",
        )
    if compute_unit == "cpu":
        return options.cpu_only()
    return options.from_preferred_compute_unit_kind(getattr(rt.ComputeUnitKind, compute_unit)())
