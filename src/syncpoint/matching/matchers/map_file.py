"""Map file: parse and validate pinned pairs (names, patterns, views), ignored tensors, masks and
axis names; matcher that applies them first.

    pairs:
      - target: lm_head            # op name, or module path
        reference: head
        view: transpose(0,2,1)     # converts the target to the layout of the reference
      - target: 'blocks\\.(\\d+)\\.mlp'
        reference: 'layers.\\1.feed_forward'
        regex: true
    ignore: ['rotary.*', 'dropout']
    dims:                          # names of axes, if the runs do not record them
      target: {'conv.*': n h w c}
      reference: {'conv.*': n c h w}
    mask: {'encoder\\..*': attention_mask}   # see `syncpoint.matching.masks`

It is the strongest evidence and comes first in the chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from syncpoint.errors import FormatError, InputError
from syncpoint.files.yaml_toml import read_yaml
from syncpoint.matching.masks import Mask, read_masks, read_name
from syncpoint.matching.protocol import EvidenceKind, Matching, Side, SyncPoint
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.dims import Dims
from syncpoint.run.model import Op, OpKey, Tensor, replace_fields
from syncpoint.run.user_regex import Pattern

_PAIR_KEYS = {"target", "reference", "view", "regex"}
_KEYS = {"pairs", "ignore", "dims", "mask"}
_SIDES = ("target", "reference")
_CURE = "see docs/matching.md for the format of a map"
_INSPECT_CURE = "list the names of a run with syncpoint inspect"


@dataclass(frozen=True)
class Pin:
    """One pair of a map file."""

    target: str
    reference: str
    view: View
    pattern: Pattern | None = None
    """`target` as a regular expression, if it is one."""


@dataclass(frozen=True)
class AxisNames:
    """Axis names for the tensors of one side whose names match a pattern."""

    side: str
    pattern: Pattern
    dims: Dims


@dataclass(frozen=True)
class MapFile:
    """The content of a map file."""

    pins: tuple[Pin, ...] = ()
    ignore: tuple[Pattern, ...] = ()
    dims: tuple[AxisNames, ...] = ()
    masks: tuple[Mask, ...] = ()

    @classmethod
    def load(cls, path: Path) -> MapFile:
        """Read a map from YAML."""
        content = read_yaml(path, "a readable map file")
        return cls.of({} if content is None else content, str(path))

    @classmethod
    def of(cls, content: Any, where: str = "the map") -> MapFile:
        """Read a map from plain data."""
        if not isinstance(content, dict):
            raise FormatError(
                f"{where} must be a mapping with the keys {_list_text(_KEYS)}, but is of type"
                f" {type(content).__name__}",
                cure=_CURE,
            )
        _refuse_unknown_keys(content, _KEYS, where)
        pins = [_read_pin(entry, where) for entry in _read_list(content, "pairs", where)]
        ignore = _read_list(content, "ignore", where)
        return cls(
            tuple(pins),
            tuple(Pattern(read_name(i, "ignore", where), where) for i in ignore),
            _read_dims(content.get("dims") or {}, where),
            read_masks(content.get("mask") or {}, where),
        )

    def as_dict(self) -> dict[str, Any]:
        """The map as plain data, to identify a request."""
        return {
            "pairs": [[p.target, p.reference, str(p.view), bool(p.pattern)] for p in self.pins],
            "ignore": [pattern.pattern for pattern in self.ignore],
            "dims": [[n.side, n.pattern.pattern, str(n.dims)] for n in self.dims],
            "mask": [mask.as_list() for mask in self.masks],
        }

    def with_ignored(self, *patterns: str) -> MapFile:
        """This map with more patterns to ignore."""
        ignored = tuple(Pattern(p, "--ignore") for p in patterns)
        return replace(self, ignore=self.ignore + ignored)


def _list_text(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _refuse_unknown_keys(content: Mapping[Any, Any], keys: AbstractSet[str], where: str) -> None:
    unknown = set(content) - keys
    if unknown:
        raise FormatError(
            f"unknown key {_list_text(map(str, unknown))} in {where}",
            cure=f"use only {_list_text(keys)}",
        )


def _read_list(content: dict[str, Any], key: str, where: str) -> list[Any]:
    value = content.get(key)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise FormatError(f"{key} in {where} must be a list, not {repr(value)[:60]}", cure=_CURE)
    return list(value)


def _read_pin(entry: Any, where: str) -> Pin:
    if not isinstance(entry, dict) or not {"target", "reference"} <= set(entry):
        raise FormatError(
            f"a pair in {where} needs the keys target and reference: {repr(entry)[:60]}",
            cure=_CURE,
        )
    _refuse_unknown_keys(entry, _PAIR_KEYS, f"a pair of {where}")
    target, reference = (read_name(entry[side], side, where) for side in _SIDES)
    view, regex = entry.get("view", ""), entry.get("regex", False)
    if not isinstance(view, str) or not isinstance(regex, bool):
        raise FormatError(
            f"in a pair of {where}, view must be text and regex must be true or false:"
            f" {repr(entry)[:60]}",
            cure=_CURE,
        )
    pattern = Pattern(target, where) if regex else None
    return Pin(target, reference, View(view), pattern)


def _read_dims(content: Any, where: str) -> tuple[AxisNames, ...]:
    cure = "write dims: {target: {'conv.*': n h w c}, reference: {'conv.*': n c h w}}"
    if not isinstance(content, dict) or set(content) - set(_SIDES):
        raise FormatError(
            f"dims in {where} may only have the keys target and reference: {repr(content)[:60]}",
            cure=cure,
        )
    axis_names = []
    for side, entries in content.items():
        if not isinstance(entries, dict):
            raise FormatError(
                f"dims of the {side} in {where} must map names to axes, not {repr(entries)[:60]}",
                cure=cure,
            )
        for name, text in entries.items():
            pattern = Pattern(read_name(name, "dims", where), where)
            axis_names.append(AxisNames(side, pattern, Dims.parse(text)))
    return tuple(axis_names)


class MapMatcher:
    """Pairs what the user pinned, excludes what the user ignores, and names axes."""

    name = "map"

    def __init__(self, map_file: MapFile) -> None:
        self.map_file = map_file

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Refuse ignored tensors first, so that no later matcher pairs them."""
        for side, run in (("target", matching.target), ("reference", matching.reference)):
            self._refuse_ignored(matching, side, run)
        for axis_names in self.map_file.dims:
            _name_axes(getattr(matching, axis_names.side), axis_names)
        for pin in self.map_file.pins:
            yield from self._pair_pinned(matching, pin)

    def _refuse_ignored(self, matching: Matching, side: str, run: Side) -> None:
        for op in run.ops:
            names = _names_of(op)
            pattern = next(
                (p for p in self.map_file.ignore if any(p.fullmatch(n) for n in names)), None
            )
            if pattern is None:
                continue
            for tensor in run.outputs[op.key]:
                reason = Reason(ReasonCode.EXCLUDED, f"ignored by {pattern.pattern!r}")
                matching.refuse(side, tensor.key, reason)

    def _pair_pinned(self, matching: Matching, pin: Pin) -> Iterator[SyncPoint]:
        has_target = False
        for target, name in _find_targets(matching.target, pin):
            reference = _find_op(matching.reference, name)
            if reference is None:
                raise InputError(
                    f"the map pins {pin.target!r} to {name!r}, but the reference has no op or"
                    " module of that name",
                    cure=_INSPECT_CURE,
                )
            has_target = True
            pairs = matching.pair_ops(target, reference, "pinned by the map", 1.0, EvidenceKind.MAP)
            for pair in pairs:
                yield replace(pair, view=pin.view)
        if not has_target:
            raise InputError(
                f"the map pins {pin.target!r}, but no op or module of the target matches it",
                cure=_INSPECT_CURE,
            )


def _name_axes(side: Side, axis_names: AxisNames) -> None:
    """Name the axes of tensors that record no axis names. A pattern may match tensors of several
    ranks; only those with as many axes are named."""
    ops = {op.key: op for op in side.run.ops}
    has_match = False

    def name_axes(tensor: Tensor) -> Tensor:
        nonlocal has_match
        op = ops.get(tensor.key.op)
        names = {tensor.key.op.op, tensor.name} | (_names_of(op) if op is not None else set())
        if len(tensor.shape) != len(axis_names.dims.axes):
            return tensor
        if not any(axis_names.pattern.fullmatch(name) for name in names):
            return tensor
        has_match = True
        axis_names.dims.check(tensor.shape)
        return tensor if tensor.layout else replace_fields(tensor, layout=str(axis_names.dims))

    side.outputs = {key: [name_axes(t) for t in tensors] for key, tensors in side.outputs.items()}
    side.others = [name_axes(tensor) for tensor in side.others]
    if not has_match:
        raise InputError(
            f"the map names the axes {str(axis_names.dims)!r}, but no tensor of the"
            f" {axis_names.side} matches {axis_names.pattern.pattern!r} and has"
            f" {len(axis_names.dims.axes)} axes",
            cure=_INSPECT_CURE,
        )


def _names_of(op: Op) -> set[str]:
    """The names by which a map may refer to an op."""
    return {op.key.op, str(op.key)} | ({op.module} if op.module else set())


def _find_targets(side: Side, pin: Pin) -> Iterator[tuple[OpKey, str]]:
    if pin.pattern is None:
        key = _find_op(side, pin.target)
        if key is not None:
            yield key, pin.reference
        return
    for op in side.ops:
        for name in sorted(_names_of(op)):
            name_match = pin.pattern.fullmatch(name)
            if name_match:
                yield op.key, pin.pattern.expand(name_match, pin.reference)
                break


def _find_op(side: Side, name: str) -> OpKey | None:
    """The op of that name; for the name of a module, the last op that the module executed."""
    by_name = [op.key for op in side.ops if name in (op.key.op, str(op.key))]
    if by_name:
        return by_name[0]
    in_module = [op.key for op in side.ops if op.module == name]
    return in_module[-1] if in_module else None
