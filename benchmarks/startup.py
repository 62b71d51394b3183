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


def main(rounds=15):
    seconds(HELP), seconds(LIBRARIES)
    ratios = [seconds(HELP) / seconds(LIBRARIES) for _ in range(rounds)]
    print(
        json.dumps(
            {
                "figure": "syncpoint --help vs import typer, rich",
                "ratio": round(median(ratios), 2),
                "low": round(min(ratios), 2),
                "high": round(max(ratios), 2),
                "limit": 1.6,
            }
        )
    )
    pairs = [(seconds(DOCTOR), seconds(DOCTOR, "0")) for _ in range(rounds)]
    ratios = [supervised / plain for supervised, plain in pairs]
    print(
        json.dumps(
            {
                "figure": "syncpoint doctor supervised vs in the process itself",
                "ratio": round(median(ratios), 2),
                "low": round(min(ratios), 2),
                "high": round(max(ratios), 2),
                "extra_seconds": round(median(a - b for a, b in pairs), 4),
                "limit": 1.6,
            }
        )
    )


if __name__ == "__main__":
    main()
