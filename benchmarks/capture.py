"""What capturing every value costs against running the model and writing the same bytes.

The denominator is one plain eager run of the model plus writing as many bytes as the run keeps
in 4 MiB pieces to the same disk, one after the other, and waiting for the disk as the capture
does. Exporting the model is left out on both sides: it is done once for a model,
before. A capture runs the model twice, as the observer check is a plain run of its own; `ratio`
is with that second run, `without_observer` with its measured time taken off.

All take turns, so that a busy machine slows all; `low` and `high` are the extremes over the
rounds. One JSON line, and one for 20,000 small ops and tensors.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from models.transformer import Transformer
from syncpoint.run.model import Edge, Op, OpKey
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.options import parse_options
from syncpoint.runtimes.protocol import Inputs
from syncpoint.runtimes.registry import find_runtime

PIECE = 4 << 20


def seconds(call):
    start = perf_counter()
    call()
    return perf_counter() - start


def plain_write(path, data, size):
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for start in range(0, size, PIECE):
        os.write(handle, data[: min(PIECE, size - start)])
    os.fsync(handle)
    os.close(handle)


def spread(values):
    return [round(f(values), 2) for f in (median, min, max)]


def capturing(folder, rounds, layers, width, length, batch):
    torch.manual_seed(0)
    model = Transformer(layers=layers, width=width, heads=width // 64, mask="none").eval()
    model.positions = torch.nn.Parameter(0.1 * torch.randn(length, width))
    args = (torch.randint(0, 100, (batch, length)),)
    runtime = find_runtime(model, None)
    session = runtime.open(model, parse_options(runtime, {}))
    session.prepare(Inputs(args))
    observer = []
    observed = session._check_observer
    session._check_observer = lambda *a: timed(observer, observed, *a)

    def capture():
        shutil.rmtree(folder / "a.run", ignore_errors=True)
        with RunWriter(folder / "a.run") as writer:
            session.run(Inputs(args), Recorder(writer))

    def plain():
        with torch.no_grad():
            model(*args)

    capture(), plain()
    size = sum(f.stat().st_size for f in (folder / "a.run").glob("tensors-*"))
    data = memoryview(np.random.default_rng(0).integers(0, 256, PIECE, np.uint8))
    ratios, without, times = [], [], []
    for _ in range(rounds):
        observer.clear()
        run = seconds(plain)
        write = seconds(lambda: plain_write(folder / "plain", data, size))
        (folder / "plain").unlink()
        whole = seconds(capture)
        ratios.append(whole / (run + write))
        without.append((whole - sum(observer)) / (run + write))
        times.append((run, write, whole))
    middle, low, high = spread(ratios)
    return {
        "figure": "capture with values vs plain run and plain write",
        "ratio": middle,
        "low": low,
        "high": high,
        "without_observer": spread(without),
        "limit": 1.25,
        "megabytes": round(size / 1e6),
        "tensors": len(open_run(folder / "a.run").tensors),
        "run_write_capture_seconds": [round(median(t), 3) for t in zip(*times, strict=True)],
    }


def timed(into, call, *args):
    start = perf_counter()
    found = call(*args)
    into.append(perf_counter() - start)
    return found


def open_run(path):
    from syncpoint.run.reader import Run

    return Run.open(path)


def small_ops(folder, rounds, count=20_000):
    """CPU time of an op with a small tensor, against copying and hashing the tensor alone."""
    import xxhash

    values = np.random.default_rng(0).standard_normal((count, 64)).astype(np.float32)

    def record():
        shutil.rmtree(folder / "small.run", ignore_errors=True)
        with RunWriter(folder / "small.run") as writer:
            recorder = Recorder(writer)
            last = None
            for i in range(count):
                reads = (Edge(last),) if last else ()
                last = recorder.op(
                    Op(
                        OpKey(f"op{i}"),
                        "aten.relu.default",
                        reads,
                        attributes={"dim": 1},
                        module=f"layers.{i % 9}",
                    )
                )
                recorder.tensor(last, values[i], strides=(1,), device="cpu")

    def floor():
        kept = []
        for i in range(count):
            kept.append((f"op{i}", values[i].copy()))
            xxhash.xxh3_128_hexdigest(kept[-1][1].data)

    def cpu(call):
        start = process_time()
        call()
        return process_time() - start

    record(), floor()
    pairs = [(cpu(record), cpu(floor)) for _ in range(rounds)]
    middle, low, high = spread([a / b for a, b in pairs])
    return {
        "figure": f"{count} small ops and tensors vs copying and hashing them",
        "ratio": middle,
        "low": low,
        "high": high,
        "cpu_microseconds_each": spread([1e6 * a / count for a, _ in pairs]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--folder", type=Path, default=None, help="on the disk to write to")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="syncpoint-", dir=options.folder))
    sizes = (options.layers, options.width, options.length, options.batch)
    try:
        print(json.dumps(capturing(folder, options.rounds, *sizes)), flush=True)
        print(json.dumps(small_ops(folder, options.rounds)), flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
