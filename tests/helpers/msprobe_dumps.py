"""Small dumps as msProbe's PrecisionDebugger writes them, and the ones that it did write."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import copytree
from typing import Any

from helpers.paths import ASCEND_DATA

REAL = ASCEND_DATA / "pytorch_dump"
"""Made with msProbe 26.2.0: one small net, clean and with one weight disturbed."""
TASKS = ("tensor", "statistics", "md5")
"""What msProbe can keep of a tensor; there is a pair of dumps of each."""


def real(name: str) -> Path:
    """One of the dumps, such as `tensor_target`: the folder with dump.json."""
    return REAL / name / "step0" / "proc0"


def tensor(shape: list[int], dtype: str = "float32", **said: Any) -> dict[str, Any]:
    """A tensor as dump.json has it."""
    body = {"type": "torch.Tensor", "dtype": f"torch.{dtype}", "shape": shape}
    return {**body, "requires_grad": False, **said}


def figures(high: Any, low: Any, mean: Any = None, norm: Any = None) -> dict[str, Any]:
    """The four figures of a tensor."""
    return {"Max": high, "Min": low, "Mean": mean, "Norm": norm}


def write(folder: Path, data: Mapping[str, Any], task: str = "statistics", **more: Any) -> Path:
    """A dump with these entries; `construct` and `stack` in `more` are the files beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("construct", "stack"):
        if name in more:
            (folder / f"{name}.json").write_text(json.dumps(more.pop(name)))
    body = {"task": task, "level": "mix", "framework": "pytorch", "dump_data_dir": None}
    (folder / "dump.json").write_text(json.dumps({**body, **more, "data": data}))
    return folder


def edited(
    name: str,
    folder: Path,
    edit: Callable[[dict[str, Any]], dict[str, Any]],
    construct: bool = True,
) -> Path:
    """A copy of a real dump whose entries were changed."""
    copytree(real(name), folder)
    path = folder / "dump.json"
    body = json.loads(path.read_text())
    body["data"] = edit(body["data"])
    path.write_text(json.dumps(body))
    if not construct:
        (folder / "construct.json").unlink()
    return folder
