"""Decoding a table without a checksum in another process, to see whether it can be decoded.

A damaged Parquet file makes Polars panic, or ask for so much memory that the process is aborted. A
checksum finds damage before that. Files that are older than checksums are decoded here first: the
process that aborts is this one, and what called it goes on with an error. A server has every table
decoded here first, since a table that is made to harm can have a checksum that fits. One process
serves all tables; it ends with the one that started it.
"""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import xxhash

_MAX_SECONDS = 60.0
"""Time for one table; 100 MB of Parquet take a few seconds."""
_MAX_MEMORY = 4 << 30
"""Address space for one table, and in addition 16 times its size."""
_SLICE_ROWS = 100_000
_MAX_DETAIL = 200


def probe(path: Path, data: bytes) -> str:
    """What is wrong with a table whose bytes, read from `path`, are `data`; "" if it decodes."""
    digest = xxhash.xxh3_128_hexdigest(data)
    with _lock:
        if digest in _decodable:
            return ""
        damage = _prober().ask(path, data, digest)
        if not damage:
            if len(_decodable) >= _MAX_REMEMBERED:
                _decodable.clear()
            _decodable.add(digest)
        return damage


def probe_every_table() -> None:
    """Probe tables with a checksum too: for a process that goes on when one of them is hostile."""
    global _every_table
    _every_table = True


def is_every_table_probed() -> bool:
    """Whether tables with a checksum are probed as well."""
    return _every_table


_every_table = False
_decodable: set[str] = set()
"""Digests of tables that were decoded without trouble."""
_MAX_REMEMBERED = 10_000
_lock = threading.Lock()
_running: _Prober | None = None


def _prober() -> _Prober:
    """The process for tables; a new one after a crash, and in a process that was forked."""
    global _running
    if _running is None or not _running.is_usable():
        _running = _Prober()
    return _running


class _Prober:
    def __init__(self) -> None:
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            # -P: a file of the current folder must not stand in for a module of Python's own.
            [sys.executable, "-P", "-m", "syncpoint.run.storage.table_probe"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def is_usable(self) -> bool:
        """Whether it still runs, and is this process's own."""
        return self._owner == os.getpid() and self._process.poll() is None

    def ask(self, path: Path, data: bytes, digest: str) -> str:
        """Have the table decoded."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        question = {"path": str(path.absolute()), "bytes": len(data)}
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], _MAX_SECONDS)
        if not ready:
            process.kill()
            process.wait()
            return f"it could not be decoded within {_MAX_SECONDS:g} seconds"
        answer = process.stdout.readline()
        if not answer.endswith(b"\n"):
            return f"decoding it ended the process ({_ending(process.wait())})"
        said = json.loads(answer)
        if said["damage"]:
            return str(said["damage"])
        if said["digest"] != digest:
            return "it was changed while it was read"
        return ""


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def _serve() -> None:
    """Answer one question a line, until there are no more."""
    # Interrupts are meant for the process that asks; it ends this one by closing its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        question = json.loads(line)
        _limit_memory(int(question["bytes"]))
        sys.stdout.write(json.dumps(_examined(Path(question["path"]))) + "\n")
        sys.stdout.flush()


def _limit_memory(nbytes: int) -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY + 16 * nbytes, hard))


def _examined(path: Path) -> dict[str, str]:
    import polars as pl
    from polars.exceptions import PanicException, PolarsError

    from syncpoint.errors import SyncpointError, describe_error
    from syncpoint.files.untrusted_files import read_whole

    try:
        data = read_whole(path, sys.maxsize)
        rows = int(pl.scan_parquet(io.BytesIO(data)).select(pl.len()).collect().item())
        for start in range(0, rows, _SLICE_ROWS):
            pl.scan_parquet(io.BytesIO(data)).slice(start, _SLICE_ROWS).collect()
    except (PolarsError, PanicException, OSError, OverflowError, MemoryError) as error:
        return {
            "damage": describe_error(error)[:_MAX_DETAIL] or "it cannot be decoded",
            "digest": "",
        }
    except SyncpointError as error:
        return {"damage": error.found, "digest": ""}
    return {"damage": "", "digest": xxhash.xxh3_128_hexdigest(data)}


if __name__ == "__main__":
    _serve()
