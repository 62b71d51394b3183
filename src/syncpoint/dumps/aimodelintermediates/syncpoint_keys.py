"""What we add to the entries of an `.aimodelintermediates` folder: ops and tensors as we know them.

Everything lies under one key, `syncpoint`, of an entry and of the whole, which Apple's loader
passes over. Only what is not the default is written.
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
_OP: Mapping[str, Any] = {
    "inputs": [],
    "attributes": {},
    "module": "",
    "module_type": "",
    "source": [],
    "origins": [],
    "random": False,
}
_TENSOR: Mapping[str, Any] = {
    "part": [-1, -1, -1],
    "name": "",
    "strides": None,
    "layout": "",
    "device": "",
    "alias_of": "",
    "quantization": None,
    "requires_grad": None,
}
_NOT_KEPT: Mapping[str, Any] = {
    "kept": Kept.DIGEST.value,
    "address": None,
    "shard": "",
    "offset": 0,
    "nbytes": 0,
    "statistics": None,
    "digest": "",
    "digest_kind": "",
}
"""What the .npy file says itself, or what would be wrong once another tool has edited it."""


@dataclass(frozen=True)
class Facts:
    """What one entry says of itself in our own words."""

    tensor: Tensor | None
    """Without a place in a file."""
    op: Op | None
    """The op that made it; given once, with the first of its tensors."""
    also: tuple[Tensor, ...]
    """The same values in other roles: as a model output, as the new value of a buffer."""
    same_as: str
    """The entry of which this one is only another name."""


def entry_facts(tensor: Tensor, op: Op | None, also: Sequence[Tensor]) -> dict[str, Any]:
    """What is written beside Apple's keys."""
    body: dict[str, Any] = {"tensor": _short(tensor_to_json(tensor), _TENSOR, _NOT_KEPT)}
    del body["tensor"]["shape"]
    if op is not None:
        body["op"] = _short(op_to_json(op), _OP)
    if also:
        rows = [_short(tensor_to_json(other), _TENSOR, _NOT_KEPT) for other in also]
        body["also"] = [
            {k: v for k, v in row.items() if k not in ("shape", "dtype")} for row in rows
        ]
    return body


def parse_facts(body: object, dtype: DType, shape: tuple[int, ...]) -> Facts:
    """Inverse of `entry_facts`; what a wrong structure raises is for `records.parsed`."""
    if not isinstance(body, dict):
        raise FormatError(f"an object under {KEY}", type(body).__name__)
    same_as = body.get("same_as", "")
    if not isinstance(same_as, str):
        raise TypeError(f"{same_as!r} is not text")
    if same_as:
        return Facts(None, None, (), same_as)
    told = {"dtype": dtype.name, "shape": list(shape)}
    tensor = _tensor(told | dict(body["tensor"]) | {"shape": list(shape)})
    op = op_from_json({**_OP, **body["op"]}) if "op" in body else None
    held = {"dtype": tensor.dtype, "shape": list(shape)}
    also = tuple(_tensor({**other, **held}) for other in body.get("also", ()))
    return Facts(tensor, op, also, "")


def run_facts(info: RunInfo) -> dict[str, Any]:
    """What is written beside Apple's categories."""
    return {"schema": SCHEMA, "info": info_to_json(info)}


def parse_run_facts(body: object) -> RunInfo:
    """Inverse of `run_facts`."""
    if not isinstance(body, dict) or body.get("schema") != SCHEMA:
        found = body.get("schema") if isinstance(body, dict) else type(body).__name__
        raise FormatError(f"schema {SCHEMA} under {KEY}", f"{found!r}"[:80])
    return info_from_json(body["info"])


def _tensor(body: Mapping[str, Any]) -> Tensor:
    grad = body.get("requires_grad")
    if grad is not None and not isinstance(grad, bool):
        raise TypeError(f"{grad!r} is neither true nor false")
    found = tensor_from_json({**_TENSOR, **body, **_NOT_KEPT})
    if found.quantization is not None and found.quantization.describe_misfit(found.shape):
        raise FormatError(
            f"a quantization that fits {found.key}", found.quantization.describe_misfit(found.shape)
        )
    return found


def _short(body: dict[str, Any], defaults: Mapping[str, Any], *left_out: Any) -> dict[str, Any]:
    dropped = {name for names in left_out for name in names}
    return {
        name: value
        for name, value in body.items()
        if name not in dropped and not (name in defaults and value == defaults[name])
    }
