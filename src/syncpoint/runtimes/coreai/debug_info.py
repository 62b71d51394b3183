"""What an asset says of where its kernels come from: torch nodes, modules, lines of the user.

The runtime gives it as JSON with tagged values. Kernels of a body that several calls share (the
converter makes one body for all layer norms of a shape) all carry what was said of one of the
calls; `kernel_to_op.py` puts that right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from syncpoint.errors import FormatError
from syncpoint.run.model import Frame

_NAMES = re.compile(r'identifiers = \[((?:"[^"]*"(?:, )?)+)\]')
_STACK = re.compile(r'"call_stack": \[((?:"[^"]*"(?:, )?)+)\]')
_LINE = re.compile(r'loc\("(?P<file>[^"]+)":(?P<line>\d+):')


@dataclass(frozen=True)
class Debug:
    """Where one kernel comes from."""

    origins: tuple[str, ...] = ()
    """Names of torch nodes, in the order of the torch program: the last one is completed."""
    completes: bool = False
    """Whether its result is that of the last of the origins."""
    stack: tuple[str, ...] = ()
    """The modules around it, outermost first, as class and number: `Block$1`, `Linear$3`."""
    source: tuple[Frame, ...] = ()

    @property
    def module(self) -> str:
        """The modules inside the model as a dotted path."""
        return ".".join(self.stack[1:])

    @property
    def module_type(self) -> str:
        """Class of the innermost module."""
        return self.stack[-1].partition("$")[0] if self.stack else ""

    def corrected(self, by_node: Mapping[str, Debug]) -> Debug:
        """The same with the module and the lines that the asset's program has for its torch node:
        the runtime mixes up the files of frames, and those of fused ops."""
        own = by_node.get(self.origins[-1]) if self.origins else None
        return replace(self, stack=own.stack, source=own.source) if own else self


NOTHING = Debug()


def read(raw: bytes) -> dict[int, Debug]:
    """By the id of a kernel, as the runtime reports it."""
    try:
        records = json.loads(raw) if raw else []
        entries = {
            int(op["odixId"]): _Entry(op) for record in records for op in record["operations"]
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            "debug information of coreai-core 1.0", f"another form of it: {error!r}"
        ) from error
    # Fused ops list the frames of all they were made from, without saying whose is which. What
    # was made from one torch node alone says it for that node: constants do, if nothing else.
    alone = {e.origins[-1]: e for e in entries.values() if len(e.sources) == 1 and e.origins}
    last = {e.origins[-1]: number for number, e in sorted(entries.items()) if e.maps}
    return {
        number: entry.debug(alone, completes=last.get(entry.origins[-1]) == number)
        if entry.origins
        else NOTHING
        for number, entry in entries.items()
    }


class _Entry:
    """What is said of one kernel."""

    def __init__(self, op: Mapping[str, Any]) -> None:
        said = [(entry["key"], _plain(entry["value"])) for entry in op.get("metadatas", ())]
        torch = [s for s in _items(said, "sources") if s["name"] == "torch"]
        self.sources = {int(s["id"]): tuple(s.get("identifiers", ())) for s in torch}
        ordered = sorted(self.sources)
        self.origins = tuple(dict.fromkeys(n for i in ordered for n in self.sources[i]))
        maps = _items(said, "output_maps")
        self.maps = bool(ordered) and any(_is_of_node(m["source"], ordered[-1]) for m in maps)
        stacks = [tuple(reversed(value)) for key, value in said if key == "call_stack"]
        mine = [i for i, s in enumerate(torch) if int(s["id"]) == ordered[-1]]
        at = mine[0] if mine else 0
        self.stack: tuple[str, ...] = stacks[at] if at < len(stacks) == len(torch) else ()
        self.frames = [Frame(f["fileName"], int(f["line"])) for f in op.get("sourceLocations", ())]

    def debug(self, alone: Mapping[str, _Entry], completes: bool) -> Debug:
        """All of it; `alone` knows torch nodes from kernels that were made from nothing else."""
        source, stack = of_the_user(self.frames), self.stack
        if len(self.sources) > 1:
            known = alone.get(self.origins[-1])
            users = {f for f in self.frames if not _is_torch(f)}
            source = tuple(users) if len(users) == 1 else ()
            if known is not None:
                source, stack = of_the_user(known.frames), known.stack
        return Debug(self.origins, completes, stack, tuple(source))


def _items(metadata: Sequence[tuple[str, Any]], key: str) -> list[Any]:
    """The items of all lists under a key, which may be there more than once."""
    return [item for name, items in metadata if name == key for item in items]


def _is_of_node(source: Mapping[str, Any], number: int) -> bool:
    """Whether an output map speaks of the torch node of this number."""
    return bool(source["level"] == "torch" and source.get("id") == number)


def of_the_user(stack: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames outside torch, innermost last; all of them where torch is all there is."""
    return tuple([f for f in stack if not _is_torch(f)] or stack)


def _is_torch(frame: Frame) -> bool:
    return "/site-packages/torch/" in frame.file


def _plain(value: Mapping[str, Any]) -> Any:
    """A tagged value without its tags."""
    ((tag, inner),) = value.items()
    if tag == "unit":
        return None
    found = inner["_0"]
    if tag == "array":
        return [_plain(item) for item in found]
    if tag == "dictionary":
        return {key: _plain(item) for key, item in found.items()}
    return found


def read_location(location: str) -> Debug:
    """What the text of a location says, the innermost frame first."""
    names = dict.fromkeys(n for m in _NAMES.finditer(location) for n in _strings(m[1]))
    stack = _STACK.search(location)
    frames = [Frame(m["file"], int(m["line"])) for m in _LINE.finditer(location)]
    ordered = [f for f in reversed(frames) if f.line]
    modules = tuple(reversed(_strings(stack[1]))) if stack else ()
    return Debug(tuple(names), False, modules, of_the_user(ordered))


def _strings(text: str) -> list[str]:
    return re.findall(r'"([^"]*)"', text)
