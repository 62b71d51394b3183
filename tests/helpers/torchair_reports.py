"""The reports that the tool of TorchAir dumps wrote, and in which of their cells it is wrong."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

import syncpoint as sp
from helpers.paths import ASCEND_DATA
from syncpoint.ascend.mode.outcome import Outcome

REPORTS = {
    "torchair": ("msprobe_ge_dump", "msprobe_fx_dump", "expected_fx.csv"),
    "torchair off": ("msprobe_ge_dump", "msprobe_ge_off", "expected_fusion_off.csv"),
    "torchair_rank": ("msprobe_ge_dump", "msprobe_fx_dump", "expected_fx.csv"),
    "torchair_edge": ("ge", "fx", "expected_fx.csv"),
}

STRING_ORDER = "inputs are sorted as strings: input 10 is compared with argument 2"
FLAT = "(2, 3) against (3, 2) is compared in the order of memory"
LABEL = "the label of the golden tensor is cut or has those of two tensors"

VALUES = {
    *("golden_max_value", "golden_min_value", "golden_mean_value"),
    *("my_max_value", "my_min_value", "my_mean_value"),
    *("cosine_similarity", "max_relative_error", "mean_relative_error", "max_absolute_error"),
    *("mean_absolute_error", "kl_divergence", "relative_euclidean_distance"),
}


def known_cells() -> dict[tuple[str, str], tuple[str, set[str]]]:
    """Cells in which that tool is wrong, by report and tensor, with what is wrong in it."""
    edge = "ge/20240101010101/0/graph_1/1/0/Op"
    found = {}
    for k in range(2, 12):
        label = f"{edge}.many.1.2.1700000000029000,inputs,{k}"
        found["torchair_edge", label] = (STRING_ORDER, {"golden_data_path"})
    label = f"{edge}.shapeflat.1.2.1700000000017000,outputs,0"
    found["torchair_edge", label] = (FLAT, {"cosine_similarity", "cmp_fail_reason"})
    fusion = "AutomaticBufferFusionOp"
    for token, times in enumerate(((2000, 5000, 7000, 10000), (13000, 16000, 18000, 21000))):
        ops = ("MatMulV2.MatMulV2_0", f"{fusion}.Add_1Relu_2", "MatMulV2.MatMulV2_3")
        for op, time in zip((*ops, f"{fusion}.Add_4Relu_5"), times, strict=True):
            folder = f"msprobe_ge_dump/20240101010101/0/graph_1/1/{token}"
            file = f"{folder}/{op}.1.2.{1700000000000000 + time}"
            if not op.startswith(fusion):
                found["torchair off", f"{file},inputs,0"] = (LABEL, {"golden_data_path"})
            found["torchair off", f"{file},outputs,0"] = (LABEL, {"golden_data_path"})
    return found


def compare(name: str, out: Path, monkeypatch: pytest.MonkeyPatch, **more: object) -> Outcome:
    target, golden, _ = REPORTS[name]
    monkeypatch.chdir(ASCEND_DATA / name.split()[0])
    return sp.compare_torchair(target, golden, out=out, **more)[0]


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def alike(column: str, want: str, have: str) -> bool:
    if column not in VALUES or "" in (want, have):
        return want == have
    a, b = float(want), float(have)
    return a == b or math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6)
