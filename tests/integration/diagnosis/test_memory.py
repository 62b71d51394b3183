"""Values that were overwritten are told from ops that compute something else."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import syncpoint as sp
from syncpoint.run.model import OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import in_memory


class Net(nn.Module):
    def forward(self, x):
        a = torch.tanh(x)
        b = torch.sigmoid(a)
        return a * 2 + torch.exp(b)


X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def reference():
    return sp.capture(Net(), (X,))


def overwritten(reference, addresses=None, given=False):
    """The run of a target whose tanh was written over by its sigmoid before it was multiplied."""
    a = np.tanh(X.numpy())
    b = 1 / (1 + np.exp(-a))
    made = {"tanh": a, "sigmoid": b, "mul": 2 * b, "exp": np.exp(b), "add": 2 * b + np.exp(b)}
    kept = []
    for tensor in reference.tensors:
        array = np.array(reference.values(tensor))
        if tensor.key.role in (Role.OUTPUT, Role.MODEL_OUTPUT):
            array = made[tensor.key.op.op].astype(np.float32)
        more = {"digest": "", "digest_kind": ""}
        if addresses and tensor.key.role is Role.OUTPUT:
            more["address"] = addresses[tensor.key.op.op]
        kept.append((replace(tensor, **more), array))
    if given:
        key = TensorKey(OpKey("mul"), Role.INPUT, 0)
        values = b.astype(np.float32)
        kept.append((Tensor(key, "f32", values.shape, nbytes=values.nbytes), values))
    return in_memory(reference.info, reference.ops, kept)


def first(target, reference):
    found = sp.compare(target, reference).findings
    assert found[0].cause == "memory" and found[0].ops == ("mul", "tanh"), found
    assert found[0].confidence >= 0.9 and found[0].level == "cause"
    return found[0]


def test_an_op_that_read_what_was_written_later(reference):
    assert first(overwritten(reference), reference).kind == "overwritten"


def test_a_recorded_input_that_is_not_what_was_produced(reference):
    found = first(overwritten(reference, given=True), reference)
    assert "read differ by" in found.evidence[0]


class Sum(nn.Module):
    def forward(self, x):
        a = torch.tanh(x)
        return a + torch.sigmoid(a)


def test_an_op_that_reads_both_what_was_overwritten_and_what_overwrote_it():
    whole = sp.capture(Sum(), (X,))
    b = np.array(whole.values(whole.tensor(TensorKey(OpKey("sigmoid")))))
    kept = [
        (replace(t, digest="", digest_kind=""), b + b)
        if t.key.op.op == "add"
        else (t, np.array(whole.values(t)))
        for t in whole.tensors
    ]
    found = sp.compare(in_memory(whole.info, whole.ops, kept), whole).findings[0]
    assert (found.cause, found.kind, found.ops) == ("memory", "overwritten", ("add", "tanh"))
    assert found.confidence >= 0.9 and found.level == "cause"


def test_two_living_tensors_at_one_address(reference):
    places = {"tanh": 4096, "sigmoid": 4096, "mul": 8192, "exp": 12288, "add": 16384}
    found = first(overwritten(reference, places), reference)
    assert found.kind == "overlap" and "share 128 bytes" in found.evidence[0]


def test_a_net_that_is_wired_otherwise_is_no_fault_of_memory(reference):
    class Wired(nn.Module):
        def forward(self, x):
            a = torch.tanh(x)
            b = torch.sigmoid(a)
            return b * 2 + torch.exp(b)

    found = sp.compare(Wired(), reference, inputs=(X,)).findings
    assert not [f for f in found if f.cause == "memory"]


def test_memory_that_is_used_again_in_time_is_no_finding(reference):
    values = [(replace(t, address=4096), np.array(reference.values(t))) for t in reference.tensors]
    assert sp.compare(in_memory(reference.info, reference.ops, values), reference).findings == ()
