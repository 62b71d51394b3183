"""Parse the rule files (JSON) of ATC and AMCT: original names of an op, which ops quantize or
compute in integers; find a model's graph and rule file by name.

Rules of fusion and of quantization have one form:

    {"graph": [{"name": ..., "op": [{"name", "type", "id", "input", "attr", "output_desc"}]}]}

Nothing else in it is looked at. What is missing or of another type is named, with its op.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from syncpoint.errors import FormatError, InputError
from syncpoint.files.read_errors import read_errors
from syncpoint.files.untrusted_files import path_inside, read_whole, require_folder
from syncpoint.files.untrusted_json import parse_foreign_json

MOVES_ONLY = frozenset({"Cast", "TransData"})
"""Types of ops that pass a value on in another type or layout."""
_QUANTIZES = re.compile(r"_quant_layer|AscendQuant|AscendWeightQuant|\.quant|\.weight_quant")
_DEQUANTIZES = re.compile(r"_dequant_layer|AscendDequant|\.dequant")

_MAX_FILE_BYTES = 1 << 30
_NAMES = "_datadump_original_op_names"
_L1 = "_L1_fusion_sub_graph_no"
_MULTI = "_datadump_is_multiop"
_ORIGIN_NAME = "_datadump_origin_name"
_ORIGIN_INDEX = "_datadump_origin_output_index"
_ORIGIN_FORMAT = ("_datadump_origin_format", "origin_format")
_ORIGIN_SHAPE = "origin_shape"
_INTEGER = re.compile(r"-?[0-9]{1,19}")

_GENERATED = re.compile(r"ge_default_[0-9]+_([0-9]+)")


class OutputRule(NamedTuple):
    """Which output of the original model an op's output stands for."""

    origin_name: str = ""
    """Empty where the file does not say."""
    origin_index: int = 0
    origin_format: str = ""
    origin_shape: tuple[int, ...] | None = None
    """None where the file does not say."""
    dtype: str = ""
    """The file's own word: DT_FLOAT16."""


@dataclass(frozen=True, kw_only=True)
class OpRule:
    """One op of the converted model."""

    name: str
    type: str
    id: int | None = None
    inputs: tuple[tuple[str, int], ...] = ()
    """Producer and the number of its output; edges of control are left out."""
    original_names: tuple[str, ...] = ()
    """Ops of the original model it was made from; `("",)` where the converter put it in, `()`
    where the file does not say."""
    l1: str = ""
    """Which fusion in the L1 buffer it is part of."""
    multi: bool = False
    """Whether one original op became several, of which this is one."""
    output_desc: tuple[OutputRule, ...] = ()
    graph: str = ""
    """Name of the graph it is in."""


@dataclass(frozen=True)
class RuleFile:
    """All ops of a file, in its order."""

    path: Path
    graphs: tuple[str, ...]
    """Names of its graphs."""
    ops: tuple[OpRule, ...]

    @classmethod
    def load(cls, path: Path | str) -> RuleFile:
        """Read the file; what is not such a file is a FormatError that says where."""
        path = Path(path)
        with read_errors(
            f"the rule file {path}", cure="give the path of the .json file that ATC wrote"
        ):
            data = read_whole(path, _MAX_FILE_BYTES)
        body = parse_foreign_json(data, str(path))
        reading = _RuleReader(path.name)
        graphs = reading.member(body, "graph", list, "the file")
        names, ops = [], []
        for number, graph in enumerate(graphs):
            where = f"graph {number}"
            name = reading.optional(graph, "name", str, where, "")
            names.append(name)
            for place, op in enumerate(reading.optional(graph, "op", list, where, [])):
                ops.append(reading.op(op, f"op {place} of {where}", name))
        return cls(path, tuple(names), tuple(ops))


@dataclass(frozen=True)
class _RuleReader:
    """Takes JSON apart; what does not fit is told with the file and the op it is in."""

    file: str

    def member(self, body: Any, key: str, kind: type, where: str) -> Any:
        """The value of a key that must be there."""
        self._object(body, where)
        if key not in body:
            raise FormatError(
                f"{where} of {self.file} has no key {key!r}",
                cure="generate the file again with ATC",
            )
        return self.typed(body[key], kind, f"{key!r} in {where}")

    def optional(self, body: Any, key: str, kind: type, where: str, default: Any) -> Any:
        """The value of a key, or the default where it is not there."""
        self._object(body, where)
        if body.get(key) is None:
            return default
        return self.typed(body[key], kind, f"{key!r} in {where}")

    def typed(self, value: Any, kind: type, what: str) -> Any:
        """The value, if it is of this kind."""
        if kind is int and isinstance(value, str) and _INTEGER.fullmatch(value):
            return int(value)  # as JSON made from protobuf has integers of 64 bits
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            kind_names = {str: "text", int: "a number", list: "a list", dict: "an object"}
            name = kind_names.get(kind, "true or false")
            raise FormatError(
                f"{what} of {self.file} must be {name}, not {_json_kind(value)}",
                cure="generate the file again with ATC",
            )
        return value

    def _object(self, body: Any, where: str) -> None:
        if not isinstance(body, dict):
            raise FormatError(
                f"{where} of {self.file} must be an object, not {_json_kind(body)}",
                cure="generate the file again with ATC",
            )

    def op(self, body: Any, where: str, graph: str) -> OpRule:
        """One op."""
        name = self.member(body, "name", str, where)
        where = f"op {name[:80]!r}"
        attr = self.attributes(body, where)
        texts = self.optional(body, "input", list, where, [])
        descs = self.optional(body, "output_desc", list, where, [])
        return OpRule(
            name=name,
            type=self.member(body, "type", str, where),
            id=self.optional(body, "id", int, where, None),
            inputs=tuple(e for t in texts if (e := self.edge(t, where)) is not None),
            original_names=self.original_names(attr, where),
            l1=self.value(attr, _L1, "s", str, where, ""),
            multi=self.value(attr, _MULTI, "b", bool, where, False),
            output_desc=tuple(
                self.output(d, k, f"output {k} of {where}") for k, d in enumerate(descs)
            ),
            graph=graph,
        )

    def edge(self, text: Any, where: str) -> tuple[str, int] | None:
        """`producer:0`; None for an edge of control, or for an input that is not connected."""
        self.typed(text, str, f"an input of {where}")
        producer, colon, number = text.rpartition(":")
        if not text:
            return None
        sign = number.removeprefix("-")
        if not colon or not (sign.isascii() and sign.isdecimal()) or len(sign) > 9:
            raise FormatError(
                f"an input of {where} of {self.file} must be producer:number, not {text[:80]}",
                cure="generate the file again with ATC",
            )
        index = int(number)
        return (producer, index) if index >= 0 else None

    def attributes(self, body: Any, where: str) -> Mapping[str, Any]:
        """The values under `attr` by their keys."""
        attributes = {}
        for place, entry in enumerate(self.optional(body, "attr", list, where, [])):
            key = self.member(entry, "key", str, f"attribute {place} of {where}")
            attributes[key] = self.optional(entry, "value", dict, f"attribute {key[:80]!r}", {})
        return attributes

    def value(
        self, attr: Mapping[str, Any], key: str, field: str, kind: type, where: str, default: Any
    ) -> Any:
        """One attribute of which the file may say nothing."""
        if key not in attr:
            return default
        return self.optional(attr[key], field, kind, f"{key} of {where}", default)

    def items(self, attr: Mapping[str, Any], key: str, field: str, where: str) -> list[Any] | None:
        """An attribute that is a list; None where the file has none of its kind."""
        body = self.value(attr, key, "list", dict, where, {})
        items: list[Any] | None = self.optional(body, field, list, f"{key} of {where}", None)
        return items

    def original_names(self, attr: Mapping[str, Any], where: str) -> tuple[str, ...]:
        """The ops it was made from."""
        if _NAMES not in attr:
            return ()
        names = self.items(attr, _NAMES, "s", where)
        if not names:
            return ("",)
        return tuple(self.typed(n, str, f"a name in {_NAMES} of {where}") for n in names)

    def output(self, body: Any, place: int, where: str) -> OutputRule:
        """One output."""
        attr = self.attributes(body, where)
        shape = self.items(attr, _ORIGIN_SHAPE, "i", where)
        formats = (self.value(attr, key, "s", str, where, "") for key in _ORIGIN_FORMAT)
        return OutputRule(
            self.value(attr, _ORIGIN_NAME, "s", str, where, ""),
            self.value(attr, _ORIGIN_INDEX, "i", int, where, place),
            next((f for f in formats if f), ""),
            None
            if shape is None
            else tuple(
                self.typed(n, int, f"a number in {_ORIGIN_SHAPE} of {where}") for n in shape
            ),
            self.optional(body, "dtype", str, where, ""),
        )


def _json_kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")


def own_names(op: OpRule) -> tuple[str, ...]:
    """The original names that the file says of an op; its own where it says none, and nothing
    where it says that there are none."""
    if not op.original_names:
        return (op.name,)
    return tuple(name for name in op.original_names if name)


def quantizes(op: OpRule) -> bool:
    """Whether an op turns numbers into integers."""
    has_name = op.type == "AscendQuant" or bool(_QUANTIZES.search(op.name))
    return has_name and any(_is_int8(output) for output in op.output_desc)


def dequantizes(op: OpRule) -> bool:
    """Whether an op turns integers back into numbers."""
    return op.type == "AscendDequant" or bool(_DEQUANTIZES.search(op.name))


def _is_int8(output: OutputRule) -> bool:
    return output.dtype == "DT_INT8"


def integer_ops(rules: RuleFile) -> frozenset[str]:
    """Ops between a quantizing and a dequantizing one: they compute in integers whose scale no file
    tells."""
    readers: dict[str, list[OpRule]] = {}
    for op in rules.ops:
        for producer, _ in op.inputs:
            readers.setdefault(producer, []).append(op)
    inside: set[str] = set()
    waiting = [op for op in rules.ops if quantizes(op)]
    while waiting:
        for reader in readers.get(waiting.pop().name, ()):
            if reader.name not in inside and not dequantizes(reader) and not quantizes(reader):
                inside.add(reader.name)
                waiting.append(reader)
    return frozenset(inside)


def load_rule_files(path: Path) -> dict[str, RuleFile]:
    """Load the rule files of a folder, by the names of their graphs."""
    rule_files: dict[str, RuleFile] = {}
    for name in sorted(p.name for p in require_folder(path, "a folder of rule files").iterdir()):
        if not name.endswith(".json"):
            continue
        rule = RuleFile.load(path_inside(path, name))
        for graph in dict.fromkeys(rule.graphs):
            if graph in rule_files:
                raise FormatError(
                    f"{path} has two rule files for the graph {graph}:"
                    f" {rule_files[graph].path.name} and {name}",
                    cure="remove one of them",
                )
            rule_files[graph] = rule
    if not rule_files:
        raise InputError(
            f"{path} has no rule files (.json)", cure="give the path of the folder that holds them"
        )
    return rule_files


def find_rule_file(model: str, rule_files: Mapping[str, RuleFile]) -> tuple[str, RuleFile] | None:
    """Find the graph of a model and its rule file, or None.

    By name, else by the number that the converter gave it if only one graph has that number.
    """
    if model in rule_files:
        return model, rule_files[model]
    number = _GENERATED.fullmatch(model)
    if number is None:
        return None
    same_number = [
        name
        for name in rule_files
        if (m := _GENERATED.fullmatch(name)) is not None and m[1] == number[1]
    ]
    return (same_number[0], rule_files[same_number[0]]) if len(same_number) == 1 else None
