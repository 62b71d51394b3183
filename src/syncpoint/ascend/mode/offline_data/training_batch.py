"""Training dumps: one comparison for every model of a tree."""

from __future__ import annotations

from dataclasses import replace

from syncpoint.ascend.dumps.batch_tree import (
    StepFolder,
    find_rule_file,
    find_step_folders,
    is_tree,
    latest_steps,
    load_rule_files,
)
from syncpoint.ascend.dumps.rule_file import RuleFile
from syncpoint.ascend.mode.offline_data.mode import compare_offline
from syncpoint.ascend.mode.offline_data.options import Asked
from syncpoint.ascend.mode.outcome import Outcome
from syncpoint.comparison.event_sinks import Progress
from syncpoint.comparison.judge_rows import Choice
from syncpoint.errors import InputError

_MAKE_RULES = "make one of each graph with: atc --mode=5 --om=GRAPH.txt --json=GRAPH.json"


def compare_all(asked: Asked, choice: Choice, progress: Progress | None) -> list[Outcome]:
    """All comparisons that were asked for: one, or for a tree the last step of each model."""
    if not is_tree(asked.target):
        return [compare_offline(asked, choice, progress)]
    if asked.close_fusion_rule is not None or asked.quant_fusion_rule is not None:
        raise InputError("-fr alone for a tree of training dumps", "-cfr or -qfr too")
    if asked.fusion_rule is None or not asked.fusion_rule.is_dir():
        raise InputError(
            "-fr with a folder of rule files for a tree of training dumps",
            str(asked.fusion_rule or "none"),
            _MAKE_RULES,
        )
    known = load_rule_files(asked.fusion_rule)
    found = latest_steps(find_step_folders(asked.target))
    chosen = [(leaf, rule) for leaf in found if (rule := _rule(leaf, known)) is not None]
    if not chosen:
        raise InputError(
            f"a rule file for one of {', '.join(sorted({leaf.model for leaf in found}))}",
            f"rule files for {', '.join(known)}",
            _MAKE_RULES,
        )
    names = [f"{leaf.device}_{leaf.model}_{leaf.step}_" for leaf, _ in chosen]
    outcomes = []
    for (leaf, rule), name in zip(chosen, names, strict=True):
        # Two ids of one model would have the same name.
        prefix = name if names.count(name) == 1 else f"{name}{leaf.model_id}_"
        one = replace(asked, target=leaf.path)
        outcomes.append(compare_offline(one, choice, progress, prefix, rule))
    left = [leaf.name for leaf in found if _rule(leaf, known) is None]
    if left:
        first = outcomes[0]
        said = f"not compared, for want of a rule file: {', '.join(left)}"
        result = replace(first.result, warnings=(*first.result.warnings, said))
        outcomes[0] = replace(first, result=result)
    return outcomes


def _rule(leaf: StepFolder, known: dict[str, RuleFile]) -> RuleFile | None:
    """What the rule files say of the model, and of no other graph."""
    found = find_rule_file(leaf.model, known)
    if found is None:
        return None
    graph, rule = found
    return replace(rule, graphs=(graph,), ops=tuple(op for op in rule.ops if op.graph == graph))
