"""Faults in rotary positions, embeddings and gated layers are named."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import syncpoint as sp
from syncpoint.run.model import TensorKey

WIDTH, PLACES = 16, 6


class Net(nn.Module):
    def __init__(self, fault=""):
        super().__init__()
        self.fault = fault
        self.tokens = nn.Embedding(30, WIDTH)
        self.both = nn.Linear(WIDTH, 2 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def rotated(self, x):
        if self.fault == "neighbours":
            return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        a, b = x[..., : WIDTH // 2], x[..., WIDTH // 2 :]
        if self.fault == "no sign":
            return torch.cat([b, a], -1)
        if self.fault == "sign":
            return torch.cat([b, -a], -1)
        return torch.cat([-b, a], -1)

    def forward(self, ids):
        fault = self.fault
        x = self.tokens(ids + 1 if fault == "ids" else ids)
        start = 1 if fault == "position" else 0
        place = torch.arange(start, start + PLACES)
        angles = place[:, None] * 10000.0 ** (-torch.arange(WIDTH // 2) / (WIDTH // 2))
        angles = torch.cat([angles, angles], -1)
        cosine, sine = angles.cos(), angles.sin()
        if fault == "exchanged":
            cosine, sine = sine, cosine
        x = x * cosine + self.rotated(x) * sine
        gate, up = self.both(x).chunk(2, -1)
        if fault == "gate":
            gate, up = up, gate
        return self.out(functional.silu(gate) * up)


CASES = {
    "no sign": "sign-missing",
    # The sign is turned of what the reference leaves alone.
    "sign": "parts-exchanged",
    "neighbours": "rotation-interleaved",
    "exchanged": "sine-cosine-exchanged",
    "position": "position-offset",
    "ids": "index-offset",
    "gate": "parts-exchanged",
}


@pytest.mark.parametrize("fault", ["", *CASES])
def test_the_fault_is_named(fault):
    torch.manual_seed(0)
    reference, target = Net(), Net(fault)
    target.load_state_dict(reference.state_dict())
    ids = torch.randint(0, 28, (2, PLACES))
    found = sp.compare(target.eval(), reference.eval(), inputs=(ids,)).findings
    if not fault:
        assert [f.text for f in found if f.level != "note"] == []
        return
    assert (found[0].cause, found[0].kind) == ("implementation", CASES[fault]), [
        f.text for f in found
    ]
    assert found[0].confidence >= 0.9


def test_steps_that_are_each_paired_with_a_step_of_another_rotation_are_looked_at_together(
    tmp_path,
):
    """Of what the target turned only the negated part is recorded, and that is paired: what is put
    together of it is explained from what was there before."""
    torch.manual_seed(0)
    ids = torch.randint(0, 28, (2, PLACES))
    reference = sp.capture(Net().eval(), (ids,))
    (cat,) = (o for o in reference.ops if "cat" in o.type and o.inputs[0].op.op.startswith("neg"))
    (rows,) = (o.key for o in reference.ops if o.type == "aten.embedding.default")
    x = np.array(reference.values(reference.tensor(TensorKey(rows))))
    turned = Net("neighbours").rotated(torch.from_numpy(x)).numpy()
    values = {rows: x, cat.inputs[0].op: -x[..., 1::2], cat.key: turned}
    np.savez(tmp_path / "target.npz", **{str(key): value for key, value in values.items()})
    found = sp.compare(tmp_path / "target.npz", reference).findings
    told = [f for f in found if f.cause == "implementation"]
    assert {f.kind for f in told} == {"rotation-interleaved"}, [f.text for f in told]
    assert str(cat.key) in {op for f in told for op in f.ops}
