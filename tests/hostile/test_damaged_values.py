"""Bytes of tensors that changed after they were recorded: always damaged, never a verdict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import syncpoint as sp
from syncpoint.comparison.engine import Options, compare
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Edge, Op, OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.writer import RunWriter

OPS = tuple("abcdef")


def write_run(path: Path, scale: float = 1.0, count: int = 3000) -> Path:
    """A chain of ops with an input, a parameter and a model output."""
    rng = np.random.default_rng(7)
    with RunWriter(path) as writer:
        before = Edge(OpKey("x"), role=Role.MODEL_INPUT)
        for name in OPS:
            writer.op(Op(OpKey(name), "Relu", (before,)))
            before = Edge(OpKey(name))
        for key in (
            TensorKey(OpKey("x"), Role.MODEL_INPUT),
            TensorKey(OpKey("weight"), Role.PARAMETER),
            *(TensorKey(OpKey(name)) for name in OPS),
        ):
            values = rng.standard_normal(count).astype(np.float32)
            if key.role is Role.OUTPUT:
                values *= np.float32(scale)
            writer.tensor(Tensor(key, "f32", (count,)), values)
    return path


def overwrite(path: Path, key: TensorKey, byte: int = 0) -> None:
    """Set every byte of one tensor of a run."""
    tensor = Run.open(path).tensor(key)
    assert tensor is not None
    with (path / tensor.shard).open("r+b") as file:
        file.seek(tensor.offset)
        file.write(bytes([byte]) * tensor.nbytes)


def output(name: str) -> TensorKey:
    return TensorKey(OpKey(name))


def compared(one: Path, other: Path):
    return compare(Run.open(one), Run.open(other), Options(introduced="off"))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return write_run(tmp_path / "t.run"), write_run(tmp_path / "r.run")


def test_the_same_damage_on_both_sides_is_not_close(pair):
    """Zeros against zeros are equal; that says nothing of the model."""
    for path in pair:
        for name in OPS:
            overwrite(path, output(name))
    found = compared(*pair)
    assert found.verdict is Verdict.LARGE
    assert found.exit_code() == 1
    rows = [row for row in found.rows if row.target.key.role is Role.OUTPUT]
    assert len(rows) == len(OPS)
    for row in rows:
        assert row.verdict is Verdict.NONE
        assert row.reason.startswith("damaged: ")
        assert row.numbers is None
        assert "target" in row.reason and "reference" in row.reason
        assert str(pair[0]) in row.reason and str(pair[1]) in row.reason
        assert "again" in row.reason  # the cure
    assert found.first_divergence == []


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    "key",
    [
        TensorKey(OpKey("x"), Role.MODEL_INPUT),
        TensorKey(OpKey("weight"), Role.PARAMETER),
        output("c"),
        output("f"),
    ],
    ids=str,
)
def test_one_damaged_tensor_of_one_side_fails_and_the_rest_is_compared(pair, side, key):
    overwrite(pair[side], key, 1)
    found = compared(*pair)
    damaged = [row for row in found.rows if row.reason.startswith("damaged: ")]
    assert [row.target.key for row in damaged] == [key]
    assert found.exit_code() == 1
    assert all(row.verdict is Verdict.CLOSE for row in found.rows if row not in damaged)


def test_one_flipped_bit_is_damage(pair):
    """It changes no number that a limit would see."""
    tensor = Run.open(pair[0]).tensor(output("d"))
    with (pair[0] / tensor.shard).open("r+b") as file:
        file.seek(tensor.offset + 400)
        byte = file.read(1)[0]
        file.seek(tensor.offset + 400)
        file.write(bytes([byte ^ 1]))
    found = compared(*pair)
    assert [row.target.label for row in found.rows if "damaged" in row.reason] == ["d"]
    assert found.exit_code() == 1


def test_an_op_after_a_damaged_one_is_not_blamed(tmp_path):
    """Whether e or the damaged d made the error cannot be told; f reads e and may be judged."""
    one, other = write_run(tmp_path / "t.run"), write_run(tmp_path / "r.run")
    three = write_run(tmp_path / "off.run", scale=1.5)
    run, off = Run.open(one), Run.open(three)
    for name in "ef":
        tensor, source = run.tensor(output(name)), off.tensor(output(name))
        assert tensor is not None and source is not None
    overwrite(three, output("a"))
    found = compared(three, other)
    assert [row.target.label for row in found.first_divergence] == []
    assert found.exit_code() == 1
    assert compared(write_run(tmp_path / "off2.run", scale=1.5), other).first_divergence


def test_the_command_line_names_run_op_file_and_cure(pair, capsys):
    overwrite(pair[1], output("b"))
    comparison = sp.compare(str(pair[0]), str(pair[1]), introduced="off")
    text = str(comparison.as_text() if hasattr(comparison, "as_text") else "")
    from syncpoint.reports.terminal import as_text

    text = " ".join(as_text(comparison).split())
    assert "■ damaged: b" in text
    assert "reference" in text and "tensors-00000.safetensors" in text and "again" in text
