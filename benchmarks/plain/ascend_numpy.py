"""The ten columns of every tensor of an Ascend dump in plain NumPy, as one would write it down.

Files are mapped, layouts converted, and the metrics computed one after the other. It knows the
layouts of the benchmark's dump and has no error handling. Writes one line of CSV a tensor.
"""

import csv
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from helpers.ascend_column_oracle import METRICS, device_tensors, logical


def pairs(folder):
    """Name, device array in golden order, and golden array of every tensor."""
    (graph,) = json.loads((folder / "fusion.json").read_text())["graph"]
    device = {path.name.split(".")[1]: path for path in (folder / "npu").iterdir()}
    golden = {path.name.rsplit(".", 3)[0]: path for path in (folder / "golden").iterdir()}
    for op in graph["op"]:
        escaped = op["name"].replace("/", "_")
        for (role, index), (layout, array) in device_tensors(device[escaped]).items():
            source = op["input"][index].rsplit(":", 1)[0] if role == "input" else op["name"]
            reference = np.load(golden[source.replace("/", "_")], mmap_mode="r")
            yield f"{op['name']}:{role}:{index}", layout, array, reference


def main():
    folder, out = map(Path, sys.argv[1:])
    with out.open("w", newline="") as file, np.errstate(all="ignore"):
        rows = csv.writer(file)
        rows.writerow(["TensorIndex", *METRICS])
        for name, layout, array, golden in pairs(folder):
            x = logical(layout, array, golden.shape).reshape(-1).astype(np.float32)
            y = golden.reshape(-1).astype(np.float32)
            found = [metric(x, y) for metric in METRICS.values()]
            rows.writerow([name, *(v if isinstance(v, str) else f"{v:.6f}" for v in found)])


if __name__ == "__main__":
    main()
