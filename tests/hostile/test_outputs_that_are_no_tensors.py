"""Outputs of a model that are no tensors, lost, or empty: never forgotten, never a false alarm."""

import dataclasses

import pytest
import torch
from torch import nn

import syncpoint as sp


@dataclasses.dataclass
class Boxed:
    value: torch.Tensor


class Net(nn.Module):
    def __init__(self, result):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 3)
        self.result = result

    def forward(self, x):
        return self.result(self.linear(x))


X = (torch.ones(2, 3),)


def code(target, reference, **options):
    found = sp.compare(Net(target), Net(reference), inputs=X, introduced="off", **options)
    return found.exit_code(), found


@pytest.mark.parametrize("capture", ["auto", "dispatch"])
@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (lambda y: y.sum().item() * 2, lambda y: y.sum().item()),
        (lambda y: {"y": y, "label": "dog"}, lambda y: {"y": y, "label": "cat"}),
        (lambda y: (y, [1.0, 2.0]), lambda y: (y, [1.0, 4.0])),
        (lambda y: (y, 3), lambda y: (y,)),
        (Boxed, Boxed),
    ],
)
def test_an_output_that_is_no_tensor_and_differs_is_not_compared(wrong, right, capture):
    options = {"capture": capture}
    result, found = code(wrong, right, target_options=options, reference_options=options)
    assert result == 3
    assert any("not a tensor" in name for name in found.uncompared_outputs)


def test_equal_numbers_and_texts_are_no_obstacle():
    same = lambda y: {"y": y, "label": "cat", "k": 3, "score": 0.5, "nothing": None}  # noqa: E731
    assert code(same, same)[0] == 0


def test_an_output_that_is_empty_on_both_sides_is_no_obstacle():
    empty = lambda y: (y, y[y.new_zeros(2, dtype=torch.bool)])  # noqa: E731
    assert code(empty, empty)[0] == 0


def test_outputs_of_samples_that_a_run_lost_are_missed(tmp_path):
    class Dies(Net):
        calls = 0

        def forward(self, x):
            Dies.calls += 1
            if Dies.calls > 4:
                raise RuntimeError("gone")
            return super().forward(x)

    with pytest.raises(sp.api.SyncpointError):
        samples = [(torch.ones(2, 3) * i,) for i in range(6)]
        sp.capture(Dies(torch.relu), samples_of(samples, tmp_path), out=tmp_path / "a.run",
                   capture="dispatch")  # fmt: skip
    run = sp.open_run(tmp_path / "a.run")
    assert not run.info.complete and run.tensors
    found = sp.compare(run, sp.open_run(tmp_path / "a.run"), introduced="off")
    assert found.exit_code() == 3


def samples_of(samples, folder):
    import numpy as np

    place = folder / "samples"
    place.mkdir()
    for number, (x,) in enumerate(samples):
        np.savez(place / f"{number}.npz", x=x.numpy())
    return str(place)
