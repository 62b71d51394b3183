"""Device dumps through the commands that know nothing of devices: inspect, convert, compare."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import syncpoint as sp
from helpers.paths import ASCEND_DATA
from syncpoint.cli import main
from syncpoint.dumps.open_dump import open_dump
from syncpoint.dumps.save_dump import save_dump
from syncpoint.run.model import OpKey, Role


@pytest.fixture
def run(monkeypatch, capsys):
    def run(*arguments: object) -> tuple[int, str]:
        """Exit code and all that was printed."""
        monkeypatch.setattr(sys, "argv", ["syncpoint", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return end.value.code or 0, printed.out + printed.err

    return run


def test_inspect_lists_a_device_dump_and_names_its_damage(run):
    code, text = run("inspect", ASCEND_DATA / "offline_mixed/npu")
    assert code == 0
    assert "ascend" in text
    assert "3 of 47 ops cannot be read completely" in text
    assert "1x2x8x8x16:f16" in text
    assert "multi/dotted.name" in text


def test_inspect_shows_an_op_that_cannot_be_read(run):
    code, text = run("inspect", ASCEND_DATA / "offline_mixed/npu", "corrupt")
    assert code == 0
    assert "is damaged: it is not valid" in text


@pytest.mark.parametrize("folder", ["npu", "golden"])
def test_a_converted_dump_has_the_same_ops_and_values(tmp_path, folder):
    dump = open_dump(ASCEND_DATA / "offline_mixed" / folder)
    save_dump(dump, tmp_path / "x.run", "run")
    copy = sp.open_run(tmp_path / "x.run")
    assert [(o.key, o.type, o.attributes) for o in copy.ops] == [
        (o.key, o.type, o.attributes) for o in dump.ops
    ]
    assert len(copy.tensors) == len(dump.tensors)
    for one, other in zip(copy.tensors, dump.tensors, strict=True):
        assert (one.key, one.layout, one.address) == (other.key, other.layout, other.address)
        np.testing.assert_array_equal(copy.values(one), dump.values(other))


def test_two_device_dumps_are_compared_without_any_flag():
    result = sp.compare(
        ASCEND_DATA / "offline_npu_vs_npu/a", ASCEND_DATA / "offline_npu_vs_npu/b", introduced="off"
    )
    verdicts = {
        (row["target_op"], row["target_role"]): row["verdict"]
        for row in result.table.iter_rows(named=True)
    }
    assert verdicts["add1", Role.OUTPUT] == "close"
    assert verdicts["add1", Role.INPUT] == "close"


def test_a_dump_compared_with_itself_is_close_where_it_can_be_read():
    path = ASCEND_DATA / "offline_quantized/npu"
    result = sp.compare(path, path, introduced="off")
    assert result.verdict == "close"
    assert sp.open_run(path).op(OpKey("conv1")) is not None
