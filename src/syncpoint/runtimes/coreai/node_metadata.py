"""Parse the debug information of kernels: name, module, torch node, source lines (user frames);
short names of types."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from syncpoint.errors import FormatError
from syncpoint.run.model import Frame

_NAMES = re.compile(r'identifiers = \[((?:"[^"]*"(?:, )?)+)\]')

_STACK = re.compile(r'"call_stack": \[((?:"[^"]*"(?:, )?)+)\]')

_LINE = re.compile(r'loc\("(?P<file>[^"]+)":(?P<line>\d+):')

_PREFIXES = ("call.", "coreai.", "decomposable.", "broadcasting_")


@dataclass(frozen=True)
class DebugInfo:
    """Where one kernel comes from."""

    origins: tuple[str, ...] = ()
    """Names of torch nodes, in the order of the torch program."""
    completes: bool = False
    """Whether its output is that of the last origin."""
    stack: tuple[str, ...] = ()
    """The modules around it, outermost first, as class and number: `Block$1`, `Linear$3`."""
    source: tuple[Frame, ...] = ()

    @property
    def module(self) -> str:
        """The modules inside the model, as a dotted path."""
        return ".".join(self.stack[1:])

    @property
    def module_type(self) -> str:
        """Class of the innermost module."""
        return self.stack[-1].partition("$")[0] if self.stack else ""

    def correct(self, debug_by_node: Mapping[str, DebugInfo]) -> DebugInfo:
        """Replace module and source lines by those that the program has for its torch node.

        The runtime mixes up the files of frames, and the frames of fused ops.
        """
        own = debug_by_node.get(self.origins[-1]) if self.origins else None
        return replace(self, stack=own.stack, source=own.source) if own else self


NO_DEBUG_INFO = DebugInfo()


def parse_debug_info(raw: bytes) -> dict[int, DebugInfo]:
    """Parse what the runtime reports; returns the information by the id of a kernel."""
    try:
        records = json.loads(raw) if raw else []
        entries = {
            int(op["odixId"]): _KernelEntry(op) for record in records for op in record["operations"]
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            f"the debug information is not that of coreai-core 1.0: {error!r}",
            cure="install coreai-core==1.0.0b3",
        ) from error
    # A fused op lists the frames of all its torch nodes, without saying which belong to which. An
    # op of one torch node alone, at least a constant, has the frames of that node.
    single = {e.origins[-1]: e for e in entries.values() if len(e.sources) == 1 and e.origins}
    last = {e.origins[-1]: number for number, e in sorted(entries.items()) if e.maps_output}
    return {
        number: entry.to_debug_info(single, completes=last.get(entry.origins[-1]) == number)
        if entry.origins
        else NO_DEBUG_INFO
        for number, entry in entries.items()
    }


class _KernelEntry:
    """The entry of one kernel in the JSON."""

    def __init__(self, op: Mapping[str, Any]) -> None:
        metadata = [(entry["key"], _untag(entry["value"])) for entry in op.get("metadatas", ())]
        torch = [s for s in _list_items(metadata, "sources") if s["name"] == "torch"]
        self.sources = {int(s["id"]): tuple(s.get("identifiers", ())) for s in torch}
        ordered = sorted(self.sources)
        self.origins = tuple(dict.fromkeys(n for i in ordered for n in self.sources[i]))
        maps = _list_items(metadata, "output_maps")
        self.maps_output = bool(ordered) and any(
            _is_of_node(m["source"], ordered[-1]) for m in maps
        )
        stacks = [tuple(reversed(value)) for key, value in metadata if key == "call_stack"]
        positions = [i for i, s in enumerate(torch) if int(s["id"]) == ordered[-1]]
        index = positions[0] if positions else 0
        self.stack: tuple[str, ...] = stacks[index] if index < len(stacks) == len(torch) else ()
        self.frames = [Frame(f["fileName"], int(f["line"])) for f in op.get("sourceLocations", ())]

    def to_debug_info(self, single: Mapping[str, _KernelEntry], completes: bool) -> DebugInfo:
        """Convert the entry; `single` has the entries of kernels with one torch node, by it."""
        source, stack = user_frames(self.frames), self.stack
        if len(self.sources) > 1:
            single_entry = single.get(self.origins[-1])
            frames = {f for f in self.frames if not _is_torch(f)}
            source = tuple(frames) if len(frames) == 1 else ()
            if single_entry is not None:
                source, stack = user_frames(single_entry.frames), single_entry.stack
        return DebugInfo(self.origins, completes, stack, tuple(source))


def _list_items(metadata: Sequence[tuple[str, Any]], key: str) -> list[Any]:
    """The items of all lists under a key, which may occur more than once."""
    return [entry for name, entries in metadata if name == key for entry in entries]


def _is_of_node(source: Mapping[str, Any], number: int) -> bool:
    """Whether an output map is that of the torch node of this number."""
    return bool(source["level"] == "torch" and source.get("id") == number)


def user_frames(stack: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return the frames outside torch, innermost last; torch's own where there are no others."""
    return tuple([f for f in stack if not _is_torch(f)] or stack)


def _is_torch(frame: Frame) -> bool:
    return "/site-packages/torch/" in frame.file


def _untag(value: Mapping[str, Any]) -> Any:
    """Remove the tags from a tagged value."""
    ((tag, inner),) = value.items()
    if tag == "unit":
        return None
    content = inner["_0"]
    if tag == "array":
        return [_untag(element) for element in content]
    if tag == "dictionary":
        return {key: _untag(element) for key, element in content.items()}
    return content


def parse_location(location: str) -> DebugInfo:
    """Parse the text of a location in the program, which has the innermost frame first."""
    names = dict.fromkeys(n for m in _NAMES.finditer(location) for n in _strings(m[1]))
    stack = _STACK.search(location)
    frames = [Frame(m["file"], int(m["line"])) for m in _LINE.finditer(location)]
    ordered = [f for f in reversed(frames) if f.line]
    modules = tuple(reversed(_strings(stack[1]))) if stack else ()
    return DebugInfo(tuple(names), False, modules, user_frames(ordered))


def _strings(text: str) -> list[str]:
    return re.findall(r'"([^"]*)"', text)


def short_type(name: str) -> str:
    """Return the type of a kernel or an op without the prefixes in which the two differ."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


@dataclass
class KernelNames:
    """The names of kernels, the same in all parts of a run."""

    debug: Mapping[int, DebugInfo]
    """By the id of a kernel."""
    names: dict[int, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def name_of(self, kernel: int, type: str, debug: DebugInfo) -> str:
        """Return the torch node that a kernel completes, or else its type and id."""
        if kernel not in self.names:
            name = debug.origins[-1] if debug.completes and debug.origins else ""
            if not name or name.startswith("@") or name in self.used:
                name = f"{short_type(type)}_{kernel}"
            self.names[kernel] = name
            self.used.add(name)
        return self.names[kernel]
