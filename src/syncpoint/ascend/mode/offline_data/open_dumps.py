"""Which of the comparisons that the mode knows this is, and what it pairs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from syncpoint.ascend.dumps.device_folder import DeviceFolder
from syncpoint.ascend.dumps.device_types import preset_of_decoded
from syncpoint.ascend.dumps.file_names import escape_name
from syncpoint.ascend.dumps.golden_folder import GoldenFolder
from syncpoint.ascend.dumps.rule_file import RuleFile, quantizes
from syncpoint.ascend.matching.logical_run import logical
from syncpoint.ascend.matching.offline_data.original_ops import Rules
from syncpoint.ascend.matching.offline_data.plan_by_name import plan_by_name
from syncpoint.ascend.matching.offline_data.plan_by_rules import plan_by_rules
from syncpoint.ascend.matching.plan import Plan
from syncpoint.ascend.mode.offline_data.options import Asked
from syncpoint.comparison.tensor_precision import JUDGED_AS
from syncpoint.dumps.open_dump import open_as
from syncpoint.errors import InputError
from syncpoint.run.model import Edge, Op, OpKey
from syncpoint.run.reader import Run

_MAKE_RULES = "make it with: atc --mode=1 --om=MODEL.om --json=MODEL.json"


@dataclass(frozen=True, kw_only=True)
class Case:
    """Two dumps, and what in them belongs together."""

    target: Run
    reference: Run
    plan: Plan
    stored: tuple[Run, Run]
    """Both as they lie on disk, in the layouts of the device."""
    by_name: bool = False
    """Two devices without rule files."""
    devices: bool = False
    """Both sides come from a device."""


def opened(asked: Asked, fusion: RuleFile | None = None) -> Case:
    """Open both sides and plan the comparison; an InputError says what is missing for it.
    `fusion` is the rule file where it has been read."""
    target, mine = _open(asked.target, "-tp")
    golden, theirs = _open(asked.golden, "-gp")
    if mine == "original":
        return _quantized_original(asked, target, golden, theirs)
    if theirs == "device":
        return _devices(asked, target, golden)
    if asked.close_fusion_rule is not None:
        raise InputError(
            "-cfr only where -gp is a device's dump too", f"-cfr with .npy files in {asked.golden}"
        )
    if fusion is None and asked.fusion_rule is None:
        raise InputError(
            "-fr, the rule file that says which ops of the model became which of the device",
            "none",
            _MAKE_RULES,
        )
    quant = RuleFile.load(asked.quant_fusion_rule) if asked.quant_fusion_rule else None
    rules = Rules(fusion or RuleFile.load(asked.fusion_rule or ""), quant)
    plan = plan_by_rules(target, golden, rules)
    if quant is None and any(quantizes(op) for op in rules.ops.values()):
        hint = "the model is quantized: with -qfr its results find their originals too"
        plan = replace(plan, notes=(*plan.notes, hint))
    return Case(
        target=_with_edges(target, rules), reference=golden, plan=plan, stored=(target, golden)
    )


def _open(path: Path, flag: str) -> tuple[Run, str]:
    """A folder of either kind."""
    if not path.is_dir():
        found = "a file" if path.exists() else "nothing there"
        raise InputError(f"a folder of dump files for {flag}", f"{path}: {found}")
    for kind, name in ((DeviceFolder(), "device"), (GoldenFolder(), "original")):
        if kind.sniff(path):
            return open_as(kind, path), name
    with suppress(InputError):
        # Arrays of another name among them make it no golden folder for those who guess.
        return open_as(GoldenFolder(), path), "original"
    raise InputError(
        f"dump files of a device, or {{op}}.{{output}}.{{time}}.npy files, for {flag}",
        f"neither in {path}",
        "name the folder that holds the files themselves",
    )


def _quantized_original(asked: Asked, target: Run, golden: Run, kind: str) -> Case:
    if kind == "device":
        raise InputError(
            "the device's dump as -tp and the original model's as -gp", "the reverse", "swap them"
        )
    if asked.quant_fusion_rule is None or asked.fusion_rule is not None:
        raise InputError(
            "a device's dump as -tp, or that of a quantized original model with -qfr alone",
            f".npy files in {asked.target}",
        )
    rules = Rules(RuleFile.load(asked.quant_fusion_rule))
    plan = plan_by_rules(target, golden, rules)
    return Case(
        target=_with_edges(target, rules), reference=golden, plan=plan, stored=(target, golden)
    )


def _devices(asked: Asked, target: Run, golden: Run) -> Case:
    both = (asked.fusion_rule, asked.close_fusion_rule)
    if asked.quant_fusion_rule is not None:
        raise InputError("-qfr only against .npy files of the original model", "two device dumps")
    if both[0] is None and both[1] is None:
        mine, theirs = logical(target), logical(golden)
        plan = plan_by_name(mine, theirs)
        return Case(
            target=mine,
            reference=theirs,
            plan=plan,
            stored=(target, golden),
            by_name=True,
            devices=True,
        )
    if both[0] is None or both[1] is None:
        raise InputError(
            "-fr and -cfr together for two device dumps, or neither",
            "-fr alone" if both[0] is not None else "-cfr alone",
            _MAKE_RULES,
        )
    rules = Rules(RuleFile.load(both[0]), other=RuleFile.load(both[1]))
    reference = logical(golden)
    plan = plan_by_rules(target, reference, rules)
    return Case(
        target=_with_edges(target, rules),
        reference=reference,
        plan=plan,
        stored=(target, golden),
        devices=True,
    )


def _with_edges(run: Run, rules: Rules) -> Run:
    """The run with what its ops read, as the rule file has it: so it can be told where an error
    came in and where it was only passed on."""
    keys: dict[str, OpKey] = {}
    for op in run.ops:
        keys[str(op.attributes.get("escaped", op.key.op))] = op.key
        keys[op.key.op] = op.key

    def key(name: str) -> OpKey | None:
        return keys.get(name) or keys.get(escape_name(name))

    inputs: dict[OpKey, tuple[Edge, ...]] = {}
    for rule in rules.ops.values():
        mine = key(rule.name)
        if mine is not None:
            producers = [(key(name), index) for name, index in rule.inputs]
            inputs[mine] = tuple(Edge(p, i) for p, i in producers if p is not None and p != mine)

    coarse = {key(rule.name): "int8" for rule in rules.ops.values() if quantizes(rule)}

    def known(op: Op) -> Op:
        op = replace(op, inputs=inputs[op.key]) if op.key in inputs else op
        judged = coarse.get(op.key) or preset_of_decoded(op)
        return replace(op, attributes={**op.attributes, JUDGED_AS: judged}) if judged else op

    return run.with_ops([known(op) for op in run.ops])
