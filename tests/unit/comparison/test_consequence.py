"""Errors that nothing computed from them shows: at most moderate, and no longer blamed for sure."""

import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.comparison.consequence import is_without_consequence
from syncpoint.comparison.engine import Options, compare
from syncpoint.metrics.limits import PRESETS
from syncpoint.metrics.verdict import Verdict

RNG = np.random.default_rng(3)
X = RNG.standard_normal((8, 16)).astype(np.float32)
WRONG = RNG.standard_normal((8, 16)).astype(np.float32)


def chain(middle, readers, output=X):
    """An input, an op `middle`, the ops that read it, and a model output."""
    return run(
        ("middle", "Custom", "", ("x",), middle),
        *((name, "Custom2", "", ("middle",), value) for name, value in readers.items()),
        ("end", "Custom3", "", tuple(readers), output),
        inputs=[("x", X)],
        outputs=[("end", output)],
    )


def compared(target, reference):
    comparison = compare(target, reference)
    return comparison, {row.target.key.op.op: row for row in comparison.rows if not row.output}


def test_an_error_that_no_reader_shows_is_moderate():
    comparison, rows = compared(chain(WRONG, {"a": X}), chain(X, {"a": X}))
    assert rows["middle"].verdict is Verdict.MODERATE
    assert is_without_consequence(rows["middle"])
    assert (comparison.verdict, comparison.exit_code()) == (Verdict.MODERATE, 0)


def test_one_reader_that_is_off_makes_it_large():
    target = chain(WRONG, {"a": X, "b": WRONG})
    comparison, rows = compared(target, chain(X, {"a": X, "b": X}))
    assert rows["middle"].verdict is Verdict.LARGE
    assert comparison.exit_code() == 1


def test_an_error_that_is_only_attenuated_stays_large():
    """A tenth of the error reaches the reader, which is close by the limits of its precision."""
    off = X + 0.1 * WRONG
    attenuated = (X + 0.01 * WRONG).astype(np.float16)
    target = chain(off.astype(np.float16), {"a": attenuated}, X.astype(np.float16))
    reference = chain(X, {"a": X})
    rows = {
        row.target.key.op.op: row
        for row in compare(target, reference, Options(choice=PRESETS["int8"])).rows
        if not row.output
    }
    assert rows["a"].verdict is Verdict.CLOSE
    assert rows["middle"].verdict is not Verdict.CLOSE
    assert not is_without_consequence(rows["middle"])


def test_a_tensor_that_nothing_reads_stays_large():
    ops = (("middle", "Custom", "", ("x",), WRONG), ("end", "Custom3", "", ("x",), X))
    target = run(*ops, inputs=[("x", X)], outputs=[("end", X)])
    reference = run(
        ("middle", "Custom", "", ("x",), X), ops[1], inputs=[("x", X)], outputs=[("end", X)]
    )
    comparison, rows = compared(target, reference)
    assert rows["middle"].verdict is Verdict.LARGE
    assert comparison.exit_code() == 1


def test_a_model_output_is_never_excused():
    target = run(
        ("middle", "Custom", "", ("x",), WRONG),
        ("end", "Custom3", "", ("middle",), X),
        inputs=[("x", X)],
        outputs=[("middle", WRONG)],
    )
    reference = run(
        ("middle", "Custom", "", ("x",), X),
        ("end", "Custom3", "", ("middle",), X),
        inputs=[("x", X)],
        outputs=[("middle", X)],
    )
    assert compare(target, reference).exit_code() == 1


def test_judging_again_finds_the_same():
    comparison, _ = compared(chain(WRONG, {"a": X}), chain(X, {"a": X}))
    again = comparison.rejudged(PRESETS["f32"])
    assert [row.verdict for row in again.rows] == [row.verdict for row in comparison.rows]


@pytest.mark.parametrize(("has_output", "code"), [(True, 0), (False, 1)])
def test_a_shape_that_does_not_fit_fails_only_without_compared_outputs(has_output, code):
    """Inside a model it says more about the pairing; a dump has no outputs that would show it."""
    shapes = ((2, 3), (3, 2))
    runs = [
        run(
            ("a", "", "", (), np.ones(shape, np.float32)),
            ("end", "", "", (), X),
            outputs=[("end", X)] if has_output else (),
        )
        for shape in shapes
    ]
    comparison = compare(*runs)
    assert comparison.exit_code() == code
    assert [row.reason for row in comparison.rows if row.verdict is Verdict.NONE] == [
        "shape: 2x3 against 3x2"
    ]


def test_a_model_output_of_another_shape_fails():
    runs = [
        run(("end", "", "", (), np.ones(s, np.float32)), outputs=[("end", np.ones(s, np.float32))])
        for s in ((2, 3), (3, 2))
    ]
    assert compare(*runs).exit_code() == 1


def test_a_parameter_that_changes_nothing_is_moderate():
    def net(weight, end):
        return run(
            ("end", "Custom", "", ("x", "w"), end),
            inputs=[("x", X)],
            parameters=[("w", weight)],
            outputs=[("end", end)],
        )

    folded = compare(net(WRONG, X), net(X, X))
    assert (folded.verdict, folded.exit_code()) == (Verdict.MODERATE, 0)
    assert compare(net(WRONG, WRONG), net(X, X)).exit_code() == 1
