"""The worker process of a session: runs one comparison, checks that a model opens, or saves an
unfinished comparison; sends events as JSON.

Started as `python -m syncpoint.workers.comparison_worker`.

Models are code and may crash, hang or print; in this process they do not harm the server. The
order comes as a line of JSON on stdin, events are sent as lines of JSON on stdout, and what models
print goes to stderr. Stdin stays open as long as the server runs: when it closes, this process
group ends.
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

_MIN_STEP_SECONDS = 0.1
"""Time between two events about the same stage."""


class EventSender:
    """Sends events to the server, those about the same stage not too often."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last: tuple[Stage | None, float] = (None, 0.0)

    def send_step(self, step: Step) -> None:
        """Send the progress of a stage, unless the last event about it was just sent."""
        now = time.monotonic()
        stage, last_sent = self._last
        is_too_early = step.stage is stage and now - last_sent < _MIN_STEP_SECONDS
        if is_too_early and not (step.finished or step.drift):
            return
        self._last = (step.stage, now)
        self.send(
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

    def send(self, kind: str, **fields: Any) -> None:
        """Send one event."""
        self._out.write(json.dumps({"kind": kind, **fields}) + "\n")
        self._out.flush()


def main() -> None:
    """Carry out the order on stdin."""
    # A shell that starts a server in the background makes it ignore this signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _flush_native_output_by_line()
    sender = EventSender(out)
    order = json.loads(_read_line())
    threading.Thread(target=_end_with_server, daemon=True).start()
    try:
        if "check" in order:
            _check_model(order["check"], sender)
        elif "so far" in order:
            _save_unfinished(order["so far"], sender)
        else:
            _run_comparison(order, sender)
    except NoShape as error:
        # The form has a field where the command line has an option.
        cure = f"fill in Shapes, such as {error.example}, or take the inputs from a file"
        sender.send("problem", problem=error.problem, cure=cure)
    except SyncpointError as error:
        sender.send("problem", problem=error.problem, cure=error.cure)
    except KeyboardInterrupt:
        sys.exit(130)
    except BaseException as error:  # models may raise anything, SystemExit too
        from syncpoint.runtimes.exception_text import one_line

        traceback.print_exc()
        sender.send("problem", problem=f"the comparison failed: {one_line(error)}", cure="")


def _flush_native_output_by_line() -> None:
    """Make C and C++ code flush what it prints after each line, as Python does (PYTHONUNBUFFERED);
    into a pipe it would flush after some kilobytes."""
    with suppress(OSError, ValueError, AttributeError):
        libc = ctypes.CDLL(None)
        name = "__stdoutp" if sys.platform == "darwin" else "stdout"
        line_by_line = 1
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, name), None, line_by_line, ctypes.c_size_t(0))


def _check_model(order: dict[str, Any], sender: EventSender) -> None:
    """Open a model without running it, and send its inputs."""
    from syncpoint.runtimes.options import parse_options
    from syncpoint.runtimes.protocol import Declares
    from syncpoint.runtimes.registry import load_runtime

    started = time.monotonic()
    chosen = load_runtime(order["runtime"])
    session = chosen.open(order["model"], parse_options(chosen, order["options"]))
    declared = session.inputs() if isinstance(session, Declares) else ()
    inputs = [
        {"name": i.name, "shape": None if i.shape is None else list(i.shape), "dtype": i.dtype}
        for i in declared
    ]
    sender.send("opened", inputs=inputs, seconds=time.monotonic() - started)


def _save_unfinished(order: dict[str, Any], sender: EventSender) -> None:
    """Save what an unfinished comparison has measured so far, as a comparison; no model is run."""
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
    sender.send("written")


def _run_comparison(order: dict[str, Any], sender: EventSender) -> None:
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
        watch=sender.send_step,
    )
    sender.send(
        "done",
        verdict=comparison.verdict.value,
        headline=verdict_line(comparison),
        warnings=[*comparison.warnings, *_list_diagnosis_failures(comparison)],
    )


def _list_diagnosis_failures(comparison: Comparison) -> list[str]:
    diagnosis = comparison.diagnosis
    return list(diagnosis.failures) if diagnosis is not None else []


def _read_line() -> bytes:
    # Not by sys.stdin: a thread that waits in it holds a lock that Python needs at exit.
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1 << 16)
        if not piece:
            break
        line += piece
    return line


def _end_with_server() -> None:
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
