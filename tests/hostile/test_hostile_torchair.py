"""Dumps of TorchAir that somebody broke, on purpose or not: each has its line and nothing ends."""

from __future__ import annotations

import os

import numpy as np
import pytest

from helpers.torchair_dumps import Dumps, lines, numbers
from syncpoint.errors import SyncpointError


@pytest.fixture
def dumps(tmp_path):
    made = Dumps(tmp_path)
    x = numbers(4, 8)
    made.device("Relu", "Relu_1", [x], [x])
    made.node("relu-aten.relu.default", [x], [x])
    made.op("Relu_1", "Relu", [], ["relu-aten.relu.default.OUTPUT.0"])
    made.write_graph()
    return made


@pytest.mark.parametrize("text", ["", "op {", "\0" * 100, "op { " * 5000, '"' * 999, "a" * 10**6])
def test_a_broken_graph_is_told_in_one_line(text, dumps):
    (dumps.root / "ge" / "dynamo_original_graph_1.txt").write_text(text)
    with pytest.raises(SyncpointError) as error:
        dumps.compare()
    assert "dynamo_original_graph_1.txt" in str(error.value) and "\n" not in str(error.value)


def test_links_out_of_the_dump_are_not_followed(dumps, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    np.save(outside / "secret.npy", numbers(4, 8))
    file = next((dumps.root / "fx").rglob("*OUTPUT*"))
    file.unlink()
    file.symlink_to(outside / "secret.npy")
    (dumps.root / "fx" / "loop").symlink_to(dumps.root)
    found = lines(dumps.compare()[0].report)
    assert "leads out" in found["Relu_1.output.0"]["Err_message"]


def test_a_pipe_in_the_dump_does_not_block(dumps):
    file = next((dumps.root / "fx").rglob("*OUTPUT*"))
    file.unlink()
    os.mkfifo(file)
    found = lines(dumps.compare()[0].report)
    assert found["Relu_1.output.0"]["Result"] == "FAIL"


def test_a_pickle_is_never_loaded(dumps):
    file = next((dumps.root / "fx").rglob("*OUTPUT*"))
    np.save(file, np.array([print, None]), allow_pickle=True)
    found = lines(dumps.compare()[0].report)
    assert "pickled" in found["Relu_1.output.0"]["Err_message"]


@pytest.mark.parametrize(
    "arrays",
    [
        {"inputs": np.zeros((1, 2))},
        {"inputs": np.zeros((1, 3)), "outputs": np.zeros((1, 2))},
        {"inputs": np.zeros((0,)), "outputs": np.zeros((2, 2, 2))},
        {"inputs": np.zeros((0,)), "outputs": np.array([["a", "b"]])},
        {"inputs": np.zeros((0,)), "outputs": np.array([[None, None]])},
    ],
)
def test_reduced_files_of_another_structure_are_damage_of_their_op(arrays, dumps):
    folder = dumps.root / "ge/20240101010101/0/graph_1/1/0"
    path = folder / "Relu.Relu_2.1.2.1700000000009000_min_max.npz"
    np.savez(path, **arrays)
    outcome = dumps.compare()[0]
    assert lines(outcome.report)["Relu_2"]["Result"] == "FAIL"
    assert outcome.exit_code() == 1


def test_a_reduced_file_that_is_no_archive_is_damage_of_its_op(dumps):
    folder = dumps.root / "ge/20240101010101/0/graph_1/1/0"
    (folder / "Relu.Relu_2.1.2.1700000000009000_min_max.npz").write_bytes(b"PK\3\4" + bytes(99))
    found = lines(dumps.compare()[0].report)
    assert "cannot be used" in found["Relu_2"]["Err_message"]
    assert found["Relu_1.output.0"]["Verdict"] == "close"


def test_folders_without_end_are_refused(dumps):
    (dumps.root / "fx" / "/".join("d" * 20)).mkdir(parents=True)
    with pytest.raises(SyncpointError, match="folders inside each other"):
        dumps.compare()


def test_names_that_are_no_text_are_passed_over(dumps):
    folder = next((dumps.root / "fx").rglob("gm_1"))
    name = b"relu-aten.relu.default.OUTPUT.1.1700000000009000\xff\n.npy"
    (folder / os.fsdecode(name)).write_bytes(b"x")
    assert lines(dumps.compare()[0].report)["Relu_1.output.0"]["Verdict"] == "close"
