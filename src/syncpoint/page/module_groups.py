"""Which module a sync point is rolled up under: one level, cut where it tells most.

`blocks.0`, `blocks.1`... rather than `blocks`, and `model.layers.7` rather than `model`: a module
that holds numbered ones is always opened, and so is one that holds most of the ops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_SHARE = 0.35
"""A module with more than this share of the ops is opened if it has modules inside."""
_SHARE_OF_NUMBERED = 0.6
"""The same for a numbered module, which is a group people know by its number."""
_LEAST = 3
"""Ops that the modules inside must have on average: a group of one op tells nothing."""
_DEPTH = 64
"""Deeper paths than this are cut; nobody writes them by hand."""


class _Node:
    __slots__ = ("children", "own", "weight")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.weight = 0
        self.own = 0


def groups_of(modules: Mapping[str, int]) -> dict[str, str]:
    """Each module path with the group it belongs to; `modules` counts the ops of each."""
    root = _Node()
    for path, count in modules.items():
        node = root
        node.weight += count
        for name in _names(path):
            node = node.children.setdefault(name, _Node())
            node.weight += count
        node.own += count
    opened = {""}
    _open(root, "", root.weight, opened)
    return {path: _group(path, opened) for path in modules}


def groups_among(modules: Iterable[str], groups: set[str]) -> dict[str, str]:
    """Each module with the one of these groups it belongs to; one that lies beside them all is
    cut where they are."""
    opened = {""}
    for group in groups:
        names = _names(group)
        opened.update(".".join(names[:length]) for length in range(1, len(names)))
    opened -= groups - {""}
    return {module: _group(module, opened) for module in modules}


def _names(path: str) -> list[str]:
    return path.split(".", _DEPTH)[:_DEPTH] if path else []


def _open(node: _Node, path: str, total: int, opened: set[str]) -> None:
    numbered = any(name.isdigit() for name in node.children)
    inside = node.weight - node.own
    share = _SHARE_OF_NUMBERED if path.rpartition(".")[2].isdigit() else _SHARE
    tells = numbered or inside > share * total
    if path and not (tells and inside >= _LEAST * len(node.children)):
        return
    opened.add(path)
    for name, child in node.children.items():
        _open(child, f"{path}.{name}" if path else name, total, opened)


def _group(path: str, opened: set[str]) -> str:
    """The shortest beginning of a path that is not opened, or all of it."""
    names = _names(path)
    for length in range(1, len(names) + 1):
        if (beginning := ".".join(names[:length])) not in opened:
            return beginning
    return ".".join(names)
