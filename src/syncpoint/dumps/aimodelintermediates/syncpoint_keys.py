"""The key `syncpoint` that we add to `metadata.json`: ops, tensors and facts of a run to JSON and
back, without defaults.

Each entry and the file itself may have the key; Apple's loader ignores it. Only values that are
not the default are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from syncpoint.errors import FormatError
from syncpoint.run.dtypes import DType
from syncpoint.run.model import Kept, Op, RunInfo, Tensor
from syncpoint.run.storage.record_json import (
    op_from_json,
    op_to_json,
    tensor_from_json,
    tensor_to_json,
)
from syncpoint.run.storage.run_json import info_from_json, info_to_json

Array = NDArray[Any]

KEY = "syncpoint"
SCHEMA = 1
_CURE = "create the .aimodelintermediates folder again"
_OP_DEFAULTS: Mapping[str, Any] = {
    "inputs": [],
    "attributes": {},
    "module": "",
    "module_type": "",
    "source": [],
    "origins": [],
    "random": False,
}
_TENSOR_DEFAULTS: Mapping[str, Any] = {
    "part": [-1, -1, -1],
    "name": "",
    "strides": None,
    "layout": "",
    "device": "",
    "alias_of": "",
    "quantization": None,
    "requires_grad": None,
}
_NOT_WRITTEN: Mapping[str, Any] = {
    "kept": Kept.DIGEST.value,
    "address": None,
    "shard": "",
    "offset": 0,
    "nbytes": 0,
    "statistics": None,
    "digest": "",
    "digest_kind": "",
}
"""Fields that the .npy file has itself, or that another tool's edit would make wrong."""


@dataclass(frozen=True)
class EntryFacts:
    """What one entry has under our key."""

    tensor: Tensor | None
    """Without its file and offset; None where `same_as` names another entry."""
    op: Op | None
    """The op that computed it; written once, with the first of its tensors."""
    also: tuple[Tensor, ...]
    """The same values in other roles: as a model output, or as the new value of a buffer."""
    same_as: str
    """The entry of which this one is only another name."""


def make_entry_facts(tensor: Tensor, op: Op | None, also: Sequence[Tensor]) -> dict[str, Any]:
    """Make what an entry has under our key."""
    body: dict[str, Any] = {"tensor": _drop_defaults(tensor_to_json(tensor), _TENSOR_DEFAULTS)}
    del body["tensor"]["shape"]
    if op is not None:
        body["op"] = _drop_defaults(op_to_json(op), _OP_DEFAULTS)
    if also:
        rows = [_drop_defaults(tensor_to_json(other), _TENSOR_DEFAULTS) for other in also]
        body["also"] = [
            {k: v for k, v in row.items() if k not in ("shape", "dtype")} for row in rows
        ]
    return body


def parse_entry_facts(body: object, dtype: DType, shape: tuple[int, ...]) -> EntryFacts:
    """Inverse of `make_entry_facts`; `parse_record` turns what it raises into a FormatError."""
    if not isinstance(body, dict):
        raise FormatError(
            f"the value of the key {KEY} is not a JSON object but a {type(body).__name__}",
            cure=_CURE,
        )
    same_as = body.get("same_as", "")
    if not isinstance(same_as, str):
        raise TypeError(f"{same_as!r} is not text")
    if same_as:
        return EntryFacts(None, None, (), same_as)
    in_file = {"dtype": dtype.name, "shape": list(shape)}
    tensor = _parse_tensor(in_file | dict(body["tensor"]) | {"shape": list(shape)})
    op = op_from_json({**_OP_DEFAULTS, **body["op"]}) if "op" in body else None
    shared = {"dtype": tensor.dtype, "shape": list(shape)}
    also = tuple(_parse_tensor({**other, **shared}) for other in body.get("also", ()))
    return EntryFacts(tensor, op, also, "")


def make_run_facts(info: RunInfo) -> dict[str, Any]:
    """Make what the file has under our key, beside Apple's categories."""
    return {"schema": SCHEMA, "info": info_to_json(info)}


def parse_run_facts(body: object) -> RunInfo:
    """Inverse of `make_run_facts`."""
    if not isinstance(body, dict) or body.get("schema") != SCHEMA:
        schema = body.get("schema") if isinstance(body, dict) else type(body).__name__
        raise FormatError(
            f"the key {KEY} has schema {repr(schema)[:80]}, not {SCHEMA}",
            cure="open it with the version of Syncpoint that wrote it",
        )
    return info_from_json(body["info"])


def _parse_tensor(body: Mapping[str, Any]) -> Tensor:
    grad = body.get("requires_grad")
    if grad is not None and not isinstance(grad, bool):
        raise TypeError(f"{grad!r} is neither true nor false")
    tensor = tensor_from_json({**_TENSOR_DEFAULTS, **body, **_NOT_WRITTEN})
    quantization = tensor.quantization
    misfit = quantization.describe_misfit(tensor.shape) if quantization is not None else ""
    if misfit:
        raise FormatError(
            f"the quantization of {tensor.key} does not fit its shape, because {misfit}", cure=_CURE
        )
    return tensor


def _drop_defaults(body: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what is a default, and what is not written for tensors."""
    dropped = _NOT_WRITTEN if defaults is _TENSOR_DEFAULTS else {}
    return {
        name: value
        for name, value in body.items()
        if name not in dropped and not (name in defaults and value == defaults[name])
    }
