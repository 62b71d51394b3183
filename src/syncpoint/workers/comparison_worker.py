"""The process that makes one comparison of a session.

Started as `python -m syncpoint.workers.comparison_worker`.

Models are code and may crash, hang or print; here they do so alone. The order comes as a line of
JSON on stdin, what happens goes out as lines of JSON on stdout, and all that models print is sent
to stderr. Stdin stays open as long as the server lives: when it ends, so does this process group.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from syncpoint.comparison.events import Stage, Step
from syncpoint.errors import NoShape, SyncpointError
from syncpoint.runtimes.inputs.shapes import InputShape

if TYPE_CHECKING:
    from syncpoint.api import Comparison

_PAUSE = 0.1
"""Seconds between two reports on the same stage."""


class Teller:
    """Sends events, those about the same stage not too often."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last: tuple[Stage | None, float] = (None, 0.0)

    def step(self, step: Step) -> None:
        """Where a stage stands."""
        now = time.monotonic()
        stage, before = self._last
        if step.stage is stage and now - before < _PAUSE and not (step.finished or step.drift):
            return
        self._last = (step.stage, now)
        self.tell(
            "step",
            stage=step.stage.value,
            done=step.done,
            total=step.total,
            finished=step.finished,
            text=step.text,
            opened=step.opened,
            counts=dict(step.counts),
            drift=step.drift and asdict(step.drift),
        )

    def tell(self, kind: str, **facts: Any) -> None:
        """One event."""
        self._out.write(json.dumps({"kind": kind, **facts}) + "\n")
        self._out.flush()


def main() -> None:
    """Make the comparison that stdin orders."""
    # A shell that starts a server in the background has it ignore this signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _print_at_once()
    teller = Teller(out)
    order = json.loads(_line())
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    try:
        if "check" in order:
            _check(order["check"], teller)
        elif "so far" in order:
            _so_far(order["so far"], teller)
        else:
            _compare(order, teller)
    except NoShape as error:
        # The form has a field where the command line has an option.
        cure = f"fill in Shapes, such as {error.example}, or take the inputs from a file"
        teller.tell("problem", problem=error.problem, cure=cure)
    except SyncpointError as error:
        teller.tell("problem", problem=error.problem, cure=error.cure)
    except KeyboardInterrupt:
        sys.exit(130)
    except BaseException as error:  # models may raise anything, SystemExit too
        from syncpoint.runtimes.exception_text import one_line

        traceback.print_exc()
        teller.tell("problem", problem=f"the comparison failed: {one_line(error)}", cure="")


def _print_at_once() -> None:
    """Have what C and C++ code prints sent line by line, as Python does (PYTHONUNBUFFERED): into
    a pipe it would come when some kilobytes of it are there."""
    with suppress(OSError, ValueError, AttributeError):
        libc = ctypes.CDLL(None)
        name = "__stdoutp" if sys.platform == "darwin" else "stdout"
        line_by_line = 1
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, name), None, line_by_line, ctypes.c_size_t(0))


def _check(order: dict[str, Any], teller: Teller) -> None:
    """Open a model, run nothing, and say what it takes."""
    from syncpoint.runtimes.options import parse_options
    from syncpoint.runtimes.protocol import Declares
    from syncpoint.runtimes.registry import load_runtime

    began = time.monotonic()
    chosen = load_runtime(order["runtime"])
    session = chosen.open(order["model"], parse_options(chosen, order["options"]))
    declared = session.inputs() if isinstance(session, Declares) else ()
    inputs = [
        {"name": i.name, "shape": None if i.shape is None else list(i.shape), "dtype": i.dtype}
        for i in declared
    ]
    teller.tell("opened", inputs=inputs, seconds=time.monotonic() - began)


def _so_far(order: dict[str, Any], teller: Teller) -> None:
    """Write down what an unfinished comparison has come to, as a comparison; no model is run."""
    from syncpoint.comparison.engine import Options, compare
    from syncpoint.comparison.storage.comparison_folder import save
    from syncpoint.comparison.storage.progress_log import ProgressLog
    from syncpoint.run.storage.open_run import open_run
    from syncpoint.workflow.compare_request import choose_limits
    from syncpoint.workflow.resolve_sides import open_recording

    folder, call = Path(order["folder"]), order["call"]
    log = ProgressLog.open_read_only(folder)
    target, reference = (
        open_recording(call[side]) or open_run(folder / f"{side}.run")
        for side in ("target", "reference")
    )
    chosen = choose_limits(call["preset"])
    options = Options(choice=chosen, introduced=call["introduced"], log=log, unfinished=True)
    save(compare(target, reference, options), Path(order["into"]))
    teller.tell("written")


def _compare(order: dict[str, Any], teller: Teller) -> None:
    from syncpoint import api
    from syncpoint.reports.verdict_line import verdict_line

    call = dict(order["call"])
    shapes = {
        name: InputShape(tuple(dims), dtype) for name, (dims, dtype) in call["shapes"].items()
    }
    out = Path(order["out"])
    comparison = api.compare(
        call.pop("target"),
        call.pop("reference"),
        **{**call, "shapes": shapes},
        out=out,
        store=out,
        resume=order["resume"],
        watch=teller.step,
    )
    teller.tell(
        "done",
        verdict=comparison.verdict.value,
        headline=verdict_line(comparison),
        warnings=[*comparison.warnings, *_failures(comparison)],
    )


def _failures(comparison: Comparison) -> list[str]:
    """The lines of the report that say that the diagnosis failed."""
    made = comparison.diagnosis
    return list(made.failures) if made is not None else []


def _line() -> bytes:
    # Not by sys.stdin: a thread that waits in it holds a lock that Python needs at its end.
    said = b""
    while not said.endswith(b"\n"):
        piece = os.read(0, 1 << 16)
        if not piece:
            break
        said += piece
    return said


def _end_with_the_server() -> None:
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
