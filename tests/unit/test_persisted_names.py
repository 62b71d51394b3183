"""Names that stand in files, or go between processes, do not change by a renaming in the code.

The fields below are written by their Python names: into run.json, comparison.json, Parquet columns,
journals, resume stamps, reports and answers of the server. A new name here needs a migration, and a
file written before that still opens (tests/data/older, tests/data/schema2).
"""

import importlib
import json
from dataclasses import fields, is_dataclass

import pytest

from helpers.paths import DATA

PERSISTED = json.loads((DATA / "persisted_names.json").read_text())


def field_names(path):
    module, _, name = path.partition(":")
    found = getattr(importlib.import_module(module), name)
    return [f.name for f in fields(found)] if is_dataclass(found) else list(found.model_fields)


@pytest.mark.parametrize("path", PERSISTED)
def test_persisted_names_are_kept(path):
    missing = sorted(set(PERSISTED[path]) - set(field_names(path)))
    assert missing == [], f"names of {path} that files or other processes use"
