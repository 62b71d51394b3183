"""The plan that the rule files of the compiler give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from syncpoint.ascend.dumps.folder_files import unreadable_tensor
from syncpoint.ascend.dumps.rule_file import OpRule, dequantizes
from syncpoint.ascend.matching.device_views import laid_over
from syncpoint.ascend.matching.offline_data.dumped_ops import Found, OpsByName
from syncpoint.ascend.matching.offline_data.original_ops import Group, Origin, Relation, Rules
from syncpoint.ascend.matching.plan import Entry, Plan
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.model import Op, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

_CONSTANTS = frozenset({"Const", "Constant", "Variable", "VariableV2", "RefData"})
_GIVEN = frozenset({"Data", "AnnData", "NetOutput"})
_INTEGERS = "integers between quantizing and dequantizing, whose scale no file tells"


@dataclass(frozen=True)
class _Constant:
    """A constant of the compiled model that an op reads: the original has no file for it."""

    name: str


def plan_by_rules(target: Run, reference: Run, rules: Rules) -> Plan:
    """What the rules say of two runs."""
    return _Planner(target, reference, rules).plan()


class _Planner:
    def __init__(self, target: Run, reference: Run, rules: Rules) -> None:
        self._runs = (target, reference)
        self._rules = rules
        self._tensors: dict[object, list[Tensor]] = {}
        for tensor in target.tensors:
            self._tensors.setdefault(tensor.key.op, []).append(tensor)
        self._device = OpsByName(target, rules.ops)
        origins = {
            rules.owned(o)[0]
            for op in rules.ops.values()
            for k in range(len(op.output_desc))
            if isinstance(o := rules.origin(op, k), Origin)
        }
        self._golden = OpsByName(reference, origins)
        self._excluded: list[tuple[TensorKey, str]] = []

    def plan(self) -> Plan:
        entries = tuple(entry for group in self._rules.groups for entry in self._group(group))
        said = {entry.target.key for entry in entries if entry.target is not None}
        excluded = {key: why for key, why in self._excluded if key not in said}
        used = {key.op for key in (*said, *excluded)}
        for op in self._runs[0].ops:
            if op.key not in used:
                why = "not in the rule file"
                if self._device.superseded(op):
                    why = "an earlier execution; the last one is compared"
                excluded.update({t.key: why for t in self._tensors.get(op.key, ())})
        for tensor in self._runs[0].tensors:
            if tensor.key not in said:
                excluded.setdefault(tensor.key, "another tensor of its op is compared")
        return Plan(entries, "the rule file of the compiler", tuple(excluded.items()))

    def _group(self, group: Group) -> Iterator[Entry]:
        found = {op.name: self._device.find(op.name) for op in group.ops}
        compared = self._compared(group, found)
        entries = [entry for op in compared for entry in self._op(group, op, found[op.name])]
        if not entries and compared:
            # One line says that nothing is known of the whole group.
            absent = group.ops[-1]
            entries = [self._missing(group, absent, found[absent.name])]
        yield from entries

    def _compared(self, group: Group, found: dict[str, Found]) -> list[OpRule]:
        """The ops of a group that are compared: of ops in between nothing is known outside."""
        ops = []
        for op in group.ops:
            if op.name in self._rules.integer_ops:
                self._leave_out(found[op.name].op, _INTEGERS)
            elif group.relation is Relation.SPLIT and _inner(op):
                self._leave_out(found[op.name].op, "a step inside of what one original op does")
            else:
                ops.append(op)
        if group.relation is not Relation.L1:
            return ops if group.relation is Relation.ONE else _with_files(ops, found)
        dumped = [op for op in ops if found[op.name].op is not None]
        dumped.sort(key=lambda op: found[op.name].timestamp)
        if not dumped:
            return ops[-1:]
        ends = dumped[-1:] if _same_originals(ops) or len(dumped) == 1 else [dumped[0], dumped[-1]]
        for op in dumped:
            if op not in ends:
                self._leave_out(found[op.name].op, "a step inside of ops that run slice by slice")
        return ends

    def _leave_out(self, op: Op | None, why: str) -> None:
        if op is not None:
            self._excluded += [(t.key, why) for t in self._tensors.get(op.key, ())]

    def _op(self, group: Group, rule: OpRule, found: Found) -> Iterator[Entry]:
        tensors = self._tensors.get(found.op.key, []) if found.op is not None else []
        if found.op is None or not tensors:
            yield self._missing(group, rule, found)
            return
        for tensor in sorted(tensors, key=lambda t: (t.key.role is not Role.INPUT, t.key.index)):
            entry = self._entry(group, rule, target=tensor, note=found.note)
            if tensor.key.role is Role.INPUT:
                if dequantizes(rule):
                    self._excluded.append((tensor.key, _INTEGERS))
                    continue
                yield self._with_origin(entry, self._producer(rule, tensor.key.index))
            elif rule.type == "AscendQuant":
                self._excluded.append((tensor.key, _INTEGERS))
            else:
                yield self._with_origin(entry, self._rules.origin(rule, tensor.key.index))
        damage = str(found.op.attributes.get("damage", ""))
        if damage:
            yield self._missing(group, rule, replace(found, damage=damage))

    def _producer(self, rule: OpRule, index: int) -> Origin | _Constant | str:
        if index >= len(rule.inputs):
            return f"the rule file names {len(rule.inputs)} inputs of {rule.name}, not {index}"
        name, output = rule.inputs[index]
        producer = self._rules.ops.get(name)
        if producer is None:
            return f"its producer {name} is not in the rule file"
        if producer.type in _CONSTANTS:
            return _Constant(name)
        return self._rules.origin(producer, output)

    def _with_origin(self, entry: Entry, origin: Origin | _Constant | str) -> Entry:
        assert entry.target is not None
        if isinstance(origin, str):
            return self._no_reference(entry, origin)
        if isinstance(origin, _Constant):
            missing = self._no_reference(entry, f"the constant {origin.name}")
            return replace(missing, counted=False)
        name, index = self._rules.owned(origin)
        found = self._golden.find(name)
        if found.ambiguous:
            words = f"[{entry.op}] {found.ambiguous}"
            return replace(entry, reason=ReasonCode.AMBIGUOUS, words=words)
        key = TensorKey(found.op.key, Role.OUTPUT, index) if found.op is not None else None
        reference = self._runs[1].tensor(key) if key is not None else None
        if reference is None and found.damage:
            words = f"[{entry.op}] The ground truth dump file cannot be used: {found.damage}."
            return replace(entry, reason=ReasonCode.UNREADABLE, words=words, golden=name)
        if reference is None:
            return replace(self._no_reference(entry, ""), golden=name)
        note = "; ".join(n for n in (entry.note, found.note) if n)
        entry = replace(entry, reference=reference, axes=origin.axes, note=note)
        return laid_over(entry, self._runs[0], origin)

    def _no_reference(self, entry: Entry, why: str) -> Entry:
        words = f"[{entry.op}] There is no the ground truth dump file for {entry.label}."
        return replace(
            entry, reason=ReasonCode.NO_COUNTERPART, words=f"{words} {why}.".replace(" .", "")
        )

    def _missing(self, group: Group, rule: OpRule, found: Found) -> Entry:
        entry = self._entry(group, rule)
        if found.ambiguous:
            return replace(
                entry, reason=ReasonCode.AMBIGUOUS, words=f"[{rule.name}] {found.ambiguous}"
            )
        damage = found.damage
        if found.op is not None and not damage:
            damage = f"{found.op.attributes.get('file', 'it')} holds no tensors"
        if damage:
            words = f"[{rule.name}] The dump file cannot be used: {damage}."
            place = unreadable_tensor(found.op.attributes) if found.op is not None else None
            return replace(entry, reason=ReasonCode.UNREADABLE, words=words, unreadable=place)
        words = (
            f'[{rule.name}] There is no dump file for my output operator "{rule.name}".'
            f" The type is {rule.type}."
        )
        # Of what a device is given, and of its constants, there are usually no files.
        counted = rule.type not in _CONSTANTS | _GIVEN
        return replace(entry, reason=ReasonCode.NO_TARGET_VALUE, words=words, counted=counted)

    def _entry(
        self, group: Group, rule: OpRule, target: Tensor | None = None, note: str = ""
    ) -> Entry:
        names = tuple(op.name for op in group.ops)
        return Entry(
            index=group.index,
            type=rule.type,
            target_names=names,
            reference_names=self._rules.shown(group.originals),
            sequence=rule.id,
            op=rule.name,
            target=target,
            note=note,
        )


def _inner(op: OpRule) -> bool:
    return op.multi and all(not output.origin_name for output in op.output_desc)


def _with_files(ops: list[OpRule], found: dict[str, Found]) -> list[OpRule]:
    there = [op for op in ops if found[op.name].op is not None]
    return there or ops[-1:]


def _same_originals(ops: list[OpRule]) -> bool:
    return len({op.original_names for op in ops}) == 1
