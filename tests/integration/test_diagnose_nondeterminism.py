"""A target that does not agree with itself is told from one that computes something else."""

import itertools

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
    assert any("once more" in e for e in found.diagnosis.experiments)


def test_self_noise_is_a_note_beside_a_greater_difference():
    found = sp.compare(Restless(make_cnn(), wrong=True).eval(), make_cnn(), inputs=cnn_inputs())
    assert [f.level for f in found.findings if f.cause == "nondeterminism"] in (["note"], [])


def test_nothing_is_run_again_where_all_is_close():
    found = sp.compare(make_cnn(), make_cnn(), inputs=cnn_inputs())
    assert found.diagnosis.experiments == () and found.findings == ()
