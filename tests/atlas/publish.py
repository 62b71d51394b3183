"""`python -m atlas.publish REPORTS DOCUMENT [REMARK]`: docs/atlas.md from the runner's reports."""

import json
import sys
from pathlib import Path

from atlas.architecture import HELD_OUT, SET_ASIDE_LATER, architectures
from atlas.conversions import KINDS

_INTRODUCTION = """\
# The atlas: clean pairs of real architectures

Each architecture is built in tiny form with random weights, from `transformers`, `diffusers`,
`x-transformers`, `monai`, `pytorchcv` or torch's own modules. Norms and biases are perturbed, so
that nothing is zero or one. It is compared with a conversion of itself. Nothing is wrong in such
a pair, so nothing should be called wrong:

- *large* should be empty. `transformers/bit` is an exception: ONNX Runtime folds the zero padding
  before its max pooling, which pads with minus infinity, and its outputs are off by 0.2 % without
  Syncpoint, too.
- *moderate* is a remark: coarse precisions reach it by rounding alone, and so does a tensor that
  is off while everything computed from it agrees.
- *findings* counts pairs with a finding above a note.
- *reach* is the share of what could be paired. A search that uses nothing of the matchers lists
  the target tensors that equal a reference tensor, or an equal piece of one, after sorting their
  elements. Tensors of one run with the same numbers count once.

`make atlas KIND=onnx-saved` runs one kind again, `HELD_OUT=1` those that were set aside. These are
compared only once, at the end.
"""

_HELD_OUT_SECTIONS = (
    (
        "architectures that were set aside",
        "They were named before the work on the rules and compared once after it.",
        HELD_OUT,
    ),
    (
        "architectures that were declared later",
        "They were declared after the rules of pairing: no rule was written with them in view.",
        SET_ASIDE_LATER,
    ),
)
"""End of the heading, remark and names of each set that is shown apart."""


def read_report(path):
    """The outcomes of one report."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


def is_known_divergence(outcome):
    """Whether the two sides differ without Syncpoint, beyond what their precision allows."""
    return outcome["name"] == "transformers/bit" and outcome["kind"].startswith("onnx")


def summarize_kind(kind, outcomes):
    """One line of the table."""
    compared = [o for o in outcomes if not o["refused"] and not is_known_divergence(o)]
    if not compared:
        return ""
    counts = {v: sum(o["verdict"] == v for o in compared) for v in ("close", "moderate")}
    large = [o["name"] for o in compared if o["verdict"] in ("large", "amplified", "none")]
    failed = [o["name"] for o in compared if o["error"]]
    findings = sum(bool(o["findings"]) for o in compared)
    possible, found = sum(o["possible"] for o in compared), sum(o["found"] for o in compared)
    reach = f"{found / possible:.1%}" if possible else ""
    return (
        f"| `{kind}` | {len(compared)} | {counts['close']} ({counts['close'] / len(compared):.0%})"
        f" | {counts['moderate']} | {len(large)} | {len(failed)} | {findings} | {reach} |"
    )


def write_tables(reports, suffix, names):
    """The table of all kinds over the architectures `names`, and what is large in them."""
    lines = [
        "| kind | compared | close | moderate | large | failed | findings | reach |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    notes = []
    for kind in (*KINDS, "analyze"):
        report = read_report(reports / f"{kind}{suffix}.json")
        outcomes = [outcome for outcome in report if outcome["name"] in names]
        line = summarize_kind(kind, outcomes)
        if not line:
            continue
        lines.append(line)
        for outcome in outcomes:
            is_off = outcome["verdict"] in ("large", "amplified") or outcome["error"]
            if is_off and not is_known_divergence(outcome) and not outcome["refused"]:
                what = outcome["error"] or (outcome["large"] or ("amplified",))[0].partition(",")[0]
                notes.append(f"- `{kind}`, {outcome['name']}: {what[:150]}")
    if len(lines) == 2:
        return "Not compared yet.\n"
    return "\n".join([*lines, "", *(["Large or failed:", "", *notes, ""] if notes else [])])


def main(arguments):
    """Write the document."""
    reports, document = Path(arguments[0]), Path(arguments[1])
    remark = [f"{arguments[2]}\n"] if len(arguments) > 2 else []
    names = [name for name, declared in architectures().items() if not declared.is_held_out]
    text = [
        _INTRODUCTION,
        f"## {len(names)} architectures\n",
        *remark,
        write_tables(reports, "", names),
    ]
    for heading, held_out_remark, held_out in _HELD_OUT_SECTIONS:
        text += [
            f"## {len(held_out)} {heading}\n",
            f"{held_out_remark}\n",
            write_tables(reports, "-held-out", held_out),
            f"They are: {', '.join(sorted(held_out))}.\n",
        ]
    document.write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
