"""Processes that write one path at the same time: the result is that of one of them, whole.

`SYNCPOINT_KILLS=200` has ten races of each kind instead of one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import syncpoint as sp
from helpers.interrupted_commands import Forks
from syncpoint.comparison.storage.comparison_folder import load

ROUNDS = max(1, int(os.environ.get("SYNCPOINT_KILLS", "0")) // 20)
PAUSE = 0.001
"""Before each operation on the disk, so that the writers take turns."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


class Race:
    """Three dumps of different values and sizes, and a process to run commands on them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for number in range(3):
            arrays = {f"op{i}": np.full(200 + 300 * number, number, np.float32) for i in range(3)}
            np.savez(root / f"{number}.npz", **arrays)
        for number in (1, 2):
            sp.compare(root / f"{number}.npz", root / f"{number}.npz", out=root / f"{number}.cmp")
        self.forks = Forks()

    def run(self, folder: Path, *commands: tuple[str, ...]) -> list[int]:
        """The exit codes of commands that run in `folder` at the same time."""
        orders = [
            {"arguments": c, "folder": str(folder), "log": f".{i}", "pause": PAUSE}
            for i, c in enumerate(commands)
        ]
        statuses = self.forks.race(orders)
        assert all(os.WIFEXITED(status) for status in statuses)
        return [os.WEXITSTATUS(status) for status in statuses]


@pytest.fixture(scope="module")
def race(tmp_path_factory):
    made = Race(tmp_path_factory.mktemp("race"))
    yield made
    made.forks.close()


def folders(race, name):
    for number in range(ROUNDS):
        folder = race.root / f"{name}{number}"
        folder.mkdir()
        yield folder


def errors(folder, number):
    return Path(f"{folder}.{number}.stderr").read_text()


@pytest.mark.parametrize("format", ["npz", "safetensors", "npy", "aimodelintermediates", "run"])
def test_of_conversions_into_one_path_one_wins_and_the_others_say_so(race, format):
    for folder in folders(race, format):
        out = f"out.{format}"
        codes = race.run(
            folder, *(("convert", f"../{n}.npz", out, "--to", format) for n in range(2))
        )
        assert sorted(codes) == [0, 2]
        assert [p.name for p in folder.iterdir()] == [out]
        winner = codes.index(0)
        run = sp.open_run(folder / out)
        assert len(run.tensors) == 3
        for tensor in run.tensors:
            values = run.values(tensor)
            assert values.shape == (200 + 300 * winner,) and (values == winner).all()
        for loser in {0, 1} - {winner}:
            assert errors(folder, loser).count("\n") == 1 and "exists" in errors(folder, loser)


@pytest.mark.parametrize("flag", ["--csv", "--json"])
def test_of_reports_into_one_path_the_last_stays(race, flag):
    whole = {}
    for number in (1, 2):
        folder = race.root / f"one{flag}{number}"
        folder.mkdir()
        assert race.run(folder, ("report", f"../{number}.cmp", flag, "out", "-q")) == [0]
        whole[number] = (folder / "out").read_bytes()
    for folder in folders(race, f"report{flag}"):
        codes = race.run(folder, *(("report", f"../{n}.cmp", flag, "out", "-q") for n in (1, 2)))
        assert codes == [0, 0]
        assert [p.name for p in folder.iterdir()] == ["out"]
        assert (folder / "out").read_bytes() in whole.values()


def test_a_comparison_that_two_replace_is_never_of_both(race):
    for folder in folders(race, "replaced"):
        codes = race.run(folder, *(("overwrite", f"../{n}.cmp", "out.cmp") for n in (1, 2)))
        assert codes == [0, 0]
        assert sorted(p.name for p in (folder / "out.cmp").iterdir()) == [
            "comparison.json",
            "syncpoints.parquet",
        ]
        about = json.loads((folder / "out.cmp" / "comparison.json").read_text())
        table = pl.read_parquet(folder / "out.cmp" / "syncpoints.parquet")
        number = int(Path(about["target"]["path"]).stem)
        assert table["target_shape"].to_list() == [[200 + 300 * number]] * 3
        assert len(load(folder / "out.cmp").rows) == 3


def test_of_comparisons_into_one_folder_one_is_made(race):
    for folder in folders(race, "compared"):
        codes = race.run(
            folder,
            *(("compare", f"../{n}.npz", f"../{n}.npz", "-o", "out.cmp", "-q") for n in (1, 2)),
        )
        assert sorted(codes) == [0, 2]
        shapes = {row.target.shape for row in load(folder / "out.cmp").rows}
        assert shapes == {(200 + 300 * (1 + codes.index(0)),)}
        assert errors(folder, codes.index(2)).count("\n") == 1
