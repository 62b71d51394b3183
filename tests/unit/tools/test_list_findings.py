"""The listing of findings: distinct texts by cause and kind."""

import importlib.util
import json

import pytest

from helpers.paths import ROOT

SCRIPT = ROOT / "tools" / "list_findings.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("list_findings", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def finding(title, evidence, kind="rounded", cause="weights"):
    return {"cause": cause, "kind": kind, "title": title, "evidence": evidence, "next": ""}


CASES = [
    {"findings": [finding("a.weight differs by 1.5", ["error 0.1"])]},
    {"findings": [finding("a.weight differs by 2.5", ["error 3e-05", "it is read by b"])]},
    {"findings": [finding("c overflows", [], "overflow", "overflow")]},
    {},
]


def test_texts_that_differ_in_numbers_only_are_listed_once(tool):
    lines = list(tool.list_texts(CASES, cause="weights"))
    assert lines == [
        "weights / rounded",
        "    title     a.weight differs by 1.5",
        "    evidence  error 0.1",
        "    evidence  it is read by b",
        "",
    ]


def test_all_texts_are_listed_if_numbers_are_not_merged(tool):
    lines = list(tool.list_texts(CASES, merge_numbers=False))
    assert [line for line in lines if "differs by" in line] == [
        "    title     a.weight differs by 1.5",
        "    title     a.weight differs by 2.5",
    ]


def test_a_report_is_read_and_an_empty_one_is_an_error(tool, tmp_path, capsys):
    report, empty = tmp_path / "seed-0.json", tmp_path / "seed-1.json"
    report.write_text(json.dumps({"cases": CASES}))
    empty.write_text(json.dumps({"cases": []}))
    assert tool.main([str(report)]) == 0
    assert "overflow / overflow" in capsys.readouterr().out
    assert tool.main([str(empty)]) == 2
