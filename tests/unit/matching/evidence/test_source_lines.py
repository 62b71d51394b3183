"""Source lines that contradict a pair of small ops."""

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


def with_lines(plain_run, text):
    """A run that records its lines and has a copy of the file."""
    ops = [
        replace(op, source=(Frame("net.py", LINES[op.key.op], "forward"),), module="net")
        for op in plain_run.ops
    ]
    run_with_lines = in_memory(
        plain_run.info, ops, [(t, plain_run.values(t)) for t in plain_run.tensors]
    )
    run_with_lines._source = lambda file: text
    return run_with_lines


def reference():
    weights = softmax(X / 2)
    return with_lines(
        run(
            ("div", "aten.div.Tensor", "", ("x",), X / 2),
            ("softmax", "aten.softmax.int", "", ("div",), weights),
            ("tanh", "aten.tanh.default", "", ("softmax",), np.tanh(weights)),
            inputs=[("x", X)],
        ),
        TEXT,
    )


def pairs(quotient, text=TEXT, stack=(2,)):
    """A kernel that scales, takes the exponential and divides, and shows the last step."""
    target = run(
        ("scaled", "aten.exp.default", "", ("x",), np.exp(X / 2)),
        ("quotient", "aten.div.Tensor", "", ("x",), quotient),
        ("tanh", "aten.tanh.default", "", ("quotient",), np.tanh(quotient)),
        inputs=[("x", X)],
    )
    target_run = with_lines(target, text)
    frames = tuple(Frame("net.py", line, "forward") for line in stack)
    ops = [replace(op, source=frames) if op.key.op == "quotient" else op for op in target_run.ops]
    final_run = in_memory(
        target_run.info, ops, [(t, target_run.values(t)) for t in target_run.tensors]
    )
    final_run._source = target_run._source
    matching = match(final_run, reference(), chain())
    outputs = [p for p in matching.pairs if p.target.role is Role.OUTPUT]
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
