"""Loads a Core AI asset from its folder, and chooses the function and compute unit to run."""

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
    """Load the asset in the folder `path`; what would end the process is refused before."""
    if not path.is_dir():
        raise InputError("an .aimodel folder", f"no folder {path}")
    # Core AI does not survive a damaged asset: it ends the process.
    if not AIModelAsset.is_valid(path):
        raise InputError(f"{path} as a Core AI asset", "a folder without a program or metadata")
    code, digest = path / "main.mlirb", path / "main.hash"
    if code.is_file() and digest.is_file():
        with code.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").digest()
        if found != digest.read_bytes():
            raise InputError(
                f"{code} as it was written", "other bytes than main.hash says", "copy it again"
            )
    try:
        return AIModelAsset.load(path)
    except Exception as error:
        raise InputError(f"{path} as a Core AI asset", one_line(error)) from error


def choose_function(asked: str, names: Sequence[str], path: Path) -> str:
    """The function to run: the one that is asked for, `main`, or the only one."""
    known = sorted(names)
    if asked:
        if asked in known:
            return asked
        raise InputError(f"a function of {path.name}", repr(asked), f"it has: {', '.join(known)}")
    if len(known) == 1:
        return known[0]
    if "main" in known:
        return "main"
    raise InputError(
        f"one function of {path.name} to be named",
        f"{len(known)} functions",
        f"set function to one of: {', '.join(known)}",
    )


def private_attribute(of: Any, name: str) -> Any:
    """What is not public but needed; a version without it is named at once."""
    if not hasattr(of, name):
        raise Unsupported(
            f"a coreai-core that shows {name}",
            f"version {version('coreai-core')}",
            "install coreai-core==1.0.0b3",
        )
    return getattr(of, name)


def specialize(asked: str) -> Any:
    """How to compile for a compute unit; None for the runtime's own way."""
    if not asked:
        return None
    options = rt.SpecializationOptions
    if not options.is_supported():
        raise InputError(
            "a Core AI runtime with a choice of compute units for compute_units",
            f"{asked} on {platform.system()}",
            "use macOS with USE_OS_COREAI=1, or leave it out",
        )
    if asked == "cpu":
        return options.cpu_only()
    return options.from_preferred_compute_unit_kind(getattr(rt.ComputeUnitKind, asked)())
