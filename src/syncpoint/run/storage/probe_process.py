"""Decode a Parquet table without a checksum in another process first, since a damaged one can crash
the decoder.

A damaged Parquet file makes Polars panic, or allocate so much memory that the process is aborted. A
checksum detects damage before that. Files older than checksums are decoded here first: only this
process aborts, and the caller continues with an error. A server decodes every table here first,
since a hostile table can have a valid checksum. One process serves all tables; it ends with the
process that started it.
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
"""Time limit for one table; 100 MB of Parquet take a few seconds."""
_MAX_MEMORY_BYTES = 4 << 30
"""Address space for one table, plus 16 times its size."""
_SLICE_ROWS = 100_000
_MAX_DETAIL_CHARS = 200


def probe(path: Path, data: bytes) -> str:
    """Say what is wrong with a table whose bytes at `path` are `data`; "" if it can be decoded."""
    digest = xxhash.xxh3_128_hexdigest(data)
    with _lock:
        if digest in _decodable_digests:
            return ""
        damage = _probe_process().ask(path, data, digest)
        if not damage:
            if len(_decodable_digests) >= _MAX_REMEMBERED_DIGESTS:
                _decodable_digests.clear()
            _decodable_digests.add(digest)
        return damage


def probe_every_table() -> None:
    """Probe tables with a checksum too: for servers, which must survive a hostile table."""
    global _every_table
    _every_table = True


def is_every_table_probed() -> bool:
    """Whether tables with a checksum are probed too."""
    return _every_table


_every_table = False
_decodable_digests: set[str] = set()
"""Digests of tables that were decoded successfully."""
_MAX_REMEMBERED_DIGESTS = 10_000
_lock = threading.Lock()
_current_process: _ProbeProcess | None = None


def _probe_process() -> _ProbeProcess:
    """Return the probe process; a new one after a crash, and in a forked process."""
    global _current_process
    if _current_process is None or not _current_process.is_usable():
        _current_process = _ProbeProcess()
    return _current_process


class _ProbeProcess:
    def __init__(self) -> None:
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            # -P: a file in the current folder must not replace a module of Python.
            [sys.executable, "-P", "-m", "syncpoint.run.storage.probe_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def is_usable(self) -> bool:
        """Whether it is running, and was started by this process."""
        return self._owner == os.getpid() and self._process.poll() is None

    def ask(self, path: Path, data: bytes, digest: str) -> str:
        """Let the process decode the table; returns the damage, or ""."""
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
            return f"decoding it ended the process ({_describe_exit(process.wait())})"
        response = json.loads(answer)
        if response["damage"]:
            return str(response["damage"])
        if response["digest"] != digest:
            return "it was changed while it was read"
        return ""


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def _serve() -> None:
    """Answer one question per line until the input ends."""
    # Interrupts are for the process that asks; it ends this one by closing its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        question = json.loads(line)
        _limit_memory(int(question["bytes"]))
        sys.stdout.write(json.dumps(_decode_table(Path(question["path"]))) + "\n")
        sys.stdout.flush()


def _limit_memory(nbytes: int) -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES + 16 * nbytes, hard))


def _decode_table(path: Path) -> dict[str, str]:
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
            "damage": describe_error(error)[:_MAX_DETAIL_CHARS] or "it cannot be decoded",
            "digest": "",
        }
    except SyncpointError as error:
        return {"damage": error.problem, "digest": ""}
    return {"damage": "", "digest": xxhash.xxh3_128_hexdigest(data)}


if __name__ == "__main__":
    _serve()
