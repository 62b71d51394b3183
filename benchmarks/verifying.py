"""The price of verifying: measuring two runs with every tensor checked, over the same without.

One JSON line a figure. Both take turns in one process, so that a busy machine slows both; `low` and
`high` are the quartiles over the rounds. Only the measuring is timed, which reads every tensor;
`share` is its part of the whole comparison. The files are in the page cache: where they come from
a disk, the disk hides the price. `cpu` is the same ratio of CPU time.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time
from unittest.mock import patch

import numpy as np

from syncpoint.comparison.build_rows import build_rows
from syncpoint.comparison.engine import Options, compare
from syncpoint.comparison.measuring.measure_rows import measure_rows
from syncpoint.comparison.sides import Sides
from syncpoint.dumps.array_store import ArrayStore
from syncpoint.dumps.npz import NpzFile
from syncpoint.matching.matcher_chain import chain, match
from syncpoint.run.model import Op, OpKey, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.storage.writer import RunWriter
from syncpoint.run.value_store import FileStore


def write_run(path, tensors, count, noise):
    rng = np.random.default_rng(0)
    with RunWriter(path) as writer:
        for number in range(tensors):
            key = OpKey(f"op{number}")
            values = rng.standard_normal(count, dtype=np.float32)
            values += np.float32(noise) * rng.standard_normal(count, dtype=np.float32)
            writer.op(Op(key, "T"))
            writer.tensor(Tensor(TensorKey(key), "f32", (count,)), values)
    return path


def write_npz(path, tensors, count, noise):
    rng = np.random.default_rng(0)
    arrays = {}
    for number in range(tensors):
        values = rng.standard_normal(count, dtype=np.float32)
        values += np.float32(noise) * rng.standard_normal(count, dtype=np.float32)
        arrays[f"op{number}"] = values
    np.savez(path, **arrays)
    return path


def plan(paths, opening):
    """The sync points of two runs, and the seconds that a whole comparison takes."""
    start = perf_counter()
    result = compare(*map(opening, paths), Options(introduced="off"))
    whole = perf_counter() - start
    counts = result.verified["target"]
    assert counts["verified"] == counts["tensors"] > 0
    return match(*map(opening, paths), chain(None)).pairs, whole


def seconds(paths, opening, points):
    """Wall and CPU time of measuring runs that are opened anew: nothing is verified yet."""
    sides = Sides(*map(opening, paths))
    rows_before = build_rows(sides, points, set())
    wall, cpu = perf_counter(), process_time()
    rows_after = measure_rows(sides, rows_before)
    times = perf_counter() - wall, process_time() - cpu
    assert all(row.numbers for row in rows_after)
    return times


def no_checksum(store, tensor):
    """In place of what a store knows; a mock would be slower than what is measured."""


def plain_seconds(paths, opening, points):
    with (
        patch.object(FileStore, "checksum", no_checksum),
        patch.object(ArrayStore, "checksum", no_checksum),
    ):
        return seconds(paths, opening, points)


def emit(name, verified, plain, whole):
    wall = [a[0] / b[0] for a, b in zip(verified, plain, strict=True)]
    cpu = [a[1] / b[1] for a, b in zip(verified, plain, strict=True)]
    low, _, high = quantiles(wall, n=4)
    numbers = {"ratio": median(wall), "low": low, "high": high, "cpu": median(cpu)}
    numbers["share"] = median([a[0] for a in verified]) / whole
    rounded = {key: float(f"{value:.4g}") for key, value in numbers.items()}
    print(json.dumps({"figure": f"verifying over not verifying, {name}", **rounded}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--megabytes", type=int, default=256, help="of each run of large tensors")
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="syncpoint-", dir=options.folder))
    large = max(options.megabytes // 64, 1)
    shapes = (
        ("many small tensors", max(2000 * options.megabytes // 256, 10), 1024, write_run, Run.open),
        ("tensors of 1 MB", options.megabytes, 1 << 18, write_run, Run.open),
        ("a few large tensors", large, 64 << 18, write_run, Run.open),
        ("a few large tensors of a .npz", large, 64 << 18, write_npz, NpzFile().open),
    )
    try:
        for name, tensors, count, write, opening in shapes:
            suffix = "run" if write is write_run else "npz"
            names = [folder / f"{side}.{suffix}" for side in "tr"]
            paths = [
                write(path, tensors, count, noise)
                for path, noise in zip(names, (1e-3, 0), strict=True)
            ]
            points, whole = plan(paths, opening)
            times = [
                (seconds(paths, opening, points), plain_seconds(paths, opening, points))
                for _ in range(options.rounds)
            ]
            emit(name, [a for a, _ in times], [b for _, b in times], whole)
            for path in paths:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
