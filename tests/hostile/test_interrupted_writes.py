"""A command that is killed inside its write, or cannot go on with it, leaves the old file or the
whole new one, never a part.

`SYNCPOINT_KILLS=200` kills many more commands than the dozen of an ordinary test run.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import syncpoint as sp
from helpers.interrupted_commands import Forks
from helpers.small_disk import small_disk
from syncpoint.comparison.storage.comparison_folder import is_comparison, load
from syncpoint.comparison.storage.file_names import PROGRESS_LOG

KILLS = int(os.environ.get("SYNCPOINT_KILLS", "12"))
FEW = max(2, KILLS // 10)
_HTML = rb"(.*id=\"report-data\">)([^<]*)(<.*</html>\n)"
NOTHING_TO_RESUME = "note: out.cmp holds nothing to resume; starting from the beginning\n"
OLD = "a report from before\n"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@dataclass(frozen=True)
class Command:
    """A command and what it writes in the current folder."""

    arguments: tuple[str, ...]
    output: str
    replaces: bool = False
    """Whether it writes over what is there; else a second call refuses to."""

    def __str__(self) -> str:
        return self.arguments[0] + Path(self.output).suffix


def convert(output: str, format: str) -> Command:
    return Command(("convert", "../target.npz", output, "--to", format), output)


def report(flag: str, output: str) -> Command:
    return Command(("report", "../plain.cmp", flag, output, "-q"), output, replaces=True)


RESUMED = Command(
    ("compare", "../target.npz", "../reference.npz", "-o", "out.cmp", "--resume"), "out.cmp"
)
DIAGNOSED = Command(("diagnose", "out.cmp"), "out.cmp", replaces=True)
OVERWRITTEN = Command(("overwrite", "../other.cmp", "out.cmp"), "out.cmp", replaces=True)
COMMANDS = (
    convert("out.npz", "npz"),
    convert("out.safetensors", "safetensors"),
    convert("out", "npy"),
    convert("out.aimodelintermediates", "aimodelintermediates"),
    convert("out.run", "run"),
    report("--csv", "out.csv"),
    report("--json", "out.json"),
    report("--html", "out.html"),
    RESUMED,
    DIAGNOSED,
    OVERWRITTEN,
)


def content(path: Path) -> dict[str, bytes] | None:
    """All that is at a path, without the time of a comparison and the number of a report."""
    if not path.exists():
        return None
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    found = {}
    for file in files:
        data = file.read_bytes()
        if file.name == "comparison.json":
            body = {**json.loads(data), "created": ""}
            body.pop("checksum", None)
            data = json.dumps(body).encode()
        elif file.suffix == ".html" and data != OLD.encode():
            before, held, after = re.fullmatch(_HTML, data, re.DOTALL).groups()
            held = json.loads(zlib.decompress(base64.b64decode(held)))
            held["overview"]["id"] = ""
            data = before + json.dumps(held).encode() + after
        found[str(file.relative_to(path))] = data
    return found


def undiagnosed(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of a comparison as they are before its diagnosis."""
    body = {**json.loads(files["comparison.json"]), "diagnosis": None, "findings": []}
    return {**files, "comparison.json": json.dumps(body).encode()}


class Writers:
    """The process of interrupted_commands.py: runs commands that die."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.number = 0
        rng = np.random.default_rng(0)
        reference = {f"op{i}": rng.standard_normal((8, 16)).astype(np.float32) for i in range(4)}
        for name, error in (("target", 0.3), ("other", 0.6)):
            off = {k: v + (error if k == "op2" else 0) for k, v in reference.items()}
            np.savez(root / f"{name}.npz", **off)
        np.savez(root / "reference.npz", **reference)
        for name, source in (("plain", "target"), ("other", "other")):
            sp.compare(
                root / f"{source}.npz",
                root / "reference.npz",
                out=root / f"{name}.cmp",
                diagnose=False,
            )
        self.forks = Forks()
        self.whole: dict[Command, dict[str, bytes]] = {}
        self.operations: dict[Command, int] = {}
        self.seconds: dict[Command, float] = {}
        for command in COMMANDS:
            folder = self.prepare(command)
            start = time.monotonic()
            status, told = self.run(command, folder)
            self.seconds[command] = time.monotonic() - start
            assert os.WEXITSTATUS(status) in (0, 1), self.errors(folder)
            self.operations[command] = int(told)
            self.whole[command] = content(folder / command.output)

    def prepare(self, command: Command, old: bool = False) -> Path:
        """A folder for one call, on request with an older report in it."""
        self.number += 1
        folder = self.root / f"work{self.number}"
        folder.mkdir()
        if command in (DIAGNOSED, OVERWRITTEN):
            shutil.copytree(self.root / "plain.cmp", folder / command.output)
        elif old and command.replaces:
            (folder / command.output).write_text(OLD)
        return folder

    def run(self, command: Command, folder: Path, after: float | None = None, **how: float):
        """Status and count of a call; with `after` it is killed so many seconds later."""
        order = {"arguments": command.arguments, "folder": str(folder), **how}
        return self.forks.run(order, after)

    def errors(self, folder: Path) -> str:
        return Path(f"{folder}.stderr").read_text()

    def check(self, command: Command, folder: Path, before: dict[str, bytes] | None) -> str:
        """What a kill left: "old", "new" or "none"; then the same command must succeed."""
        output = folder / command.output
        state = self._state(command, output, before)
        # Whatever else there is, nobody takes for a file of theirs.
        others = {p.name for p in folder.iterdir()} - {command.output}
        assert all(name.startswith(".") and name.endswith(".partial") for name in others), others
        # A comparison that is saved and still has its log lacks its diagnosis: it is resumed.
        is_finished = not (output / PROGRESS_LOG).exists()
        status, told = self.run(command, folder)
        code = os.WEXITSTATUS(status)
        if state == "new" and not command.replaces and is_finished:
            assert code == 2 and self.errors(folder).count("\n") == 1, (told, self.errors(folder))
        else:
            assert os.WIFEXITED(status) and code in (0, 1), (told, self.errors(folder))
        assert content(output) == self.whole[command]
        assert [p.name for p in folder.iterdir()] == [command.output]
        return state

    def _state(self, command: Command, output: Path, before: dict[str, bytes] | None) -> str:
        if output.suffix == ".cmp":
            if not is_comparison(output):
                return "none"
            load(output)
            left = {k: v for k, v in content(output).items() if k in self.whole[command]}
            if (output / PROGRESS_LOG).exists() and undiagnosed(left) == undiagnosed(
                self.whole[command]
            ):
                return "new"  # saved, and killed before or during its diagnosis
        else:
            left = content(output)
        if left is None:
            assert before is None
            return "none"
        if left == self.whole[command]:
            return "new"
        assert left == before
        return "old"


@pytest.fixture(scope="module")
def writers(tmp_path_factory):
    made = Writers(tmp_path_factory.mktemp("writers"))
    yield made
    made.forks.close()


def spread(points: list, count: int) -> list:
    """So many of them, evenly."""
    if len(points) <= count:
        return points
    return [points[i * len(points) // count] for i in range(count)]


def test_a_command_killed_at_any_operation_of_its_write_leaves_old_or_new(writers):
    points = [(c, n + 1) for c in COMMANDS for n in range(writers.operations[c])]
    assert len(points) > 100
    states = set()
    for command, operation in spread(points, KILLS):
        folder = writers.prepare(command, old=operation % 2 == 0)
        before = content(folder / command.output)
        status, _ = writers.run(command, folder, die_at=operation)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        states.add(writers.check(command, folder, before))
    assert states == {"old", "new", "none"} or KILLS < 100


def test_a_write_that_ends_at_any_byte_leaves_old_or_new(writers):
    """The kernel ends the process in the middle of its write, whoever wrote it."""
    sizes = {c: max(len(data) for data in writers.whole[c].values()) for c in COMMANDS}
    sizes = {c: size for c, size in sizes.items() if c is not DIAGNOSED}
    points = [(c, size * k // 8) for c, size in sizes.items() for k in (1, 3, 5, 7)]
    for command, byte in spread(points, FEW):
        folder = writers.prepare(command, old=True)
        before = content(folder / command.output)
        status, _ = writers.run(command, folder, die_at_byte=byte)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXFSZ
        writers.check(command, folder, before)


def test_a_slow_write_killed_at_a_random_moment_leaves_old_or_new(writers):
    moments = random.Random(0)
    pause = 0.02
    for number in range(FEW):
        command = COMMANDS[number * 7 % len(COMMANDS)]
        folder = writers.prepare(command, old=True)
        before = content(folder / command.output)
        slow = writers.operations[command] * pause
        after = writers.seconds[command] * 0.8 + moments.uniform(0, slow)
        writers.run(command, folder, after, pause=pause)
        writers.check(command, folder, before)


# Writes that fail.


def check_refused(writers, command, folder, before, status):
    """One sentence, exit code 2, nothing left but what was there or the whole result."""
    text = writers.errors(folder).removeprefix(NOTHING_TO_RESUME)
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 2, text
    assert text.count("\n") == 1 and "cannot write" in text, text
    assert "partial" not in text
    left = content(folder / command.output)
    assert left in (before, writers.whole[command])
    assert {p.name for p in folder.iterdir()} <= {command.output}
    return text


def test_a_disk_that_is_full_from_any_operation_on_is_one_sentence(writers):
    skipped = (RESUMED,)  # has a log to go on from, and says so
    points = [
        (c, n + 1) for c in COMMANDS if c not in skipped for n in range(writers.operations[c])
    ]
    told = set()
    for command, operation in spread(points[::-1], KILLS // 3):
        folder = writers.prepare(command, old=True)
        before = content(folder / command.output)
        status, _ = writers.run(command, folder, fail_at=operation, error=errno.ENOSPC)
        if status and os.WEXITSTATUS(status) == 2:
            told.add(check_refused(writers, command, folder, before, status))
        else:  # only operations that need no room came after
            assert content(folder / command.output) == writers.whole[command]
    assert any("disk full (No space left on device); free space" in text for text in told)


def test_a_comparison_on_a_full_disk_is_one_sentence(writers):
    for operation in spread(range(1, writers.operations[RESUMED] + 1)[::-3], FEW // 2):
        folder = writers.prepare(RESUMED)
        status, _ = writers.run(RESUMED, folder, fail_at=operation, error=errno.ENOSPC)
        if os.WEXITSTATUS(status) != 1:  # 1: only operations that need no room came after
            text = writers.errors(folder).removeprefix(NOTHING_TO_RESUME)
            assert os.WEXITSTATUS(status) == 2 and text.count("\n") == 1 and "disk full" in text
        writers.check(RESUMED, folder, None)


def test_a_table_that_the_system_does_not_let_grow_is_one_sentence(writers):
    size = len(writers.whole[OVERWRITTEN]["syncpoints.parquet"])
    folder = writers.prepare(OVERWRITTEN)
    before = content(folder / "out.cmp")
    status, _ = writers.run(OVERWRITTEN, folder, fail_at_byte=size // 2)
    assert "File too large" in check_refused(writers, OVERWRITTEN, folder, before, status)
    assert content(folder / "out.cmp") == before


def test_a_report_that_does_not_fit_on_the_disk_leaves_the_old_one(writers, tmp_path):
    with small_disk(tmp_path / "disk", "128k") as disk:
        (disk / "out.html").write_text(OLD)
        code = "from syncpoint.cli import main; main()"
        done = subprocess.run(
            [
                *(sys.executable, "-c", code, "report", str(writers.root / "plain.cmp")),
                *("--html", str(disk / "out.html"), "-q"),
            ],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        assert done.stderr == (
            f"syncpoint: cannot write {disk}/out.html: disk full (No space left on device);"
            " free space or choose another path\n"
        )
        assert [p.name for p in disk.iterdir()] == ["out.html"]
        assert (disk / "out.html").read_text() == OLD


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.replaces][:3], ids=str)
def test_a_folder_in_the_way_stays(writers, command):
    folder = writers.prepare(command)
    (folder / command.output).mkdir()
    (folder / command.output / "precious").write_text("theirs")
    status, _ = writers.run(command, folder)
    text = check_refused(writers, command, folder, {"precious": b"theirs"}, status)
    assert "a folder has this name; choose another name" in text


def test_a_folder_that_may_not_be_written_is_one_sentence(writers):
    command = COMMANDS[5]
    folder = writers.prepare(command, old=True)
    status, _ = writers.run(command, folder, fail_at=1, error=errno.EACCES)
    text = check_refused(writers, command, folder, {".": OLD.encode()}, status)
    assert "Permission denied; check that you may write there, or choose another path" in text
