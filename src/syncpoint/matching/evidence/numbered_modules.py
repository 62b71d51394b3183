"""Find the real names of modules that one side knows only as class and number: `Block$1.Linear$3`,
by the order of calls.

Core AI assets do not keep the names of modules. They number the modules of a class in the order
of their first call; a module that is called again may get another number. The reference has the
same order, and the names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from syncpoint.matching.evidence.source_lines import lines_by_module
from syncpoint.matching.evidence.wrapper_prefixes import unwrap_names
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.model import Op

_NUMBERED = re.compile(r"(?P<type>.+)\$(?P<number>\d+)")


def find_module_names(work: Workspace) -> dict[str, str]:
    """The reference's name for each module of the target that is numbered, if it can be found; for
    all modules if one side wraps the model in another.

    Either all modules of a class get a name or none: if one is missing, the others are shifted. A
    name is valid if the source lines called from inside the module are among those of the named
    module, and if it lies inside the name of the enclosing module.
    """
    target, reference = work.graphs[TARGET].ops, work.graphs[REFERENCE].ops
    target_lines, reference_lines = lines_by_module(target), lines_by_module(reference)
    numbered = {
        module: class_and_number
        for module in target_lines
        if (class_and_number := _innermost(module)) is not None
    }
    if not numbered:
        return unwrap_names(target_lines, reference_lines)
    calls = _modules_by_call(reference)
    named: dict[str, str] = {}
    for kind in dict.fromkeys(kind for kind, _ in numbered.values()):
        numbers = {module: number for module, (k, number) in numbered.items() if k == kind}
        all_calls = calls.get(kind, [])
        for candidates in (list(dict.fromkeys(all_calls)), all_calls):
            if max(numbers.values()) <= len(candidates):
                names = {module: candidates[number - 1] for module, number in numbers.items()}
                if all(target_lines[m] <= reference_lines[name] for m, name in names.items()):
                    named |= names
                    break
    return {module: name for module, name in named.items() if _is_inside(module, name, named)}


def _innermost(module: str) -> tuple[str, int] | None:
    """Class and number of the last part of a module path."""
    match = _NUMBERED.fullmatch(module.rpartition(".")[2])
    return (match["type"], int(match["number"])) if match else None


def _modules_by_call(ops: Sequence[Op]) -> dict[str, list[str]]:
    """By class: its modules in the order of calls, one entry for each call."""
    types = {op.module: op.module_type for op in ops if op.module}
    modules: dict[str, list[str]] = {}
    previous_paths: set[str] = set()
    for op in ops:
        parts = op.module.split(".")
        paths = [".".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        for path in paths:
            if path not in previous_paths and path in types:
                modules.setdefault(types[path], []).append(path)
        previous_paths = set(paths)
    return modules


def _is_inside(module: str, name: str, named: dict[str, str]) -> bool:
    """Whether a name lies inside the names of all enclosing modules that have one."""
    enclosing = module.rpartition(".")[0]
    while enclosing:
        outer_name = named.get(enclosing)
        if outer_name is not None and not name.startswith(f"{outer_name}."):
            return False
        enclosing = enclosing.rpartition(".")[0]
    return True
