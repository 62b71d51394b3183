"""A process and its descendants (from /proc or ps): measure their memory, kill them, adopt orphans,
end with the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

_RSS_FIELD = 21
"""Index of the resident pages among the fields of /proc/PID/stat that follow the name."""
_MAX_KILL_ROUNDS = 20
_KILL_PAUSE_S = 0.01
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    rss: int
    """Resident bytes."""


def memory_of_tree(root: int) -> int:
    """Resident bytes of a process and its descendants. Shared pages count in each of them."""
    processes = _list_processes()
    members = _find_members(root, processes)
    return sum(process.rss for process in processes if process.pid in members)


def kill_tree(root: int) -> None:
    """Kill the child process `root` and its descendants, also those that lose their parent
    meanwhile. The caller reaps the child itself."""
    adopt_orphans()
    own = os.getpid()
    for _ in range(_MAX_KILL_ROUNDS):
        processes = _list_processes()
        # Orphans become children of this process, which has no other child than `root`.
        if _IS_LINUX:
            victims = _find_members(own, processes) - {own}
        else:
            victims = _find_members(root, processes)
        _reap_orphans(victims - {root})
        alive = {pid for pid in victims if not _is_zombie(pid)}
        if not alive:
            return
        for pid in alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_KILL_PAUSE_S)


def adopt_orphans() -> None:
    """Make descendants whose parent ends children of this process (Linux)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """End this process when its parent ends, however that happens."""
    if _IS_LINUX:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return
    import threading

    threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()


_IS_LINUX = sys.platform == "linux"


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if not _IS_LINUX:
        return
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _find_members(root: int, processes: list[_Process]) -> set[int]:
    children: dict[int, list[int]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process.pid)
    members, queue = {root}, [root]
    while queue:
        for pid in children.get(queue.pop(), ()):
            if pid not in members:
                members.add(pid)
                queue.append(pid)
    return members


def _list_processes() -> list[_Process]:
    if not _IS_LINUX:
        return _list_with_ps()
    page = os.sysconf("SC_PAGE_SIZE")
    processes = []
    for name in os.listdir("/proc"):  # noqa: PTH208  # as below
        if name.isdigit() and (fields := _read_stat(int(name))):
            processes.append(_Process(int(name), int(fields[1]), int(fields[_RSS_FIELD]) * page))
    return processes


def _read_stat(pid: int) -> list[bytes]:
    """Read the fields of /proc/PID/stat after the name, which may contain blanks and brackets."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  # the parent stays light
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _is_zombie(pid: int) -> bool:
    return _IS_LINUX and _read_stat(pid)[:1] in ([], [b"Z"])


def _reap_orphans(pids: set[int]) -> None:
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _list_with_ps() -> list[_Process]:
    listing = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,rss="], capture_output=True, text=True, check=False
    ).stdout
    rows = (line.split() for line in listing.splitlines())
    return [_Process(int(row[0]), int(row[1]), int(row[2]) * 1024) for row in rows if len(row) == 3]
