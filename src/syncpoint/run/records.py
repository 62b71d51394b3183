"""The records of the data model as JSON, and the rules every record from a file must keep.

The journal holds all of them in this form, the tables their nested parts, `run.json` the facts.
A value that JSON has no form for becomes its text; NaN and the infinities are written the way
Python's json module does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from math import prod
from typing import Any, TypeVar

import numpy as np

from syncpoint.errors import FormatError, SyncpointError
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import (
    Edge,
    Frame,
    Kept,
    Observer,
    Op,
    OpKey,
    OtherOutput,
    Part,
    Quantization,
    Role,
    RunInfo,
    Statistics,
    Tensor,
    TensorKey,
)
from syncpoint.run.storage.shards import SHARD_NAME

_MAX_RANK = 64
"""What NumPy can hold."""
_MAX_COUNT = 1 << 60
"""More elements than any machine has; keeps products of hostile shapes within bounds."""

T = TypeVar("T")


def plain(value: object) -> object:
    """What JSON has no form for: NumPy's numbers and arrays as numbers, all else as text."""
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biuf":
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return str(value)


to_text = json.JSONEncoder(default=plain, separators=(",", ":"), check_circular=False).encode
"""Compact JSON; one encoder for all, as making one costs more than most records do."""


def op_key_to_json(key: OpKey) -> list[Any]:
    """The order is that of the fields of OpKey."""
    return list(key.row())


def op_key_from_json(body: list[Any]) -> OpKey:
    """Inverse of `op_key_to_json`."""
    op, call, graph, path, iteration = body
    return check_op_key(OpKey(_text(op), _int(call), _text(graph), _text(path), _int(iteration)))


def op_to_json(op: Op) -> dict[str, Any]:
    """Everything of an op."""
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
        type=_text(body["type"]),
        inputs=tuple(
            Edge(op_key_from_json(key), _int(index), Role(role))
            for key, index, role in body["inputs"]
        ),
        attributes=_mapping(body["attributes"]),
        module=_text(body["module"]),
        module_type=_text(body["module_type"]),
        source=tuple(Frame(_text(f), _int(n), _text(w)) for f, n, w in body["source"]),
        origins=tuple(_text(o) for o in body["origins"]),
        random=bool(body["random"]),
    )


def tensor_to_json(tensor: Tensor) -> dict[str, Any]:
    """Everything of a tensor but its bytes."""
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
    """Inverse of `tensor_to_json`; the result keeps the rules of `check_tensor`."""
    op, role, index = body["key"]
    strides, address = body["strides"], body["address"]
    tensor = Tensor(
        key=TensorKey(
            op_key_from_json(op), Role(role), _int(index), Part(*(_int(p) for p in body["part"]))
        ),
        dtype=_text(body["dtype"]),
        shape=tuple(_int(d) for d in body["shape"]),
        kept=Kept(body["kept"]),
        strides=None if strides is None else tuple(_int(s) for s in strides),
        layout=_text(body["layout"]),
        device=_text(body["device"]),
        alias_of=_text(body["alias_of"]),
        quantization=quantization_from_json(body["quantization"]),
        requires_grad=body["requires_grad"],
        address=None if address is None else _int(address),
        shard=_text(body["shard"]),
        offset=_int(body["offset"]),
        nbytes=_int(body["nbytes"]),
        statistics=statistics_from_json(body["statistics"]),
        digest=_text(body["digest"]),
        digest_kind=_text(body["digest_kind"]),
        name=_text(body["name"]),
    )
    check_tensor(tensor)
    return tensor


STATISTICS = tuple(f.name for f in fields(Statistics))
"""Names of the figures, in the order of their columns."""


def statistics_to_json(statistics: Statistics | None) -> list[float] | None:
    """The figures in the order of `STATISTICS`."""
    return None if statistics is None else [getattr(statistics, name) for name in STATISTICS]


def statistics_from_json(figures: Sequence[Any] | None) -> Statistics | None:
    """Inverse of `statistics_to_json`."""
    if figures is None:
        return None
    count, low, high, mean, std, l2, nan, inf, zero = figures
    return Statistics(
        count=count, min=low, max=high, mean=mean, std=std, l2=l2, nan=nan, inf=inf, zero=zero
    )


def quantization_to_json(found: Quantization | None) -> dict[str, Any] | None:
    """Everything of a quantization."""
    if found is None:
        return None
    return {
        "scale": list(found.scale),
        "zero_point": list(found.zero_point),
        "axis": found.axis,
        "block": found.block,
        "table": list(found.table),
    }


def quantization_from_json(body: Mapping[str, Any] | None) -> Quantization | None:
    """Inverse of `quantization_to_json`."""
    if body is None:
        return None
    axis = body["axis"]
    return Quantization(
        scale=tuple(float(s) for s in body["scale"]),
        zero_point=tuple(_int(z) for z in body["zero_point"]),
        axis=None if axis is None else _int(axis),
        block=_int(body["block"]),
        table=tuple(float(t) for t in body["table"]),
    )


def info_to_json(info: RunInfo) -> dict[str, Any]:
    """The facts of a run, by the names of RunInfo's fields."""
    body: dict[str, Any] = {f.name: getattr(info, f.name) for f in fields(RunInfo)}
    body["options"] = dict(info.options)
    body["environment"] = dict(info.environment)
    body["other_outputs"] = {name: o.to_json() for name, o in info.other_outputs.items()}
    body["record"] = info.record.value
    body["notes"] = list(info.notes)
    if info.observer is not None:
        body["observer"] = {"equal": info.observer.equal, "detail": info.observer.detail}
    return body


def info_from_json(body: Mapping[str, Any]) -> RunInfo:
    """Inverse of `info_to_json`; fields that a file leaves out have their defaults."""
    known: dict[str, Any] = {}
    for field in fields(RunInfo):
        if field.name in body:
            known[field.name] = body[field.name]
    for name in ("model", "runtime", "runtime_version", "device", "precision", "fusion", "missing"):
        known[name] = _text(known.get(name, ""))
    known["options"] = _mapping(known.get("options", {}))
    known["environment"] = {k: str(v) for k, v in _mapping(known.get("environment", {})).items()}
    others = _mapping(known.get("other_outputs", {}))
    known["other_outputs"] = {k: OtherOutput.from_json(str(v)) for k, v in others.items()}
    known["record"] = Kept(known.get("record", Kept.VALUES))
    known["notes"] = tuple(_text(n) for n in known.get("notes", ()))
    observer = known.get("observer")
    if observer is not None:
        known["observer"] = Observer(bool(observer["equal"]), _text(observer.get("detail", "")))
    # Runs that are older than this fact: one runtime compiled.
    known["compiled"] = known.get("compiled", known["runtime"] == "inductor") is True
    known["complete"] = known.get("complete", False) is True
    return RunInfo(**known)


def parsed(parse: Callable[[Any], T], body: object, where: str) -> T:
    """`parse(body)`, with whatever a wrong structure makes it raise turned into FormatError."""
    try:
        return parse(body)
    except SyncpointError as error:
        if where in str(error):
            raise
        raise FormatError(error.expected, f"{error.found} in {where}", error.cure) from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        found = f"{type(error).__name__}: {error}"
        raise FormatError(f"a record of schema 1 in {where}", found) from error


def check_op_key(key: OpKey) -> OpKey:
    """A key as a recorder makes it."""
    if key.call < 0 or key.iteration < 0:
        raise FormatError("call and iteration not below 0", f"{key.call} and {key.iteration}")
    return key


def check_tensor(tensor: Tensor) -> None:
    """The rules between the columns of a tensor; breaking one is a FormatError."""
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        raise _broken(tensor, "a known dtype", repr(tensor.dtype))
    shape = tensor.shape
    if len(shape) > _MAX_RANK or (shape and min(shape) < 0):
        raise _broken(tensor, f"at most {_MAX_RANK} axes, none negative", str(tensor.shape)[:80])
    # Zeros are left out: an empty axis must not hide the absurd size of another.
    count = prod(shape)
    if count > _MAX_COUNT or (count == 0 and prod(filter(None, shape)) > _MAX_COUNT):
        raise _broken(tensor, "a size that a machine can hold", f"shape {str(tensor.shape)[:80]}")
    if tensor.offset < 0 or tensor.nbytes < 0 or tensor.key.index < 0:
        raise _broken(
            tensor,
            "offset, nbytes and index not below 0",
            f"{tensor.offset}, {tensor.nbytes} and {tensor.key.index}",
        )
    if tensor.kept is Kept.VALUES:
        whole = dtype.nbytes(count)
        if tensor.nbytes != whole:
            found = f"nbytes {tensor.nbytes}"
            raise _broken(tensor, f"{whole} bytes of {dtype} in shape {tensor.shape}", found)
        if whole and not SHARD_NAME.fullmatch(tensor.shard):
            raise _broken(tensor, "a shard named tensors-NNNNN.safetensors", repr(tensor.shard))
    elif tensor.nbytes or tensor.shard:
        raise _broken(tensor, f"no bytes of a tensor kept as {tensor.kept}", f"{tensor.nbytes}")


def _broken(tensor: Tensor, expected: str, found: str) -> FormatError:
    return FormatError(f"{expected} for {tensor.key}", found)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _int(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not an integer")
    return value


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return value
