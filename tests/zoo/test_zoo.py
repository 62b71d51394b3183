"""The zoo itself: every entry is sound, every planter plants, and some faults are found."""

import json
import os

import pytest
import torch

from zoo import clean
from zoo.draw import LEAST, draw
from zoo.entry import CLASSES, entries
from zoo.judging import Outcome
from zoo.planting.registry import find_planter, planters
from zoo.publish import BEGIN, END
from zoo.publish import main as publish
from zoo.runner import all_jobs, main, run_clean, run_entry
from zoo.tables import markdown, rates

FOUND = (
    ("activation-other", "torch", 0),
    ("gelu-sigmoid", "torch", 0),
    ("dump-cut-off", "dump", 1),
    ("weight-changed", "torch", 0),
    ("input-bgr", "torch", 0),
    ("tokens-shifted", "torch", 0),
    ("fast-math", "dump", 0),
    ("mask-all-infinite", "torch", 0),
    ("int8-weight-clipped", "onnxruntime", 1),
    ("race", "torch", 0),
    ("buffer-aliased", "dump", 0),
    ("error-grows-bf16", "torch", 0),
    ("op-in-f16", "torch", 0),
    ("fused-gelu", "onnxruntime", 1),
)
"""Of every class at least one, with a runtime and a seed that give a small case."""


THOROUGH = os.environ.get("HYPOTHESIS_PROFILE", "default") != "default"
SLOW = ("onnx",)
"""Stages whose planters need a conversion each; two of them are planted in every run."""


def one_of_each():
    """An entry of every planter."""
    found, slow = {}, 0
    for name, entry in entries().items():
        planter = find_planter(entry.planter)
        slow += planter.stage in SLOW and planter.name not in found
        if planter.stage not in SLOW or slow <= 2 or THOROUGH:
            found.setdefault(planter.name, name)
    return sorted(found.values())


@pytest.mark.parametrize("name", one_of_each())
def test_a_planted_fault_changes_something(name):
    entry = entries()[name]
    runtime = "torch" if "torch" in entry.runtimes else ""
    work = draw(entry, 0, runtime, lower=False).work
    assert work.change > LEAST[work.dtype]
    assert work.said and (work.sites or entry.op == "any")


def test_there_are_enough_kinds_and_every_planter_is_used():
    assert len(entries()) >= 50
    assert {entry.planter for entry in entries().values()} == set(planters())
    assert len(clean.PAIRS) >= 30


def test_a_draw_is_the_same_every_time():
    entry = entries()["bias-missing"]
    one, other = (draw(entry, 3, "torch").work for _ in range(2))
    assert (one.said, one.sites, one.net.words) == (other.said, other.sites, other.net.words)
    weights = zip(one.program.state_dict.values(), other.program.state_dict.values(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)
    assert draw(entry, 4, "torch").work.net.words != one.net.words or one.said


@pytest.mark.parametrize(("name", "runtime", "seed"), FOUND)
def test_a_fault_is_found(name, runtime, seed):
    outcome = run_entry(name, seed, runtime)
    assert outcome.right_class and outcome.right_op, (outcome.said, outcome.planted)


def test_a_fault_of_every_class_is_looked_for():
    assert {entries()[name].classes[0] for name, *_ in FOUND} == set(CLASSES)


@pytest.mark.parametrize("only", CLASSES)
def test_the_runner_takes_the_entries_of_one_class(only):
    jobs = all_jobs([0, 1], only=only)
    names = [name for name, entry in entries().items() if only in entry.classes]
    assert [given[:2] for _, given in jobs] == [(name, seed) for seed in (0, 1) for name in names]
    assert names


def test_the_class_that_is_asked_for_narrows_what_is_run(tmp_path):
    """An entry of another class is left out."""
    said = ["--class", "memory", "-o", str(tmp_path), "--workers", "1"]
    assert main([*said, "--entries", "gelu-sigmoid"]) == 0
    assert json.loads((tmp_path / "seed-0.json").read_text())["cases"] == []


def test_a_clean_pair_has_no_finding():
    outcome = run_clean("clean-cnn-torch-f32", 0)
    assert outcome.right_class, outcome.said


def test_the_table_counts_what_was_missed():
    good, bad = run_entry("gelu-sigmoid", 0, "torch"), run_entry("gelu-sigmoid", 1, "no such")
    assert bad.error
    assert rates([good, bad]) == {"class": 0.5, "op": 0.5, "clean": None}
    assert "no such" in markdown([good, bad], [0])
    assert set(CLASSES) >= {c for entry in entries().values() for c in entry.classes}


def test_the_table_of_several_runs_goes_into_its_place(tmp_path):
    good = Outcome("a", 1, ("memory",), right_class=True, right_op=True)
    bad = Outcome("b", 2, ("weights",), sites=("w",))
    for seed, outcome in ((1, good), (2, bad)):
        body = {"seeds": [seed], "cases": [outcome.as_dict()]}
        (tmp_path / f"{seed}.json").write_text(json.dumps(body), encoding="utf-8")
    document = tmp_path / "doc.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    publish([str(document), str(tmp_path / "2.json"), str(tmp_path / "1.json")])
    text = document.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "Seeds 1, 2:" in text and "| memory | 1 | 1 | 1 (100%) | 1/1 |" in text
    assert "b (1)" in text
