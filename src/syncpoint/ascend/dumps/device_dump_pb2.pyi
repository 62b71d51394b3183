from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Shape(_message.Message):
    __slots__ = ("dim",)
    DIM_FIELD_NUMBER: _ClassVar[int]
    dim: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dim: _Optional[_Iterable[int]] = ...) -> None: ...

class OriginalOp(_message.Message):
    __slots__ = ("name", "output_index", "data_type", "format")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_INDEX_FIELD_NUMBER: _ClassVar[int]
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    output_index: int
    data_type: int
    format: int
    def __init__(self, name: _Optional[bytes] = ..., output_index: _Optional[int] = ..., data_type: _Optional[int] = ..., format: _Optional[int] = ...) -> None: ...

class DimRange(_message.Message):
    __slots__ = ("dim_start", "dim_end")
    DIM_START_FIELD_NUMBER: _ClassVar[int]
    DIM_END_FIELD_NUMBER: _ClassVar[int]
    dim_start: int
    dim_end: int
    def __init__(self, dim_start: _Optional[int] = ..., dim_end: _Optional[int] = ...) -> None: ...

class OpOutput(_message.Message):
    __slots__ = ("data_type", "format", "shape", "original_op", "data", "size", "original_shape", "sub_format", "address", "dim_range", "arg_index")
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_OP_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_SHAPE_FIELD_NUMBER: _ClassVar[int]
    SUB_FORMAT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DIM_RANGE_FIELD_NUMBER: _ClassVar[int]
    ARG_INDEX_FIELD_NUMBER: _ClassVar[int]
    data_type: int
    format: int
    shape: Shape
    original_op: OriginalOp
    data: bytes
    size: int
    original_shape: Shape
    sub_format: int
    address: int
    dim_range: _containers.RepeatedCompositeFieldContainer[DimRange]
    arg_index: int
    def __init__(self, data_type: _Optional[int] = ..., format: _Optional[int] = ..., shape: _Optional[_Union[Shape, _Mapping]] = ..., original_op: _Optional[_Union[OriginalOp, _Mapping]] = ..., data: _Optional[bytes] = ..., size: _Optional[int] = ..., original_shape: _Optional[_Union[Shape, _Mapping]] = ..., sub_format: _Optional[int] = ..., address: _Optional[int] = ..., dim_range: _Optional[_Iterable[_Union[DimRange, _Mapping]]] = ..., arg_index: _Optional[int] = ...) -> None: ...

class OpInput(_message.Message):
    __slots__ = ("data_type", "format", "shape", "data", "size", "original_shape", "sub_format", "address", "offset", "arg_index", "input_type")
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_SHAPE_FIELD_NUMBER: _ClassVar[int]
    SUB_FORMAT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ARG_INDEX_FIELD_NUMBER: _ClassVar[int]
    INPUT_TYPE_FIELD_NUMBER: _ClassVar[int]
    data_type: int
    format: int
    shape: Shape
    data: bytes
    size: int
    original_shape: Shape
    sub_format: int
    address: int
    offset: int
    arg_index: int
    input_type: int
    def __init__(self, data_type: _Optional[int] = ..., format: _Optional[int] = ..., shape: _Optional[_Union[Shape, _Mapping]] = ..., data: _Optional[bytes] = ..., size: _Optional[int] = ..., original_shape: _Optional[_Union[Shape, _Mapping]] = ..., sub_format: _Optional[int] = ..., address: _Optional[int] = ..., offset: _Optional[int] = ..., arg_index: _Optional[int] = ..., input_type: _Optional[int] = ...) -> None: ...

class OpBuffer(_message.Message):
    __slots__ = ("buffer_type", "data", "size")
    BUFFER_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    buffer_type: int
    data: bytes
    size: int
    def __init__(self, buffer_type: _Optional[int] = ..., data: _Optional[bytes] = ..., size: _Optional[int] = ...) -> None: ...

class OpAttr(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    value: bytes
    def __init__(self, name: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class Workspace(_message.Message):
    __slots__ = ("type", "data", "size", "arg_index")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ARG_INDEX_FIELD_NUMBER: _ClassVar[int]
    type: int
    data: bytes
    size: int
    arg_index: int
    def __init__(self, type: _Optional[int] = ..., data: _Optional[bytes] = ..., size: _Optional[int] = ..., arg_index: _Optional[int] = ...) -> None: ...

class DumpData(_message.Message):
    __slots__ = ("version", "dump_time", "output", "input", "buffer", "op_name", "attr", "space", "dfx_message")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DUMP_TIME_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    OP_NAME_FIELD_NUMBER: _ClassVar[int]
    ATTR_FIELD_NUMBER: _ClassVar[int]
    SPACE_FIELD_NUMBER: _ClassVar[int]
    DFX_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    version: bytes
    dump_time: int
    output: _containers.RepeatedCompositeFieldContainer[OpOutput]
    input: _containers.RepeatedCompositeFieldContainer[OpInput]
    buffer: _containers.RepeatedCompositeFieldContainer[OpBuffer]
    op_name: bytes
    attr: _containers.RepeatedCompositeFieldContainer[OpAttr]
    space: _containers.RepeatedCompositeFieldContainer[Workspace]
    dfx_message: bytes
    def __init__(self, version: _Optional[bytes] = ..., dump_time: _Optional[int] = ..., output: _Optional[_Iterable[_Union[OpOutput, _Mapping]]] = ..., input: _Optional[_Iterable[_Union[OpInput, _Mapping]]] = ..., buffer: _Optional[_Iterable[_Union[OpBuffer, _Mapping]]] = ..., op_name: _Optional[bytes] = ..., attr: _Optional[_Iterable[_Union[OpAttr, _Mapping]]] = ..., space: _Optional[_Iterable[_Union[Workspace, _Mapping]]] = ..., dfx_message: _Optional[bytes] = ...) -> None: ...
