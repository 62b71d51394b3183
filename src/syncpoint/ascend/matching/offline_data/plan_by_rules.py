"""Plan the comparison of a device dump with its reference by rule files: entries for groups,
inputs, missing and inner ops; which dumped op has a name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from syncpoint.ascend.dumps.file_names import escape_name
from syncpoint.ascend.dumps.folder_listing import unreadable_tensor
from syncpoint.ascend.dumps.rule_file import OpRule, dequantizes
from syncpoint.ascend.matching.device_views import add_view
from syncpoint.ascend.matching.offline_data.original_ops import (
    FusionRules,
    GroupRelation,
    OpGroup,
    OriginalOutput,
)
from syncpoint.ascend.matching.plan import ComparisonPlan, PlanEntry
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.model import Op, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

_CONSTANT_TYPES = frozenset({"Const", "Constant", "Variable", "VariableV2", "RefData"})
_INPUT_OUTPUT_TYPES = frozenset({"Data", "AnnData", "NetOutput"})
_UNKNOWN_SCALE = "integers between quantizing and dequantizing, whose scale is in no file"


@dataclass(frozen=True)
class DumpedOp:
    """The op that a name refers to, or why there is none."""

    op: Op | None = None
    note: str = ""
    damage: str = ""
    ambiguous: str = ""

    @property
    def timestamp(self) -> int:
        """When it was dumped."""
        return int(self.op.attributes.get("timestamp", 0)) if self.op is not None else 0


class OpsByName:
    """The ops of a run by the names of a rule file."""

    def __init__(self, run: Run, rule_names: Iterable[str]) -> None:
        self._ops_by_file_name: dict[str, list[Op]] = {}
        self._last_call: dict[str, int] = {}
        for op in run.ops:
            self._ops_by_file_name.setdefault(_file_name(op), []).append(op)
            self._last_call[op.key.op] = max(op.key.call, self._last_call.get(op.key.op, 0))
        self._names_per_file = Counter(escape_name(name) for name in set(rule_names))

    def find(self, name: str) -> DumpedOp:
        """The last execution of the op of this name."""
        file_name = escape_name(name)
        candidates = self._ops_by_file_name.get(file_name, [])
        ops = [op for op in candidates if op.attributes.get("op_name") == name]
        if not ops:
            ops = [op for op in candidates if not op.attributes.get("op_name")]
            if ops and self._names_per_file[file_name] > 1:
                return DumpedOp(
                    ambiguous=f'Several ops of the rule file are dumped as "{file_name}";'
                    " which of them a file holds cannot be told."
                )
        if not ops:
            return DumpedOp()
        op = max(ops, key=lambda op: op.key.call)
        damage = str(op.attributes.get("damage", ""))
        note = f"the last of {len(ops)} executions is compared" if len(ops) > 1 else ""
        return DumpedOp(op, note, damage)

    def is_superseded(self, op: Op) -> bool:
        """Whether the same op was executed again later."""
        return op.key.call < self._last_call[op.key.op]


def _file_name(op: Op) -> str:
    return str(op.attributes.get("escaped", op.key.op))


@dataclass(frozen=True)
class _Constant:
    """A constant of the compiled model that an op reads: the original model has no file for it."""

    name: str


def plan_by_rules(target: Run, reference: Run, rules: FusionRules) -> ComparisonPlan:
    """Plan the comparison of two runs by the rules."""
    return _RulePlanner(target, reference, rules).plan()


class _RulePlanner:
    def __init__(self, target: Run, reference: Run, rules: FusionRules) -> None:
        self._target, self._reference = target, reference
        self._rules = rules
        self._tensors_by_op: dict[object, list[Tensor]] = {}
        for tensor in target.tensors:
            self._tensors_by_op.setdefault(tensor.key.op, []).append(tensor)
        self._device_ops = OpsByName(target, rules.ops)
        reference_names = {
            rules.reference_output(original)[0]
            for op in rules.ops.values()
            for index in range(len(op.output_desc))
            if isinstance(original := rules.original_output(op, index), OriginalOutput)
        }
        self._golden_ops = OpsByName(reference, reference_names)
        self._excluded: list[tuple[TensorKey, str]] = []

    def plan(self) -> ComparisonPlan:
        entries = tuple(
            entry for group in self._rules.groups for entry in self._group_entries(group)
        )
        planned = {entry.target.key for entry in entries if entry.target is not None}
        excluded = {key: why for key, why in self._excluded if key not in planned}
        used_ops = {key.op for key in (*planned, *excluded)}
        for op in self._target.ops:
            if op.key not in used_ops:
                why = "not in the rule file"
                if self._device_ops.is_superseded(op):
                    why = "an earlier execution; the last one is compared"
                excluded.update({t.key: why for t in self._tensors_by_op.get(op.key, ())})
        for tensor in self._target.tensors:
            if tensor.key not in planned:
                excluded.setdefault(tensor.key, "another tensor of its op is compared")
        return ComparisonPlan(entries, "the rule file of the compiler", tuple(excluded.items()))

    def _group_entries(self, group: OpGroup) -> Iterator[PlanEntry]:
        dumped = {op.name: self._device_ops.find(op.name) for op in group.ops}
        compared = self._compared_ops(group, dumped)
        entries = [
            entry for op in compared for entry in self._op_entries(group, op, dumped[op.name])
        ]
        if not entries and compared:
            # One line says that the dump has nothing of the whole group.
            last = group.ops[-1]
            entries = [self._missing_entry(group, last, dumped[last.name])]
        yield from entries

    def _compared_ops(self, group: OpGroup, dumped: dict[str, DumpedOp]) -> list[OpRule]:
        """The ops of a group that are compared. The original model has no values for the ops
        inside a group."""
        ops = []
        for op in group.ops:
            if op.name in self._rules.integer_ops:
                self._exclude(dumped[op.name].op, _UNKNOWN_SCALE)
            elif group.relation is GroupRelation.SPLIT and _is_inner(op):
                self._exclude(dumped[op.name].op, "a step inside of what one original op does")
            else:
                ops.append(op)
        if group.relation is not GroupRelation.L1:
            return ops if group.relation is GroupRelation.ONE else _with_files(ops, dumped)
        dumped_ops = [op for op in ops if dumped[op.name].op is not None]
        dumped_ops.sort(key=lambda op: dumped[op.name].timestamp)
        if not dumped_ops:
            return ops[-1:]
        first, last = dumped_ops[0], dumped_ops[-1]
        ends = [last] if _have_same_originals(ops) or first is last else [first, last]
        for op in dumped_ops:
            if op not in ends:
                self._exclude(dumped[op.name].op, "a step inside of ops that run slice by slice")
        return ends

    def _exclude(self, op: Op | None, why: str) -> None:
        if op is not None:
            self._excluded += [(t.key, why) for t in self._tensors_by_op.get(op.key, ())]

    def _op_entries(self, group: OpGroup, rule: OpRule, dumped: DumpedOp) -> Iterator[PlanEntry]:
        tensors = self._tensors_by_op.get(dumped.op.key, []) if dumped.op is not None else []
        if dumped.op is None or not tensors:
            yield self._missing_entry(group, rule, dumped)
            return
        for tensor in sorted(tensors, key=lambda t: (t.key.role is not Role.INPUT, t.key.index)):
            entry = self._entry(group, rule, target=tensor, note=dumped.note)
            if tensor.key.role is Role.INPUT:
                if dequantizes(rule):
                    self._excluded.append((tensor.key, _UNKNOWN_SCALE))
                    continue
                yield self._add_reference(entry, self._input_original(rule, tensor.key.index))
            elif rule.type == "AscendQuant":
                self._excluded.append((tensor.key, _UNKNOWN_SCALE))
            else:
                original = self._rules.original_output(rule, tensor.key.index)
                yield self._add_reference(entry, original)
        damage = str(dumped.op.attributes.get("damage", ""))
        if damage:
            yield self._missing_entry(group, rule, replace(dumped, damage=damage))

    def _input_original(self, rule: OpRule, index: int) -> OriginalOutput | _Constant | str:
        """The original output that an input of a device op equals, or why there is none."""
        if index >= len(rule.inputs):
            return f"the rule file names {len(rule.inputs)} inputs of {rule.name}, not {index}"
        name, output = rule.inputs[index]
        producer = self._rules.ops.get(name)
        if producer is None:
            return f"its producer {name} is not in the rule file"
        if producer.type in _CONSTANT_TYPES:
            return _Constant(name)
        return self._rules.original_output(producer, output)

    def _add_reference(
        self, entry: PlanEntry, original: OriginalOutput | _Constant | str
    ) -> PlanEntry:
        assert entry.target is not None
        if isinstance(original, str):
            return self._without_reference(entry, original)
        if isinstance(original, _Constant):
            missing = self._without_reference(entry, f"the constant {original.name}")
            return replace(missing, counted=False)
        name, index = self._rules.reference_output(original)
        golden = self._golden_ops.find(name)
        if golden.ambiguous:
            text = f"[{entry.op}] {golden.ambiguous}"
            return replace(entry, reason=ReasonCode.AMBIGUOUS, report_text=text)
        key = TensorKey(golden.op.key, Role.OUTPUT, index) if golden.op is not None else None
        reference = self._reference.tensor(key) if key is not None else None
        if reference is None and golden.damage:
            text = f"[{entry.op}] The ground truth dump file cannot be used: {golden.damage}."
            return replace(entry, reason=ReasonCode.UNREADABLE, report_text=text, golden_op=name)
        if reference is None:
            return replace(self._without_reference(entry, ""), golden_op=name)
        note = "; ".join(text for text in (entry.note, golden.note) if text)
        entry = replace(entry, reference=reference, axes=original.axes, note=note)
        return add_view(entry, self._target, original)

    def _without_reference(self, entry: PlanEntry, why: str) -> PlanEntry:
        text = f"[{entry.op}] There is no the ground truth dump file for {entry.label}."
        return replace(
            entry,
            reason=ReasonCode.NO_COUNTERPART,
            report_text=f"{text} {why}.".replace(" .", ""),
        )

    def _missing_entry(self, group: OpGroup, rule: OpRule, dumped: DumpedOp) -> PlanEntry:
        entry = self._entry(group, rule)
        if dumped.ambiguous:
            text = f"[{rule.name}] {dumped.ambiguous}"
            return replace(entry, reason=ReasonCode.AMBIGUOUS, report_text=text)
        damage = dumped.damage
        if dumped.op is not None and not damage:
            damage = f"{dumped.op.attributes.get('file', 'it')} holds no tensors"
        if damage:
            text = f"[{rule.name}] The dump file cannot be used: {damage}."
            place = unreadable_tensor(dumped.op.attributes) if dumped.op is not None else None
            return replace(entry, reason=ReasonCode.UNREADABLE, report_text=text, unreadable=place)
        text = (
            f'[{rule.name}] There is no dump file for my output operator "{rule.name}".'
            f" The type is {rule.type}."
        )
        # A device usually does not dump its inputs and constants.
        counted = rule.type not in _CONSTANT_TYPES | _INPUT_OUTPUT_TYPES
        return replace(entry, reason=ReasonCode.NO_TARGET_VALUE, report_text=text, counted=counted)

    def _entry(
        self, group: OpGroup, rule: OpRule, target: Tensor | None = None, note: str = ""
    ) -> PlanEntry:
        return PlanEntry(
            index=group.index,
            type=rule.type,
            target_names=tuple(op.name for op in group.ops),
            reference_names=self._rules.reference_names(group.originals),
            sequence=rule.id,
            op=rule.name,
            target=target,
            note=note,
        )


def _is_inner(op: OpRule) -> bool:
    return op.multi and all(not output.origin_name for output in op.output_desc)


def _with_files(ops: list[OpRule], dumped: dict[str, DumpedOp]) -> list[OpRule]:
    """The ops that were dumped, or the last op if none was."""
    return [op for op in ops if dumped[op.name].op is not None] or ops[-1:]


def _have_same_originals(ops: list[OpRule]) -> bool:
    return len({op.original_names for op in ops}) == 1
