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

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from syncpoint.errors import FormatError, InputError
from syncpoint.matching.masks import Mask, read_masks
from syncpoint.matching.protocol import Matching, Side, SyncPoint
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import Reason
from syncpoint.run.dims import Dims
from syncpoint.run.model import Op, OpKey, Tensor, changed

_PAIR_KEYS = {"target", "reference", "view", "regex"}
_KEYS = {"pairs", "ignore", "dims", "mask"}
_SIDES = ("target", "reference")


@dataclass(frozen=True)
class Pin:
    """One pair of the map."""

    target: str
    reference: str
    view: View
    regex: bool


@dataclass(frozen=True)
class Named:
    """Names for the axes of some tensors of one side."""

    side: str
    pattern: re.Pattern[str]
    dims: Dims


@dataclass(frozen=True)
class MapFile:
    """What a map file says."""

    pins: tuple[Pin, ...] = ()
    ignore: tuple[re.Pattern[str], ...] = ()
    dims: tuple[Named, ...] = ()
    masks: tuple[Mask, ...] = ()

    @classmethod
    def load(cls, path: Path) -> MapFile:
        """Read a map from YAML."""
        import yaml

        try:
            said = yaml.safe_load(path.read_text())
        except OSError as error:
            raise InputError(f"a readable map file at {path}", str(error)) from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise FormatError(f"YAML in {path}", " ".join(str(error).split())) from error
        return cls.of(said or {}, str(path))

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
        listed = said.get("pairs") or ()
        if not isinstance(listed, list | tuple):
            raise FormatError(f"a list under pairs in {where}", repr(listed)[:60])
        for entry in listed:
            if not isinstance(entry, dict) or not {"target", "reference"} <= set(entry):
                raise FormatError(f"target and reference in each pair of {where}", repr(entry))
            if set(entry) - _PAIR_KEYS:
                raise FormatError(
                    f"only {', '.join(sorted(_PAIR_KEYS))} in a pair of {where}", repr(entry)
                )
            regex = bool(entry.get("regex", False))
            if regex:
                compile_regex(str(entry["target"]), where)
            view = View(str(entry.get("view", "")))
            pins.append(Pin(str(entry["target"]), str(entry["reference"]), view, regex))
        ignore = said.get("ignore") or ()
        if not isinstance(ignore, list | tuple):
            raise FormatError(
                f"a list of regular expressions under ignore in {where}", repr(ignore)
            )
        return cls(
            tuple(pins),
            tuple(compile_regex(str(i), where) for i in ignore),
            _read_dims(said.get("dims") or {}, where),
            read_masks(said.get("mask") or {}, where),
        )

    def in_words(self) -> dict[str, Any]:
        """What it says, as plain data."""
        return {
            "pairs": [[p.target, p.reference, str(p.view), p.regex] for p in self.pins],
            "ignore": [pattern.pattern for pattern in self.ignore],
            "dims": [[n.side, n.pattern.pattern, str(n.dims)] for n in self.dims],
            "mask": [mask.in_words() for mask in self.masks],
        }

    def ignoring(self, *patterns: str) -> MapFile:
        """This map with more left out."""
        more = tuple(compile_regex(p, "--ignore") for p in patterns)
        return replace(self, ignore=self.ignore + more)


def compile_regex(pattern: str, where: str) -> re.Pattern[str]:
    """A regular expression of the user's, or an error that says where it stands."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(f"a regular expression in {where}", f"{pattern!r}: {error}") from error


def _read_dims(said: Any, where: str) -> tuple[Named, ...]:
    cure = "write dims: {target: {'conv.*': n h w c}, reference: {'conv.*': n c h w}}"
    found = []
    if not isinstance(said, dict) or set(said) - set(_SIDES):
        raise FormatError(f"target and reference under dims in {where}", repr(said)[:60], cure)
    for side, entries in said.items():
        if not isinstance(entries, dict):
            raise FormatError(f"names and axes under dims in {where}", repr(entries)[:60], cure)
        for name, text in entries.items():
            found.append(Named(side, compile_regex(str(name), where), Dims.parse(text)))
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
                matching.refuse(side, tensor.key, Reason.EXCLUDED, f"ignored by {hit.pattern!r}")

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
            for pair in matching.pair_ops(target, reference, "pinned by the map", 1.0):
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
        return tensor if tensor.layout else changed(tensor, layout=str(named.dims))

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
    if not pin.regex:
        key = _find(side, pin.target)
        if key is not None:
            yield key, pin.reference
        return
    pattern = re.compile(pin.target)
    for op in side.ops:
        for name in sorted(_names(op)):
            hit = pattern.fullmatch(name)
            if hit:
                try:
                    wanted = hit.expand(pin.reference)
                except (re.error, IndexError) as error:
                    found = f"{pin.reference!r}: {error}"
                    raise InputError(f"groups of {pin.target!r} in a pin", found) from error
                yield op.key, wanted
                break


def _find(side: Side, name: str) -> OpKey | None:
    """The op of that name; a module's name stands for the last op the module executed."""
    by_name = [op.key for op in side.ops if name in (op.key.op, str(op.key))]
    if by_name:
        return by_name[0]
    in_module = [op.key for op in side.ops if op.module == name]
    return in_module[-1] if in_module else None
