"""The plan for two dumps of devices without rule files: ops of the same name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from syncpoint.ascend.dumps.folder_files import unreadable_tensor
from syncpoint.ascend.matching.device_layouts import between
from syncpoint.ascend.matching.plan import Entry, Plan
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.model import Op, Role, Tensor
from syncpoint.run.reader import Run

_ROLES = (Role.INPUT, Role.OUTPUT)


def plan_by_name(target: Run, reference: Run) -> Plan:
    """Ops of both sides by name, in the order of the target; then those it does not have."""
    sides = (_last_by_name(target), _last_by_name(reference))
    tensors = (_by_op(target), _by_op(reference))
    entries: list[Entry] = []
    for index, name in enumerate([*sides[0], *(n for n in sides[1] if n not in sides[0])]):
        mine, theirs = sides[0].get(name), sides[1].get(name)
        if mine is None:
            words = f'[{name}] There is no the my output dump file for the op "{name}".'
            entries.append(_line(index, (), (name,), name, ReasonCode.NO_TARGET_VALUE, words))
        elif theirs is None:
            words = f'[{name}] There is no the ground truth dump file for the op "{name}".'
            entries.append(_line(index, (name,), (), name, ReasonCode.NO_COUNTERPART, words))
        else:
            both = (tensors[0].get(mine.key, {}), tensors[1].get(theirs.key, {}))
            entries += _op(index, name, mine, theirs, both)
    said = {entry.target.key for entry in entries if entry.target is not None}
    last = {op.key for op in sides[0].values()}
    excluded = tuple(
        (tensor.key, "an earlier execution; the last one is compared")
        for tensor in target.tensors
        if tensor.key not in said and tensor.key.op not in last
    )
    return Plan(tuple(entries), "the same name", excluded)


def _op(
    index: int,
    name: str,
    mine: Op,
    theirs: Op,
    tensors: tuple[dict[Role, list[Tensor]], dict[Role, list[Tensor]]],
) -> Iterator[Entry]:
    executions = max(mine.key.call, theirs.key.call) + 1
    note = f"the last of {executions} executions is compared" if executions > 1 else ""
    whole = Entry(
        index=index,
        type=mine.type,
        target_names=(name,),
        reference_names=(name,),
        op=name,
        note=note,
    )
    damage = "; ".join(str(op.attributes["damage"]) for op in (mine, theirs) if _damaged(op))
    if not damage and not (tensors[0] and tensors[1]):
        damage = "a file holds no tensors"
    if damage:
        words = f"[{name}] The dump file cannot be used: {damage}."
        places = [unreadable_tensor(op.attributes) for op in (mine, theirs)]
        yield replace(
            whole, reason=ReasonCode.UNREADABLE, words=words, unreadable=places[0] or places[1]
        )
    skipped = []
    for role in _ROLES:
        left, right = tensors[0].get(role, []), tensors[1].get(role, [])
        if not left and not right:
            skipped.append(f"[{name}] There is no {role}. Skip the {name}:{role}.")
            continue
        if len(left) != len(right) and not damage:
            words = (
                f"[{name}] The number of {role} does not match ({len(left)} vs {len(right)}) for"
                f" {name}."
            )
            yield replace(whole, target=_first(left), reason=ReasonCode.SHAPE, words=words)
            continue
        others = {tensor.key.index: tensor for tensor in right}
        for tensor in left:
            reference = others.get(tensor.key.index)
            if reference is None:
                continue
            pair = replace(whole, target=tensor, reference=reference)
            turned = _turned(tensor, reference)
            if turned is not None:
                yield replace(pair, view=turned)
            elif tensor.shape != reference.shape:
                words = (
                    f"[{name}] The shape does not match ({tensor.shape} vs {reference.shape}) for"
                    f" {name}:{role}:{tensor.key.index}."
                )
                said = ",".join([*skipped, words])
                yield replace(pair, reason=ReasonCode.SHAPE, words=said)
            else:
                yield pair


def _turned(mine: Tensor, theirs: Tensor) -> View | None:
    """The view between two orders of the same named axes."""
    named = len(mine.layout) == len(mine.shape) == len(theirs.layout) == len(theirs.shape)
    if not named or mine.layout == theirs.layout:
        return None
    text = between(mine.layout, theirs.layout)
    if not text:
        return None
    order = [mine.layout.index(axis) for axis in theirs.layout]
    return View(text) if tuple(mine.shape[a] for a in order) == theirs.shape else None


def _first(tensors: list[Tensor]) -> Tensor | None:
    return tensors[0] if tensors else None


def _damaged(op: Op) -> bool:
    return bool(op.attributes.get("damage"))


def _line(
    index: int,
    left: tuple[str, ...],
    right: tuple[str, ...],
    name: str,
    reason: ReasonCode,
    words: str,
) -> Entry:
    return Entry(
        index=index,
        type="",
        target_names=left,
        reference_names=right,
        op=name,
        reason=reason,
        words=words,
    )


def _last_by_name(run: Run) -> dict[str, Op]:
    found: dict[str, Op] = {}
    for op in run.ops:
        if op.key.op not in found or op.key.call >= found[op.key.op].key.call:
            found[op.key.op] = op
    return found


def _by_op(run: Run) -> dict[object, dict[Role, list[Tensor]]]:
    found: dict[object, dict[Role, list[Tensor]]] = {}
    for tensor in run.tensors:
        found.setdefault(tensor.key.op, {}).setdefault(tensor.key.role, []).append(tensor)
    return found
