"""What is said of an op that nothing explains, with whatever is known of it."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.comparison.engine import compare
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.findings_by_cause.implementation import Implementation
from syncpoint.run.model import RunInfo

RNG = np.random.default_rng(0)
VALUES = [RNG.standard_normal((8, 8)).astype(np.float32) for _ in range(3)]


def told(kind, **about):
    """The finding on the second of three ops of one type."""

    def side(*arrays, info=None):
        names = ("first", "second", "third")
        reads = ((), ("first",), ("second",))
        ops = [(n, kind, "", r, a) for n, r, a in zip(names, reads, arrays, strict=True)]
        return run(*ops, info=info)

    off = np.flip(VALUES[1]) * 3
    found = compare(
        side(VALUES[0], off, VALUES[2], info=replace(RunInfo(model="made by hand"), **about)),
        side(*VALUES),
    )
    (one,) = Implementation().look(Case(found))
    assert one.kind == "unexplained" and one.ops == ("second",)
    return one


def test_an_op_without_a_type_is_named_by_what_it_made():
    found = told("")
    assert found.next == "inspect the op that produced second"
    assert "type" not in found.text


def test_an_op_with_a_type_is_named_by_it():
    assert told("Conv").next.startswith("run second (Conv) alone with the recorded inputs; if its")


@pytest.mark.parametrize(
    ("about", "apart"),
    [
        ({"runtime": "onnxruntime", "fusion": "as-executed"}, True),
        ({"runtime": "onnxruntime", "fusion": "unfused"}, False),
        ({"runtime": "another"}, False),
    ],
)
def test_what_onnx_runtime_fused_is_to_be_taken_apart(about, apart):
    found = told("com.microsoft.nchwc.Conv", **about)
    assert ("compare again with --target-set fusion=unfused" in found.next) is apart
