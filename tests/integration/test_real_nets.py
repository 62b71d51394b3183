"""Trained nets out of a package: on demand, see CONTRIBUTING.md."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

import syncpoint as sp

pytestmark = pytest.mark.skipif(
    os.environ.get("SYNCPOINT_REAL_NETS") != "1", reason="SYNCPOINT_REAL_NETS=1 asks for it"
)
NETS = {
    "ch_PP-OCRv4_det_infer": (1, 3, 160, 160),
    "ch_PP-OCRv4_rec_infer": (1, 3, 48, 160),
    "ch_ppocr_mobile_v2.0_cls_infer": (1, 3, 48, 192),
}


def net(name):
    found = importlib.util.find_spec("rapidocr_onnxruntime")
    assert found, "pip install --no-deps rapidocr-onnxruntime==1.4.4"
    return str(Path(found.origin).parent / "models" / f"{name}.onnx")


MOVED = "transposes moved past slices and blocks of channels past reshapes are not undone yet"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            n, marks=pytest.mark.xfail(reason=MOVED, strict=True) if "det" not in n else ()
        )
        for n in NETS
    ],
)
def test_nobody_is_guilty_in_a_trained_net_as_executed(name):
    """Noise is no text: the detector's probabilities are then so small that rounding shows in
    them, which is `amplified`."""
    image = np.random.default_rng(0).uniform(-1, 1, NETS[name]).astype(np.float32)
    target = sp.capture(net(name), (image,))
    reference = sp.capture(net(name), (image,), fusion="unfused")
    comparison = sp.compare(target, reference)
    print(f"\n{name}: {comparison!r}, {comparison.coverage.as_dict()}")
    assert target.info.observer.equal
    assert comparison.verdict in ("close", "amplified"), str(comparison)
    assert not [r.target.label for r in comparison.rows if r.guilty]
    assert comparison.coverage.target > 0.9
