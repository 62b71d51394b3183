"""The example in docs/formats.md runs, and the run kept beside the tests still opens."""

from __future__ import annotations

import re

import polars as pl

from helpers.paths import ROOT
from syncpoint.run.reader import Run

DOCUMENT = (ROOT / "docs" / "formats.md").read_text()


def test_the_example_of_the_document_runs_and_gives_the_run_that_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, change = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    exec(compile(code, "formats.md", "exec"), {})
    made, kept = Run.open("example.run"), Run.open(ROOT / "tests" / "data" / "example.run")
    assert (made.info, list(made.ops), list(made.tensors)) == (
        kept.info,
        list(kept.ops),
        list(kept.tensors),
    )
    assert made.digest() == kept.digest()
    assert kept.tensors[0].offset == kept.tensors[1].offset
    exec(compile(change, "formats.md", "exec"), {})
    assert Run.open("example.run").info.model == "another name"


def test_every_column_of_the_tables_is_in_the_document():
    for table in ("ops", "tensors"):
        schema = pl.read_parquet_schema(
            ROOT / "tests" / "data" / "example.run" / f"{table}.parquet"
        )
        for column in schema:
            assert f"`{column}`" in DOCUMENT, column
