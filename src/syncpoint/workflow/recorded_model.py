"""Check that a model has the ops that a run was recorded with, by running it again; attach its
session to the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from syncpoint.errors import InputError
from syncpoint.runtimes.inputs.read_inputs import read_recorded_inputs
from syncpoint.workflow.capture import capture

if TYPE_CHECKING:
    from syncpoint.run.reader import Run


def attach_session(run: Run, model: object, options: Mapping[str, Any]) -> Run:
    """Attach the session of its model to a recorded reference, so that ops can be run again.

    The model is run once on the recorded inputs: it must reproduce the recorded tensors.
    """
    from syncpoint.run.model import Role

    inputs = read_recorded_inputs(run)
    if inputs is None:
        raise InputError(
            "the reference run has no recorded inputs, so its model cannot be run",
            cure="record the run with its inputs",
        )
    rerun = capture(model, inputs, **{**options, "record": "digest"})
    pairs = [
        (tensor, recorded)
        for tensor in rerun.tensors
        if (recorded := run.tensor(tensor.key)) is not None
    ]
    different = [str(a.key) for a, b in pairs if rerun.content_id(a) != run.content_id(b)]
    # Equal weights alone do not show that the model was run in the same way.
    computed = [
        tensor for tensor, _ in pairs if tensor.key.role in (Role.OUTPUT, Role.MODEL_OUTPUT)
    ]
    if different or not computed:
        detail = f"it has other values at {different[0]}" if different else "other ops or samples"
        raise InputError(
            f"this is not the model that the reference run was recorded from: {detail}",
            cure="give the model of the recording with --reference-model, with the same options",
        )
    run.session = rerun.session
    return run


def check_target_model(run: Run, model: object, options: Mapping[str, Any]) -> None:
    """Raise InputError unless the model has the ops that the target was recorded with.

    Its values may differ: that may be the fault that the diagnosis looks for.
    """
    inputs = read_recorded_inputs(run)
    if inputs is None:
        return
    rerun = capture(model, inputs, **{**options, "record": "digest"})
    recorded_ops = {op.key for op in run.ops}
    ops = {op.key for op in rerun.ops}
    shared = len(recorded_ops & ops)
    if recorded_ops and 2 * shared < len(recorded_ops):
        raise InputError(
            "--target-model is not the model that the target was recorded from: "
            f"it has only {shared} of the {len(recorded_ops)} ops of the recording",
            cure="give the model of the recording with --target-model, with the same options",
        )
