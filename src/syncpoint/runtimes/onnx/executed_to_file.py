"""Map ops and values that ONNX Runtime executes after fusion to those of the model's file: names,
order, metadata; values before quantizing or activations.

ONNX Runtime drops all metadata when it rewrites a graph, but most values keep their names: a fused
op has the output of the last op of its group. The group is then everything in the graph of the
file between that value and the values that the executed graph still has.
"""

from __future__ import annotations

import re
from dataclasses import replace

import onnx_ir as ir

from syncpoint.runtimes.onnx.layouts import DOMAIN, find_layouts
from syncpoint.runtimes.onnx.node_metadata import ExporterMetadata, is_constant, read_metadata

_ACTIVATIONS = ("Relu", "Clip")
_ACTIVATION_NAME = re.compile(r"(relu6?|clip|clamp|hardtanh)(_\d+)?$")
_BLOCKED_NAME = re.compile(r"(?P<value>.+?)_nchwc(_token_\d+)?$")
_TOKEN = re.compile(r"_token_\d+$")
"""Suffix that ONNX Runtime adds to a name that is already in use."""
_CAST_PREFIX = "InsertedPrecisionFreeCast_"
"""Prefix of a value that ONNX Runtime keeps in float32 because it has no narrower kernel."""
_MOVES = frozenset({"Reshape", "Transpose", "ReorderOutput", "Cast", "Squeeze", "Unsqueeze"})
"""Ops whose output has the values of their input, in another order or type."""
_MAX_GROUP_OPS = 4096
_MAX_READERS = 4
"""Readers that are followed, one behind the other, to find the metadata of an added op."""
_HALF_DTYPES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_WIDE_DTYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


class Provenance:
    """Ties the values of the executed graph to those of the file."""

    def __init__(self, graph: ir.Graph, file_graph: ir.Graph) -> None:
        self._graph = graph
        self._file_graph = file_graph
        self.file_values = {o.name: o for node in file_graph for o in node.outputs if o.name}
        """The values of the file that an op computes, by name."""
        self.exact_names: dict[str, str] = {}
        """Value -> the value of the file that it equals, element by element."""
        self.similar_names: dict[str, str] = {}
        """Value -> the value of the file that it equals up to shape, order or type."""
        self._node_by_name: dict[str, ir.Node | None] = {}
        for node in file_graph:
            if node.name:
                is_unique = node.name not in self._node_by_name
                self._node_by_name[node.name] = node if is_unique else None
        self.layouts = find_layouts(graph, self.file_values)
        """Values whose memory layout is not that of the file, with the layout."""
        for node in graph:
            for output in node.outputs:
                if output.name:
                    self._tie(node, output, output.name)
        for node in reversed(list(graph)):
            for output in node.outputs:
                self._tie_moved(output)
        self._present = set(self.exact_names.values()) | set(self.similar_names.values())

    def name_in_file(self, name: str) -> str:
        """Return the name of the file's value behind a value, or ""."""
        return self.exact_names.get(name) or self.similar_names.get(name, "")

    def find_group(self, node: ir.Node) -> list[ir.Node]:
        """Find the ops of the file whose work a node does, the last one first."""
        group: dict[ir.Node, None] = {}
        pending = [
            self.file_values[name]
            for o in node.outputs
            if (name := self.name_in_file(o.name or ""))
        ]
        while pending and len(group) < _MAX_GROUP_OPS:
            producer = pending.pop(0).producer()
            if producer is None or producer in group or producer.op_type == "Constant":
                continue
            group[producer] = None
            pending += [
                value
                for value in producer.inputs
                if value is not None
                and value.name in self.file_values
                and value.name not in self._present
            ]
        return list(group)

    def value_in_file(self, value: ir.Value) -> ir.Value | None:
        """Return the value of the file that equals a value, element by element."""
        if value.producer() is None:
            return next((v for v in self._file_graph.inputs if v.name == value.name), None)
        name = self.exact_names.get(value.name or "")
        return self.file_values.get(name) if name else None

    def list_origins(self, node: ir.Node, group: list[ir.Node]) -> tuple[str, ...]:
        """List the names of an op in earlier forms of the model, from the last form to the first.

        The op of the first form that it completes comes last. `group` are its ops of the file.
        """
        file_names = [self.name_in_file(o.name or "") for o in node.outputs]
        names = [*file_names]
        for file_node in group:
            names += [read_metadata(file_node).fx, *(o.name or "" for o in file_node.outputs)]
        names += [source.name or "" for source in find_unquantized(node)]
        names += [file_node.name or "" for file_node in group]
        misleading = {o.name for o in node.outputs if is_before_activation(o)}
        completed = find_completed_op(group, file_names[0])
        origins = dict.fromkeys(name for name in names if name and name not in misleading)
        if completed in origins:
            del origins[completed]
            origins[completed] = None
        return tuple(origins)

    def order_as_in_file(self) -> list[ir.Node]:
        """Sort the nodes by the position of their outputs in the file, as far as possible.

        ONNX Runtime may run branches in any order, and saves them in another order than that of
        the file. A matcher that goes by order would take one branch for the other.
        """
        position = {node: index for index, node in enumerate(self._file_graph)}
        rank: dict[ir.Node, int] = {}
        for node in self._graph:
            names = [self.name_in_file(o.name or "") for o in node.outputs]
            producers = [self.file_values[name].producer() for name in names if name]
            own_ranks = [position[producer] for producer in producers if producer is not None]
            input_ranks = [rank.get(v.producer(), -1) for v in node.inputs if v is not None]  # type: ignore[arg-type]
            rank[node] = max([*own_ranks, *input_ranks], default=-1)
        # A node never ranks below its inputs, and the sort is stable.
        return sorted(self._graph, key=rank.__getitem__)

    def narrow_dtype(self, value: ir.Value) -> ir.DataType | None:
        """Return the 16-bit type that the file has for a parameter executed in float32.

        Without a float16 kernel, ONNX Runtime computes in float32 with widened parameters under
        other names. That they were rounded would otherwise be visible nowhere.
        """
        if value.dtype is not ir.DataType.FLOAT or self._graph is self._file_graph:
            return None
        dtypes = {
            operand.dtype
            for use in value.uses()
            for file_node in self.find_group(use.node)
            for operand in file_node.inputs
            if operand is not None
            and _is_parameter(operand)
            and operand.dtype in (*_HALF_DTYPES, *_WIDE_DTYPES)
        }
        dtype = dtypes.pop() if len(dtypes) == 1 else None
        return dtype if dtype in _HALF_DTYPES else None

    def read_metadata(self, node: ir.Node, group: list[ir.Node]) -> ExporterMetadata:
        """Read the exporter's metadata of a node, or of its group where it has none."""
        candidates = [
            metadata
            for metadata in (read_metadata(n) for n in (node, *group))
            if metadata.fx or metadata.module or metadata.source
        ]
        if not candidates:
            return ExporterMetadata()
        source = next((metadata.source for metadata in candidates if metadata.source), ())
        return replace(candidates[0], source=source)

    def metadata_of_source(self, node: ir.Node) -> ExporterMetadata | None:
        """Return the metadata for a quantizing or dequantizing op: that of the op before it."""
        producer = next((source.producer() for source in find_unquantized(node)), None)
        if producer is None:
            return None
        metadata = self.read_metadata(producer, self.find_group(producer))
        return metadata if metadata.module or metadata.source else None

    def metadata_of_reader(self, node: ir.Node) -> ExporterMetadata:
        """Return the metadata for an op that ONNX Runtime added: that of its reader."""
        for _ in range(_MAX_READERS):
            readers = [use.node for output in node.outputs for use in output.uses()]
            if not readers:
                break
            node = readers[0]
            metadata = self.read_metadata(node, self.find_group(node))
            if metadata.module or metadata.source:
                return metadata
        return ExporterMetadata()

    def _tie(self, node: ir.Node, output: ir.Value, name: str) -> None:
        """Tie a value to the file by its name, else by the name of its node."""
        plain_name = name.removeprefix(_CAST_PREFIX)
        if plain_name in self.file_values:
            self.exact_names[name] = plain_name
            return
        if node.domain == DOMAIN:
            file_name = self._find_blocked_value(node)
            if file_name:
                self.exact_names[name] = file_name
            return
        node_name = node.name or ""
        twin = self._node_by_name.get(node_name) or self._node_by_name.get(
            _TOKEN.sub("", node_name)
        )
        if twin is None or len(twin.outputs) != len(node.outputs):
            return
        value: ir.Value | None = twin.outputs[output.index() or 0]
        if twin.op_type != node.op_type or output.dtype in (ir.DataType.UINT8, ir.DataType.INT8):
            value = _find_quantized(value)
        if value is not None and value.name:
            names = self.exact_names if name in self.layouts else self.similar_names
            names[name] = value.name

    def _find_blocked_value(self, node: ir.Node) -> str:
        """Find the file's value of a convolution with blocked channels.

        The node is named after its output when it was created. An addition or activation that was
        fused into it later moves that output on.
        """
        match = _BLOCKED_NAME.match(node.name or "")
        value = self.file_values.get(match["value"].removeprefix(_CAST_PREFIX)) if match else None
        if value is not None and len(node.inputs) > 3 and node.inputs[3] is not None:
            value = _only_reader_output(value, "Add", "Sum")
        activation = node.attributes.get_string("activation", "")
        if value is not None and activation:
            producer = value.producer()
            if producer is None or producer.op_type != activation:
                value = _only_reader_output(value, activation)
        return (value.name or "") if value is not None else ""

    def _tie_moved(self, output: ir.Value) -> None:
        """Tie a value whose only reader moves it to a value that is tied."""
        if not output.name or self.name_in_file(output.name):
            return
        readers = [use.node for use in output.uses()]
        if (
            len(readers) != 1
            or readers[0].op_type not in _MOVES
            or readers[0].inputs[0] is not output
        ):
            return
        name = self.name_in_file(readers[0].outputs[0].name or "")
        file_node = self.file_values[name].producer() if name else None
        if (
            file_node is not None
            and file_node.op_type == readers[0].op_type
            and file_node.inputs[0] is not None
        ):
            # The file has the same move, so the value is the input of that op.
            name = file_node.inputs[0].name or ""
        if name in self.file_values:
            self.similar_names[output.name] = name


def _only_reader_output(value: ir.Value, *op_types: str) -> ir.Value | None:
    """The output of the only reader of a value, if that is an op of one of these types."""
    readers = [use.node for use in value.uses()]
    is_match = len(readers) == 1 and readers[0].op_type in op_types
    return readers[0].outputs[0] if is_match else None


def _find_quantized(value: ir.Value | None) -> ir.Value | None:
    """Find the integers that the only reader of a value quantizes it to.

    An activation between the two is skipped: a grid that begins at zero has the same effect.
    """
    while value is not None:
        readers = [use.node for use in value.uses()]
        if len(readers) != 1:
            return None
        if readers[0].op_type == "QuantizeLinear":
            return readers[0].outputs[0]
        value = readers[0].outputs[0] if readers[0].op_type in _ACTIVATIONS else None
    return None


def is_before_activation(value: ir.Value) -> bool:
    """Whether a value has the name of an activation that was not applied to it.

    A quantizer removes a ReLU if rounding to its grid has the same effect, and gives the name of
    the ReLU to the input. Under that name the value would look wrong.
    """
    node = value.producer()
    if node is None or node.op_type in _ACTIVATIONS or not read_metadata(node).fx:
        return False
    readers = [use.node for use in value.uses()]
    is_quantized = len(readers) == 1 and readers[0].op_type == "QuantizeLinear"
    return is_quantized and _ACTIVATION_NAME.match(value.name or "") is not None


def find_unquantized(node: ir.Node) -> list[ir.Value]:
    """Find the computed value before a chain of quantizing and dequantizing ops; [] if none."""
    value = node.outputs[0]
    while True:
        producer = value.producer()
        if producer is None or producer.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            return [value] if producer is not None and producer is not node else []
        source = producer.inputs[0]
        if source is None:
            return []
        value = source


def find_completed_op(group: list[ir.Node], name: str) -> str:
    """Find the op of the model's first form that the value `name` completes, or return `name`.

    `group` are ops of the file; one of them computes the value.
    """
    last = next((node for node in group if name in {o.name for o in node.outputs}), None)
    return (_completed_op(last) if last is not None else "") or name


def _completed_op(node: ir.Node) -> str:
    """The op of the exported program that is complete after `node` of the file.

    Quantizing and dequantizing ops have no metadata, since the quantizer added them. For them it
    is the op before, or the activation that the quantizer removed.
    """
    sources = find_unquantized(node)
    if sources and is_before_activation(sources[0]):
        return sources[0].name or ""
    producer = sources[0].producer() if sources else None
    return read_metadata(producer if producer is not None else node).fx


def _is_parameter(value: ir.Value) -> bool:
    producer = value.producer()
    return value.is_initializer() or (producer is not None and is_constant(producer))
