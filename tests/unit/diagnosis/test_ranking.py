"""The order in which findings are told, and which say nothing new."""

from dataclasses import replace

from syncpoint.comparison.findings import Diagnosis, Finding, Level, Symptom
from syncpoint.diagnosis.diagnose import rank_findings


def finding(cause, confidence, rows=(), level=Level.CAUSE):
    return Finding(
        cause=cause,
        kind="kind",
        title=f"{cause} did it",
        level=level,
        confidence=confidence,
        rows=rows,
    )


def causes(found):
    return [f.cause for f in rank_findings(found)]


def test_the_surest_comes_first():
    assert causes([finding("b", 0.5, (1,)), finding("a", 0.9, (2,))]) == ["a", "b"]


def test_a_cause_comes_before_a_surer_suspect_and_a_surer_note():
    found = [
        finding("note", 1.0, (1,), Level.NOTE),
        finding("suspect", 0.95, (2,), Level.SUSPECT),
        finding("cause", 0.5, (3,)),
    ]
    assert causes(found) == ["cause", "suspect", "note"]


def test_of_equally_sure_ones_the_earlier_op_comes_first():
    assert causes([finding("late", 0.9, (7,)), finding("early", 0.9, (3,))]) == ["early", "late"]


def test_what_a_surer_cause_explains_is_left_out():
    assert causes([finding("generic", 0.5, (4,)), finding("weights", 0.97, (4,))]) == ["weights"]


def test_what_it_explains_in_part_stays():
    found = [finding("generic", 0.5, (4, 5)), finding("weights", 0.97, (4,))]
    assert causes(found) == ["weights", "generic"]


def test_a_suspect_explains_nothing_away():
    found = [finding("generic", 0.5, (4,)), finding("fusion", 0.8, (4,), Level.SUSPECT)]
    assert causes(found) == ["generic"]


def test_one_that_names_no_sync_point_stays():
    assert causes([finding("a", 0.9, (1,)), finding("whole", 0.6)]) == ["a", "whole"]


def test_notes_are_kept_whatever_explains_their_rows():
    found = [finding("a", 0.9, (1,)), finding("note", 0.5, (1,), Level.NOTE)]
    assert causes(found) == ["a", "note"]


def test_a_diagnosis_reads_back_as_it_was():
    one = replace(
        finding("weights", 0.97, (4, 5)), ops=("conv",), evidence=("twice",), missing=("a run",)
    )
    made = Diagnosis(
        symptom=Symptom.GREATLY,
        summary="out: 12 dB",
        findings=(one,),
        experiments=("ran it twice",),
        troubles=("no time",),
        models=("target",),
        absent={"reference": "it was not kept"},
    )
    said, findings = made.as_dict(), [f.as_dict() for f in made.findings]
    assert Diagnosis.of_dict(said, findings) == made
    del said["absent"]
    assert Diagnosis.of_dict(said, findings) == replace(made, absent={}), "one of before"


def test_keys_of_a_newer_version_are_passed_over():
    one = finding("weights", 0.97, (4,))
    assert Finding.of_dict({**one.as_dict(), "from the future": 1}) == one


def test_confidence_has_words():
    words = [finding("a", c).certainty for c in (0.97, 0.9, 0.89, 0.6, 0.59)]
    assert words == ["sure", "sure", "likely", "likely", "possible"]
