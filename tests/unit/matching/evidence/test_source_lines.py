"""Lines of the user's code that speak against a pair of small ops."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.matching.matcher_chain import chain, match
from syncpoint.run.model import Frame, Role
from syncpoint.run.reader import in_memory

RNG = np.random.default_rng(2)
X = RNG.standard_normal((4, 6)).astype(np.float32)
TEXT = "scores = x / 2\nweights = softmax(scores)\nreturn weights.tanh()\n"
LINES = {"div": 1, "scaled": 1, "softmax": 2, "quotient": 2, "tanh": 3}


def softmax(x):
    return (np.exp(x) / np.exp(x).sum(-1, keepdims=True)).astype(np.float32)


def known(made, text):
    """A run that knows its lines, and has a copy of the file."""
    ops = [
        replace(op, source=(Frame("net.py", LINES[op.key.op], "forward"),), module="net")
        for op in made.ops
    ]
    found = in_memory(made.info, ops, [(t, made.values(t)) for t in made.tensors])
    found._source = lambda file: text
    return found


def reference():
    weights = softmax(X / 2)
    return known(
        run(
            ("div", "aten.div.Tensor", "", ("x",), X / 2),
            ("softmax", "aten.softmax.int", "", ("div",), weights),
            ("tanh", "aten.tanh.default", "", ("softmax",), np.tanh(weights)),
            inputs=[("x", X)],
        ),
        TEXT,
    )


def pairs(quotient, text=TEXT, stack=(2,)):
    """A kernel that scales, takes the exponential and divides, and shows the last of it."""
    target = run(
        ("scaled", "aten.exp.default", "", ("x",), np.exp(X / 2)),
        ("quotient", "aten.div.Tensor", "", ("x",), quotient),
        ("tanh", "aten.tanh.default", "", ("quotient",), np.tanh(quotient)),
        inputs=[("x", X)],
    )
    mine = known(target, text)
    frames = tuple(Frame("net.py", line, "forward") for line in stack)
    ops = [replace(op, source=frames) if op.key.op == "quotient" else op for op in mine.ops]
    again = in_memory(mine.info, ops, [(t, mine.values(t)) for t in mine.tensors])
    again._source = mine._source
    found = match(again, reference(), chain())
    outputs = [p for p in found.pairs if p.target.role is Role.OUTPUT]
    return {p.target.op.op: p.reference.op.op for p in outputs}


def test_a_quotient_of_another_line_is_no_scaling():
    broken = softmax(X / 2)
    broken[1] = np.nan
    assert pairs(broken) == {"tanh": "tanh"}


def test_a_line_that_calls_the_other_denies_nothing():
    """One side knows the line of the helper, the other that of its caller."""
    broken = softmax(X / 2)
    broken[1] = np.nan
    assert pairs(broken, stack=(1, 2))["quotient"] == "div"


def test_values_may_say_what_the_line_denies():
    assert pairs((X / 2).astype(np.float32))["quotient"] == "div"


@pytest.mark.parametrize("text", ["another text", None])
def test_lines_of_another_file_say_nothing(text):
    broken = softmax(X / 2)
    broken[1] = np.nan
    assert pairs(broken, text)["quotient"] == "div"
