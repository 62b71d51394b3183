"""The model behind a recording, run once more to see that it is the one that was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from syncpoint.errors import InputError
from syncpoint.workflow.capture import capture, inputs_of

if TYPE_CHECKING:
    from syncpoint.run.reader import Run


def attach_session(run: Run, model: object, options: Mapping[str, Any]) -> Run:
    """Give a recorded reference the session of its model, so that ops can be run on other values.

    The model is run once on the recorded inputs: only one that gives the recorded tensors again is
    the one that was recorded.
    """
    from syncpoint.run.model import Role

    inputs = inputs_of(run)
    if inputs is None:
        raise InputError("recorded inputs in the reference run", "none")
    rerun = capture(model, inputs, **{**options, "record": "digest"})
    pairs = [
        (tensor, recorded)
        for tensor in rerun.tensors
        if (recorded := run.tensor(tensor.key)) is not None
    ]
    unlike = [str(a.key) for a, b in pairs if rerun.content_id(a) != run.content_id(b)]
    # Weights alone do not tell how the model was run.
    computed = [
        tensor for tensor, _ in pairs if tensor.key.role in (Role.OUTPUT, Role.MODEL_OUTPUT)
    ]
    if unlike or not computed:
        raise InputError(
            "the model that the reference run was recorded from",
            f"other values at {unlike[0]}" if unlike else "a model with other ops or samples",
            "name the model and options of the recording",
        )
    run.session = rerun.session
    return run


def check_target_model(run: Run, model: object, options: Mapping[str, Any]) -> None:
    """Check that a model is the one that the target was recorded from: it has its ops.

    Its values need not be the same; that they are not may be what is looked for.
    """
    inputs = inputs_of(run)
    if inputs is None:
        return
    rerun = capture(model, inputs, **{**options, "record": "digest"})
    recorded_ops, ops = ({op.key for op in one.ops} for one in (run, rerun))
    shared = len(recorded_ops & ops)
    if recorded_ops and 2 * shared < len(recorded_ops):
        raise InputError(
            "the model that the target was recorded from as --target-model",
            f"one that shares {shared} of its {len(recorded_ops)} ops",
            "name the model and options of the recording",
        )
