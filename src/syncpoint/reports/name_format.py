"""Names as text: runs and source lines."""

from __future__ import annotations

from typing import Any


def short_source(source: str) -> str:
    """`file.py:12` without its folders, for tables."""
    return source.replace("\\", "/").rsplit("/", 1)[-1]


def run_text(about: Any) -> str:
    """A run in a few words: model, runtime, device, precision."""
    name = about["model"] or about["path"] or "in memory"
    runtime = " ".join(p for p in (about["runtime"], about["runtime_version"]) if p)
    facts = ", ".join(p for p in (runtime, about["device"], about["precision"]) if p)
    return f"{name} ({facts})" if facts else str(name)
