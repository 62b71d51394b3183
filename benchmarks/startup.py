"""What `syncpoint --help` costs against importing the two libraries it is made with, and what the
supervised child process costs against running the same command in the process itself.

One JSON line each; both commands take turns, so that a busy machine slows both.
"""

import json
import os
import subprocess
import sys
from statistics import median
from time import perf_counter

HELP = [sys.executable, "-c", "import sys; sys.argv = ['syncpoint', '--help']\n"
        "from syncpoint.cli import main; main()"]  # fmt: skip
DOCTOR = [sys.executable, "-c", "import sys; sys.argv = ['syncpoint', 'doctor']\n"
          "from syncpoint.cli import main; main()"]  # fmt: skip
LIBRARIES = [sys.executable, "-c", "import typer, rich"]


def seconds(command, supervise="1"):
    start = perf_counter()
    environment = {**os.environ, "SYNCPOINT_SUPERVISE": supervise}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return perf_counter() - start


def print_ratio(figure, ratios, **more):
    numbers = {"ratio": median(ratios), "low": min(ratios), "high": max(ratios)}
    rounded = {name: round(value, 2) for name, value in numbers.items()}
    print(json.dumps({"figure": figure, **rounded, **more, "limit": 1.6}))


def main(rounds=15):
    seconds(HELP), seconds(LIBRARIES)
    ratios = [seconds(HELP) / seconds(LIBRARIES) for _ in range(rounds)]
    print_ratio("syncpoint --help vs import typer, rich", ratios)
    pairs = [(seconds(DOCTOR), seconds(DOCTOR, "0")) for _ in range(rounds)]
    print_ratio(
        "syncpoint doctor supervised vs in the process itself",
        [supervised / plain for supervised, plain in pairs],
        extra_seconds=round(median(a - b for a, b in pairs), 4),
    )


if __name__ == "__main__":
    main()
