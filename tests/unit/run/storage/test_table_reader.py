"""Records of a run are made when somebody looks, and are a sequence like any other."""

import pytest

from syncpoint.run.model import Edge, Op, OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.storage import table_reader
from syncpoint.run.storage.writer import RunWriter

COUNT = 50


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(table_reader, "_CHUNK_ROWS", 8)
    with RunWriter(tmp_path / "a.run") as writer:
        for i in range(COUNT):
            key = OpKey(f"op{i // 2}", call=i % 2)
            reads = (Edge(OpKey("w"), i, Role.PARAMETER),) if i % 3 else ()
            writer.op(Op(key, "T", reads, attributes={"i": i}))
            writer.tensor(Tensor(TensorKey(key), "u8", (1,)), bytes([i]))
    return Run.open(tmp_path / "a.run")


def test_items_slices_and_iteration_agree(run):
    everything = list(run.ops)
    assert len(run.ops) == len(everything) == COUNT
    assert [op.attributes["i"] for op in everything] == list(range(COUNT))
    assert run.ops[-1] is everything[-1] and run.ops[9] is everything[9]
    assert run.ops[5:20:3] == everything[5:20:3]
    assert list(reversed(run.ops)) == everything[::-1]
    assert everything[7] in run.ops
    for beyond in (COUNT, -COUNT - 1):
        with pytest.raises(IndexError):
            run.ops[beyond]


def test_only_neighbours_of_what_is_asked_for_are_made(run):
    assert run.tensor(TensorKey(OpKey("op12", 1))) is run.tensors[25]
    assert run.op(OpKey("op12", 1)) is run.ops[25]
    assert run.op(OpKey("op12", 2)) is None
    assert run.tensor(TensorKey(OpKey("op12"), Role.STATE)) is None
    assert list(run.tensors._chunks) == [3]
    assert run.ops[26].inputs == (Edge(OpKey("w"), 26, Role.PARAMETER),)


def test_a_run_without_ops_has_none(tmp_path):
    RunWriter(tmp_path / "a.run").finish()
    run = Run.open(tmp_path / "a.run")
    assert list(run.ops) == list(run.tensors) == [] and not run.ops
    assert run.op(OpKey("a")) is None
