"""The target once more with its ops one by one, compared with the reference: what becomes of an
op's error when nothing is fused."""

from __future__ import annotations

from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.run.model import Role
from syncpoint.run.reader import Run
from syncpoint.runtimes.protocol import Unfuses
from syncpoint.runtimes.registry import load_recorded_runtime

WHY = "the target again, op by op"


def can_be_unfused(case: Case) -> bool:
    """Whether the runtime of the target fuses, did so, and can be told not to."""
    return fusing_runtime(case) is not None and case.result.target.get("fusion") != "unfused"


def fusing_runtime(case: Case) -> Unfuses | None:
    """The runtime of the target, if it is one that fuses ops and can run them one by one."""
    runtime: object = load_recorded_runtime(str(case.result.target.get("runtime", "")))
    return runtime if isinstance(runtime, Unfuses) else None


def unfused_run(case: Case) -> Run | None:
    """The target's model run op by op; None where that cannot be done."""
    runtime = fusing_runtime(case)
    if runtime is None or not can_be_unfused(case):
        return None
    return case.again("target", WHY, None, **runtime.unfused_options())


def unfused(case: Case) -> Result | None:
    """That run against the reference, introduced error included where it can be known."""
    run = unfused_run(case)
    if run is None:
        return None
    if case.memory.get("unfused") is None:
        case.memory["unfused"] = case.compare_again(run)
    result: Result | None = case.memory["unfused"]
    return result


def counterpart(found: Result, row: Row) -> Row | None:
    """The row of the unfused run at the same tensor of the reference."""
    roles = (Role.OUTPUT, Role.MODEL_OUTPUT)
    same = [r for r in found.rows if r.reference.key == row.reference.key]
    same = [r for r in same if r.target.key.role in roles and not r.unmeasured]
    return same[0] if same else None


def stands_for(row: Row) -> set[str]:
    """The reference's ops between a row and the sync points before it."""
    region = row.introduced.region if row.introduced is not None else ()
    return {str(row.reference.key.op), *region}


def culprit(found: Result, row: Row) -> Row | None:
    """An op that is guilty op by op too, among those that a row stands for. Fused ops may be
    paired with other tensors than their parts: what is right at one place may be wrong right
    before it."""
    names = stands_for(row)
    guilty = (r for r in found.rows if r.guilty and r.target.key.role is Role.OUTPUT)
    return next((r for r in guilty if names & stands_for(r)), None)
