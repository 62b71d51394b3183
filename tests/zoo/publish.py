"""`python -m zoo.publish FILE.md REPORT.json ...`: the table of several runs, into a document."""

import json
import sys
from pathlib import Path

from zoo.judging import Outcome
from zoo.tables import summary

BEGIN, END = "<!-- zoo: written by zoo.publish -->", "<!-- zoo: end -->"


def outcomes_of(reports):
    """The cases of several runs, and their seeds in order."""
    bodies = [json.loads(Path(report).read_text(encoding="utf-8")) for report in reports]
    cases = [case for body in bodies for case in body["cases"]]
    seeds = sorted({seed for body in bodies for seed in body["seeds"]})
    return [Outcome(**{**case, "classes": tuple(case["classes"])}) for case in cases], seeds


def published(text, table):
    """The document with the table in its place."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"expected the lines {BEGIN!r} and {END!r}; add them where it belongs")
    return f"{head}{BEGIN}\n{table.strip()}\n{END}{tail}"


def main(argv):
    """Rewrites the document."""
    document, *reports = argv
    outcomes, seeds = outcomes_of(reports)
    path = Path(document)
    path.write_text(
        published(path.read_text(encoding="utf-8"), summary(outcomes, seeds)), encoding="utf-8"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
