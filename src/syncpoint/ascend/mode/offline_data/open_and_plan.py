"""Open both dumps of `offline_data`, detect the kind of comparison (original, quantized, two
devices), plan it, and give ops their inputs as edges."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from syncpoint.ascend.dumps.device_folder import DeviceFolder
from syncpoint.ascend.dumps.device_types import preset_of_decoded
from syncpoint.ascend.dumps.file_names import escape_name
from syncpoint.ascend.dumps.golden_folder import GoldenFolder
from syncpoint.ascend.dumps.rule_file import RuleFile, quantizes
from syncpoint.ascend.matching.logical_run import logical_run
from syncpoint.ascend.matching.offline_data.original_ops import FusionRules
from syncpoint.ascend.matching.offline_data.plan_by_name import plan_by_name
from syncpoint.ascend.matching.offline_data.plan_by_rules import plan_by_rules
from syncpoint.ascend.matching.plan import ComparisonPlan
from syncpoint.ascend.mode.offline_data.options import OfflineFlags
from syncpoint.comparison.tensor_precision import JUDGED_AS
from syncpoint.dumps.open_dump import open_as
from syncpoint.errors import InputError
from syncpoint.run.model import Edge, Op, OpKey
from syncpoint.run.reader import Run

_MAKE_RULES = "make the rule file with: atc --mode=1 --om=MODEL.om --json=MODEL.json"


@dataclass(frozen=True, kw_only=True)
class OfflineCase:
    """Two dumps, and the plan of their comparison."""

    target: Run
    reference: Run
    plan: ComparisonPlan
    stored: tuple[Run, Run]
    """Both dumps as they are on disk, in the layouts of the device."""
    by_name: bool = False
    """Whether two device dumps are compared without rule files."""
    devices: bool = False
    """Whether both dumps come from a device."""


def open_case(flags: OfflineFlags, fusion: RuleFile | None = None) -> OfflineCase:
    """Open both dumps and plan the comparison; an InputError says what is missing. `fusion` is the
    rule file if it is open already."""
    target, target_kind = _open(flags.target, "-tp")
    golden, golden_kind = _open(flags.golden, "-gp")
    if target_kind == "original":
        return _quantized_original_case(flags, target, golden, golden_kind)
    if golden_kind == "device":
        return _two_devices_case(flags, target, golden)
    if flags.close_fusion_rule is not None:
        raise InputError(
            f"-cfr does not apply: {flags.golden} holds .npy files, not a device dump",
            cure="leave -cfr out",
        )
    if fusion is None and flags.fusion_rule is None:
        raise InputError(
            "-fr is missing: the rule file that says which device ops each op of the model became",
            cure=_MAKE_RULES,
        )
    quant = RuleFile.load(flags.quant_fusion_rule) if flags.quant_fusion_rule else None
    rules = FusionRules(fusion or RuleFile.load(flags.fusion_rule or ""), quant)
    plan = plan_by_rules(target, golden, rules)
    if quant is None and any(quantizes(op) for op in rules.ops.values()):
        hint = "the model is quantized: add -qfr to compare its quantized ops too"
        plan = replace(plan, notes=(*plan.notes, hint))
    return OfflineCase(
        target=_add_edges(target, rules), reference=golden, plan=plan, stored=(target, golden)
    )


def _open(path: Path, flag: str) -> tuple[Run, str]:
    """Open a folder; also return whether it is of a device or of the original model."""
    if not path.is_dir():
        problem = "is not a folder" if path.exists() else "does not exist: no such folder"
        raise InputError(
            f"{path} {problem}", cure=f"give the path of a folder of dump files with {flag}"
        )
    for dump_format, kind in ((DeviceFolder(), "device"), (GoldenFolder(), "original")):
        if dump_format.sniff(path):
            return open_as(dump_format, path), kind
    with suppress(InputError):
        # With other arrays among its files, a golden folder is not recognised by its names.
        return open_as(GoldenFolder(), path), "original"
    raise InputError(
        f"{path} has neither dump files of a device nor {{op}}.{{output}}.{{time}}.npy files",
        cure=f"give the path of the folder that holds such files with {flag}",
    )


def _quantized_original_case(
    flags: OfflineFlags, target: Run, golden: Run, golden_kind: str
) -> OfflineCase:
    if golden_kind == "device":
        raise InputError(
            f"-tp must be the dump of a device, but {flags.target} is a dump of the original"
            f" model, and -gp {flags.golden} is that of a device",
            cure=f"swap them: -tp {flags.golden} -gp {flags.target}",
        )
    if flags.quant_fusion_rule is None or flags.fusion_rule is not None:
        raise InputError(
            f"-tp must be a device dump; {flags.target} holds .npy files",
            cure="for the dump of a quantized original model use -qfr alone",
        )
    rules = FusionRules(RuleFile.load(flags.quant_fusion_rule))
    plan = plan_by_rules(target, golden, rules)
    return OfflineCase(
        target=_add_edges(target, rules), reference=golden, plan=plan, stored=(target, golden)
    )


def _two_devices_case(flags: OfflineFlags, target: Run, golden: Run) -> OfflineCase:
    fused_rule, unfused_rule = flags.fusion_rule, flags.close_fusion_rule
    if flags.quant_fusion_rule is not None:
        raise InputError(
            "-qfr does not apply to two device dumps, only to .npy files of the original model",
            cure="leave -qfr out",
        )
    if fused_rule is None and unfused_rule is None:
        logical_target, logical_golden = logical_run(target), logical_run(golden)
        return OfflineCase(
            target=logical_target,
            reference=logical_golden,
            plan=plan_by_name(logical_target, logical_golden),
            stored=(target, golden),
            by_name=True,
            devices=True,
        )
    if fused_rule is None or unfused_rule is None:
        flag = "-fr" if fused_rule is not None else "-cfr"
        raise InputError(
            f"two device dumps need two rule files, -fr for the build of -tp and -cfr for that of"
            f" -gp, or none; only {flag} was given",
            cure=f"give {'-cfr' if flag == '-fr' else '-fr'} too, or leave {flag} out;"
            f" {_MAKE_RULES}",
        )
    rules = FusionRules(RuleFile.load(fused_rule), other_build=RuleFile.load(unfused_rule))
    reference = logical_run(golden)
    plan = plan_by_rules(target, reference, rules)
    return OfflineCase(
        target=_add_edges(target, rules),
        reference=reference,
        plan=plan,
        stored=(target, golden),
        devices=True,
    )


def _add_edges(run: Run, rules: FusionRules) -> Run:
    """The run with the inputs of its ops by the rule file. Edges tell where an error arises and
    where it is only passed on."""
    keys: dict[str, OpKey] = {}
    for op in run.ops:
        keys[str(op.attributes.get("escaped", op.key.op))] = op.key
        keys[op.key.op] = op.key

    def find_key(name: str) -> OpKey | None:
        return keys.get(name) or keys.get(escape_name(name))

    inputs: dict[OpKey, tuple[Edge, ...]] = {}
    for rule in rules.ops.values():
        key = find_key(rule.name)
        if key is not None:
            producers = [(find_key(name), index) for name, index in rule.inputs]
            inputs[key] = tuple(
                Edge(producer, index)
                for producer, index in producers
                if producer is not None and producer != key
            )

    quantized_preset = {
        find_key(rule.name): "int8" for rule in rules.ops.values() if quantizes(rule)
    }

    def complete_op(op: Op) -> Op:
        op = replace(op, inputs=inputs[op.key]) if op.key in inputs else op
        preset = quantized_preset.get(op.key) or preset_of_decoded(op)
        return replace(op, attributes={**op.attributes, JUDGED_AS: preset}) if preset else op

    return run.with_ops([complete_op(op) for op in run.ops])
