"""The structure that `comparison.json` must have, checked once when it is read.

A document with a checksum has it anyway. One without may be damaged in a way that is still JSON,
such as a key with another letter: that must be one error here, not a crash of whoever asks for the
key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from syncpoint.metrics.verdict import Verdict

Rule = Callable[[Any], bool]


def _is(*kinds: type) -> Rule:
    return lambda value: (
        isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds)
    )


def _list_of(rule: Rule) -> Rule:
    return lambda value: isinstance(value, list) and all(map(rule, value))


def _object(rules: Mapping[str, Rule]) -> Rule:
    return lambda value: (
        isinstance(value, dict)
        and all(key in value and rule(value[key]) for key, rule in rules.items())
    )


def _optional(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


_TEXT, _NUMBER, _FLAG = _is(str), _is(int, float), _is(bool)
_RUN = _object(
    {
        **dict.fromkeys(("path", "digest", "model", "runtime", "runtime_version"), _TEXT),
        **dict.fromkeys(("device", "precision", "fusion", "missing"), _TEXT),
        "options": _is(dict),
        "environment": _is(dict),
        "complete": _FLAG,
        "notes": _list_of(_TEXT),
        "observer": _optional(_object({"equal": _FLAG, "detail": _TEXT})),
    }
)
_FACTS: Mapping[str, Rule] = {
    "created": _TEXT,
    "verdict": lambda value: value in {verdict.value for verdict in Verdict},
    "coverage": _object(
        dict.fromkeys(
            ("target", "reference", "target_tensors", "reference_tensors", "paired", "compared"),
            _NUMBER,
        )
    ),
    "limits": _is(str, dict),
    "target": _RUN,
    "reference": _RUN,
    "warnings": _list_of(_TEXT),
}
_OP = _list_of(_is(str, int))
_LISTS: Mapping[str, Rule] = {
    "unmatched": _list_of(
        _object(
            {
                **dict.fromkeys(("side", "op", "role", "type", "module", "reason"), _TEXT),
                "index": _is(int),
                "detail": _TEXT,
                "counted": _FLAG,
            }
        )
    ),
    "edges": _list_of(
        lambda edge: (
            isinstance(edge, list) and len(edge) == 2 and _OP(edge[0]) and _list_of(_OP)(edge[1])
        )
    ),
    "diagnosis": _optional(
        _object(
            {
                "symptom": _TEXT,
                "summary": _TEXT,
                **dict.fromkeys(("experiments", "troubles", "models"), _list_of(_TEXT)),
            }
        )
    ),
    "findings": _list_of(
        _object(
            {
                **dict.fromkeys(("cause", "kind", "title", "level", "module", "source"), _TEXT),
                **dict.fromkeys(("ops", "reference_ops", "evidence", "missing"), _list_of(_TEXT)),
                "next": _TEXT,
                "confidence": _NUMBER,
                "rows": _list_of(_is(int)),
            }
        )
    ),
}


def broken_key(body: Mapping[str, Any], is_whole: bool) -> str:
    """The first key that is missing or holds something else than it should; "" if there is none.
    Unless the body is whole, its long lists, which come last, may be missing."""
    rules = {**_FACTS, **_LISTS} if is_whole else _FACTS
    return next((key for key, rule in rules.items() if key not in body or not rule(body[key])), "")
