"""The map file: pairs that the user pins, and what the user leaves out.

    pairs:
      - target: lm_head            # op name, or module path
        reference: head
        view: transpose(0,2,1)     # turns the target into the reference's layout
      - target: 'blocks\\.(\\d+)\\.mlp'
        reference: 'layers.\\1.feed_forward'
        regex: true
    ignore: ['rotary.*', 'dropout']
    dims:                          # names of axes, where the runs do not say them
      target: {'conv.*': n h w c}
      reference: {'conv.*': n c h w}
    mask: {'encoder\\..*': attention_mask}   # see `syncpoint.matching.masks`

It is the strongest evidence there is and comes first in the chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from syncpoint.errors import FormatError, InputError
from syncpoint.files.yaml_toml import read_yaml
from syncpoint.matching.masks import Mask, name_of, read_masks
from syncpoint.matching.protocol import EvidenceKind, Matching, Side, SyncPoint
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.dims import Dims
from syncpoint.run.model import Op, OpKey, Tensor, replace_fields
from syncpoint.run.user_regex import Pattern

_PAIR_KEYS = {"target", "reference", "view", "regex"}
_KEYS = {"pairs", "ignore", "dims", "mask"}
_SIDES = ("target", "reference")


@dataclass(frozen=True)
class Pin:
    """One pair of the map."""

    target: str
    reference: str
    view: View
    pattern: Pattern | None = None
    """`target` as a regular expression, where it is one."""


@dataclass(frozen=True)
class Named:
    """Names for the axes of some tensors of one side."""

    side: str
    pattern: Pattern
    dims: Dims


@dataclass(frozen=True)
class MapFile:
    """What a map file says."""

    pins: tuple[Pin, ...] = ()
    ignore: tuple[Pattern, ...] = ()
    dims: tuple[Named, ...] = ()
    masks: tuple[Mask, ...] = ()

    @classmethod
    def load(cls, path: Path) -> MapFile:
        """Read a map from YAML."""
        content = read_yaml(path, "a readable map file")
        return cls.of({} if content is None else content, str(path))

    @classmethod
    def of(cls, said: Any, where: str = "the map") -> MapFile:
        """The map that plain data describe."""
        if not isinstance(said, dict):
            raise FormatError(f"a mapping with pairs and ignore in {where}", type(said).__name__)
        unknown = set(said) - _KEYS
        if unknown:
            names = ", ".join(sorted(map(str, unknown)))
            raise FormatError(f"only pairs, ignore, dims and mask in {where}", names)
        pins = []
        listed = _list(said, "pairs", where)
        for entry in listed:
            if not isinstance(entry, dict) or not {"target", "reference"} <= set(entry):
                raise FormatError(f"target and reference in each pair of {where}", repr(entry))
            if set(entry) - _PAIR_KEYS:
                raise FormatError(
                    f"only {', '.join(sorted(_PAIR_KEYS))} in a pair of {where}", repr(entry)
                )
            pins.append(_read_pin(entry, where))
        ignore = _list(said, "ignore", where)
        return cls(
            tuple(pins),
            tuple(Pattern(name_of(i, "ignore", where), where) for i in ignore),
            _read_dims(said.get("dims") or {}, where),
            read_masks(said.get("mask") or {}, where),
        )

    def in_words(self) -> dict[str, Any]:
        """What it says, as plain data."""
        return {
            "pairs": [[p.target, p.reference, str(p.view), bool(p.pattern)] for p in self.pins],
            "ignore": [pattern.pattern for pattern in self.ignore],
            "dims": [[n.side, n.pattern.pattern, str(n.dims)] for n in self.dims],
            "mask": [mask.in_words() for mask in self.masks],
        }

    def ignoring(self, *patterns: str) -> MapFile:
        """This map with more left out."""
        more = tuple(Pattern(p, "--ignore") for p in patterns)
        return replace(self, ignore=self.ignore + more)


def _list(content: dict[str, Any], key: str, where: str) -> list[Any]:
    value = content.get(key)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise FormatError(f"a list under {key} in {where}", repr(value)[:60])
    return list(value)


def _read_pin(entry: dict[str, Any], where: str) -> Pin:
    target, reference = (name_of(entry[side], side, where) for side in _SIDES)
    view, regex = entry.get("view", ""), entry.get("regex", False)
    if not isinstance(view, str) or not isinstance(regex, bool):
        raise FormatError(
            f"a text as view, and true or false as regex, in a pair of {where}", repr(entry)[:60]
        )
    pattern = Pattern(target, where) if regex else None
    return Pin(target, reference, View(view), pattern)


def _read_dims(said: Any, where: str) -> tuple[Named, ...]:
    cure = "write dims: {target: {'conv.*': n h w c}, reference: {'conv.*': n c h w}}"
    found = []
    if not isinstance(said, dict) or set(said) - set(_SIDES):
        raise FormatError(f"target and reference under dims in {where}", repr(said)[:60], cure)
    for side, entries in said.items():
        if not isinstance(entries, dict):
            raise FormatError(f"names and axes under dims in {where}", repr(entries)[:60], cure)
        for name, text in entries.items():
            pattern = Pattern(name_of(name, "dims", where), where)
            found.append(Named(side, pattern, Dims.parse(text)))
    return tuple(found)


class MapMatcher:
    """Pairs what the user pinned, takes out what the user ignores, names axes."""

    name = "map"

    def __init__(self, map_file: MapFile) -> None:
        self.map_file = map_file

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Ignored tensors are refused first: an ignored op is not paired by a later matcher."""
        for side, run in (("target", matching.target), ("reference", matching.reference)):
            self._ignore(matching, side, run)
        for named in self.map_file.dims:
            _name_axes(getattr(matching, named.side), named)
        for pin in self.map_file.pins:
            yield from self._pin(matching, pin)

    def _ignore(self, matching: Matching, side: str, run: Side) -> None:
        for op in run.ops:
            names = _names(op)
            hit = next(
                (p for p in self.map_file.ignore if any(p.fullmatch(n) for n in names)), None
            )
            if hit is None:
                continue
            for tensor in run.outputs[op.key]:
                reason = Reason(ReasonCode.EXCLUDED, f"ignored by {hit.pattern!r}")
                matching.refuse(side, tensor.key, reason)

    def _pin(self, matching: Matching, pin: Pin) -> Iterator[SyncPoint]:
        found = False
        for target, wanted in _targets(matching.target, pin):
            reference = _find(matching.reference, wanted)
            if reference is None:
                raise InputError(
                    f"a reference op or module called {wanted!r} (pinned to {pin.target!r})",
                    "none",
                    "syncpoint inspect lists the names of a run",
                )
            found = True
            pairs = matching.pair_ops(target, reference, "pinned by the map", 1.0, EvidenceKind.MAP)
            for pair in pairs:
                yield replace(pair, view=pin.view)
        if not found:
            raise InputError(
                f"a target op or module that matches {pin.target!r}",
                "none",
                "syncpoint inspect lists the names of a run",
            )


def _name_axes(side: Side, named: Named) -> None:
    """Give the axes of tensors that have no names of their own those of the map. A regular
    expression may fit tensors of several ranks; meant are those that have as many axes."""
    ops = {op.key: op for op in side.run.ops}
    found = False

    def with_names(tensor: Tensor) -> Tensor:
        nonlocal found
        op = ops.get(tensor.key.op)
        names = {tensor.key.op.op, tensor.name} | (_names(op) if op is not None else set())
        if len(tensor.shape) != len(named.dims.axes):
            return tensor
        if not any(named.pattern.fullmatch(name) for name in names):
            return tensor
        found = True
        named.dims.check(tensor.shape)
        return tensor if tensor.layout else replace_fields(tensor, layout=str(named.dims))

    side.outputs = {key: [with_names(t) for t in made] for key, made in side.outputs.items()}
    side.others = [with_names(tensor) for tensor in side.others]
    if not found:
        raise InputError(
            f"a {named.side} tensor that matches {named.pattern.pattern!r} and has the axes"
            f" {str(named.dims)!r}",
            "none",
            "syncpoint inspect lists the names of a run",
        )


def _names(op: Op) -> set[str]:
    """The names under which a user may speak of an op."""
    return {op.key.op, str(op.key)} | ({op.module} if op.module else set())


def _targets(side: Side, pin: Pin) -> Iterator[tuple[OpKey, str]]:
    if pin.pattern is None:
        key = _find(side, pin.target)
        if key is not None:
            yield key, pin.reference
        return
    for op in side.ops:
        for name in sorted(_names(op)):
            hit = pin.pattern.fullmatch(name)
            if hit:
                yield op.key, pin.pattern.expand(hit, pin.reference)
                break


def _find(side: Side, name: str) -> OpKey | None:
    """The op of that name; a module's name stands for the last op the module executed."""
    by_name = [op.key for op in side.ops if name in (op.key.op, str(op.key))]
    if by_name:
        return by_name[0]
    in_module = [op.key for op in side.ops if op.module == name]
    return in_module[-1] if in_module else None
