"""Read shape, dtype and storage of a tensor from the pickle inside a `.pt` file, with a small
machine that executes no code.

A pickle is a program. Those of torch are short: they name a storage, and how the tensor lies in
it. This module follows the few instructions that they need over plain values. It never calls
anything, and refuses every instruction or name that is not listed below.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass
from math import prod
from typing import Any

from syncpoint.errors import FormatError, InputError, describe_error
from syncpoint.run import dtypes
from syncpoint.run.dtypes import DType

_STORAGES = {
    "Double": "f64",
    "Float": "f32",
    "Half": "f16",
    "BFloat16": "bf16",
    "Long": "i64",
    "Int": "i32",
    "Short": "i16",
    "Char": "i8",
    "Byte": "u8",
    "Bool": "bool",
    "ComplexFloat": "c64",
    "ComplexDouble": "c128",
}
_REBUILDS = {
    "torch._utils _rebuild_tensor_v2": (6,),
    "torch._utils _rebuild_tensor_v3": (7,),
    "torch._utils _rebuild_parameter": (3,),
    "torch_npu.utils.storage _rebuild_npu_tensor": (7,),
    "torch_npu.npu._format Format": (1,),
}
"""Functions that rebuild a tensor, with the number of their arguments. Those of torch_npu come from
older versions: an ordinary tensor, and its layout on the device."""
_HOOKS = "collections OrderedDict"
_UNTYPED = "torch.storage UntypedStorage"
_NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1")
_PUSHES = frozenset({*_NUMBERS, "BINUNICODE", "SHORT_BINUNICODE", "NEWTRUE", "NEWFALSE", "NONE"})
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MAX_AXES = 64


@dataclass(frozen=True, kw_only=True)
class PickledTensor:
    """A tensor as its pickle describes it; offset and strides in elements."""

    dtype: DType
    storage: str
    """Name of the storage's file in the archive."""
    stored: int
    """Size of the storage in elements; in bytes if it has no type."""
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class _Name:
    """A global name in the pickle; never looked up."""

    text: str


@dataclass(frozen=True)
class _Storage:
    dtype: DType | None
    """None for an untyped storage."""
    name: str
    count: int


class _Hooks:
    """The empty dictionary that torch writes if there are no hooks."""


_MARK = object()


def read_pickled_tensor(pickle: bytes, where: str) -> PickledTensor:
    """Read the one tensor that a pickle describes; anything else is a FormatError."""
    machine = _Machine(where)
    try:
        for opcode, argument, _ in pickletools.genops(pickle):
            machine.step(opcode.name, argument)
    except (ValueError, IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise FormatError(
            f"the pickle in {where} does not describe a tensor: {describe_error(error)}",
            cure="save only the tensor in the file, detached and contiguous",
        ) from error
    return machine.tensor()


class _Machine:
    """Stack machine over plain values, with a memory."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._stack: list[Any] = []
        self._memory: dict[int, Any] = {}

    def step(self, opcode: str, argument: Any) -> None:
        """Execute one instruction."""
        stack = self._stack
        if opcode in ("PROTO", "FRAME", "STOP"):
            pass
        elif opcode in _PUSHES:
            value = {"NEWTRUE": True, "NEWFALSE": False}.get(opcode, argument)
            stack.append(value)
        elif opcode == "GLOBAL":
            stack.append(_Name(argument))
        elif opcode == "STACK_GLOBAL":
            name, module = stack.pop(), stack.pop()
            stack.append(_Name(f"{module} {name}"))
        elif opcode in ("BINPUT", "LONG_BINPUT"):
            self._memory[argument] = stack[-1]
        elif opcode == "MEMOIZE":
            self._memory[len(self._memory)] = stack[-1]
        elif opcode in ("BINGET", "LONG_BINGET"):
            stack.append(self._memory[argument])
        elif opcode == "MARK":
            stack.append(_MARK)
        elif opcode == "EMPTY_TUPLE":
            stack.append(())
        elif opcode in _TUPLES:
            self._tuple(len(stack) - _TUPLES[opcode])
        elif opcode == "TUPLE":
            mark_index = max(i for i, value in enumerate(stack) if value is _MARK)
            self._tuple(mark_index + 1)
            del stack[mark_index]
        elif opcode == "BINPERSID":
            stack.append(self._storage(stack.pop()))
        elif opcode == "REDUCE":
            arguments, called = stack.pop(), stack.pop()
            stack.append(self._rebuild(called, arguments))
        else:
            raise FormatError(
                f"the pickle in {self._where} has the instruction {opcode}, which a plain tensor"
                " does not need and which is not executed",
                cure="save only the tensor in the file, detached and contiguous",
            )

    def tensor(self) -> PickledTensor:
        """Return the tensor that the program left on the stack."""
        if len(self._stack) != 1 or not isinstance(self._stack[0], PickledTensor):
            raise FormatError(
                f"{self._where} does not contain exactly one tensor",
                cure="save only the tensor in the file, without other objects",
            )
        return self._stack[0]

    def _tuple(self, start: int) -> None:
        if start < 0:
            raise ValueError("a tuple takes more values than the stack has")
        values = tuple(self._stack[start:])
        if any(value is _MARK for value in values):
            raise ValueError("a tuple crosses a mark")
        self._stack[start:] = [values]

    def _storage(self, reference: object) -> _Storage:
        """Parse `("storage", type, name of the file, device, number of elements)`."""
        if not isinstance(reference, tuple) or len(reference) != 5 or reference[0] != "storage":
            raise ValueError("a persistent id does not refer to a storage")
        _, kind, name, _, count = reference
        if not isinstance(kind, _Name) or type(count) is not int or count < 0:
            raise ValueError("a storage has no type or size")
        if not isinstance(name, str) or not name.isascii() or not name.isdigit() or len(name) > 20:
            raise ValueError(f"a storage has the name {str(name)[:40]!r}")
        if kind.text == _UNTYPED:
            return _Storage(None, name, count)
        module, _, typed = kind.text.partition(" ")
        dtype = _STORAGES.get(typed.removesuffix("Storage")) if module == "torch" else None
        if dtype is None or not typed.endswith("Storage"):
            raise ValueError(f"a storage has the unknown type {kind.text[:60]}")
        return _Storage(dtypes.DTYPES[dtype], name, count)

    def _rebuild(self, called: object, arguments: object) -> object:
        name = called.text if isinstance(called, _Name) else type(called).__name__
        if name == _HOOKS and arguments == ():
            return _Hooks()
        counts = _REBUILDS.get(name)
        if counts is None or not isinstance(arguments, tuple):
            raise FormatError(
                f"the pickle in {self._where} calls {name[:80]}; Syncpoint never calls code from a"
                " dump",
                cure="save only the tensor in the file, detached and contiguous",
            )
        if len(arguments) not in counts:
            raise ValueError(f"{name} with {len(arguments)} arguments")
        if name.endswith("_rebuild_parameter"):
            if not isinstance(arguments[0], PickledTensor):
                raise ValueError("a parameter has no tensor")
            return arguments[0]
        if name.endswith("Format"):
            return arguments[0]
        return _tensor(arguments, typed=name.endswith("_v3"))


def _tensor(arguments: tuple[Any, ...], typed: bool) -> PickledTensor:
    storage, offset, shape, strides = arguments[:4]
    if not isinstance(storage, _Storage) or not isinstance(arguments[5], _Hooks):
        raise ValueError("a tensor has no storage, or has hooks")
    dtype = storage.dtype
    if typed:
        if dtype is not None or not isinstance(arguments[6], _Name):
            raise ValueError("a tensor has two types")
        dtype = _dtype(arguments[6].text)
    if dtype is None:
        raise ValueError("a tensor has no type")
    if not _naturals((offset,)) or not _naturals(shape) or not _naturals(strides):
        raise ValueError("offset, shape and strides must be integers from 0 up")
    if len(shape) != len(strides) or len(shape) > _MAX_AXES:
        raise ValueError(f"{len(shape)} axes and {len(strides)} strides")
    if prod(n for n in shape if n) > 1 << 60 or max((offset, *strides)) > 1 << 60:
        raise ValueError("the shape is too large")
    return PickledTensor(
        dtype=dtype,
        storage=storage.name,
        stored=storage.count,
        offset=offset,
        shape=shape,
        strides=strides,
    )


def _dtype(name: str) -> DType:
    module, _, short = name.partition(" ")
    try:
        return dtypes.parse_dtype(short if module == "torch" else name)
    except InputError as error:
        raise ValueError(f"unknown element type {name[:60]}") from error


def _naturals(values: object) -> bool:
    return isinstance(values, tuple) and all(type(v) is int and v >= 0 for v in values)
