"""An ONNX model from a file or from memory, checked before anything is read through it.

Weights that lie in files of their own stay there: they are never joined with the graph, which
may therefore be edited and handed on as bytes, however large the model is.
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
from syncpoint.runtimes.exception_text import one_line
from syncpoint.supervision.scratch_folder import scratch_folder

_LARGEST_MESSAGE = 1 << 30
"""Bytes of weights up to which a model in memory stays there; protobuf ends at twice that."""


MAX_SUB_GRAPHS = 4096
"""Sub-graphs of a model that is opened. ONNX Runtime takes about 35 kB for each, however small it
is, in every session: a file of 1.7 MB with 32,766 of them takes more than 1 GB a session."""


@dataclass
class Source:
    """A model as ONNX Runtime and we read it."""

    name: str
    """What the user called it."""
    proto: onnx.ModelProto
    """Without the weights that lie in other files; functions are unfolded."""
    folder: str
    """Where those files are; "" if there are none."""
    file: str = ""
    """The file itself where there is one: what a plain run opens."""
    keep: tempfile.TemporaryDirectory[str] | None = None
    """Holds the files of a model that was given in memory and is too large for it."""

    def graph(self) -> ir.Model:
        """A graph of its own, to be walked or edited."""
        return from_proto(self.proto, self.folder)


def from_proto(proto: onnx.ModelProto, folder: str) -> ir.Model:
    """The graph of a model whose other files are in `folder`."""
    try:
        model = ir.from_proto(proto)
    except Exception as error:
        raise FormatError("a well-formed ONNX graph", one_line(error)) from error
    if folder:
        ir.external_data.set_base_dir(model.graph, folder)
    return model


def load(model: object) -> Source:
    """The model behind a path or a live object."""
    if isinstance(model, str | Path):
        return _from_file(Path(model))
    name = type(model).__qualname__
    if isinstance(model, onnx.ModelProto):
        found = onnx.ModelProto()
        found.CopyFrom(model)
        if any(_is_external(t) for t in _tensors(found)):
            raise InputError(
                "a ModelProto that holds its weights",
                "weights in other files, and a ModelProto does not say where",
                "name the .onnx file in place of the object",
            )
        return _checked(Source(name, found, ""))
    graph: Any = getattr(model, "model", model)
    if not isinstance(graph, ir.Model):
        raise InputError("an ONNX model", f"a {name}")
    size = sum(v.const_value.nbytes for v in graph.graph.initializers.values() if v.const_value)
    if size <= _LARGEST_MESSAGE:
        return _checked(Source(name, ir.to_proto(graph), ""))
    keep = scratch_folder()
    path = Path(keep.name) / "model.onnx"
    ir.save(graph, path, external_data="model.onnx.data")
    made = _from_file(path)
    return Source(name, made.proto, made.folder, made.file, keep)


def _from_file(path: Path) -> Source:
    if not path.is_file():
        raise InputError("an .onnx file", f"no file {str(path)!r}")
    try:
        proto = onnx.load(str(path), format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise FormatError(f"{path.name} as an ONNX model", one_line(error)) from None
    except OSError as error:
        raise InputError(f"a readable file {path}", one_line(error)) from None
    source = Source(str(path), proto, "", str(path))
    if any(_is_external(t) for t in _tensors(proto)):
        source.folder = str(path.parent.resolve())
    return _checked(source)


def _checked(source: Source) -> Source:
    proto = source.proto
    # Protobuf reads almost anything as a message with nothing in it that it knows.
    if not proto.ir_version or not (proto.graph.node or proto.graph.output):
        raise FormatError(f"{source.name} as an ONNX model", "a file without a graph")
    count = _count_sub_graphs(proto)
    if count > MAX_SUB_GRAPHS:
        raise Unsupported(
            f"at most {MAX_SUB_GRAPHS:,} sub-graphs (of If, Loop and Scan) in {source.name}",
            f"{count:,}",
            "simplify the model, such as by folding constant conditions",
        )
    for tensor in _tensors(proto):
        if _is_external(tensor):
            _check_external(tensor, Path(source.folder), source.name)
    if proto.functions:
        source.proto = _unfolded(source)
    return source


def _count_sub_graphs(proto: onnx.ModelProto) -> int:
    """How many graphs lie inside others, at any depth."""
    found = 0
    waiting: list[Any] = [proto.graph.node, *(function.node for function in proto.functions)]
    while waiting:
        for node in waiting.pop():
            for attribute in node.attribute:
                inner = [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
                found += len(inner)
                waiting += [graph.node for graph in inner]
    return found


def _unfolded(source: Source) -> onnx.ModelProto:
    """The same model with every call of a function replaced by the function's ops."""
    try:
        return ir.to_proto(InlinePass()(from_proto(source.proto, source.folder)).model)
    except Exception as error:
        raise FormatError(
            f"functions of {source.name} that can be unfolded", one_line(error)
        ) from (error)


def _is_external(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def _check_external(tensor: onnx.TensorProto, folder: Path, model: str) -> None:
    """A path from a model file may name a file beside it or below, and bytes that are there."""
    said = {entry.key: entry.value for entry in tensor.external_data}
    location = said.get("location", "")
    windows = PureWindowsPath(location)
    absolute = PurePosixPath(location).is_absolute() or windows.drive or windows.root
    if not location or absolute or ".." in windows.parts:
        raise FormatError(
            f"weights of {model} in a file beside it", f"the path {location!r} of {tensor.name}"
        )
    path = folder / location
    if not path.is_file():
        raise InputError(
            f"the file {location!r} beside {model}, which holds {tensor.name}",
            "no such file",
            "keep the files of a model together",
        )
    if not path.resolve().is_relative_to(folder.resolve()):
        raise FormatError(
            f"weights of {model} in a file beside it",
            f"a link at {location!r} that leads elsewhere",
        )
    size = path.stat().st_size
    try:
        offset = int(said.get("offset", "0"))
        length = int(said.get("length", size - offset))
        wanted = _nbytes(tensor)
    except ValueError as error:
        raise FormatError(f"offset and length of {tensor.name}", str(error)) from None
    if min(offset, length) < 0 or offset + length > size or length != wanted:
        raise FormatError(
            f"{wanted} bytes for {tensor.name}",
            f"{length} at {offset} of {location!r}, which has {size}",
        )


def _nbytes(tensor: onnx.TensorProto) -> int:
    count = math.prod(tensor.dims) if all(n >= 0 for n in tensor.dims) else -1
    bits = round(8 * ir.DataType(tensor.data_type).itemsize)
    if count < 0:
        raise ValueError(f"shape {list(tensor.dims)}")
    return (count * bits + 7) // 8


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """All tensors of a model, wherever they are."""
    yield from _graph_tensors(proto.graph)
    for function in proto.functions:
        yield from _node_tensors(function.node)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Any) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from _graph_tensors(attribute.g)
            for graph in attribute.graphs:
                yield from _graph_tensors(graph)
