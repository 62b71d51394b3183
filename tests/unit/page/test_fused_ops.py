"""Sync points that stand for several ops of the reference: their names and their lines."""

import numpy as np
import pytest

from syncpoint.comparison.engine import compare
from syncpoint.comparison.storage.comparison_folder import save
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.row_details import build_row_detail
from syncpoint.page.source_code import read_source
from syncpoint.run.model import Edge, Frame, Op, OpKey, RunInfo
from syncpoint.run.reader import Run
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter

TEXT = "conv = 1\nnorm = 2\nrelu = 3\nlast = 4\n"


def recorded(path, file, ops):
    """`ops` are (name, line, names in an earlier form, array)."""
    with RunWriter(path, RunInfo(model=path.stem)) as writer:
        writer.source(file)
        recorder = Recorder(writer)
        before = ()
        for name, line, origins, array in ops:
            frames = (Frame(str(file), line, "forward"),)
            key = recorder.op(Op(OpKey(name), name, before, source=frames, origins=origins))
            before = (Edge(key),)
            recorder.tensor(key, array)
    return Run.open(path)


@pytest.fixture
def fused(tmp_path):
    """One target op made of three of the reference, whose source is the same file."""
    rng = np.random.default_rng(0)
    a, b, c, d = rng.standard_normal((4, 3, 5)).astype("f4")
    file = tmp_path / "net.py"
    file.write_text(TEXT)
    reference = [("conv", 1, (), a), ("norm", 2, (), b), ("relu", 3, (), c), ("last", 4, (), d)]
    target = [("relu", 3, ("conv", "norm", "relu"), c), ("last", 4, ("last",), d)]
    sides = [
        recorded(tmp_path / "target.run", file, target),
        recorded(tmp_path / "reference.run", file, reference),
    ]
    return OpenComparison(save(compare(*sides), tmp_path / "fused.cmp")), str(file)


def row(opened, name):
    return opened.table.frame["target_op"].to_list().index(name)


def test_a_fused_op_names_its_pieces_and_their_lines(fused):
    opened, file = fused
    found = build_row_detail(opened, row(opened, "relu"), "psnr").region
    assert [(one.label, one.file, one.line) for one in found] == [
        ("conv", file, 1),
        ("norm", file, 2),
        ("relu", file, 3),
    ]
    assert [one.row for one in found] == [None, None, row(opened, "relu")]
    assert build_row_detail(opened, row(opened, "last"), "psnr").region == []


@pytest.mark.parametrize("side", ["target", "reference"])
def test_all_lines_of_a_fused_op_are_marked(fused, side):
    opened, file = fused
    marks = {mark.line: mark.rows for mark in read_source(opened, side, file).marks}
    made = [row(opened, "relu")]
    assert marks == {1: made, 2: made, 3: made, 4: [row(opened, "last")]}


def test_lines_of_another_file_of_that_name_are_not_taken_for_the_targets(fused):
    opened, file = fused
    copy = next(opened.path.parent.glob("target.run/**/*net.py*"))
    copy.write_text(TEXT.replace("conv", "other"))
    again = OpenComparison(opened.path)
    marks = [mark.line for mark in read_source(again, "target", file).marks]
    assert marks == [3, 4]
    assert [mark.line for mark in read_source(again, "reference", file).marks] == [1, 2, 3, 4]


def test_an_op_whose_origins_name_something_else_is_one_for_one(tmp_path):
    x = np.ones((2, 3), "f4")
    file = tmp_path / "net.py"
    file.write_text(TEXT)
    sides = [
        recorded(tmp_path / "target.run", file, [("a", 1, ("b", "c"), x), ("b", 2, (), x * 2)]),
        recorded(
            tmp_path / "reference.run", file, [("a", 1, (), x), ("b", 2, (), x), ("c", 3, (), x)]
        ),
    ]
    opened = OpenComparison(save(compare(*sides), tmp_path / "other.cmp"))
    for at in range(opened.table.size):
        own = opened.table.frame["reference_op"][at]
        region = build_row_detail(opened, at, "psnr").region
        assert not region or own in [one.label for one in region]
