"""Processes for tests that kill them: a dump being written, and its reduction.

`python killable_reductions.py write FOLDER COUNT PAUSE` writes COUNT arrays as a dump of an FX
graph, slowly: some in pieces, some under another name first.

`python killable_reductions.py reduce` forks a child for each line on stdin and prints its process
id; the child reduces the dump that the line names, and is reaped after one more line. A line
with a number and what to reduce to has the child kill itself at that operation on the disk. Forking
spares every kill the time that importing takes; tables are never written here, as the threads of
polars do not survive a fork.
"""

import io
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from syncpoint.dumps import registry
from syncpoint.reducing import folder_watch, to_min_max
from syncpoint.reducing import reduce as reduce_module
from syncpoint.reducing.reduce import reduce

SIDE = 512
DTYPES = ("float32", "float16", "float64", "int32")
UNFINISHED = "late-aten.late.default.OUTPUT.0.20240101010199999999.npy"


def name(number):
    return f"op_{number}-aten.op.default.OUTPUT.0.{20240101010100000000 + number}.npy"


def array(number):
    """The same for whoever asks; some with elements that are not finite, some empty."""
    rng = np.random.default_rng(number)
    dtype = DTYPES[number % len(DTYPES)]
    values = (rng.standard_normal((SIDE, SIDE)) * 100).astype(dtype)
    if number % 7 == 3 and values.dtype.kind == "f":
        values[0, :5] = (np.nan, np.inf, -np.inf, 0, np.nan)
    if number % 11 == 5:
        values = np.asfortranarray(values)
    return values[:0] if number == 20 else values


def saved(number):
    file = io.BytesIO()
    np.save(file, array(number))
    return file.getvalue()


def write(folder, count, pause):
    """The dump; gives how many bytes it had."""
    written = 0
    for number in range(count):
        place = folder / str(1 + number * 3 // count) / "gm_1"
        place.mkdir(parents=True, exist_ok=True)
        data = saved(number)
        path = place / name(number)
        if number % 3 == 0:
            temporary = path.with_suffix(".part")
            temporary.write_bytes(data)
            temporary.rename(path)
        elif number % 3 == 1:
            with path.open("wb", buffering=0) as file:
                for start in range(0, len(data), len(data) // 3 + 1):
                    file.write(data[start : start + len(data) // 3 + 1])
                    time.sleep(pause / 2)
        else:
            path.write_bytes(data)
        written += len(data)
        time.sleep(pause)
    (place / UNFINISHED).write_bytes(saved(0)[:-1])
    return written


def reduce_until_killed(folder, out):
    folder_watch.INTERVAL = 0.01
    reduce(folder, "statistics", out, watch=True, delete=True)


def reduce_once(folder, out, at, to):
    """Everything but the tables; dies at operation `at` on the disk, if there are as many."""
    done = 0

    def dying(call):
        def counted(first, *rest, **named):
            nonlocal done
            done += 1
            if done == at:
                if call.__name__ == "pwrite":
                    call(first, rest[0][: len(rest[0]) // 2], *rest[1:])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(first, *rest, **named)

        return counted

    for name in ("pwrite", "fsync", "unlink", "replace", "rename", "mkdir", "ftruncate"):
        setattr(os, name, dying(getattr(os, name)))
    reduce_module.assemble = lambda *_: None
    to_min_max.find_format = lambda _: None  # which format it is does not matter there
    reduce(folder, to, out, delete=True)


def serve():
    for format in registry.iter_formats():
        format.sniff(Path.cwd())
    assert "polars" not in sys.modules, "its threads do not survive a fork"
    while words := sys.stdin.readline().split():
        folder, out, *at = words
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if at:
                    reduce_once(Path(folder), Path(out), int(at[0]), at[1])
                else:
                    reduce_until_killed(Path(folder), Path(out))
                code = 0
            finally:
                os._exit(code)
        print(child, flush=True)
        sys.stdin.readline()
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        print(write(Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
    else:
        serve()
