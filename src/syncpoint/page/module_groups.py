"""Cut the module tree into groups such as `blocks.0` by op counts, and assign each module to one of
them.

The tree is cut at one level: `blocks.0`, `blocks.1` rather than `blocks`, and `model.layers.7`
rather than `model`. A module with numbered modules inside is always split, and so is one that holds
most of the ops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_MAX_SHARE = 0.35
"""A module with a larger share of the ops is split if it has modules inside."""
_MAX_SHARE_OF_NUMBERED = 0.6
"""The same for a numbered module, which people know by its number."""
_MIN_OPS_PER_CHILD = 3
"""Average number of ops that the modules inside must have: groups of one op are of no use."""
_MAX_DEPTH = 64
"""Longer module paths are cut."""


class _Module:
    __slots__ = ("children", "own_ops", "total_ops")

    def __init__(self) -> None:
        self.children: dict[str, _Module] = {}
        self.total_ops = 0
        self.own_ops = 0


def group_modules(op_counts: Mapping[str, int]) -> dict[str, str]:
    """Return the group of each module path; `op_counts` has the number of ops by module."""
    root = _Module()
    for path, count in op_counts.items():
        module = root
        module.total_ops += count
        for name in _split_path(path):
            module = module.children.setdefault(name, _Module())
            module.total_ops += count
        module.own_ops += count
    split_paths = {""}
    _collect_split_paths(root, "", root.total_ops, split_paths)
    return {path: _group_of(path, split_paths) for path in op_counts}


def assign_groups(modules: Iterable[str], groups: set[str]) -> dict[str, str]:
    """Return which of these groups each module belongs to; a module outside of all of them is cut
    at the same level."""
    split_paths = {""}
    for group in groups:
        names = _split_path(group)
        split_paths.update(".".join(names[:length]) for length in range(1, len(names)))
    split_paths -= groups - {""}
    return {module: _group_of(module, split_paths) for module in modules}


def _split_path(path: str) -> list[str]:
    return path.split(".", _MAX_DEPTH)[:_MAX_DEPTH] if path else []


def _collect_split_paths(module: _Module, path: str, all_ops: int, split_paths: set[str]) -> None:
    has_numbered = any(name.isdigit() for name in module.children)
    inside = module.total_ops - module.own_ops
    is_numbered = path.rpartition(".")[2].isdigit()
    max_share = _MAX_SHARE_OF_NUMBERED if is_numbered else _MAX_SHARE
    is_large = has_numbered or inside > max_share * all_ops
    if path and not (is_large and inside >= _MIN_OPS_PER_CHILD * len(module.children)):
        return
    split_paths.add(path)
    for name, child in module.children.items():
        child_path = f"{path}.{name}" if path else name
        _collect_split_paths(child, child_path, all_ops, split_paths)


def _group_of(path: str, split_paths: set[str]) -> str:
    """Return the shortest prefix of a path that is not split, or all of it."""
    names = _split_path(path)
    for length in range(1, len(names) + 1):
        if (prefix := ".".join(names[:length])) not in split_paths:
            return prefix
    return ".".join(names)
