"""What captures may rely on: keys, copies, modes, budget, and errors of the writing thread."""

from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import pytest

from syncpoint.errors import InputError, SyncpointError
from syncpoint.run.model import Frame, Kept, Op, OpKey, Part, Role, RunInfo, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.write_queue import WriteQueue
from syncpoint.run.storage.writer import RunWriter


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.run"


def op(name: str, module: str = "") -> Op:
    return Op(OpKey(name), "T", module=module)


def test_repeated_names_get_a_call_index_in_each_place(path):
    with RunWriter(path) as writer:
        recorder = Recorder(writer)
        keys = [recorder.op(op("relu")) for _ in range(3)]
        body = recorder.op(Op(OpKey("relu", path="body", iteration=1), "T"))
    assert [k.call for k in keys] == [0, 1, 2]
    assert body == OpKey("relu", 0, "", "body", 1)
    assert [o.key for o in Run.open(path).ops] == [*keys, body]


def test_an_op_seen_in_several_parts_is_recorded_once(path):
    with RunWriter(path) as writer:
        recorder = Recorder(writer)
        for step in range(3):
            part = recorder.for_part(Part(step=step))
            for _ in range(2):
                part.tensor(part.op(op("relu")), np.array([step]))
    run = Run.open(path)
    assert [str(o.key) for o in run.ops] == ["relu", "relu#1"]
    assert len(run.tensors) == 6
    found = run.tensor(TensorKey(OpKey("relu", 1), part=Part(step=2)))
    assert run.values(found).tolist() == [2]


def test_the_value_is_copied_before_the_call_returns(path):
    with RunWriter(path) as writer:
        recorder = Recorder(writer)
        buffer = np.zeros(1 << 20, np.float32)
        keys = []
        for i in range(5):
            buffer[:] = i
            keys.append(recorder.tensor(recorder.op(op("a")), buffer))
    run = Run.open(path)
    assert [run.values(run.tensor(k)).max() for k in keys] == [0, 1, 2, 3, 4]


def test_views_that_are_not_dense_are_stored_dense(path):
    base = np.arange(24, dtype=">i4").reshape(4, 6)
    with RunWriter(path) as writer:
        key = Recorder(writer).tensor(OpKey("a"), base.T[::2], strides=(2, 6))
    run = Run.open(path)
    tensor = run.tensor(key)
    assert tensor.strides == (2, 6)
    np.testing.assert_array_equal(run.values(tensor), base.T[::2])
    assert run.values(tensor).flags.c_contiguous


def test_dtype_reinterprets_bytes(path):
    values = np.array([1.5, -2.0, 3.0, 0.5], ml_dtypes.bfloat16)
    packed = np.array([[0x21, 0xF3]], np.uint8)
    with RunWriter(path) as writer:
        recorder = Recorder(writer)
        same = recorder.tensor(OpKey("a"), values.view(np.uint16), dtype="bf16")
        wide = recorder.tensor(OpKey("b"), values.view(np.uint8), dtype="bfloat16")
        four = recorder.tensor(OpKey("c"), packed, dtype="int4")
        plain = recorder.tensor(OpKey("d"), np.array([1, -1], ml_dtypes.int4), dtype="i4")
        with pytest.raises(InputError, match="cannot be reinterpreted as f32"):
            recorder.tensor(OpKey("e"), np.zeros(3, np.uint8), dtype="f32")
        with pytest.raises(InputError, match="not of a supported numeric type"):
            recorder.tensor(OpKey("e"), np.array(["text"]))
        recorder.tensor(OpKey("e"), np.zeros(3, np.uint8))
    run = Run.open(path)
    np.testing.assert_array_equal(run.values(run.tensor(same)), values)
    np.testing.assert_array_equal(run.values(run.tensor(wide)), values)
    assert run.values(run.tensor(four)).astype(int).tolist() == [[1, 2, 3, -1]]
    assert run.values(run.tensor(plain)).astype(int).tolist() == [1, -1]


@pytest.mark.parametrize("mode", [Kept.STATISTICS, Kept.DIGEST])
def test_modes_keep_less_but_model_inputs_always_as_values(path, mode):
    with RunWriter(path) as writer:
        recorder = Recorder(writer, record=mode, filter="nothing")
        recorder.tensor(OpKey("x"), np.ones(4), role=Role.MODEL_INPUT)
        recorder.tensor(OpKey("nothing"), np.array([3.0, 4.0]))
        recorder.tensor(OpKey("else"), np.array([3.0, 4.0]))
    run = Run.open(path)
    assert run.info.record is mode
    assert [t.kept for t in run.tensors] == [Kept.VALUES, mode]
    assert run.tensors[1].digest
    if mode is Kept.STATISTICS:
        assert run.tensors[1].statistics.l2 == 5.0
    else:
        assert run.tensors[1].statistics is None


def test_the_filter_looks_at_names_and_module_paths_and_ops_stay(path):
    with RunWriter(path) as writer:
        recorder = Recorder(writer, filter=r"attention|^conv")
        for name, module in (("conv1", ""), ("my_conv", ""), ("add", "layers.0.attention")):
            recorder.tensor(recorder.op(op(name, module)), np.ones(1))
    run = Run.open(path)
    assert [t.key.op.op for t in run.tensors] == ["conv1", "add"]
    assert len(run.ops) == 3


def test_a_filter_that_is_no_regular_expression_is_an_input_error(path):
    with RunWriter(path) as writer, pytest.raises(InputError, match="regular expression"):
        Recorder(writer, filter="(")


def test_after_the_budget_statistics_are_kept_and_a_note_says_from_where(path):
    with RunWriter(path) as writer:
        recorder = Recorder(writer, max_bytes=1000)
        for i, value in enumerate((0, 1, 0, 2, 3)):
            recorder.tensor(recorder.op(op(f"op{i}")), np.full(400, value, np.uint8))
        recorder.tensor(OpKey("x"), np.ones(400), role=Role.MODEL_INPUT)
    run = Run.open(path)
    values, less = Kept.VALUES, Kept.STATISTICS
    assert [t.kept for t in run.tensors] == [values, values, values, less, less, values]
    assert run.tensors[3].statistics.mean == 2
    assert any("1000 bytes" in n and "op3" in n for n in run.info.notes)


def test_a_repeated_tensor_is_an_input_error(path):
    with RunWriter(path) as writer:
        recorder = Recorder(writer)
        recorder.tensor(OpKey("a"), np.ones(1))
        with pytest.raises(InputError, match=r"tensor .* is recorded twice"):
            recorder.tensor(OpKey("a"), np.ones(1))
        recorder.for_part(Part(sample=1)).tensor(OpKey("a"), np.ones(1))
    assert len(Run.open(path).tensors) == 2


def test_facts_notes_and_sources_reach_the_run(path, tmp_path):
    source = tmp_path / "net.py"
    source.write_text("pass\n")
    with RunWriter(path, RunInfo(model="m")) as writer:
        recorder = Recorder(writer)
        recorder.facts(device="cpu", precision="f32+bf16")
        recorder.note("one")
        recorder.note("two")
        recorder.op(Op(OpKey("a"), "T", source=(Frame(str(source), 1),)))
        with pytest.raises(TypeError, match="speed"):
            recorder.facts(speed=1)
    run = Run.open(path)
    assert (run.info.model, run.info.device, run.info.notes) == ("m", "cpu", ("one", "two"))
    assert run.source_text(str(source)) == "pass\n"


def test_what_was_recorded_before_an_exception_is_in_the_run(path):
    with pytest.raises(ZeroDivisionError), RunWriter(path) as writer:
        recorder = Recorder(writer)
        for i in range(100):
            recorder.tensor(recorder.op(op("a")), np.full(1000, i))
        raise ZeroDivisionError
    run = Run.open(path)
    assert not run.info.complete
    assert len(run.tensors) == 100


def test_an_error_of_the_thread_surfaces_on_a_later_call_and_at_the_end(path, monkeypatch):
    with pytest.raises(SyncpointError, match="No space left"), RunWriter(path) as writer:
        recorder = Recorder(writer)
        recorder.tensor(OpKey("good"), np.ones(3))
        recorder.flush()
        failed = threading.Event()

        def refuse(*_: object) -> None:
            failed.set()
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("syncpoint.run.storage.shards.write_all", refuse)
        recorder.tensor(OpKey("bad"), np.ones(5 << 20))
        assert failed.wait(10)
        with pytest.raises(SyncpointError, match="No space left"):
            for i in range(100_000):
                recorder.tensor(OpKey("later", i), np.ones(1))
        monkeypatch.undo()
        recorder.finish()
    run = Run.open(path)
    assert not run.info.complete
    assert "No space left" in run.info.missing
    assert [str(t.key) for t in run.tensors] == ["good"]
    assert run.values(run.tensors[0]).tolist() == [1, 1, 1]


def test_nothing_can_be_recorded_after_the_end(path):
    with RunWriter(path) as writer:
        recorder = Recorder(writer)
        recorder.op(op("a"))
    with pytest.raises(InputError, match="finished"):
        recorder.op(op("b"))


def test_the_queue_holds_no_more_than_its_bytes_but_lets_a_larger_tensor_through():
    gate, running = threading.Event(), []
    queue = WriteQueue(idle=lambda: None, in_flight=10_000)
    queue.put(lambda: gate.wait(10), 1_000_000)
    blocked = threading.Thread(target=lambda: queue.put(lambda: running.append(1), 5000))
    blocked.start()
    blocked.join(0.1)
    assert blocked.is_alive()
    gate.set()
    blocked.join(10)
    queue.drain()
    assert running == [1]
    queue.finish()


def test_what_was_recorded_reaches_the_disk_while_the_model_pauses():
    idle = threading.Event()
    queue = WriteQueue(idle=idle.set)
    queue.put(lambda: None)
    assert idle.wait(10)
    queue.finish()
