"""Tensors that stay in their files: the same bits as in memory, and errors instead of crashes."""

import subprocess
import sys

import numpy as np
import pytest

from helpers import tensor_generators as tensors
from syncpoint.errors import FormatError
from syncpoint.metrics import FileRegion, Operand, Pair, measure, measure_each, operand, statistics
from syncpoint.run.dtypes import DTYPES

COUNT = 700_000


def written(path, array: np.ndarray, name: str, offset: int = 0) -> Operand:
    """The array in a file of its own, after `offset` other bytes."""
    path.write_bytes(b"\x7f" * offset + array.tobytes() + b"rest")
    region = FileRegion(str(path), offset, array.nbytes)
    return Operand(region, name, shape=array.shape)


@pytest.mark.parametrize(
    "names", [("f32", "f32"), ("f16", "f32"), ("bf16", "bf16"), ("f64", "f32"), ("i8", "i8")]
)
def test_neither_windows_nor_threads_change_a_bit(tmp_path, names):
    rng = np.random.default_rng(1)
    t, r = tensors.make_pair(rng, names, "normal", "near", COUNT)
    tensors.sprinkle(rng, t, names[0], 1e-4)
    want = measure([Pair(Operand(t, names[0]), Operand(r, names[1]))], threads=1)
    pair = Pair(
        written(tmp_path / "t", t, names[0], offset=3), written(tmp_path / "r", r, names[1], 4096)
    )
    for window in (1, 64 << 10, 1 << 20, 64 << 20):
        for threads in (1, 2, 7):
            assert measure([pair], threads, window=window) == want, (window, threads)


def test_a_file_against_memory():
    numbers = np.arange(3000, dtype=np.float32).reshape(30, 100)
    region = FileRegion(__file__, 0, 0)
    with pytest.raises(ValueError, match="too few for 3000 elements"):
        measure([Pair(Operand(region, "f32", shape=(30, 100)), operand(numbers))])
    with pytest.raises(ValueError, match="needs a shape"):
        measure([Pair(Operand(region, "f32"), operand(numbers))])


def test_packed_nibbles_in_a_file(tmp_path):
    rng = np.random.default_rng(2)
    numbers = rng.integers(-8, 8, 5001).astype(DTYPES["i4"].numpy)
    side = written(tmp_path / "nibbles", tensors.pack(numbers), "i4")
    side = Operand(side.data, "i4", shape=(5001,))
    assert measure([Pair(side, Operand(numbers, "i4"))])[0].exact == 1.0


def test_statistics_of_a_file(tmp_path):
    numbers = np.arange(50_000, dtype=np.float32)
    assert statistics(written(tmp_path / "x", numbers, "f32", 5)) == statistics(operand(numbers))


def broken_pairs(tmp_path) -> list[Pair]:
    numbers = np.ones(COUNT, np.float32)
    whole = written(tmp_path / "whole", numbers, "f32")
    short = written(tmp_path / "short", numbers, "f32")
    (tmp_path / "short").write_bytes(numbers.tobytes()[:-5])
    missing = Operand(FileRegion(str(tmp_path / "none"), 0, numbers.nbytes), "f32", shape=(COUNT,))
    return [Pair(whole, whole), Pair(short, whole), Pair(whole, missing), Pair(whole, whole)]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_file_that_is_too_short_spoils_only_its_own_pair(tmp_path, threads):
    first, short, missing, last = measure_each(broken_pairs(tmp_path), threads)
    assert first == last
    assert not isinstance(first, FormatError)
    assert first.exact == 1.0
    assert isinstance(short, FormatError)
    assert f"short has {4 * COUNT - 5} bytes, {4 * COUNT} are needed" in str(short)
    assert isinstance(missing, FormatError)
    assert "No such file" in str(missing)


def test_who_asks_for_measurements_alone_gets_the_error(tmp_path):
    pairs = broken_pairs(tmp_path)
    with pytest.raises(FormatError, match="short has"):
        measure(pairs)
    with pytest.raises(FormatError, match="short has"):
        statistics(pairs[1].target)


MEMORY = """
import resource, sys
from syncpoint.metrics import FileRegion, Operand, Pair, measure
side = Operand(FileRegion(sys.argv[1], 0, 1 << 28), "f32", shape=(1 << 26,))
small = Operand(FileRegion(sys.argv[1], 0, 1 << 20), "f32", shape=(1 << 18,))
measure([Pair(small, small)])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
measure([Pair(side, side)], window=4 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_does_not_grow_with_the_tensor(tmp_path):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 28)
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "sparse")]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(out.stdout) < 16 << 10  # kilobytes


def test_an_offset_beyond_all_files_is_an_error(tmp_path):
    side = written(tmp_path / "x", np.ones(10, np.float32), "f32")
    far = Operand(FileRegion(side.data.path, 2**63 - 1, 40), "f32", shape=(10,))
    with pytest.raises(FormatError, match="are needed"):
        measure([Pair(far, side)])
