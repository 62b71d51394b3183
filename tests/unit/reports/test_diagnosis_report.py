"""The diagnosis on a terminal."""

import io
from dataclasses import replace

from rich.console import Console

from syncpoint.comparison.findings import Diagnosis, Finding, Level, Symptom
from syncpoint.reports.diagnosis_report import diagnosis_lines, print_lines

FINDING = Finding(
    cause="weights",
    kind="scaled",
    title="conv has other weights",
    level=Level.CAUSE,
    confidence=0.97,
)
NOTE = replace(FINDING, level=Level.NOTE, title="conv is odd")


def told(width=100, findings=(FINDING,), **more):
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    print_lines(
        diagnosis_lines(
            Diagnosis(symptom=Symptom.GREATLY, summary="out: 12 dB", findings=findings, **more)
        ),
        console,
    )
    return console.file.getvalue()


def test_what_was_run_is_told_as_done():
    assert "\nexperiments: the target again, twice\n" in told(
        experiments=("the target again, twice",)
    )


def test_what_is_left_out_is_counted():
    assert "1 more note; --json has all" in told(findings=(NOTE,) * 4)
    assert "2 more notes; --json has all" in told(findings=(NOTE,) * 5)


def test_runs_that_are_gone_are_named_with_the_reason_and_the_cure():
    assert "not available" not in told()
    assert (
        "not available: the target's run (t.run is not there); for a deeper diagnosis, restore it,"
        " or compare again and keep both runs" in told(300, absent={"target": "t.run is not there"})
    )
    both = told(300, absent={"target": "it was not kept", "reference": "r.run is not there"})
    assert "the target's run (it was not kept) and the reference's run (r.run is not" in both
    assert "restore them" in both


def test_what_is_too_long_goes_on_under_its_text_and_ends_in_no_blanks():
    words = "what was seen there is told in many words " * 4
    one = replace(FINDING, title=words, evidence=(words,), next=words, missing=(words,))
    made = told(60, (one,), experiments=(words,), troubles=(words,))
    kept = made.splitlines()
    assert all(len(line) <= 60 and line == line.rstrip() for line in kept)
    begun = [
        at for at, line in enumerate(kept) if line.startswith(("1 ■ ", "    - ", "    next: "))
    ]
    hangs = [len(kept[at + 1]) - len(kept[at + 1].lstrip()) for at in begun]
    assert hangs == [4, 6, 6]
    assert " ".join(made.split()).count(words.strip()) == 6


def test_where_nothing_differs_it_says_where_to_look():
    console = Console(file=io.StringIO(), width=60, color_system=None, highlight=False)
    print_lines(diagnosis_lines(Diagnosis(symptom=Symptom.NONE, summary="out: 90 dB")), console)
    kept = console.file.getvalue().splitlines()
    assert any(line.startswith("  --preprocess") for line in kept)
    assert all(len(line) <= 60 and line == line.rstrip() for line in kept)
