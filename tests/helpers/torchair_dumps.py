"""Dumps of TorchAir made by hand: device files byte by byte, FX arrays, and the graph as text."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import syncpoint as sp
from helpers.device_dump_files import dump, input_, output
from syncpoint.ascend.mode.outcome import Outcome

TYPES = {"float32": 1, "float16": 2, "int8": 3, "int32": 7, "int64": 8, "bool": 11, "float64": 12}


@dataclass
class Dumps:
    """A GE dump and an FX dump that grow op by op."""

    root: Path
    ops: list[str] = field(default_factory=list)
    at: int = 1700000000000000

    def device(
        self,
        type: str,
        name: str,
        outputs: Sequence[np.ndarray],
        inputs: Sequence[np.ndarray] = (),
        token: int = 0,
        folder: str = "ge/20240101010101/0/graph_1/1",
        said: str = "",
    ) -> Path:
        self.at += 1000
        messages = [input_(a.shape, a.nbytes, TYPES[str(a.dtype)]) for a in inputs]
        messages += [output(a.shape, a.nbytes, TYPES[str(a.dtype)]) for a in outputs]
        path = self.root / folder / str(token) / f"{type}.{name}.1.2.{self.at}"
        path.parent.mkdir(parents=True, exist_ok=True)
        data = b"".join(np.ascontiguousarray(a).tobytes() for a in (*inputs, *outputs))
        path.write_bytes(dump(*messages, data=data, name=said))
        return path

    def node(
        self,
        name: str,
        outputs: Sequence[Any],
        inputs: Sequence[Any] = (),
        token: int = 0,
        folder: str | None = None,
    ) -> Path:
        """An FX node; an input that is a list of arrays is saved one by one, as the dumper does."""
        self.at += 1000
        path = self.root / (folder or f"fx/{token + 1}/gm_1")
        path.mkdir(parents=True, exist_ok=True)
        stem = path / name
        for k, value in enumerate(inputs):
            if isinstance(value, list):
                for j, one in enumerate(value):
                    np.save(f"{stem}.INPUT.{k}.{j}.{self.at}.npy", one)
            else:
                np.save(f"{stem}.INPUT.{k}.{self.at}.npy", np.array(value))
        for k, value in enumerate(outputs):
            np.save(f"{stem}.OUTPUT.{k}.{self.at}.npy", value)
        return path

    def op(
        self, name: str, type: str = "Op", inputs: Sequence[str] = (), fx: Sequence[str] = ()
    ) -> None:
        """An op of the graph; `fx` names the tensors that its outputs are."""
        lines = [f'  name: "{name}"', f'  type: "{type}"', *(f'  input: "{i}"' for i in inputs)]
        for said in fx:
            attr = f'attr {{ key: "_fx_tensor_name" value {{ s: "{said}" }} }}'
            lines.append(f"  output_desc {{ {attr if said else ''} }}")
        self.ops.append("\n".join(["op {", *lines, "}"]))

    def write_graph(self, path: str = "ge/dynamo_original_graph_1.txt") -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text("\n".join(self.ops) + "\n")

    def compare(self, golden: str = "fx", **more: Any) -> list[Outcome]:
        if not list((self.root / "ge").glob("dynamo*")):
            self.write_graph()
        options = {"out": self.root / "out", **more}
        return sp.compare_torchair(self.root / "ge", self.root / golden, **options)

    def lines(self, golden: str = "fx", **more: Any) -> dict[str, dict[str, str]]:
        """Lines of the first report by name and, beyond the first, token."""
        return lines(self.compare(golden, **more)[0].report)


def lines(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = {}
    for row in rows:
        token = f"@{row['Token']}" if row["Token"] != "0" else ""
        key = row["API Name"] + token
        assert key not in found, key
        found[key] = row
    return found


def numbers(*dims: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)
