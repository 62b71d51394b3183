"""Pairs of dumps and their rule file, built line by line, for the tests of the offline mode."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

import syncpoint as sp
from helpers.device_dump_files import chunk, dump, number, output, shape
from syncpoint.ascend.mode.outcome import Outcome
from syncpoint.cli.app import app
from syncpoint.errors import SyncpointError

TYPES = {"float32": 1, "float16": 2, "int8": 3, "int32": 7, "int64": 8}


@dataclass
class Case:
    """Two folders and a rule file that grow line by line."""

    root: Path
    rules: list[dict[str, Any]] = field(default_factory=list)
    at: int = 1700000000000000

    def device(
        self,
        type: str,
        name: str,
        outputs: list[np.ndarray],
        inputs: list[np.ndarray] = (),
        *,
        folder: str = "npu",
        addresses: tuple[int, ...] = (),
        said: str = "",
    ) -> Path:
        """A dump file; `said` is the name in its header."""
        self.at += 1000
        messages = []
        for array in inputs:
            body = number(1, TYPES[str(array.dtype)]) + number(2, 2) + shape(3, array.shape)
            messages.append(chunk(4, body + number(5, array.nbytes) + shape(6, array.shape)))
        for place, array in enumerate(outputs):
            address = addresses[place] if place < len(addresses) else 0
            code = TYPES[str(array.dtype)]
            messages.append(output(array.shape, array.nbytes, code, address=address))
        path = self.root / folder / f"{type}.{escaped(name)}.1.2.{self.at}"
        path.parent.mkdir(exist_ok=True)
        data = b"".join(a.tobytes() for a in (*inputs, *outputs))
        path.write_bytes(dump(*messages, data=data, name=said))
        return path

    def golden(self, name: str, array: np.ndarray, index: int = 0, folder: str = "golden") -> None:
        self.at += 1000
        path = self.root / folder / f"{escaped(name)}.{index}.{self.at}.npy"
        path.parent.mkdir(exist_ok=True)
        np.save(path, array)

    def rule(
        self,
        name: str,
        type: str = "Relu",
        inputs: list[str] = (),
        origins: list[str | None] = ("",),
        originals: list[str] | None = None,
    ) -> None:
        """An op of the rule file; an origin of "" is its own name, None says nothing."""
        self.rules.append(
            {
                "name": name,
                "type": type,
                "id": len(self.rules),
                "input": list(inputs),
                "output_desc": [desc(name if o == "" else o, 0) for o in origins],
                "attr": []
                if originals is None
                else [{"key": "_datadump_original_op_names", "value": {"list": {"s": originals}}}],
            }
        )

    def write_rules(self, name: str = "rules.json") -> Path:
        path = self.root / name
        path.write_text(json.dumps({"graph": [{"name": "net", "op": self.rules}]}))
        return path

    def compare(self, **more: Any) -> Outcome:
        options = {"fusion_rule": self.write_rules(), "out": self.root / "out", **more}
        return sp.compare_offline(self.root / "npu", self.root / "golden", **options)[0]

    def lines(self, **more: Any) -> dict[str, dict[str, str]]:
        """Lines of the report by TensorIndex, or by the op where there is none."""
        return table(self.compare(**more).report)


def table(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    found = [dict(zip(header, row, strict=True)) for row in rows]
    return {r["NPUDump"] if r["TensorIndex"] == "NaN" else r["TensorIndex"]: r for r in found}


def desc(origin: str | None, index: int) -> dict[str, Any]:
    attr = [{"key": "_datadump_origin_output_index", "value": {"i": index}}]
    attr.append({"key": "_datadump_origin_format", "value": {"s": "ND"}})
    if origin is not None:
        attr.append({"key": "_datadump_origin_name", "value": {"s": origin}})
    return {"dtype": "DT_FLOAT", "attr": attr}


def escaped(name: str) -> str:
    return name.replace("/", "_").replace(".", "_").replace(" ", "_")


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    error = result.exception
    if isinstance(error, SyncpointError):
        return error.exit_code, str(error)
    return result.exit_code, result.output
