"""Run the target with its ops one by one instead of fused, compare with the reference, find the
same row or a guilty op in that run."""

from __future__ import annotations

from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.run.model import Role
from syncpoint.run.reader import Run
from syncpoint.runtimes.protocol import Unfuses
from syncpoint.runtimes.registry import load_recorded_runtime

WHY = "the target with its ops run one by one"


def can_be_unfused(case: Case) -> bool:
    """Whether the target's runtime fused its ops and can also run them one by one."""
    return find_fusing_runtime(case) is not None and case.result.target.get("fusion") != "unfused"


def find_fusing_runtime(case: Case) -> Unfuses | None:
    """Return the target's runtime if it fuses ops and can run them one by one."""
    runtime: object = load_recorded_runtime(str(case.result.target.get("runtime", "")))
    return runtime if isinstance(runtime, Unfuses) else None


def run_unfused(case: Case) -> Run | None:
    """Run the target's model with its ops one by one; None if that is not possible."""
    runtime = find_fusing_runtime(case)
    if runtime is None or not can_be_unfused(case):
        return None
    return case.rerun("target", WHY, None, **runtime.unfused_options())


def compare_unfused(case: Case) -> Result | None:
    """Compare the unfused run with the reference, with introduced error if it can be known."""
    run = run_unfused(case)
    if run is None:
        return None
    if case.cache.get("unfused") is None:
        case.cache["unfused"] = case.compare_again(run)
    result: Result | None = case.cache["unfused"]
    return result


def find_counterpart(unfused: Result, row: Row) -> Row | None:
    """Find the row of the unfused run for the same tensor of the reference."""
    roles = (Role.OUTPUT, Role.MODEL_OUTPUT)
    same = [r for r in unfused.rows if r.reference.key == row.reference.key]
    same = [r for r in same if r.target.key.role in roles and not r.unmeasured]
    return same[0] if same else None


def list_replaced_ops(row: Row) -> set[str]:
    """Return the reference's ops between a row and the sync points before it."""
    region = row.introduced.region if row.introduced is not None else ()
    return {str(row.reference.key.op), *region}


def find_culprit(unfused: Result, row: Row) -> Row | None:
    """Find an op that is guilty in the unfused run too, among the ops of a row's region.

    Fused ops may be paired with other tensors than their parts: a tensor may be right although the
    one right before it is wrong.
    """
    names = list_replaced_ops(row)
    guilty = (r for r in unfused.rows if r.guilty and r.target.key.role is Role.OUTPUT)
    return next((r for r in guilty if names & list_replaced_ops(r)), None)
