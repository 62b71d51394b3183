"""Load an ONNX model from a file or from memory; check it and its external weights, inline
functions, iterate over its tensors.

Weights in files of their own stay there. So the graph can be edited and passed on as bytes, however
large the model is.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError
from onnx_ir.passes.common import InlinePass

from syncpoint.errors import FormatError, InputError, Unsupported
from syncpoint.files.read_errors import CHECK_FILE
from syncpoint.runtimes.exception_text import one_line
from syncpoint.supervision.scratch_folder import scratch_folder

_MAX_WEIGHT_BYTES = 1 << 30
"""Weights of a model in memory that stay in one message; protobuf's limit is twice that."""
MAX_SUB_GRAPHS = 4096
"""Largest number of sub-graphs in a model. ONNX Runtime takes about 35 kB for each in every
session, however small it is: a file of 1.7 MB with 32,766 of them takes more than 1 GB."""


@dataclass
class OnnxModel:
    """A loaded model, as ONNX Runtime and this package read it."""

    name: str
    """Its path, or the type of the object."""
    proto: onnx.ModelProto
    """Without the weights in other files; functions are inlined."""
    folder: str
    """The folder of those files; "" if there are none."""
    file: str = ""
    """The file that a plain run opens; "" for a model in memory."""
    scratch: tempfile.TemporaryDirectory[str] | None = None
    """Holds the files of a model in memory that is too large for one message."""

    def build_graph(self) -> ir.Model:
        """Build a new graph of the model, which may be edited."""
        return ir_from_proto(self.proto, self.folder)


def ir_from_proto(proto: onnx.ModelProto, folder: str) -> ir.Model:
    """Build the graph of a model whose other files are in `folder`."""
    try:
        model = ir.from_proto(proto)
    except Exception as error:
        raise FormatError(
            f"the ONNX graph is not well-formed: {one_line(error)}", cure="export the model again"
        ) from error
    if folder:
        ir.external_data.set_base_dir(model.graph, folder)
    return model


def load_model(model: object) -> OnnxModel:
    """Load a model from a path or from an object in memory."""
    if isinstance(model, str | Path):
        return _load_file(Path(model))
    name = type(model).__qualname__
    if isinstance(model, onnx.ModelProto):
        proto = onnx.ModelProto()
        proto.CopyFrom(model)
        if any(_is_external(t) for t in _iter_tensors(proto)):
            raise InputError(
                "the ModelProto has weights in other files, but does not say in which folder",
                cure="pass the path of the .onnx file instead of the object",
            )
        return _check_model(OnnxModel(name, proto, ""))
    graph: Any = getattr(model, "model", model)
    if not isinstance(graph, ir.Model):
        raise InputError(f"a {name} is not an ONNX model", cure="pass the path of an .onnx file")
    size = sum(v.const_value.nbytes for v in graph.graph.initializers.values() if v.const_value)
    if size <= _MAX_WEIGHT_BYTES:
        return _check_model(OnnxModel(name, ir.to_proto(graph), ""))
    scratch = scratch_folder()
    path = Path(scratch.name) / "model.onnx"
    ir.save(graph, path, external_data="model.onnx.data")
    loaded = _load_file(path)
    return OnnxModel(name, loaded.proto, loaded.folder, loaded.file, scratch)


def _load_file(path: Path) -> OnnxModel:
    if not path.is_file():
        raise InputError(f"no such file: {str(path)!r}", cure="pass the path of an .onnx file")
    try:
        proto = onnx.load(str(path), format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise FormatError(
            f"{path.name} is not an ONNX model: {one_line(error)}",
            cure="check that the path names the right file",
        ) from None
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {one_line(error)}",
            cure=CHECK_FILE,
        ) from None
    source = OnnxModel(str(path), proto, "", str(path))
    if any(_is_external(t) for t in _iter_tensors(proto)):
        source.folder = str(path.parent.resolve())
    return _check_model(source)


def _check_model(source: OnnxModel) -> OnnxModel:
    """Check a model and inline its functions."""
    proto = source.proto
    # Protobuf parses almost any bytes as a message without known fields.
    if not proto.ir_version or not (proto.graph.node or proto.graph.output):
        raise FormatError(
            f"{source.name} is not an ONNX model: it contains no graph",
            cure="check that the path names the right file",
        )
    count = _count_sub_graphs(proto)
    if count > MAX_SUB_GRAPHS:
        raise Unsupported(
            f"{source.name} has {count:,} sub-graphs (of If, Loop and Scan); at most"
            f" {MAX_SUB_GRAPHS:,} are supported",
            cure="simplify the model, for example by folding constant conditions",
        )
    for tensor in _iter_tensors(proto):
        if _is_external(tensor):
            _check_external(tensor, Path(source.folder), source.name)
    if proto.functions:
        source.proto = _inline_functions(source)
    return source


def _count_sub_graphs(proto: onnx.ModelProto) -> int:
    """Count the graphs inside other graphs, at any depth."""
    count = 0
    pending: list[Any] = [proto.graph.node, *(function.node for function in proto.functions)]
    while pending:
        for node in pending.pop():
            for attribute in node.attribute:
                inner = [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
                count += len(inner)
                pending += [graph.node for graph in inner]
    return count


def _inline_functions(source: OnnxModel) -> onnx.ModelProto:
    """Replace every call of a function by the ops of the function."""
    try:
        return ir.to_proto(InlinePass()(ir_from_proto(source.proto, source.folder)).model)
    except Exception as error:
        raise FormatError(
            f"the functions of {source.name} cannot be inlined: {one_line(error)}",
            cure="inline them with onnx.inliner.inline_local_functions",
        ) from error


def _is_external(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def _check_external(tensor: onnx.TensorProto, folder: Path, model: str) -> None:
    """Check that weights are in an existing file beside the model or below, and in its bytes."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    windows_path = PureWindowsPath(location)
    is_absolute = PurePosixPath(location).is_absolute() or windows_path.drive or windows_path.root
    if not location or is_absolute or ".." in windows_path.parts:
        raise FormatError(
            f"the weights {tensor.name} of {model} must be in a file beside it, not at"
            f" {location!r}",
            cure="save the model again with its weights beside it",
        )
    path = folder / location
    if not path.is_file():
        raise InputError(
            f"no such file: {location!r}, which should hold the weights {tensor.name} of {model}",
            cure=f"copy it to {folder}, the folder of the model",
        )
    if not path.resolve().is_relative_to(folder.resolve()):
        raise FormatError(
            f"the weights of {model} must be in a file beside it, but {location!r} is a link to a"
            " file in another folder",
            cure="replace the link by the file itself",
        )
    size = path.stat().st_size
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries.get("length", size - offset))
        needed = _count_bytes(tensor)
    except ValueError as error:
        raise FormatError(
            f"invalid offset, length or shape of the weights {tensor.name} of {model}: {error}",
            cure="save the model again",
        ) from None
    if min(offset, length) < 0 or offset + length > size or length != needed:
        raise FormatError(
            f"the weights {tensor.name} of {model} need {needed} bytes, but have {length} bytes at"
            f" offset {offset} of {location!r}, a file of {size} bytes",
            cure="copy the file again, or save the model again",
        )


def _count_bytes(tensor: onnx.TensorProto) -> int:
    count = math.prod(tensor.dims) if all(n >= 0 for n in tensor.dims) else -1
    bits = round(8 * ir.DataType(tensor.data_type).itemsize)
    if count < 0:
        raise ValueError(f"shape {list(tensor.dims)}")
    return (count * bits + 7) // 8


def _iter_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield all tensors of a model, in graphs, functions and attributes."""
    yield from _iter_graph_tensors(proto.graph)
    for function in proto.functions:
        yield from _iter_node_tensors(function.node)


def _iter_graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _iter_node_tensors(graph.node)


def _iter_node_tensors(nodes: Any) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from _iter_graph_tensors(attribute.g)
            for graph in attribute.graphs:
                yield from _iter_graph_tensors(graph)
