"""Clean pairs of real architectures: nothing may be called wrong in them."""

import pytest

from atlas.architecture import HELD_OUT, architectures
from atlas.runner import compare_pair

QUICK = (
    ("torch/lstm-batch-first", "onnx"),
    ("torch/multihead-attention-batch-first", "onnx"),
    ("torch/activations", "onnx"),
    ("transformers/bert", "onnx"),
    ("transformers/llama", "onnx-saved"),
    ("transformers/t5", "onnx-stripped"),
    ("transformers/convnext", "onnx"),
    ("x-transformers/rmsnorm", "onnx"),
    ("diffusers/dit-transformer-2d", "onnx"),
    ("x-transformers/rmsnorm", "onnx-int8-static"),
    ("monai/basic-unet", "onnx-f16"),
    ("transformers/gpt2", "bf16"),
)


def test_every_held_out_architecture_is_declared():
    assert set(architectures()) >= HELD_OUT


@pytest.mark.parametrize(("name", "kind"), QUICK, ids=["-".join(pair) for pair in QUICK])
def test_a_clean_pair_is_close(name, kind):
    outcome = compare_pair(name, kind, with_reach=False)
    assert not outcome.refused and not outcome.error
    assert not outcome.findings
    assert (outcome.verdict, outcome.exit_code) == ("close", 0), outcome.large + outcome.moderate
