"""`diagnose` and what a comparison says of causes, from end to end."""

import copy
import json
import re
from dataclasses import replace
from html import escape

import pytest
from typer.testing import CliRunner

import syncpoint as sp
from helpers.reseal_checksums import reseal
from syncpoint.cli.app import app
from syncpoint.comparison.findings import Level, Symptom
from syncpoint.diagnosis.registry import CAUSES
from syncpoint.diagnosis.symptom import describe_symptom
from syncpoint.errors import SyncpointWarning
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.overview import build_overview
from syncpoint.reports.terminal_report import as_text

torch = pytest.importorskip("torch")
F = torch.nn.functional


class Net(torch.nn.Module):
    def __init__(self, form="none"):
        super().__init__()
        torch.manual_seed(3)
        self.first = torch.nn.Linear(24, 32)
        self.second = torch.nn.Linear(32, 8)
        self.form = form

    def forward(self, x):
        return self.second(F.gelu(self.first(x), approximate=self.form))


def given():
    torch.manual_seed(5)
    return (torch.randn(64, 24),)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A comparison on disk in which GELU has another form."""
    path = tmp_path_factory.mktemp("kept") / "gelu.cmp"
    found = sp.compare(Net("tanh").eval(), Net().eval(), inputs=given(), out=path, store=path)
    return path, found


def called(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_compare_names_the_variant_its_op_and_its_line(kept):
    _, found = kept
    assert found.diagnosis.symptom in (Symptom.SLIGHTLY, Symptom.GREATLY)
    first = found.findings[0]
    assert (first.cause, first.kind, first.level) == ("implementation", "gelu-tanh", Level.CAUSE)
    assert first.ops == ("gelu",)
    assert re.search(r"test_diagnose\.py:\d+$", first.source)
    assert first.confidence >= 0.9
    assert first.next
    rows = [found.rows[at] for at in first.rows]
    assert [row.target.label for row in rows] == ["gelu"]


def test_the_findings_are_kept_and_in_every_report(kept, tmp_path):
    path, found = kept
    again = sp.open_comparison(path)
    assert again.diagnosis == found.diagnosis
    assert found.findings[0].title in as_text(again)
    assert escape(found.findings[0].title) in again._repr_html_()
    said = json.loads(again.to_json(tmp_path / "all.json").read_text())
    assert said["findings"][0]["kind"] == "gelu-tanh"
    assert said["diagnosis"]["symptom"] == found.diagnosis.symptom
    card = build_overview(OpenComparison(path)).findings[0]
    assert (card.title, card.cause) == (found.findings[0].title, "implementation")
    assert card.rows == list(found.findings[0].rows)


def test_the_command_prints_symptom_op_line_numbers_and_next_step(kept):
    path, _ = kept
    done = called("diagnose", path)
    assert done.exit_code == sp.open_comparison(path).exit_code()
    text = done.stdout
    assert "The output differs" in text
    assert re.search(r"1 ■ the target's gelu computes .*form of GELU", text)
    assert "test_diagnose.py:" in text
    assert "next: " in text
    assert max(map(len, text.splitlines())) <= 100


def test_it_is_kept_only_if_wanted(kept, tmp_path):
    import shutil

    path = tmp_path / "copy.cmp"
    shutil.copytree(kept[0], path)
    reseal(path, diagnosis=None, findings=[])
    called("diagnose", path, "--no-save")
    assert sp.open_comparison(path).diagnosis is None
    called("diagnose", path)
    assert sp.open_comparison(path).findings


def test_what_was_found_with_models_is_not_lost_to_a_look_without_them(kept):
    path, found = kept
    assert found.diagnosis.models == ("reference", "target")
    assert "the saved diagnosis is kept: it was made with models" in called("diagnose", path).stdout
    assert sp.open_comparison(path).diagnosis == found.diagnosis


def test_without_its_runs_it_still_says_where_to_look(kept, tmp_path):
    import shutil

    path = tmp_path / "alone.cmp"
    path.mkdir()
    for name in ("comparison.json", "syncpoints.parquet"):
        shutil.copy(kept[0] / name, path / name)
    found = sp.diagnose(path)
    assert found.findings[0].ops == ("gelu",)
    assert found.findings[0].confidence < 0.9
    assert set(found.diagnosis.absent) == {"target", "reference"}
    said = json.loads(found.to_json(tmp_path / "alone.json").read_text())
    assert said["diagnosis"]["absent"] == found.diagnosis.absent
    text = " ".join(called("diagnose", path, "--no-save").stdout.split())
    assert "not available: the target's run (" in text and "and the reference's run (" in text


def test_a_comparison_that_is_close_has_no_cause():
    found = sp.compare(Net().eval(), copy.deepcopy(Net().eval()), inputs=given())
    assert found.diagnosis.symptom is Symptom.NONE
    assert all(finding.level is Level.NOTE for finding in found.findings)


def test_where_nothing_differs_it_points_to_what_is_around_the_models(tmp_path):
    path = tmp_path / "same.cmp"
    sp.compare(Net().eval(), Net().eval(), inputs=given(), out=path)
    text = called("diagnose", path).stdout
    assert "Nothing differs" in text and "--preprocess" in text
    assert "No cause was found" not in text


def test_nobody_looks_where_nobody_asked():
    found = sp.compare(Net("tanh").eval(), Net().eval(), inputs=given(), diagnose=False)
    assert found.diagnosis is None
    assert found.findings == ()


def test_the_command_refuses_what_is_no_comparison(tmp_path):
    done = CliRunner().invoke(app, ["diagnose", str(tmp_path / "none.cmp")])
    assert "a comparison" in str(done.exception)


class Suspicious:
    """A cause of another package."""

    API = 1
    name = "moon"
    title = "the phase of the moon"

    def look(self, case):
        raise ValueError("it is cloudy")


class Entry:
    dist = None
    value = "test"

    def __init__(self, name, loaded):
        self.name, self._loaded = name, loaded

    def load(self):
        return self._loaded


def test_a_cause_of_another_package_that_fails_costs_nothing_else(add_plugins):
    add_plugins(CAUSES, Entry("moon", Suspicious))
    found = sp.compare(Net("tanh").eval(), Net().eval(), inputs=given())
    assert found.findings[0].kind == "gelu-tanh"
    assert found.diagnosis.troubles == ("the phase of the moon: it is cloudy",)


def test_a_cause_for_another_version_is_left_out_with_a_warning(add_plugins):
    class Old(Suspicious):
        API = 0

    add_plugins(CAUSES, Entry("old", Old))
    with pytest.warns(SyncpointWarning, match="old .* is skipped: it declares API = 0; .* takes 1"):
        assert CAUSES.plugins() == ()


def test_what_could_not_be_read_is_not_said_to_agree():
    result = sp.compare(Net().eval(), Net().eval(), inputs=given())
    at = next(at for at, row in enumerate(result.rows) if not row.output)
    rows = list(result.rows)
    rows[at] = replace(rows[at], unmeasured=Reason(ReasonCode.UNREADABLE, "the file is cut off"))
    what, said = describe_symptom(replace(result, rows=rows))
    assert what is Symptom.PARTLY
    assert said.endswith(f"; 1 of {len(rows)} tensors could not be compared")
