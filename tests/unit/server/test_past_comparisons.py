"""Past comparisons are listed by what is cheap to read, and broken ones by what is wrong."""

import json
from contextlib import chdir

import numpy as np
import pytest

import syncpoint as sp
from helpers.reseal_checksums import reseal
from helpers.session_server import write_dumps
from syncpoint.errors import FormatError
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.run.storage.journal import JournalWriter, encode_frame
from syncpoint.server.allowed_files import AllowedFolders
from syncpoint.server.comparison_library import Library
from syncpoint.server.past_comparisons import PastList


@pytest.fixture
def place(tmp_path):
    write_dumps(tmp_path)
    with chdir(tmp_path):
        sp.compare("target.npz", "reference.npz", out="off.cmp")
        sp.compare("reference.npz", "reference.npz", out="same.cmp")
        yield tmp_path


def listed(place):
    return {
        one.name: one
        for one in PastList(AllowedFolders([place]), place / "out").list_all().comparisons
    }


def test_each_line_says_what_the_comparison_says(place):
    found = listed(place)
    assert set(found) == {"off", "same"}
    off = sp.open_comparison(place / "off.cmp")
    assert (found["off"].verdict, found["off"].level) == ("large", "large")
    assert found["off"].first == off.first_divergence[0].target.label
    assert found["off"].coverage == off.coverage.target
    assert found["off"].guilty is None  # introduced error is not known of dumps
    assert (found["same"].verdict, found["same"].first) == ("close", "")


def test_a_long_comparison_is_read_by_its_head(place, monkeypatch):
    whole = listed(place)
    monkeypatch.setattr("syncpoint.server.past_comparisons._MAX_PARSED_BYTES", 1500)
    file = place / "off.cmp" / "comparison.json"
    about = json.loads(file.read_text())
    reseal(file.parent, unmatched=[*about["unmatched"], {"padding": "x" * 5000}])
    monkeypatch.setattr("syncpoint.server.past_comparisons._MAX_ROWS_TO_LOAD", 0)
    found = listed(place)["off"]
    assert found.problem is None
    assert found.model_copy(update={"first": whole["off"].first}) == whole["off"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": 1}', b"\xff\xfe"])
def test_a_broken_one_is_listed_with_its_error(place, content):
    (place / "off.cmp" / "comparison.json").write_bytes(content)
    found = listed(place)
    assert found["off"].problem is not None
    assert found["off"].problem.problem
    assert found["same"].problem is None


def test_a_missing_table_and_an_unfinished_one_are_said(place):
    (place / "off.cmp" / "syncpoints.parquet").unlink()
    (place / "begun.cmp").mkdir()
    (place / "begun.cmp" / "progress.log").write_bytes(b"")
    found = listed(place)
    assert found["off"].problem is not None
    assert "interrupted" in found["begun"].problem.problem
    assert found["begun"].id == ""
    assert not found["begun"].can_resume
    assert not found["begun"].measured  # there is nothing to open yet


def test_a_damaged_file_is_named_with_the_cure(place):
    table = place / "off.cmp" / "syncpoints.parquet"
    table.write_bytes(table.read_bytes()[:-200])
    (place / "same.cmp" / "comparison.json").write_bytes(b"{")
    found = listed(place)
    for name, file in (("off", "syncpoints.parquet"), ("same", "comparison.json")):
        assert f"{file} is damaged: " in found[name].problem.problem
        assert "compare the two runs again" in found[name].problem.cure
        with pytest.raises(FormatError, match=f"{file} is damaged: "):
            OpenComparison(place / f"{name}.cmp")


def test_one_begun_elsewhere_says_what_it_is_of_and_is_not_gone_on_with(place):
    (place / "begun.cmp").mkdir()
    sides = {"target": "models/net.py:shipped", "reference": "reference.npz"}
    JournalWriter(place / "begun.cmp" / "progress.log", encode_frame("asked", sides)).close()
    found = listed(place)["begun"]
    assert (found.target, found.reference) == ("net.py:shipped", "reference.npz")
    assert not found.can_resume
    assert "--resume" in found.problem.cure


def test_a_changed_one_is_read_again(place):
    past = PastList(AllowedFolders([place]), place / "out")
    assert {c.name for c in past.list_all().comparisons} == {"off", "same"}
    (place / "same.cmp").rename(place / "other.cmp")
    assert {c.name for c in past.list_all().comparisons} == {"off", "other"}


def test_links_that_lead_out_are_not_followed(place, tmp_path_factory):
    inside = tmp_path_factory.mktemp("inside")
    (inside / "link.cmp").symlink_to(place / "off.cmp")
    assert listed(inside) == {}
    assert Library(folders=[inside]).list_comparisons() == {}


def test_runs_are_offered_as_references(place):
    with sp.record(place / "engine.run", model="engine") as recording:
        recording.tensor("a", np.ones(3, np.float32))
    runs = PastList(AllowedFolders([place]), place / "out").list_all().runs
    assert [(run.path, run.model) for run in runs] == [("engine.run", "engine")]
