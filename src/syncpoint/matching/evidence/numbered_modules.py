"""Modules that one side knows only as class and number: `Block$1.Linear$3`.

Core AI assets do not keep the names of modules, but number those of a class in the order in
which they are first called; a module that is called again may count again. The reference has the
same order, and the names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from syncpoint.matching.evidence.source_lines import lines_by_module
from syncpoint.matching.evidence.wrapper_prefixes import unwrapped
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.model import Op

_NUMBERED = re.compile(r"(?P<type>.+)\$(?P<number>\d+)")


def named_modules(work: Workspace) -> dict[str, str]:
    """The reference's name of each numbered module of the target, where it can be told; of each
    module where one side has the model inside another.

    All of a class are named or none: that one is missing would shift the others. A name holds
    if the lines called from inside the module are among those of its namesake, and if it lies
    inside the module that the module around it is named for.
    """
    target, reference = work.graphs[TARGET].ops, work.graphs[REFERENCE].ops
    mine = lines_by_module(target)
    numbered = {module: found for module in mine if (found := _innermost(module)) is not None}
    theirs = lines_by_module(reference)
    if not numbered:
        return unwrapped(mine, theirs)
    calls = _calls(reference)
    named: dict[str, str] = {}
    for kind in dict.fromkeys(kind for kind, _ in numbered.values()):
        modules = {m: number for m, (k, number) in numbered.items() if k == kind}
        every = calls.get(kind, [])
        for known in (list(dict.fromkeys(every)), every):
            if max(modules.values()) <= len(known):
                names = {module: known[number - 1] for module, number in modules.items()}
                if all(mine[m] <= theirs[name] for m, name in names.items()):
                    named |= names
                    break
    return {m: name for m, name in named.items() if _inside(m, name, named)}


def _innermost(module: str) -> tuple[str, int] | None:
    found = _NUMBERED.fullmatch(module.rpartition(".")[2])
    return (found["type"], int(found["number"])) if found else None


def _calls(ops: Sequence[Op]) -> dict[str, list[str]]:
    """By class: its modules in the order of their calls, once for each call."""
    types = {op.module: op.module_type for op in ops if op.module}
    found: dict[str, list[str]] = {}
    before: set[str] = set()
    for op in ops:
        steps = op.module.split(".")
        around = [".".join(steps[:depth]) for depth in range(1, len(steps) + 1)]
        for path in around:
            if path not in before and path in types:
                found.setdefault(types[path], []).append(path)
        before = set(around)
    return found


def _inside(module: str, name: str, named: dict[str, str]) -> bool:
    """Whether the name lies inside those of all modules around it that have one."""
    around = module.rpartition(".")[0]
    while around:
        outer = named.get(around)
        if outer is not None and not name.startswith(f"{outer}."):
            return False
        around = around.rpartition(".")[0]
    return True
