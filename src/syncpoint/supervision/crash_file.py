"""Write a file that describes a crash: command, installed versions, event and Python stack."""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

_PACKAGES = ("syncpoint", "numpy", "polars", "torch", "onnx", "onnxruntime", "coreai-core", "typer")


def write_crash_file(event: str, details: str) -> Path | None:
    """Write what happened to a new file in the temporary folder; None if that fails too."""
    lines = [
        f"{time.strftime('%Y-%m-%d %H:%M:%S')}",
        f"command: {sys.argv!r}",
        f"python {platform.python_version()} on {platform.platform()}",
        f"packages: {', '.join(_installed_versions())}",
        "",
        event,
        "",
        details,
    ]
    try:
        handle, name = tempfile.mkstemp(prefix="syncpoint-crash-", suffix=".txt")
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:  # noqa: PTH123
            file.write("\n".join(lines) + "\n")
    except OSError:
        return None
    return Path(name)


def _installed_versions() -> list[str]:
    versions = []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return versions
