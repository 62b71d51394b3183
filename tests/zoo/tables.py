"""What the zoo says, as a table for people."""

from collections import Counter

from zoo.entry import CLASSES


def rates(outcomes):
    """The shares that have a goal; None where nothing was asked."""
    faults = [o for o in outcomes if o.classes]
    sited = [o for o in faults if o.counts_op]
    clean = [o for o in outcomes if not o.classes]
    return {
        "class": _share([o.right_class for o in faults]),
        "op": _share([o.right_op for o in sited]),
        "clean": _share([o.right_class for o in clean]),
    }


def _share(found):
    return sum(found) / len(found) if found else None


def markdown(outcomes, seeds):
    """Per class, then every case that was not right."""
    faults = [o for o in outcomes if o.classes]
    lines = [f"# Fault zoo, seed {', '.join(map(str, seeds))}", "", *_by_class(outcomes)]
    small, unfit = sum(o.too_small for o in faults), sum(o.unfit for o in faults)
    lines += [
        "",
        f"Redrawn: {small} faults that changed nothing measurable,"
        f" {unfit} nets without a place for the fault,"
        f" {sum(o.too_coarse for o in outcomes)} that eight bits are too few for.",
        f"Time: {sum(o.seconds for o in outcomes):.0f} s of comparing.",
    ]
    runtimes = Counter(o.runtime or "none" for o in outcomes)
    lines.append("Runtimes: " + ", ".join(f"{n} {c}" for n, c in sorted(runtimes.items())) + ".")
    missed = [o for o in outcomes if not (o.right_class and o.right_op)]
    if missed:
        lines += ["", "## Not right", ""]
    for o in missed:
        what = "class" if not o.right_class else "op"
        lines.append(f"- **{o.entry}** (seed {o.seed}, {_where(o)}): {what} wrong")
        if o.classes:
            lines.append(f"  - planted: {o.planted}; right: {'/'.join(o.classes)} at {_sites(o)}")
        lines.append(f"  - said: {o.said} [{o.verdict}; {o.symptom}]")
        lines += [f"  - then: {said}" for said in o.others[:2]]
    return "\n".join(lines) + "\n"


def summary(outcomes, seeds):
    """For a document: per class, and which kinds were not always right."""
    lines = [f"Seeds {', '.join(map(str, seeds))}:", "", *_by_class(outcomes)]
    missed = Counter(o.entry for o in outcomes if not (o.right_class and o.right_op))
    if missed:
        named = ", ".join(f"{name} ({count})" for name, count in sorted(missed.items()))
        lines += ["", f"Cases in which the class or the op was wrong, each counted once: {named}."]
    return "\n".join(lines) + "\n"


def _by_class(outcomes):
    faults = [o for o in outcomes if o.classes]
    clean = [o for o in outcomes if not o.classes]
    lines = ["| class | kinds | cases | right class first | right op |", "|---|---|---|---|---|"]
    for name in CLASSES:
        mine = [o for o in faults if o.classes[0] == name]
        if mine:
            lines.append(_line(name, mine))
    if faults:
        lines.append(_line("all", faults))
    if clean:
        right = sum(o.right_class for o in clean)
        lines += ["", f"Clean pairs: {right} of {len(clean)} without a finding above note."]
    return lines


def _line(name, mine):
    kinds = len({o.entry for o in mine})
    right = sum(o.right_class for o in mine)
    sited = [o for o in mine if o.counts_op]
    found = sum(o.right_op for o in sited)
    share = f"{found}/{len(sited)}" if sited else "-"
    return f"| {name} | {kinds} | {len(mine)} | {right} ({right / len(mine):.0%}) | {share} |"


def _where(outcome):
    parts = (outcome.runtime, outcome.dtype, outcome.fusion, outcome.net)
    return ", ".join(part for part in parts if part)


def _sites(outcome):
    return ", ".join(outcome.sites[:4]) or "no op"
