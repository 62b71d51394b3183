"""What a result keeps of each run: model, runtime, precision (or dtypes of a dump), notes, and
which ops each op reads."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import OpKey, Role
from syncpoint.run.reader import Run


def run_facts(run: Run) -> dict[str, Any]:
    """The facts of one run, as `comparison.json` keeps them."""
    info = run.info
    observer = None
    if info.observer is not None:
        observer = asdict(info.observer)
    return {
        "path": str(run.path) if run.path else "",
        # Hashing a dump without digests would read all of it again.
        "digest": run.digest() if all(t.digest for t in run.tensors) else "",
        "model": info.model,
        "runtime": info.runtime,
        "runtime_version": info.runtime_version,
        "options": dict(info.options),
        "device": info.device,
        "precision": info.precision or _precision_of(run),
        "fusion": info.fusion,
        "observer": observer,
        "complete": info.complete,
        "missing": info.missing,
        "notes": list(info.notes),
        "environment": dict(info.environment),
        "other_outputs": {name: o.to_json() for name, o in info.other_outputs.items()},
    }


def _precision_of(run: Run) -> str:
    """The stored dtypes of a run, for dumps that do not record their precision."""
    kinds = (Kind.FLOAT, Kind.COMPLEX)
    dtypes = {t.dtype for t in run.tensors if DTYPES[t.dtype].kind in kinds}
    return "+".join(sorted(dtypes))


def op_inputs(run: Run) -> dict[OpKey, tuple[OpKey, ...]]:
    """The ops of a run with the ops that they read."""
    return {
        op.key: tuple(edge.op for edge in op.inputs if edge.role in (Role.OUTPUT, Role.STATE))
        for op in run.ops
    }
