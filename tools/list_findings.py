"""List every distinct text of the findings of a zoo run, grouped by cause and kind.

    python tools/list_findings.py zoo-report/seed-3.json
    python tools/list_findings.py --seed 3 --entries 'padding*'

The first form reads reports of `make zoo`. The second runs the zoo first (in one process, without
a report). Numbers are replaced by # to find texts that are the same but for their numbers; --all
prints every text as it is.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).resolve().parent.parent / "tests"
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
_PARTS = ("title", "evidence", "next", "missing")


def main(arguments: list[str] | None = None) -> int:
    """Print the texts; exit code 2 where there are none."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", nargs="*", type=Path, help="JSON reports of `make zoo`")
    parser.add_argument("--seed", type=int, help="run the zoo with this seed instead")
    parser.add_argument("--entries", default="*", help="pattern of zoo entries to run")
    parser.add_argument("--cause", default="", help="only findings of this cause")
    parser.add_argument("--all", action="store_true", help="do not merge texts by their numbers")
    flags = parser.parse_args(arguments)
    cases = list(_read_cases(flags.reports))
    if flags.seed is not None:
        cases += _run_zoo(flags.seed, flags.entries)
    lines = list(list_texts(cases, cause=flags.cause, merge_numbers=not flags.all))
    print("\n".join(lines) if lines else "no findings; give a report or --seed")
    return 0 if lines else 2


def list_texts(
    cases: Iterable[dict[str, Any]], cause: str = "", *, merge_numbers: bool = True
) -> Iterator[str]:
    """Yield the lines of the listing: a heading per cause and kind, then its distinct texts."""
    groups: dict[tuple[str, str], dict[str, dict[str, str]]] = defaultdict(
        lambda: {part: {} for part in _PARTS}
    )
    for case in cases:
        for finding in case.get("findings", ()):
            if cause and finding["cause"] != cause:
                continue
            texts = groups[finding["cause"], finding["kind"]]
            for part in _PARTS:
                for text in _as_list(finding.get(part)):
                    key = _NUMBER.sub("#", text) if merge_numbers else text
                    texts[part].setdefault(key, text)
    for (name, kind), texts in sorted(groups.items()):
        yield f"{name} / {kind}"
        for part in _PARTS:
            yield from (f"    {part:<9} {text}" for text in texts[part].values())
        yield ""


def _as_list(text: str | list[str] | None) -> list[str]:
    if isinstance(text, str):
        return [text] if text else []
    return text or []


def _read_cases(reports: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for path in reports:
        yield from json.loads(path.read_text(encoding="utf-8"))["cases"]


def _run_zoo(seed: int, pattern: str) -> list[dict[str, Any]]:
    sys.path.insert(0, str(_TESTS))
    from zoo.runner import all_jobs

    jobs = all_jobs([seed], pattern, with_clean=pattern == "*")
    return [job(*arguments).as_dict() for job, arguments in jobs]


if __name__ == "__main__":
    sys.exit(main())
