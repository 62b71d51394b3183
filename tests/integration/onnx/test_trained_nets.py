"""Trained nets out of the packages that carry them."""

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import syncpoint as sp
from helpers import onnx_exports
from helpers.matching_oracle import Twins, share_paired
from models.minilm import make_minilm, minilm_inputs
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Role


@cache
def minilm():
    return sp.capture(make_minilm(), minilm_inputs())


@cache
def exported(form):
    model = make_minilm() if form == "f32" else make_minilm().half()
    return onnx_exports.export(model, minilm_inputs())


@pytest.mark.parametrize("fusion", ["as-executed", "unfused"])
@pytest.mark.parametrize(("form", "tolerance"), [("f32", 1e-4), ("f16", 2e-2)])
def test_a_trained_encoder_is_close_and_what_has_an_equal_is_paired(form, tolerance, fusion):
    target = onnx_exports.run(exported(form), minilm_inputs(), fusion)
    assert target.info.observer.equal, target.info.observer.detail
    comparison = sp.compare(target, minilm())
    assert {r.verdict for r in comparison.rows} == {Verdict.CLOSE}, str(comparison)
    assert not [r for r in comparison.rows if r.guilty]
    twins = Twins(target, minilm(), tolerance)
    assert share_paired(comparison, twins) >= 0.95
    pairs = [
        (r.target.key, r.reference.key) for r in comparison.rows if r.target.key.role is Role.OUTPUT
    ]
    assert all(twins.together(*pair) is not False for pair in pairs)


def detector():
    """A net that finds text in images, with blocked channels all through."""
    package = importlib.util.find_spec("rapidocr_onnxruntime")
    assert package is not None and package.origin, "pip install --no-deps rapidocr-onnxruntime"
    return str(Path(package.origin).parent / "models" / "ch_PP-OCRv4_det_infer.onnx")


def test_nobody_is_guilty_in_a_trained_detector_as_executed():
    """Noise is no text: the detector's probabilities are then so small that rounding shows in
    them, which is `amplified`."""
    image = np.random.default_rng(0).uniform(-1, 1, (1, 3, 160, 160)).astype(np.float32)
    target = sp.capture(detector(), (image,))
    reference = sp.capture(detector(), (image,), fusion="unfused")
    comparison = sp.compare(target, reference)
    assert target.info.observer.equal
    assert comparison.verdict in ("close", "amplified"), str(comparison)
    assert not [r.target.label for r in comparison.rows if r.guilty]
    assert comparison.coverage.target == 1
