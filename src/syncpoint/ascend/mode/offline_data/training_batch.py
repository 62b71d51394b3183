"""Run `offline_data` for a tree of training dumps: one comparison for the last step of each model,
with that model's rule file."""

from __future__ import annotations

from dataclasses import replace

from syncpoint.ascend.dumps.rule_file import RuleFile, find_rule_file, load_rule_files
from syncpoint.ascend.dumps.training_tree import (
    StepFolder,
    find_step_folders,
    is_tree,
    latest_steps,
)
from syncpoint.ascend.mode.offline_data.mode import compare_offline
from syncpoint.ascend.mode.offline_data.options import OfflineFlags
from syncpoint.ascend.mode.outcome import Outcome
from syncpoint.comparison.events import Progress
from syncpoint.comparison.judge_rows import Choice
from syncpoint.errors import InputError

_MAKE_RULES = "make one of each graph with: atc --mode=5 --om=GRAPH.txt --json=GRAPH.json"


def compare_all(flags: OfflineFlags, choice: Choice, progress: Progress | None) -> list[Outcome]:
    """Compare one dump, or for a folder tree the last step of each model."""
    if not is_tree(flags.target):
        return [compare_offline(flags, choice, progress)]
    if flags.close_fusion_rule is not None or flags.quant_fusion_rule is not None:
        raise InputError(
            "-cfr and -qfr do not apply to a tree of training dumps", cure="use -fr alone"
        )
    if flags.fusion_rule is None or not flags.fusion_rule.is_dir():
        raise InputError(
            "a tree of training dumps needs -fr with a folder of rule files"
            + (f", but {flags.fusion_rule} is not a folder" if flags.fusion_rule else ""),
            cure=_MAKE_RULES,
        )
    rule_files = load_rule_files(flags.fusion_rule)
    last_steps = latest_steps(find_step_folders(flags.target))
    compared = [
        (leaf, rule) for leaf in last_steps if (rule := _rule_of(leaf, rule_files)) is not None
    ]
    if not compared:
        raise InputError(
            "there is no rule file for any of the models"
            f" {', '.join(sorted({leaf.model for leaf in last_steps}))}, only for"
            f" {', '.join(rule_files)}",
            cure=_MAKE_RULES,
        )
    names = [f"{leaf.device}_{leaf.model}_{leaf.step}_" for leaf, _ in compared]
    outcomes = []
    for (leaf, rule), name in zip(compared, names, strict=True):
        # Two ids of one model would have the same name.
        prefix = name if names.count(name) == 1 else f"{name}{leaf.model_id}_"
        leaf_flags = replace(flags, target=leaf.path)
        outcomes.append(compare_offline(leaf_flags, choice, progress, prefix, rule))
    without_rule = [leaf.name for leaf in last_steps if _rule_of(leaf, rule_files) is None]
    if without_rule:
        first = outcomes[0]
        warning = f"not compared, as they have no rule file: {', '.join(without_rule)}"
        result = replace(first.result, warnings=(*first.result.warnings, warning))
        outcomes[0] = replace(first, result=result)
    return outcomes


def _rule_of(leaf: StepFolder, rule_files: dict[str, RuleFile]) -> RuleFile | None:
    """The rules of the graph of a model alone."""
    graph_rule = find_rule_file(leaf.model, rule_files)
    if graph_rule is None:
        return None
    graph, rule = graph_rule
    return replace(rule, graphs=(graph,), ops=tuple(op for op in rule.ops if op.graph == graph))
