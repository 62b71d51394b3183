"""Which ops of a model's file an op of the graph that is executed was made from.

ONNX Runtime drops all metadata when it rewrites a graph, but most values keep their names: what a
fused op gives is what the last op of the group gave. The group is then what lies, in the file's
graph, between that value and those the executed graph still has.
"""

from __future__ import annotations

import re
from dataclasses import replace

import onnx_ir as ir

from syncpoint.runtimes.onnx.layouts import DOMAIN, layouts
from syncpoint.runtimes.onnx.node_metadata import Said, is_constant, said

_ACTIVATIONS = ("Relu", "Clip")
_ACTIVATED = re.compile(r"(relu6?|clip|clamp|hardtanh)(_\d+)?$")


_BLOCKED = re.compile(r"(?P<value>.+?)_nchwc(_token_\d+)?$")
_TOKEN = re.compile(r"_token_\d+$")
"""What ONNX Runtime adds to a name that is taken."""
_CAST = "InsertedPrecisionFreeCast_"
"""What it puts before the name of a value that it keeps in float32 for want of a kernel."""
_MOVES = frozenset({"Reshape", "Transpose", "ReorderOutput", "Cast", "Squeeze", "Unsqueeze"})
"""Ops that give the values they are given, perhaps in another place or type."""
_MAX_GROUP = 4096
_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


class Provenance:
    """Ties the values of one graph to those of an earlier form of it."""

    def __init__(self, graph: ir.Graph, original: ir.Graph) -> None:
        self._graph = graph
        self._file_graph = original
        self.made = {o.name: o for node in original for o in node.outputs if o.name}
        """The values of the original that an op made, by name."""
        self.same: dict[str, str] = {}
        """Value -> the value of the original that it is, element by element."""
        self.like: dict[str, str] = {}
        """Value -> the value of the original that it is up to shape, order or type."""
        self._nodes: dict[str, ir.Node | None] = {}
        for node in original:
            if node.name:
                self._nodes[node.name] = None if node.name in self._nodes else node
        self.layouts = layouts(graph, self.made)
        """Values that are laid out otherwise than in the original, with how."""
        for node in graph:
            for output in node.outputs:
                if output.name:
                    self._tie(node, output, output.name)
        for node in reversed(list(graph)):
            for output in node.outputs:
                self._follow(output)
        self._present = set(self.same.values()) | set(self.like.values())

    def original(self, name: str) -> str:
        """The value of the original behind a value, or ""."""
        return self.same.get(name) or self.like.get(name, "")

    def group(self, node: ir.Node) -> list[ir.Node]:
        """The ops of the original that a node does the work of, the last one first."""
        found: dict[ir.Node, None] = {}
        waiting = [self.made[known] for o in node.outputs if (known := self.original(o.name or ""))]
        while waiting and len(found) < _MAX_GROUP:
            producer = waiting.pop(0).producer()
            if producer is None or producer in found or producer.op_type == "Constant":
                continue
            found[producer] = None
            waiting += [
                value
                for value in producer.inputs
                if value is not None and value.name in self.made and value.name not in self._present
            ]
        return list(found)

    def value_in_file(self, value: ir.Value) -> ir.Value | None:
        """The same value in the graph of the file."""
        if value.producer() is None:
            return next((v for v in self._file_graph.inputs if v.name == value.name), None)
        name = self.same.get(value.name or "")
        return self.made.get(name) if name else None

    def origins(self, node: ir.Node, makers: list[ir.Node]) -> tuple[str, ...]:
        """The names that the op had, from this form of the model back to the first; what it
        completes there comes last. `makers` are the ops of the file that it was made from."""
        originals = [self.original(o.name or "") for o in node.outputs]
        names = [*originals]
        for maker in makers:
            names += [said(maker).fx, *(o.name or "" for o in maker.outputs)]
        names += [source.name or "" for source in quantized_from(node)]
        names += [maker.name or "" for maker in makers]
        before = {o.name for o in node.outputs if is_before_activation(o)}
        completes = completed_by(makers, originals[0])
        origins = dict.fromkeys(name for name in names if name and name not in before)
        if completes in origins:
            del origins[completes]
            origins[completes] = None
        return tuple(origins)

    def order_as_in_file(self) -> list[ir.Node]:
        """The nodes in the order in which the file has what they give, as far as what they read
        allows. ONNX Runtime may run branches in any order, and saves them in another than it
        found them in; whoever tells ops by their order would take one branch for the other."""
        place = {node: at for at, node in enumerate(self._file_graph)}
        rank: dict[ir.Node, int] = {}
        for node in self._graph:
            known = [self.original(o.name or "") for o in node.outputs]
            made = [self.made[name].producer() for name in known if name]
            found = [place[maker] for maker in made if maker is not None]
            before = [rank.get(v.producer(), -1) for v in node.inputs if v is not None]  # type: ignore[arg-type]
            rank[node] = max([*found, *before], default=-1)
        # A node ranks no lower than those it reads from, and the sort keeps equals as they are.
        return sorted(self._graph, key=rank.__getitem__)

    def stored_dtype(self, value: ir.Value) -> ir.DataType | None:
        """The 16-bit type in which the file has a parameter that is executed in float32.

        Where there is no kernel for float16, ONNX Runtime computes in float32 with the parameters
        widened, and under other names: that they were rounded is then to be seen nowhere.
        """
        if value.dtype is not ir.DataType.FLOAT or self._graph is self._file_graph:
            return None
        kinds = {
            read.dtype
            for use in value.uses()
            for maker in self.group(use.node)
            for read in maker.inputs
            if read is not None and _is_given(read) and read.dtype in (*_HALVES, *_WIDE)
        }
        kind = kinds.pop() if len(kinds) == 1 else None
        return kind if kind in _HALVES else None

    def said(self, node: ir.Node, group: list[ir.Node]) -> Said:
        """What is known of a node's making: from its own metadata, else from its group's."""
        known = [s for s in (said(n) for n in (node, *group)) if s.fx or s.module or s.source]
        if not known:
            return Said()
        source = next((s.source for s in known if s.source), ())
        return replace(known[0], source=source)

    def of_quantizing_op(self, node: ir.Node) -> Said | None:
        """Where an op that quantizes or dequantizes belongs: where the value was computed."""
        producer = next((source.producer() for source in quantized_from(node)), None)
        if producer is None:
            return None
        known = self.said(producer, self.group(producer))
        return known if known.module or known.source else None

    def of_reader(self, node: ir.Node) -> Said:
        """Where an op that was put in for another's sake belongs: where its reader does."""
        for _ in range(4):
            users = [use.node for output in node.outputs for use in output.uses()]
            if not users:
                break
            node = users[0]
            known = self.said(node, self.group(node))
            if known.module or known.source:
                return known
        return Said()

    def _tie(self, node: ir.Node, output: ir.Value, name: str) -> None:
        """Find the value of the original by the name of the value, else by that of its node."""
        plain = name.removeprefix(_CAST)
        if plain in self.made:
            self.same[name] = plain
            return
        if node.domain == DOMAIN:
            found = self._of_blocked(node)
            if found:
                self.same[name] = found
            return
        twin = self._nodes.get(node.name or "") or self._nodes.get(_TOKEN.sub("", node.name or ""))
        if twin is None or len(twin.outputs) != len(node.outputs):
            return
        value: ir.Value | None = twin.outputs[output.index() or 0]
        if twin.op_type != node.op_type or output.dtype in (ir.DataType.UINT8, ir.DataType.INT8):
            value = _quantized(value)
        if value is not None and value.name:
            (self.same if name in self.layouts else self.like)[name] = value.name

    def _of_blocked(self, node: ir.Node) -> str:
        """A convolution on blocked channels is named after the value it gave when it was made;
        a sum and an activation that were drawn into it later move it on."""
        match = _BLOCKED.match(node.name or "")
        value = self.made.get(match["value"].removeprefix(_CAST)) if match else None
        if value is not None and len(node.inputs) > 3 and node.inputs[3] is not None:
            value = _only(value, "Add", "Sum")
        kind = node.attributes.get_string("activation", "")
        if value is not None and kind:
            producer = value.producer()
            if producer is None or producer.op_type != kind:
                value = _only(value, kind)
        return (value.name or "") if value is not None else ""

    def _follow(self, output: ir.Value) -> None:
        """What is only moved on to a known value is that value."""
        if not output.name or self.original(output.name):
            return
        users = [use.node for use in output.uses()]
        if len(users) != 1 or users[0].op_type not in _MOVES or users[0].inputs[0] is not output:
            return
        found = self.original(users[0].outputs[0].name or "")
        mover = self.made[found].producer() if found else None
        if mover is not None and mover.op_type == users[0].op_type and mover.inputs[0] is not None:
            # The original moves it too: it is what is moved there.
            found = mover.inputs[0].name or ""
        if found in self.made:
            self.like[output.name] = found


def _only(value: ir.Value, *kinds: str) -> ir.Value | None:
    """What the only reader of a value gives, if it is of one of these kinds."""
    users = [use.node for use in value.uses()]
    return users[0].outputs[0] if len(users) == 1 and users[0].op_type in kinds else None


def _quantized(value: ir.Value | None) -> ir.Value | None:
    """The integers that the only reader of a value makes of it, an activation between them left
    out: rounding to a grid that begins at nought has the same effect."""
    while value is not None:
        users = [use.node for use in value.uses()]
        if len(users) != 1:
            return None
        if users[0].op_type == "QuantizeLinear":
            return users[0].outputs[0]
        value = users[0].outputs[0] if users[0].op_type in ("Relu", "Clip") else None
    return None


def is_before_activation(value: ir.Value) -> bool:
    """Whether a value has the name of an activation that it did not go through.

    A quantizer leaves out a ReLU whose effect rounding to its grid has anyway, and gives its name
    to what was its input: under that name the value would look wrong to whoever knows the model.
    """
    node = value.producer()
    if node is None or node.op_type in _ACTIVATIONS or not said(node).fx:
        return False
    readers = [use.node for use in value.uses()]
    quantized = len(readers) == 1 and readers[0].op_type == "QuantizeLinear"
    return quantized and _ACTIVATED.match(value.name or "") is not None


def quantized_from(node: ir.Node) -> list[ir.Value]:
    """What the values of a quantizing or dequantizing op were before, if it is computed."""
    value = node.outputs[0]
    while True:
        producer = value.producer()
        if producer is None or producer.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            return [value] if producer is not None and producer is not node else []
        source = producer.inputs[0]
        if source is None:
            return []
        value = source


def completed_by(makers: list[ir.Node], name: str) -> str:
    """What the maker of the value called `name` completes in the first form of the model; the
    name itself where that is not known."""
    last = next((m for m in makers if name in {o.name for o in m.outputs}), None)
    return (_completed(last) if last is not None else "") or name


def _completed(node: ir.Node) -> str:
    """The op of the program that is done when `node` of the file is. Quantizing and dequantizing
    ops say nothing of their making, since it is the quantizer that put them there: it is the op
    before them, or the activation that was left out because their grid has its effect."""
    sources = quantized_from(node)
    if sources and is_before_activation(sources[0]):
        return sources[0].name or ""
    producer = sources[0].producer() if sources else None
    return said(producer if producer is not None else node).fx


def _is_given(value: ir.Value) -> bool:
    producer = value.producer()
    return value.is_initializer() or (producer is not None and is_constant(producer))
