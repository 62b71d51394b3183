"""A target that does not agree with itself is told from one that computes something else."""

import itertools

import pytest
import torch
from torch import nn

import syncpoint as sp
from models.cnn import cnn_inputs, make_cnn

calls = itertools.count()


@torch.library.custom_op("syncpoint_tests::restless", mutates_args=())
def restless(x: torch.Tensor) -> torch.Tensor:
    """An op that is off by something else every time, as a race is."""
    made = torch.Generator().manual_seed(next(calls))
    return x * (1 + 1e-3 * torch.randn(x.shape, generator=made))


@restless.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("syncpoint_tests::unwritten", mutates_args=())
def unwritten(x: torch.Tensor) -> torch.Tensor:
    """An op that leaves a part of its result as it was, about the same each time."""
    found = x.clone()
    flat = found.view(-1)
    start = len(flat) * 3 // 4
    made = torch.Generator().manual_seed(next(calls))
    flat[start:] = 9 + 0.01 * torch.randn(len(flat) - start, generator=made)
    return found


@unwritten.register_fake
def _(x):
    return torch.empty_like(x)


class Unwritten(nn.Module):
    def __init__(self, unwritten=False):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 8)
        self.unwritten = unwritten

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(unwritten(x) if self.unwritten else x)


class Restless(nn.Module):
    def __init__(self, model, wrong=False):
        super().__init__()
        self.model = model
        self.wrong = wrong

    def forward(self, image):
        m = self.model
        x = torch.relu(m.bn(m.conv(image)))
        x = restless(x)
        x = m.block(m.pool(x))
        x = m.classifier(torch.flatten(x, 1))
        return x * 1.5 + x * x if self.wrong else x


def test_self_noise_is_the_cause_where_it_is_as_large_as_the_difference():
    found = sp.compare(Restless(make_cnn()).eval(), make_cnn(), inputs=cnn_inputs())
    first = found.findings[0]
    assert (first.cause, first.level) == ("nondeterminism", "cause")
    assert "restless" in first.ops[0]
    assert any("a second run of the target" in e for e in found.diagnosis.experiments)


def test_self_noise_is_a_note_beside_a_greater_difference():
    found = sp.compare(Restless(make_cnn(), wrong=True).eval(), make_cnn(), inputs=cnn_inputs())
    assert [f.level for f in found.findings if f.cause == "nondeterminism"] in (["note"], [])


def test_noise_beyond_all_rounding_is_the_cause_though_more_is_off_than_it():
    """What is in memory differs little from run to run, and much from what belongs there."""
    inputs = (torch.randn(8, 16, generator=torch.Generator().manual_seed(1)),)
    found = sp.compare(Unwritten(True).eval(), Unwritten().eval(), inputs=inputs)
    first = found.findings[0]
    assert (first.cause, first.level, first.ops) == ("nondeterminism", "cause", ("unwritten",))
    assert 0.8 <= first.confidence < 0.9 and first.rows == ()
    assert any("too small to explain the error" in said for said in first.evidence)


def test_nothing_is_run_again_where_all_is_close():
    found = sp.compare(make_cnn(), make_cnn(), inputs=cnn_inputs())
    assert found.diagnosis.experiments == () and found.findings == ()


class Noisy(nn.Module):
    """Draws random numbers, or drops, although it is used and not trained."""

    def __init__(self, drops):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.drops = nn.Linear(16, 32), nn.Linear(32, 16), drops

    def forward(self, x):
        x = torch.relu(self.first(x))
        if self.drops:
            return self.last(nn.functional.dropout(x, 0.3, training=True))
        return self.last(x + 0.1 * torch.randn(x.shape))


@pytest.mark.parametrize(("drops", "op"), [(False, "add"), (True, "dropout")])
def test_random_numbers_that_each_side_draws_are_named(drops, op):
    """Seeds are the same for both; what is made of them is each runtime's own."""
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    net = Noisy(drops)
    found = sp.compare(net, net, inputs=(x,), target_options={"runtime": "inductor"})
    first = found.findings[0]
    assert (first.cause, first.kind, first.level) == ("nondeterminism", "random", "cause")
    assert first.reference_ops[0] == op
    assert "each side draws its own" in first.title
    assert ("randn" if not drops else "dropout") in first.evidence[1]


def test_dropout_in_the_target_alone_says_what_to_call():
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    trained, used = Noisy(True), Noisy(True)
    used.forward = lambda x: used.last(torch.relu(used.first(x)))
    found = sp.compare(trained, used, inputs=(x,))
    first = found.findings[0]
    assert (first.cause, first.kind) == ("nondeterminism", "random")
    assert "in the target, not in the reference" in first.title and "eval()" in first.next
