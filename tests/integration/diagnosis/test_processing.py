"""What is done before and after the model is found, and told apart from the model's own faults."""

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import syncpoint as sp
from helpers.commands import syncpoint
from models.cnn import cnn_inputs, make_cnn
from models.transformer import make_transformer, transformer_inputs
from syncpoint.cli.app import app
from syncpoint.errors import InputError


class Then(nn.Module):
    """A model and what is done to its output."""

    def __init__(self, model, act):
        super().__init__()
        self.model = model
        self.act = act

    def forward(self, image):
        return self.act(self.model(image))


@pytest.fixture(scope="module")
def images():
    return sp.capture(make_cnn(), cnn_inputs())


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("scale", lambda x: x / 255),
        ("channel-order", lambda x: x.flip(1)),
        ("shift", lambda x: x.roll(1, -1)),
        ("rounded", lambda x: x.half().float()),
        ("normalisation", lambda x: (x - 0.5) / 0.5),
        ("input", lambda x: torch.randn(x.shape, generator=torch.Generator().manual_seed(5))),
    ],
)
def test_inputs_that_differ_come_first(images, kind, change):
    target = sp.capture(make_cnn(), (change(cnn_inputs()[0]),))
    found = sp.compare(target, images).findings
    assert (found[0].cause, found[0].kind, found[0].level) == ("processing", kind, "cause")
    assert found[0].ops[0] == "image" and found[0].confidence >= 0.9
    assert not [f for f in found[1:] if f.level == "cause"]


def test_tokens_off_by_one_are_named():
    (ids,) = transformer_inputs()
    model = make_transformer()
    target = sp.capture(model, (ids + 1,) if int(ids.max()) < 90 else (ids - 1,))
    first = sp.compare(target, sp.capture(model, (ids,))).findings[0]
    assert (first.cause, first.kind) == ("processing", "off-by-one")


@pytest.mark.parametrize(
    ("kind", "act"),
    [
        ("softmax", lambda y: torch.softmax(y, -1)),
        ("log-softmax", lambda y: torch.log_softmax(y, -1)),
        ("label-order", lambda y: y[:, [1, 0, *range(2, 10)]]),
        ("scaled", lambda y: y / 0.7),
    ],
)
def test_what_was_done_to_the_output_comes_first(images, kind, act):
    found = sp.compare(Then(make_cnn(), act).eval(), images, inputs=cnn_inputs()).findings
    assert (found[0].cause, found[0].kind) == ("processing", kind)
    assert found[0].confidence >= 0.9


def test_clean_inputs_are_no_finding(images):
    found = sp.compare(make_cnn(), images, inputs=cnn_inputs()).findings
    assert not [f for f in found if f.cause == "processing"]


def test_two_pipelines_on_one_raw_sample(tmp_path, images):
    comparison = tmp_path / "same.cmp"
    sp.compare(make_cnn(), images, inputs=cnn_inputs(), out=comparison)
    rng = np.random.default_rng(0)
    np.save(tmp_path / "raw.npy", rng.integers(0, 256, (16, 16, 3)).astype(np.uint8))
    (tmp_path / "ours.py").write_text(
        "def f(raw):\n    return {'image': raw[..., ::-1].transpose(2, 0, 1)[None] / 255}\n"
    )
    (tmp_path / "theirs.py").write_text(
        "def g(raw):\n    return {'image': raw.transpose(2, 0, 1)[None].astype('float32') / 255}\n"
        "def broken(raw):\n    raise KeyError('no such key')\n"
    )
    ours, theirs = f"{tmp_path / 'ours.py'}:f", f"{tmp_path / 'theirs.py'}:g"
    raw = ["--raw", str(tmp_path / "raw.npy")]
    said = CliRunner().invoke(
        app, ["diagnose", str(comparison), "--preprocess", ours, "--preprocess", theirs, *raw]
    )
    assert "red and blue swapped" in said.output, said.output
    found = sp.diagnose(comparison, preprocess=(ours, ours), raw=tmp_path / "raw.npy").findings
    assert [f.level for f in found if f.cause == "processing"] == ["note"]
    with pytest.raises(InputError, match="no such key"):
        sp.diagnose(comparison, preprocess=(ours, theirs[:-1] + "broken"), raw=raw[1])
    said = CliRunner().invoke(app, ["diagnose", str(comparison), "--preprocess", ours])
    assert said.exit_code != 0


def test_an_image_without_pillow_or_that_is_none_is_one_line(tmp_path):
    from syncpoint.diagnosis.processing.pipelines import load_raw_sample
    from syncpoint.errors import SyncpointError

    (tmp_path / "x.png").write_bytes(b"not an image")
    with pytest.raises(SyncpointError) as error:
        load_raw_sample(tmp_path / "x.png")
    assert "\n" not in str(error.value)


def test_models_that_agree_and_pipelines_that_do_not_are_the_symptom(tmp_path):
    found = sp.diagnose(
        sp.compare(*([sp.capture(make_cnn(), cnn_inputs())] * 2)),
        preprocess=(lambda x: x / 255, lambda x: x),
        raw=np.arange(48.0).reshape(1, 3, 4, 4),
    )
    assert found.diagnosis.symptom == "the models agree, what is done around them does not"
    assert found.findings[0].cause == "processing" and "input 0" in found.findings[0].next


@pytest.mark.parametrize("wrong", ["raw", "function", "target-model", "other", "set"])
def test_what_was_asked_for_by_name_and_cannot_be_done_is_an_error(tmp_path, wrong):
    path, models = tmp_path / "same.cmp", tmp_path / "models.py"
    models.write_text(
        "import torch\n"
        "net, other = torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Tanh())\n"
        "def boom(sample):\n    return 1 / 0\n"
    )
    x = torch.ones(2, 4)
    sp.compare(str(models) + ":net", str(models) + ":net", inputs=(x,), out=path, store=path)
    np.save(tmp_path / "raw.npy", np.ones(3))
    boom = ["--preprocess", f"{models}:boom"] * 2
    said, expected = {
        "raw": ([*boom, "--raw", str(tmp_path / "none.npy")], "no such file for the raw sample"),
        "function": ([*boom, "--raw", str(tmp_path / "raw.npy")], "division by zero"),
        "target-model": (["--target-model", str(tmp_path / "no.py") + ":x"], "no.py"),
        "other": (["--target-model", f"{models}:other"], "only 0 of the 1 ops"),
        "set": (["--target-set", "foo=1"], "--target-set needs --target-model"),
    }[wrong]
    done = syncpoint("diagnose", path, *said, cwd=tmp_path, code=2)
    assert expected in done.stderr and len(done.stderr.strip().splitlines()) == 1
