"""How much memory comparing two large runs takes: the peak of a process of its own.

Two runs of 200 tensors of 5 MiB, and of as many bytes in a single tensor. The peak is VmHWM, which
counts file-backed pages as well; `above_tiny` is what it exceeds a comparison of tiny runs by.
One JSON line a figure; the ratio is of the peak to the bytes of the two runs.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from syncpoint.run.model import Op, OpKey, Tensor, TensorKey
from syncpoint.run.storage.writer import RunWriter

COMPARE = """
import sys
import syncpoint as sp
result = sp.compare(sys.argv[1], sys.argv[2], out=sys.argv[3], introduced="off")
assert result.coverage.compared == int(sys.argv[4]), result.coverage
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(line.split()[1])
"""


def write(path, tensors, count, seed):
    rng = np.random.default_rng(0)
    with RunWriter(path) as writer:
        for i in range(tensors):
            key = OpKey(f"op{i}")
            values = rng.standard_normal(count, dtype=np.float32)
            values += np.float32(1e-3 * seed)
            writer.op(Op(key, "T"))
            writer.tensor(Tensor(TensorKey(key), "f32", (count,)), values)
    return path


def peak(folder, name, tensors, count):
    """Megabytes at the peak of a process that compares two such runs."""
    runs = [write(folder / f"{name}-{side}.run", tensors, count, side) for side in (0, 1)]
    out = folder / f"{name}.cmp"
    command = [sys.executable, "-c", COMPARE, *map(str, runs), str(out), str(tensors)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    for path in (*runs, out):
        shutil.rmtree(path)
    return int(found.stdout) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensors", type=int, default=200)
    parser.add_argument("--mebibytes", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="syncpoint-", dir=options.folder))
    count = options.mebibytes << 18
    total = 2 * options.tensors * options.mebibytes
    try:
        tiny = peak(folder, "tiny", 4, 100)
        for name, tensors, size, limit in (
            ("many tensors", options.tensors, count, 250),
            ("a single tensor", 1, options.tensors * count, 250),
        ):
            found = peak(folder, name, tensors, size)
            said = {
                "figure": f"peak memory of comparing two runs, {name}",
                "ratio": round(found / total, 3),
                "peak_megabytes": round(found),
                "above_tiny": round(found - tiny),
                "runs_megabytes": total,
                "limit_megabytes": limit,
            }
            print(json.dumps(said), flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
