"""Dumps of msProbe compared: the disturbed weight is found in every task, and nothing else is."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import syncpoint as sp
from helpers.commands import syncpoint
from helpers.msprobe_dumps import REAL, TASKS, edited, figures, real, tensor, write
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Role

GUILTY = "Functional.linear.1.forward"


def first(comparison: sp.Comparison) -> list[str]:
    return [row.target.key.op.op for row in comparison.first_divergence]


@pytest.mark.parametrize("task", TASKS)
def test_the_clean_pair_is_close(task, tmp_path):
    shutil.copytree(real(f"{task}_reference"), tmp_path / "again")
    found = sp.compare(tmp_path / "again", REAL / f"{task}_reference")
    assert found.verdict is Verdict.CLOSE
    assert (found.coverage.target, found.coverage.reference) == (1.0, 1.0)
    assert {row.verdict for row in found.rows} == {Verdict.CLOSE}
    assert found.exit_code() == 0


def differing() -> set[str]:
    """The rows whose bytes differ, by the tool's own sums."""
    with (REAL / "expected_md5.csv").open(newline="") as file:
        return {r["NPU Name"] for r in csv.DictReader(file) if r["NPU MD5"] != r["BENCH MD5"]}


def names(rows: list[Any]) -> set[str]:
    """The rows by the tool's names."""
    said = set()
    for row in rows:
        op, role, index = row.target.key.op.op, row.target.key.role, row.target.key.index
        if role is Role.PARAMETER:
            module, _, parameter = op.rpartition(".")
            kind = "LayerNorm" if module.endswith("ln") else "Linear"
            said.add(f"Module.{module}.{kind}.forward.0.parameters.{parameter}")
        elif "parameters_grad" in op:
            order = ("weight", "bias") if "LayerNorm" in op else ("bias", "weight")
            said.add(f"{op}.{order[index]}")
        else:
            said.add(f"{op}.{role}.{index}")
    return said


@pytest.mark.parametrize("task", TASKS)
def test_a_disturbed_weight_is_found_with_all_that_it_damaged(task):
    found = sp.compare(REAL / f"{task}_target", REAL / f"{task}_reference")
    large = [row for row in found.rows if row.verdict is Verdict.LARGE]
    assert names(large) == differing()
    assert len(large) == 71
    assert {row.basis for row in found.rows} == {
        {"tensor": "values", "statistics": "statistics", "md5": "digest"}[task]
    }
    assert first(found) == [GUILTY]
    assert found.first_divergence[0].target.module == "blks.1.fc"
    assert found.first_divergence[0].target.source == "gen/make_pytorch_dump.py:19"
    assert {row.evidence for row in found.rows} == {
        "module path and type",
        "parameter of the same name",
    }
    assert found.exit_code() == 1


def test_each_task_says_what_it_can_tell():
    reasons = {}
    for task in TASKS:
        found = sp.compare(REAL / f"{task}_target", REAL / f"{task}_reference")
        reasons[task] = {row.reason for row in found.rows if row.verdict is Verdict.CLOSE}
    assert reasons["tensor"] == {""}
    assert reasons["statistics"] == {"statistics agree, which does not prove equality"}
    assert reasons["md5"] == {"same bytes"}


SAID = {
    "tensor": ("16.1", "max absolute error 0.53 at", "blks.1.fc.weight (14.2 dB)", ""),
    "statistics": (
        "≤29.6", "psnr is at most 29.6 dB", "blks.1.fc.weight (at most 26.8 dB)",
        "; 112 by statistics, which can prove a difference, but not equality",
    ),
    "md5": (
        "differ", "bytes differ; a digest cannot tell by how much",
        "blks.1.fc.weight (different bytes)",
        "; 112 by digest, which shows only whether bytes are equal",
    ),
}  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_the_terminal_and_the_reports_lead_with_the_layer_and_say_what_they_rest_on(task, tmp_path):
    score, words, weight, caveat = SAID[task]
    found = syncpoint(
        "compare", *(real(f"{task}_{side}") for side in ("target", "reference")),
        "--rows", 0, "--csv", "rows.csv", "--json", "rows.json", cwd=tmp_path, code=1,
    )  # fmt: skip
    lines = found.stdout.splitlines()
    assert sum(line.startswith("■ large  ") for line in lines) == 71
    first = next(line for line in lines if line.startswith("■ large  "))
    basis = {"tensor": [], "statistics": ["statistics"], "md5": ["digest"]}[task]
    assert first.split()[2 : 4 + len(basis)] == [GUILTY, *basis, score]
    at = next(at for at, line in enumerate(lines) if line.startswith(f"■ large: {GUILTY} "))
    told = "\n".join(lines[at + 1 : at + 6])
    assert words in told and f"its parameters differ: {weight}" in told
    headline = next(line for line in lines if "target tensors" in line)
    assert headline.endswith(f"preset auto (assumed f32){caveat}")
    body = json.loads((tmp_path / "rows.json").read_text())
    with (tmp_path / "rows.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    for reasons in (
        {row["reason"] or "" for row in body["sync_points"] if row["verdict"] == "close"},
        {row["reason"] for row in table if row["verdict"] == "close"},
    ):
        assert (
            reasons
            == {
                "tensor": {""},
                "statistics": {"statistics agree, which does not prove equality"},
                "md5": {"same bytes"},
            }[task]
        )


@pytest.mark.parametrize(
    ("target", "reference", "basis"),
    [
        ("tensor", "md5", "digest"),
        ("md5", "tensor", "digest"),
        ("tensor", "statistics", "statistics"),
        ("md5", "statistics", "statistics"),
    ],
)
def test_dumps_of_unlike_tasks_are_compared_by_what_both_have(target, reference, basis):
    clean = sp.compare(REAL / f"{target}_reference", REAL / f"{reference}_reference")
    assert {row.verdict for row in clean.rows} == {Verdict.CLOSE}
    found = sp.compare(REAL / f"{target}_target", REAL / f"{reference}_reference")
    assert {row.basis for row in found.rows} == {basis}
    large = [row for row in found.rows if row.verdict is Verdict.LARGE]
    assert names(large) == differing()
    assert first(found) == [GUILTY]


def functions(data: dict[str, Any]) -> dict[str, Any]:
    return {name: body for name, body in data.items() if not name.startswith("Module")}


def modules(data: dict[str, Any]) -> dict[str, Any]:
    return {name: body for name, body in data.items() if name.startswith("Module")}


@pytest.mark.parametrize("task", TASKS)
def test_levels_with_functions_or_modules_alone(task, tmp_path):
    for level, kept, guilty in (
        ("L1", functions, GUILTY),
        ("L0", modules, "Module.blks.1.fc.Linear.forward.0"),
    ):
        mine, theirs = (
            edited(f"{task}_{side}", tmp_path / level / side, kept, construct=level == "L0")
            for side in ("target", "reference")
        )
        found = sp.compare(mine, theirs)
        assert all(row.target.key == row.reference.key for row in found.rows)
        assert found.coverage.target == 1.0
        assert first(found) == [guilty]
    found = sp.compare(tmp_path / "L1" / "target", REAL / f"{task}_reference")
    assert all(row.target.key == row.reference.key for row in found.rows)
    assert found.coverage.target == 1.0
    assert first(found) == [GUILTY]


@pytest.mark.parametrize("construct", [True, False])
def test_a_call_that_one_side_lacks_does_not_shift_the_others(construct, tmp_path):
    """Numbers count calls: without the first gelu the second is called gelu.0."""

    def without_first(data: dict[str, Any]) -> dict[str, Any]:
        kept = data if construct else functions(data)
        left = {n: body for n, body in kept.items() if not n.startswith("Functional.gelu.0.")}
        return {name.replace("gelu.1", "gelu.0"): body for name, body in left.items()}

    mine = edited("tensor_reference", tmp_path / "t", without_first, construct)
    if construct:
        path = mine / "construct.json"
        parents = json.loads(path.read_text())
        left = {n: p for n, p in parents.items() if not n.startswith("Functional.gelu.0.")}
        path.write_text(json.dumps({n.replace("gelu.1", "gelu.0"): p for n, p in left.items()}))
        theirs = real("tensor_reference")
    else:
        theirs = edited("tensor_reference", tmp_path / "r", functions, construct)
    found = sp.compare(mine, theirs)
    shifted = [r for r in found.rows if "gelu" in r.target.key.op.op]
    assert {r.reference.key.op.op for r in shifted} == {
        "Functional.gelu.1.forward",
        "Functional.gelu.1.backward",
    }
    assert {row.verdict for row in found.rows} == {Verdict.CLOSE}


def test_steps_are_compared_with_their_own(tmp_path):
    for side in ("target", "reference"):
        shutil.copytree(real("statistics_reference"), tmp_path / side / "step0" / "proc3")
        shutil.copytree(real(f"statistics_{side}"), tmp_path / side / "step1" / "proc3")
    found = sp.compare(tmp_path / "target", tmp_path / "reference")
    large = [row.target.key.part.step for row in found.rows if row.verdict is Verdict.LARGE]
    assert len(large) == 71
    assert set(large) == {1}


def test_damaged_and_unreadable_files_are_no_pass(tmp_path):
    shutil.copytree(real("tensor_reference"), tmp_path / "d")
    values = tmp_path / "d" / "dump_tensor_data"
    (values / "Functional.gelu.0.forward.output.0.pt").write_bytes(b"PK\x03\x04")
    (values / "Functional.gelu.1.forward.output.0.pt").unlink()
    path = values / "Functional.gelu.1.forward.input.0.pt"
    data = bytearray(path.read_bytes())
    at = data.index(b"data/0") + 200
    data[at : at + 64] = bytes(b ^ 0x41 for b in data[at : at + 64])
    path.write_bytes(data)
    found = sp.compare(tmp_path / "d", real("tensor_reference"))
    bad = {
        str(row.target.key): row.reason for row in found.rows if row.verdict is not Verdict.CLOSE
    }
    assert len(bad) == 3
    damaged = bad.pop("Functional.gelu.1.forward!input")
    assert damaged.startswith("damaged: ") and "checksum mismatch" in damaged
    assert all(reason.startswith("unreadable: ") for reason in bad.values())
    assert found.exit_code() == 1


def test_statistics_that_are_not_finite(tmp_path):
    odd = {
        "fine": (figures(1.0, -1.0, 0.1, 2.0),) * 2,
        "broken": (figures(float("nan"), float("nan"), float("nan")), figures(1.0, 0.0, 0.5, 1.0)),
        "both": (figures(float("inf"), 0.0, float("inf")),) * 2,
    }
    for side in (0, 1):
        data = {
            f"Torch.{name}.0.forward": {"input_args": [], "output": [tensor([4], **said[side])]}
            for name, said in odd.items()
        }
        write(tmp_path / str(side), data)
    found = {row.target.type: row for row in sp.compare(tmp_path / "0", tmp_path / "1").rows}
    assert found["fine"].verdict is Verdict.CLOSE
    assert found["broken"].verdict is Verdict.LARGE
    assert found["both"].verdict is Verdict.NONE
    assert "non-finite values" in found["both"].reason


def test_a_model_in_eager_mode_is_compared_with_a_dump_of_it(tmp_path):
    """Types and modules are those of other runs of torch, so that names need not agree."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(8, 8)

        def forward(self, x):
            return torch.relu(self.fc(x))

    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(2, 8)
    entries, values = {}, tmp_path / "d" / "dump_tensor_data"
    values.mkdir(parents=True)
    hidden = net.fc(x)
    for name, given, made in (
        ("Functional.linear.0.forward", x, hidden),
        ("Torch.relu.0.forward", hidden, torch.relu(hidden)),
    ):
        files = {}
        for kind, value in (("input", given), ("output", made)):
            files[kind] = f"{name}.{kind}.0.pt"
            torch.save(value.detach().clone(), values / files[kind])
        entries[name] = {
            "input_args": [tensor([2, 8], data_name=files["input"])],
            "output": [tensor([2, 8], data_name=files["output"])],
        }
    parents = {"Functional.linear.0.forward": "Module.fc.Linear.forward.0"}
    write(tmp_path / "d", entries, "tensor", construct=parents)
    found = sp.compare(tmp_path / "d", sp.capture(net, (x,)))
    paired = {row.target.key.op.op: row for row in found.rows if row.target.key.role is Role.OUTPUT}
    assert set(paired) == set(entries)
    assert {row.verdict for row in paired.values()} == {Verdict.CLOSE}
    np.testing.assert_equal(
        [r.reference.type.split(".")[1] for r in paired.values()], ["linear", "relu"]
    )


def test_the_command_writes_the_table_of_the_tool_too(tmp_path):
    command = [sys.executable, "-c", "from syncpoint.cli import main; main()", "compare"]
    paths = [str(real(f"tensor_{side}") / "dump.json") for side in ("target", "reference")]
    table = tmp_path / "msprobe.csv"
    done = subprocess.run(
        [*command, *paths, "--msprobe-csv", str(table), "--msprobe-xlsx", f"{table}.xlsx"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert GUILTY in done.stdout
    assert len(table.read_text().splitlines()) > 119
    assert Path(f"{table}.xlsx").read_bytes().startswith(b"PK")
    assert not list(tmp_path.glob("*.tmp"))
    np.savez(tmp_path / "x.npz", a=np.ones(3))
    done = subprocess.run(
        [*command, paths[0], str(tmp_path / "x.npz"), "--msprobe-csv", str(tmp_path / "y.csv")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "needs two msProbe dumps" in done.stderr
    assert not Path(tmp_path / "y.csv").exists()


def test_what_was_handed_something_off_is_not_where_runs_part(tmp_path):
    """b is given what a made, through a reshape that nobody hooked; c has an input of its own."""

    def said(shape: list[int], scale: float) -> dict[str, Any]:
        return tensor(shape, **figures(2.0 * scale, -1.0, 0.3 * scale, 5.0 * scale))

    for side, off in (("target", 1.5), ("reference", 1.0)):
        data = {
            "Torch.a.0.forward": ([4, 4], 1.0, [4, 4], 1.1 * off),
            "Torch.b.0.forward": ([16], 1.1 * off, [16], 1.2 * off),
            "Torch.c.0.forward": ([8], 1.0, [8], 1.3 * off),
            "Torch.d.0.forward": ([8], 1.3 * off, [2], 1.4 * off),
        }
        entries = {
            name: {"input_args": [said(*given)], "output": [said(*made)]}
            for name, (*given, shape, scale) in data.items()
            for made in [(shape, scale)]
        }
        write(tmp_path / side, entries)
    found = sp.compare(tmp_path / "target", tmp_path / "reference")
    assert sum(row.verdict is Verdict.LARGE for row in found.rows) == 6
    assert first(found) == ["Torch.a.0.forward", "Torch.c.0.forward"]
