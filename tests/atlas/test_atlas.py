"""Clean pairs of real architectures: nothing may be called wrong in them."""

import json
import os
from dataclasses import asdict

import pytest

from atlas import publish, runner
from atlas.architecture import HELD_OUT, SET_ASIDE_LATER, architectures
from atlas.runner import Outcome, compare_pair

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


THOROUGH_NAMES = (
    "diffusers/flux-transformer",
    "diffusers/prior-transformer",
    "diffusers/sana-transformer",
    "diffusers/sd3-transformer",
    "monai/autoencoder",
    "monai/resnet10",
    "pytorchcv/mobilenetv3",
    "pytorchcv/preresnet10",
    "torch/top-k-gather",
    "torch/transformer-encoder-layer",
    "transformers/gpt2",
    "transformers/llama-eager",
    "transformers/longt5",
    "transformers/qwen2",
    "transformers/roformer",
    "transformers/sam-encoder",
    "transformers/swiftformer",
    "transformers/timesformer",
    "transformers/wav2vec2",
    "x-transformers/decoder",
)
THOROUGH_KINDS = ("onnx-saved", "onnx-int8-dynamic", "inductor", "coreai")
THOROUGH = [(name, kind) for name in THOROUGH_NAMES for kind in THOROUGH_KINDS]
"""What `make test-all` compares besides."""


def test_every_held_out_architecture_is_declared():
    assert set(architectures()) >= HELD_OUT | SET_ASIDE_LATER
    assert not HELD_OUT & SET_ASIDE_LATER


@pytest.mark.parametrize("options", [[], ["--held-out"]], ids=["usual", "held-out"])
def test_held_out_architectures_are_run_only_on_request(options, tmp_path, monkeypatch):
    jobs = []
    monkeypatch.setattr(runner, "_run_jobs", lambda given, *_: jobs.extend(given) or ())
    runner.main([*options, "--out", str(tmp_path)])
    held_out = HELD_OUT | SET_ASIDE_LATER
    assert {name for name, _ in jobs} == (held_out if options else set(architectures()) - held_out)


def test_held_out_sets_are_published_apart(tmp_path):
    names = [*sorted(HELD_OUT)[:3], *sorted(SET_ASIDE_LATER)[:2]]
    outcomes = [asdict(Outcome(name, "onnx", verdict="close")) for name in names]
    (tmp_path / "onnx-held-out.json").write_text(json.dumps(outcomes))
    publish.main([tmp_path, tmp_path / "atlas.md"])
    usual, early, later = (tmp_path / "atlas.md").read_text().split("\n## ")[1:]
    assert "Not compared yet." in usual
    assert f"{len(HELD_OUT)} architectures" in early and "| `onnx` | 3 |" in early
    assert f"{len(SET_ASIDE_LATER)} architectures" in later and "| `onnx` | 2 |" in later


@pytest.mark.parametrize(("name", "kind"), QUICK, ids=["-".join(pair) for pair in QUICK])
def test_a_clean_pair_is_close(name, kind):
    outcome = compare_pair(name, kind, with_reach=False)
    assert not outcome.refused and not outcome.error
    assert not outcome.findings
    assert (outcome.verdict, outcome.exit_code) == ("close", 0), outcome.large + outcome.moderate


@pytest.mark.skipif(not os.environ.get("SYNCPOINT_LARGE"), reason="make test-all runs these")
@pytest.mark.parametrize(("name", "kind"), THOROUGH, ids=["-".join(pair) for pair in THOROUGH])
def test_nothing_is_called_wrong_in_a_clean_pair(name, kind):
    outcome = compare_pair(name, kind, with_reach=False)
    assert outcome.refused or outcome.is_right, outcome
