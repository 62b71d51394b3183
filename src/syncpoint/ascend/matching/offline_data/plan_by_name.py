"""Plan the comparison of two device dumps without rule files: pair the last executions of ops of
one name; list ops of one side and damage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from syncpoint.ascend.dumps.folder_listing import unreadable_tensor
from syncpoint.ascend.matching.device_layouts import transpose_axes
from syncpoint.ascend.matching.plan import ComparisonPlan, PlanEntry
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.model import Op, Role, Tensor
from syncpoint.run.reader import Run

_ROLES = (Role.INPUT, Role.OUTPUT)


def plan_by_name(target: Run, reference: Run) -> ComparisonPlan:
    """Pair ops by name, in the order of the target; ops that only the reference has come last."""
    target_ops, reference_ops = _last_executions(target), _last_executions(reference)
    tensors = (_tensors_by_op(target), _tensors_by_op(reference))
    entries: list[PlanEntry] = []
    reference_only = [name for name in reference_ops if name not in target_ops]
    for index, name in enumerate([*target_ops, *reference_only]):
        target_op, reference_op = target_ops.get(name), reference_ops.get(name)
        if target_op is None:
            text = f'[{name}] There is no the my output dump file for the op "{name}".'
            entries.append(_one_sided(index, (), (name,), name, ReasonCode.NO_TARGET_VALUE, text))
        elif reference_op is None:
            text = f'[{name}] There is no the ground truth dump file for the op "{name}".'
            entries.append(_one_sided(index, (name,), (), name, ReasonCode.NO_COUNTERPART, text))
        else:
            op_tensors = (
                tensors[0].get(target_op.key, {}),
                tensors[1].get(reference_op.key, {}),
            )
            entries += _op_entries(index, name, target_op, reference_op, op_tensors)
    planned = {entry.target.key for entry in entries if entry.target is not None}
    last_executions = {op.key for op in target_ops.values()}
    excluded = tuple(
        (tensor.key, "an earlier execution; the last one is compared")
        for tensor in target.tensors
        if tensor.key not in planned and tensor.key.op not in last_executions
    )
    return ComparisonPlan(tuple(entries), "the same name", excluded)


def _op_entries(
    index: int,
    name: str,
    target_op: Op,
    reference_op: Op,
    tensors: tuple[dict[Role, list[Tensor]], dict[Role, list[Tensor]]],
) -> Iterator[PlanEntry]:
    executions = max(target_op.key.call, reference_op.key.call) + 1
    note = f"the last of {executions} executions is compared" if executions > 1 else ""
    op_entry = PlanEntry(
        index=index,
        type=target_op.type,
        target_names=(name,),
        reference_names=(name,),
        op=name,
        note=note,
    )
    ops = (target_op, reference_op)
    damage = _damage_text(ops)
    if not damage and not (tensors[0] and tensors[1]):
        damage = "a file holds no tensors"
    if damage:
        text = f"[{name}] The dump file cannot be used: {damage}."
        places = [unreadable_tensor(op.attributes) for op in ops]
        yield replace(
            op_entry,
            reason=ReasonCode.UNREADABLE,
            report_text=text,
            unreadable=places[0] or places[1],
        )
    skipped = []
    for role in _ROLES:
        targets, references = tensors[0].get(role, []), tensors[1].get(role, [])
        if not targets and not references:
            skipped.append(f"[{name}] There is no {role}. Skip the {name}:{role}.")
            continue
        if len(targets) != len(references) and not damage:
            text = (
                f"[{name}] The number of {role} does not match ({len(targets)} vs"
                f" {len(references)}) for {name}."
            )
            first = targets[0] if targets else None
            yield replace(op_entry, target=first, reason=ReasonCode.SHAPE, report_text=text)
            continue
        reference_by_index = {tensor.key.index: tensor for tensor in references}
        for tensor in targets:
            reference = reference_by_index.get(tensor.key.index)
            if reference is None:
                continue
            pair = replace(op_entry, target=tensor, reference=reference)
            view = _transposition(tensor, reference)
            if view is not None:
                yield replace(pair, view=view)
            elif tensor.shape != reference.shape:
                text = (
                    f"[{name}] The shape does not match ({tensor.shape} vs {reference.shape}) for"
                    f" {name}:{role}:{tensor.key.index}."
                )
                texts = ",".join([*skipped, text])
                yield replace(pair, reason=ReasonCode.SHAPE, report_text=texts)
            else:
                yield pair


def _damage_text(ops: Iterable[Op]) -> str:
    return "; ".join(str(op.attributes["damage"]) for op in ops if op.attributes.get("damage"))


def _transposition(target: Tensor, reference: Tensor) -> View | None:
    """The view between two orders of the same named axes."""
    layouts = (target.layout, reference.layout)
    has_names = len(layouts[0]) == len(target.shape) == len(layouts[1]) == len(reference.shape)
    if not has_names or layouts[0] == layouts[1]:
        return None
    text = transpose_axes(*layouts)
    if not text:
        return None
    order = [layouts[0].index(axis) for axis in layouts[1]]
    return View(text) if tuple(target.shape[a] for a in order) == reference.shape else None


def _one_sided(
    index: int,
    target_names: tuple[str, ...],
    reference_names: tuple[str, ...],
    name: str,
    reason: ReasonCode,
    report_text: str,
) -> PlanEntry:
    return PlanEntry(
        index=index,
        type="",
        target_names=target_names,
        reference_names=reference_names,
        op=name,
        reason=reason,
        report_text=report_text,
    )


def _last_executions(run: Run) -> dict[str, Op]:
    """The last execution of each op, by name."""
    last: dict[str, Op] = {}
    for op in run.ops:
        if op.key.op not in last or op.key.call >= last[op.key.op].key.call:
            last[op.key.op] = op
    return last


def _tensors_by_op(run: Run) -> dict[object, dict[Role, list[Tensor]]]:
    tensors: dict[object, dict[Role, list[Tensor]]] = {}
    for tensor in run.tensors:
        tensors.setdefault(tensor.key.op, {}).setdefault(tensor.key.role, []).append(tensor)
    return tensors
