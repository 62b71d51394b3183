"""A process that runs commands which die inside their writes, so that tests can see what is left.

`python interrupted_commands.py` reads one JSON object a line and forks a child for each:
`arguments` of the command line, the folder to run in, and how the child dies. With `die_at` N it
sends itself SIGKILL at the N-th operation on the disk inside that folder; a write is cut in half.
With `die_at_byte` N the kernel ends it when a file would grow beyond N bytes, native writers
included; with `fail_at_byte` the write fails instead. With `fail_at` N and `error` every operation
from the N-th on that needs room fails with that error. With `pause` each operation is preceded by
that many seconds, for a parent that kills at a random moment.

The answer is the child's process id; after one more line, its status and how many operations it
did. A list of such objects is as many children that start at the same moment; the answer is the
list of their statuses. Forking spares every kill the time that importing takes: polars is imported,
which is safe, but never used here, since its threads do not survive a fork.
"""

import builtins
import io
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path

WARM = (
    "numpy",
    "polars",
    "pyarrow",
    "pydantic",
    "rich.console",
    "syncpoint.api",
    "syncpoint.cli.app",
    "syncpoint.cli.options",
    "syncpoint.comparison.engine",
    "syncpoint.comparison.storage.comparison_folder",
    "syncpoint.workflow.diagnose",
    "syncpoint.diagnosis.diagnose",
    "syncpoint.page.open_comparison",
    "syncpoint.page.html_report",
    "syncpoint.reports.csv_report",
    "syncpoint.reports.diagnosis_report",
    "syncpoint.reports.json_report",
    "syncpoint.reports.terminal_report",
)
BUFFER = 512
"""Bytes of a small write; a large one takes a fourth of what is left, so that every file takes
several."""
NEED_ROOM = ("fsync", "mkdir", "fchmod")
NEED_NONE = ("unlink", "replace", "rename", "rmdir", "ftruncate")


class Forks:
    """A process that runs this file, for tests."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
        )
        assert self._process.stdout.readline() == "ready\n"

    def run(self, order, after=None):
        """Status and count of a call; with `after` it is killed so many seconds later."""
        self._say(json.dumps(order))
        child = int(self._process.stdout.readline())
        if after is not None:
            time.sleep(after)
            # Not reaped before the next line, so that the number is still its own.
            os.kill(child, signal.SIGKILL)
        self._say("on")
        return json.loads(self._process.stdout.readline())

    def race(self, orders):
        """The statuses of calls that start together."""
        self._say(json.dumps(orders))
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _say(self, line):
        print(line, file=self._process.stdin, flush=True)


class Disk:
    """Counts the operations on the disk below a folder, and dies or fails at one of them."""

    def __init__(self, folder, die_at, fail_at, error, pause):
        self.folder = os.path.realpath(folder)
        self.die_at = die_at
        self.fail_at = fail_at
        self.error = error
        self.pause = pause
        self.done = 0
        self.counting = threading.Lock()

    def is_due(self, place, needs_room=True):
        """Count an operation at a path or descriptor; whether the process is to die in it."""
        if isinstance(place, int):
            place = Path(f"/proc/self/fd/{place}").readlink()
        if str(place).startswith("pipe:"):
            return False
        path = Path(place).absolute()
        if not (path.parent.resolve() / path.name).is_relative_to(self.folder):
            return False
        with self.counting:  # folders are synced by several threads
            self.done += 1
            number = self.done
        time.sleep(self.pause)
        if needs_room and 0 < self.fail_at <= number:
            raise OSError(self.error, os.strerror(self.error), str(place))
        return number == self.die_at

    def watch(self):
        for name in (*NEED_ROOM, *NEED_NONE):
            setattr(os, name, self._dying(getattr(os, name), name in NEED_ROOM))
        os.open = self._dying_open(os.open)
        os.pwrite = self._dying_write(os.pwrite)
        os.write = self._dying_write(os.write)
        builtins.open = io.open = self._dying_file(io.open)

    def _dying(self, call, needs_room):
        def counted(place, *rest, **named):
            if self.is_due(place, needs_room):
                die()
            return call(place, *rest, **named)

        return counted

    def _dying_open(self, call):
        def counted(path, flags, *rest, **named):
            if flags & os.O_CREAT and self.is_due(path):
                die()
            return call(path, flags, *rest, **named)

        return counted

    def _dying_write(self, call):
        def counted(handle, data, *rest):
            if self.is_due(handle):
                call(handle, memoryview(data).cast("B")[: len(data) // 2], *rest)
                die()
            return call(handle, data, *rest)

        return counted

    def _dying_file(self, call):
        disk = self

        class DyingFile(io.FileIO):
            def write(self, data):
                data = memoryview(data).cast("B")
                data = data[: max(BUFFER, len(data) // 4)]  # the rest comes in further calls
                if disk.is_due(self.fileno()):
                    super().write(data[: len(data) // 2])
                    die()
                return super().write(data)

        def opened(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *rest):
            if not set(mode) & set("wxa"):
                return call(file, mode, buffering, encoding, errors, newline, *rest)
            raw = DyingFile(file, mode.replace("b", "").replace("t", ""), *rest)
            if buffering == 0:
                return raw
            buffered = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw, BUFFER)
            if "b" in mode:
                return buffered
            return io.TextIOWrapper(buffered, encoding, errors, newline)

        return opened


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def overwrite(source, path):
    """What `demo` and `analyze -o` do with the comparison of an earlier call."""
    from syncpoint.comparison.storage.comparison_folder import load, save

    save(load(Path(source)), Path(path), overwrite=True)


def _one_line(error):
    print(f"syncpoint: {error}", file=sys.stderr)
    return error.exit_code


def run(order, folder):
    from syncpoint.cli import main
    from syncpoint.errors import SyncpointError

    os.chdir(folder)
    os.environ["TMPDIR"] = str(Path(folder).parent)
    for handle, name in ((1, "stdout"), (2, "stderr")):
        log = f"{folder}{order.get('log', '')}.{name}"
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(target, handle)
    if limit := order.get("die_at_byte") or order.get("fail_at_byte"):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if "die_at_byte" in order else signal.SIG_IGN)
    disk = Disk(folder, *(order.get(n, 0) for n in ("die_at", "fail_at", "error", "pause")))
    disk.watch()
    code = 0
    try:
        if order["arguments"][0] == "overwrite":
            try:
                overwrite(*order["arguments"][1:])
            except SyncpointError as error:
                sys.exit(_one_line(error))
        else:
            sys.argv = ["syncpoint", *order["arguments"]]
            main()
    except SystemExit as stop:
        code = stop.code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    return code, disk.done


def fork(order):
    """The child, and where it tells how many operations it did."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    os.close(reading)
    code = 70
    try:
        code, done = run(order, order["folder"])
        os.write(writing, str(done).encode())
    except BaseException as error:
        os.write(writing, repr(error).encode())
    os._exit(code)


def race(orders):
    """The statuses of children that are let go together."""
    gate, key = os.pipe()
    children = []
    for order in orders:
        child = os.fork()
        if not child:
            os.close(key)
            code = 70
            try:
                os.read(gate, 1)
                code, _ = run(order, order["folder"])
            finally:
                os._exit(code)
        children.append(child)
    os.close(gate)
    os.close(key)
    return [os.waitpid(child, 0)[1] for child in children]


def serve():
    for name in WARM:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            assert not name.startswith("syncpoint"), error
    from syncpoint.dumps import registry

    for format in registry.iter_formats():
        format.sniff(Path.cwd())
    threads = [Path(p, "comm").read_text() for p in Path("/proc/self/task").iterdir()]
    assert not [name for name in threads if name.startswith("polars-0")], threads
    print("ready", flush=True)
    while line := sys.stdin.readline():
        order = json.loads(line)
        if isinstance(order, list):
            print(json.dumps(race(order)), flush=True)
            continue
        child, told = fork(order)
        print(child, flush=True)
        sys.stdin.readline()
        status = os.waitpid(child, 0)[1]
        with os.fdopen(told) as answer:
            print(json.dumps([status, answer.read()]), flush=True)


if __name__ == "__main__":
    serve()
