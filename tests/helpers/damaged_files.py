"""Damage runs and comparisons and see what is shown of them: one line of JSON a case.

Run as `damaged_files.py FOLDER FIRST LAST`: a process of its own, so that an abort is seen by the
test and ends nothing else. FOLDER has `a.cmp` with its two runs inside, and `older.cmp`, which has
no checksums. Each case is decided by its number.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import traceback
from pathlib import Path

from typer.testing import CliRunner

import syncpoint as sp
from syncpoint.cli.app import app
from syncpoint.errors import SyncpointError
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.overview import build_overview
from syncpoint.reports.json_report import as_json
from syncpoint.reports.terminal_report import as_text
from syncpoint.server.allowed_files import AllowedFolders
from syncpoint.server.past_comparisons import PastList

TENSOR_BYTES_ARE_VERIFIED = True
"""Whether comparing verifies the bytes of tensors. Where it does not, only the headers of shards
are changed, and shards are cut off and deleted."""
SHARD = "tensors-00000.safetensors"
HEADER_BYTES = 64 << 10
SOURCES = {"run": "a.cmp/target.run", "cmp": "a.cmp", "old": "older.cmp"}
TURNS = ("run", "cmp", "run", "cmp", "old")
KINDS = ("flip", "flip", "flips", "cut", "zero", "zero", "delete")


def damage(folder: Path, number: int) -> str:
    """Damage one file of a run or comparison; what was done to it."""
    draw = random.Random(number)
    within = folder.rglob("*") if folder.suffix == ".run" else folder.iterdir()
    files = sorted(path for path in within if path.is_file())
    file, kind = draw.choice(files), draw.choice(KINDS)
    data = bytearray(file.read_bytes())
    end = HEADER_BYTES if file.name == SHARD and not TENSOR_BYTES_ARE_VERIFIED else len(data)
    what = f"{kind} {file.relative_to(folder)}"
    if kind == "delete":
        file.unlink()
        return what
    if kind in ("flip", "flips"):
        places = [draw.randrange(end) for _ in range(1 if kind == "flip" else draw.randint(2, 20))]
        for place in places:
            data[place] ^= 1 << draw.randrange(8)
        what += f" at {places[:3]}"
    elif kind == "cut":
        length = draw.randrange(len(data))
        del data[length:]
        what += f" to {length} bytes"
    else:
        start = draw.randrange(end)
        length = min(draw.choice((1, 8, 64, 512, 4096)), end - start)
        data[start : start + length] = bytes(length)
        what += f" {length} bytes at {start}"
    file.write_bytes(data)
    return what


def report(path: Path) -> tuple[str, int]:
    """What the command prints, and its exit code."""
    done = CliRunner().invoke(app, ["report", str(path), "--rows", "0"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output, done.exit_code


def shown_of_comparison(path: Path) -> dict[str, object]:
    """Everything that a person or a program is shown of a comparison."""
    text, code = report(path)
    [listed] = PastList(AllowedFolders([path.parent]), path.parent / "out").list_all().comparisons
    return {
        "text": text,
        "code": code,
        "json": json.dumps(as_json(sp.open_comparison(path))),
        "page": build_overview(OpenComparison(path)).model_dump_json(),
        # The time of the file is not what was measured.
        "listed": listed.model_dump_json(exclude={"when"}),
    }


def shown_of_run(path: Path, reference: Path) -> dict[str, object]:
    """The records of a run, and what a comparison with it comes to."""
    run = sp.open_run(path)
    compared = sp.compare(run, reference, diagnose=False)
    said = as_json(compared)
    sources = [run.source_text(frame.file) for op in run.ops for frame in op.source]
    return {
        "text": as_text(compared),
        "code": compared.exit_code(),
        "json": json.dumps(said),
        "records": f"{run.info!r} {list(run.ops)!r} {list(run.tensors)!r} {sources!r}",
    }


def shown(base: Path, place: Path, kind: str, number: int | None) -> tuple[str, dict[str, object]]:
    """What is shown of a copy, damaged unless `number` is None; or the error, in one line."""
    source = base / SOURCES[kind]
    copy = place / source.name
    shutil.copytree(source, copy)
    done = "" if number is None else damage(copy, number)
    try:
        if kind == "run":
            return done, shown_of_run(copy, base / "a.cmp" / "reference.run")
        return done, shown_of_comparison(copy)
    except SyncpointError as error:
        return done, {"error": str(error), "code": error.exit_code}
    finally:
        shutil.rmtree(copy)


def judged(kind: str, sound: dict[str, object], now: dict[str, object]) -> str:
    """What is wrong with what is shown of damaged files; "" if nothing."""
    if "error" in now:
        error = str(now["error"])
        return "" if "\n" not in error and now["code"] == 2 else f"no one-line refusal: {error}"
    if kind == "old":
        silent = [name for name in ("text", "json", "page") if "unverified" not in str(now[name])]
        return f"not called unverified: {', '.join(silent)}" if silent else ""
    changed = [name for name in sound if sound[name] != now[name]]
    if changed and not any("damaged" in str(now[name]) for name in changed):
        return f"changed without a word: {', '.join(changed)}"
    if sound["code"] != 0 and now["code"] == 0:
        return "exit code 0"
    return ""


def main() -> None:
    base, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    place = base / f"cases-{first}"
    place.mkdir()
    sound = {kind: shown(base, place, kind, None)[1] for kind in SOURCES}
    for number in range(first, last):
        kind, done, now = TURNS[number % len(TURNS)], "", {}
        try:
            done, now = shown(base, place, kind, number)
            wrong = judged(kind, sound[kind], now)
        except BaseException:  # a panic of Polars is no Exception
            wrong = traceback.format_exc()
        outcome = "refused" if "error" in now else "same" if now == sound[kind] else "said"
        line = {"case": number, "what": f"{kind}: {done}", "wrong": wrong, "outcome": outcome}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
