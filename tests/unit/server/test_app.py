"""What the server answers about a saved comparison, asked as the page asks."""

import base64
import json
from itertools import pairwise

import numpy as np
import pytest
from fastapi.testclient import TestClient

from helpers.mixed_comparison import mixed
from syncpoint.page.open_comparison import comparison_id
from syncpoint.server.app import create_app
from syncpoint.server.comparison_library import Library


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    comparison = mixed()
    path = comparison.save(tmp_path_factory.mktemp("served") / "mixed.cmp")
    client = TestClient(create_app(Library([path])))

    def ask(question: str, **params):
        answer = client.get(f"/api/comparisons/{comparison_id(path)}/{question}", params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return comparison, ask


def test_the_overview_says_what_the_comparison_says(asked):
    comparison, ask = asked
    found = ask("overview")
    assert found["verdict"] == comparison.verdict.value
    assert found["exit_code"] == comparison.exit_code()
    assert found["coverage_target"] == comparison.coverage.target
    assert found["rows"] == len(comparison.rows)
    assert [comparison.rows[row] for row in found["first_divergence"]] == (
        comparison.first_divergence
    )
    assert [comparison.rows[one["row"]] for one in found["outputs"]] == comparison.outputs
    assert not found["target"]["available"]
    assert "not saved" in found["target"]["why_not"]


def test_windows_laid_together_are_the_whole_list(asked):
    comparison, ask = asked
    for params in ({}, {"grouped": True, "open": ["blocks.0", "head"], "sort": "operation"}):
        whole = ask("rows", limit=1000, **params)
        pieces = [
            item
            for offset in range(0, whole["total"], 7)
            for item in ask("rows", offset=offset, limit=7, **params)["items"]
        ]
        assert pieces == whole["items"]
        assert len(pieces) == whole["total"]
    assert ask("rows", limit=1000)["matching"] == len(comparison.rows)


@pytest.mark.parametrize("params", [{}, {"grouped": True, "sort": "operation"}])
def test_a_row_is_where_the_list_says(asked, params):
    comparison, ask = asked
    for row in range(0, len(comparison.rows), 9):
        place = ask(f"rows/{row}/place", **params)
        opened = params | ({"open": [place["group"]]} if params else {})
        found = ask("rows", offset=place["index"], limit=1, **opened)["items"][0]
        assert found["row"] == row
    assert ask("rows/0/place", text="nothing")["index"] is None


def test_a_row_says_what_it_is(asked):
    comparison, ask = asked
    for item in ask("rows", limit=1000, metric="max_abs")["items"]:
        row = comparison.rows[item["row"]]
        assert item["target"] == row.target.label
        assert item["verdict"] == row.verdict.value
        score = (row.numbers or {}).get("max_abs")
        assert item["score"] == (score if score is None else pytest.approx(score))
        assert bool(item["reason"]) == (row.verdict.value == "none")
        assert 0 <= item["fill"] <= 1


def test_states_are_those_of_the_rows(asked):
    comparison, ask = asked
    found = ask("states", metric="psnr")
    scores = np.frombuffer(base64.b64decode(found["scores"]), "<f4")
    items = {item["row"]: item for item in ask("rows", limit=1000)["items"]}
    for row in range(len(comparison.rows)):
        level = {"c": "close", "m": "moderate", "l": "large", "n": "none"}[found["levels"][row]]
        assert level == items[row]["level"]
        assert (items[row]["score"] is None) == bool(np.isnan(scores[row]))
    orders = np.frombuffer(base64.b64decode(found["orders"]), "<u4")
    assert sorted(orders) == list(range(len(comparison.rows)))


def test_the_drift_strip_covers_the_execution(asked):
    comparison, ask = asked
    found = ask("drift")
    parameters = sum(row.target.key.role.value == "parameter" for row in comparison.rows)
    assert found["points"] == len(comparison.rows) - parameters
    edges = [(group["start"], group["stop"]) for group in found["groups"]]
    assert edges[0][0] == 0
    assert edges[-1][1] == found["points"]
    assert all(a[1] == b[0] for a, b in pairwise(edges))


def test_unmatched_tensors_are_listed_with_their_reason(asked):
    comparison, ask = asked
    found = ask("unmatched", limit=1000)
    assert found["total"] == len(comparison.unmatched)
    assert {one["op"] for one in found["items"]} == {u.op for u in comparison.unmatched}
    assert all(one["reason"] for one in found["items"])
    assert ask("unmatched", text="op_12")["total"] < found["total"]


def test_other_limits_judge_again(asked):
    _, ask = asked
    loose = ask("overview", limits="int4")
    assert loose["limits"] == "int4"
    assert loose["counts"]["large"] < ask("overview")["counts"]["large"]


def test_json_is_strict(asked):
    _, ask = asked
    json.dumps(ask("overview"), allow_nan=False)
    json.dumps(ask("rows", limit=1000, metric="psnr"), allow_nan=False)
