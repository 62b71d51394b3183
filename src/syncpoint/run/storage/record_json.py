"""Convert ops, tensors, keys, statistics and quantization to JSON and back; check that a parsed
value is text, integer or object.

The journal stores all of them in this form, the tables only nested parts; for the facts of a run
see `run_json`. A value that JSON cannot represent becomes its text; NaN and infinities are written
as Python's json module does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from syncpoint.errors import FormatError, SyncpointError
from syncpoint.run.model import (
    Edge,
    Frame,
    Kept,
    Op,
    OpKey,
    Part,
    Quantization,
    Role,
    Statistics,
    Tensor,
    TensorKey,
)
from syncpoint.run.storage.record_checks import check_op_key, check_tensor

T = TypeVar("T")
_CURE = "the file may be damaged, or written by another version of Syncpoint: create it again"


def to_plain_json(value: object) -> object:
    """Convert what JSON cannot represent: NumPy numbers and arrays to numbers, all else to text."""
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biuf":
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return str(value)


to_json_text = json.JSONEncoder(
    default=to_plain_json, separators=(",", ":"), check_circular=False
).encode
"""Compact JSON; one encoder for all calls: creating one costs more than encoding most records."""


def op_key_to_json(key: OpKey) -> list[Any]:
    """The fields of OpKey in order."""
    return list(key.row())


def op_key_from_json(body: list[Any]) -> OpKey:
    """Inverse of `op_key_to_json`."""
    op, call, graph, path, iteration = body
    return check_op_key(
        OpKey(
            expect_text(op),
            expect_int(call),
            expect_text(graph),
            expect_text(path),
            expect_int(iteration),
        )
    )


def op_to_json(op: Op) -> dict[str, Any]:
    """All fields of an op."""
    return {
        "key": op_key_to_json(op.key),
        "type": op.type,
        "inputs": [[op_key_to_json(e.op), e.index, e.role.value] for e in op.inputs],
        "attributes": dict(op.attributes),
        "module": op.module,
        "module_type": op.module_type,
        "source": [[f.file, f.line, f.function] for f in op.source],
        "origins": list(op.origins),
        "random": op.random,
    }


def op_from_json(body: Mapping[str, Any]) -> Op:
    """Inverse of `op_to_json`."""
    return Op(
        key=op_key_from_json(body["key"]),
        type=expect_text(body["type"]),
        inputs=tuple(
            Edge(op_key_from_json(key), expect_int(index), Role(role))
            for key, index, role in body["inputs"]
        ),
        attributes=expect_object(body["attributes"]),
        module=expect_text(body["module"]),
        module_type=expect_text(body["module_type"]),
        source=tuple(
            Frame(expect_text(f), expect_int(n), expect_text(w)) for f, n, w in body["source"]
        ),
        origins=tuple(expect_text(o) for o in body["origins"]),
        random=bool(body["random"]),
    )


def tensor_to_json(tensor: Tensor) -> dict[str, Any]:
    """All fields of a tensor, without its values."""
    key, part = tensor.key, tensor.key.part
    return {
        "key": [op_key_to_json(key.op), key.role.value, key.index],
        "part": [part.sample, part.step, part.rank],
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "kept": tensor.kept.value,
        "strides": None if tensor.strides is None else list(tensor.strides),
        "layout": tensor.layout,
        "device": tensor.device,
        "alias_of": tensor.alias_of,
        "quantization": quantization_to_json(tensor.quantization),
        "requires_grad": tensor.requires_grad,
        "address": tensor.address,
        "shard": tensor.shard,
        "offset": tensor.offset,
        "nbytes": tensor.nbytes,
        "statistics": statistics_to_json(tensor.statistics),
        "digest": tensor.digest,
        "digest_kind": tensor.digest_kind,
    }


def tensor_from_json(body: Mapping[str, Any]) -> Tensor:
    """Inverse of `tensor_to_json`; raises FormatError if the tensor breaks `check_tensor`."""
    op, role, index = body["key"]
    strides, address = body["strides"], body["address"]
    tensor = Tensor(
        key=TensorKey(
            op_key_from_json(op),
            Role(role),
            expect_int(index),
            Part(*(expect_int(p) for p in body["part"])),
        ),
        dtype=expect_text(body["dtype"]),
        shape=tuple(expect_int(d) for d in body["shape"]),
        kept=Kept(body["kept"]),
        strides=None if strides is None else tuple(expect_int(s) for s in strides),
        layout=expect_text(body["layout"]),
        device=expect_text(body["device"]),
        alias_of=expect_text(body["alias_of"]),
        quantization=quantization_from_json(body["quantization"]),
        requires_grad=body["requires_grad"],
        address=None if address is None else expect_int(address),
        shard=expect_text(body["shard"]),
        offset=expect_int(body["offset"]),
        nbytes=expect_int(body["nbytes"]),
        statistics=statistics_from_json(body["statistics"]),
        digest=expect_text(body["digest"]),
        digest_kind=expect_text(body["digest_kind"]),
        name=expect_text(body["name"]),
    )
    check_tensor(tensor)
    return tensor


STATISTICS = tuple(f.name for f in fields(Statistics))
"""Names of the statistics, in the order of their columns."""


def statistics_to_json(statistics: Statistics | None) -> list[float] | None:
    """The numbers in the order of `STATISTICS`."""
    return None if statistics is None else [getattr(statistics, name) for name in STATISTICS]


def statistics_from_json(figures: Sequence[Any] | None) -> Statistics | None:
    """Inverse of `statistics_to_json`."""
    if figures is None:
        return None
    count, low, high, mean, std, l2, nan, inf, zero = figures
    return Statistics(
        count=count, min=low, max=high, mean=mean, std=std, l2=l2, nan=nan, inf=inf, zero=zero
    )


def quantization_to_json(quantization: Quantization | None) -> dict[str, Any] | None:
    """All fields of a quantization."""
    if quantization is None:
        return None
    return {
        "scale": list(quantization.scale),
        "zero_point": list(quantization.zero_point),
        "axis": quantization.axis,
        "block": quantization.block,
        "table": list(quantization.table),
    }


def quantization_from_json(body: Mapping[str, Any] | None) -> Quantization | None:
    """Inverse of `quantization_to_json`."""
    if body is None:
        return None
    axis = body["axis"]
    return Quantization(
        scale=tuple(float(s) for s in body["scale"]),
        zero_point=tuple(expect_int(z) for z in body["zero_point"]),
        axis=None if axis is None else expect_int(axis),
        block=expect_int(body["block"]),
        table=tuple(float(t) for t in body["table"]),
    )


def parse_record(parse: Callable[[Any], T], body: object, where: str) -> T:
    """Call `parse(body)`; turn the errors of a wrong structure into FormatError."""
    try:
        return parse(body)
    except SyncpointError as error:
        if where in str(error):
            raise
        raise FormatError(
            f"{where} is not valid: {error.problem}", cure=error.cure or _CURE
        ) from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FormatError(
            f"{where} contains a malformed record ({type(error).__name__}: {error})", cure=_CURE
        ) from error


def expect_text(value: object) -> str:
    """Return `value` if it is a string, else raise TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def expect_int(value: object) -> int:
    """Return `value` if it is an integer, else raise TypeError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not an integer")
    return value


def expect_object(value: object) -> dict[str, Any]:
    """Return `value` if it is a JSON object, else raise TypeError."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return value
