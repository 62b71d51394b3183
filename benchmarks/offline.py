"""Comparing a dump of an Ascend device with golden arrays, against the same columns in plain NumPy.

A dump of 200 ops and 1.7 GB is made: float16 in three layouts on the device, float32 golden arrays.
Both sides are processes of their own and take turns; CPU time is user and system time of the
process, the peak is its greatest resident set. One JSON line a figure.

`parts` does with each tensor what the comparison does and nothing around it, which tells what the
layouts, columns and measurements cost; `compare` is the command that users type.
"""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

PLAIN = Path(__file__).parent / "plain"
MOST_OF_PLAIN = 1 / 4
MOST_MEGABYTES = 300


def commands(folder, out):
    """What takes turns: a name, the command, and the CSV that it writes."""
    plain, parts = out / "plain.csv", out / "parts.csv"
    found = {
        "plain": ([sys.executable, PLAIN / "ascend_numpy.py", folder, plain], plain),
        "parts": ([sys.executable, PLAIN / "ascend_parts.py", folder, parts], parts),
    }
    arguments = ["-m", "offline_data", "-tp", folder / "npu", "-gp", folder / "golden"]
    arguments += ["-fr", folder / "fusion.json", "-o", out / "compare"]
    start = "from syncpoint.cli import main; main()"
    found["compare"] = ([sys.executable, "-c", start, "compare", *arguments], out / "compare")
    return found


def run(command):
    """CPU seconds, megabytes at the peak, and what the process printed."""
    # As an installed package has it: modules compiled once, not anew in every process.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, text=True, env=environment
    )
    printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # 1: differences were found
        raise SystemExit(f"{command} ended with exit code {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, printed


def cells_of(path):
    """The ten metric cells of each tensor."""
    if path.is_dir():
        path = max(path.glob("result_*.csv"))
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    first, name = header.index("CosineSimilarity"), header.index("TensorIndex")
    return {row[name]: row[first : first + 10] for row in rows}


def emit(figure, **numbers):
    rounded = {key: float(f"{value:.4g}") for key, value in numbers.items()}
    print(json.dumps({"figure": figure, **rounded}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, default=200)
    parser.add_argument("--megabytes", type=int, default=1700)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", default="plain,parts,compare", help="of plain, parts, compare")
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="syncpoint-", dir=options.folder))
    try:
        measure(folder, options)
    finally:
        shutil.rmtree(folder)


def measure(folder, options):
    # In a process of its own: what this one has taken would count as its children's peak.
    make = [sys.executable, PLAIN / "ascend_dump.py", folder / "dump"]
    subprocess.run([*make, str(options.ops), str(options.megabytes)], check=True)
    known = commands(folder / "dump", folder)
    sides = {name: known[name] for name in options.sides.split(",")}
    found = {name: [] for name in sides}
    for command, _ in sides.values():
        run(command)  # fills the caches of files and of compiled modules
    for _ in range(options.rounds):
        for name, (command, _) in sides.items():
            found[name].append(run(command))
    cells = {name: cells_of(path) for name, (_, path) in sides.items()}
    for name in sides:
        if name != "plain" and cells[name] != cells["plain"]:
            raise SystemExit(f"{name} does not print what plain NumPy does")
    slow = [seconds for seconds, _, _ in found["plain"]]
    emit("offline dump, plain NumPy: CPU seconds", value=median(slow), rows=len(cells["plain"]))
    for name in sides:
        if name == "plain":
            continue
        times = [seconds for seconds, _, _ in found[name]]
        emit(
            f"offline dump, {name}: CPU time over that of plain NumPy",
            value=median(fast / one for fast, one in zip(times, slow, strict=True)),
            seconds=median(times),
            limit=MOST_OF_PLAIN,
        )
        peak = max(megabytes for _, megabytes, _ in found[name])
        emit(f"offline dump, {name}: peak megabytes", value=peak, limit=MOST_MEGABYTES)
    if "parts" in sides:
        parts = [json.loads(printed) for _, _, printed in found["parts"]]
        for part in parts[0]:
            emit(f"offline dump, {part}: ns per element", value=median(p[part] for p in parts))


if __name__ == "__main__":
    main()
