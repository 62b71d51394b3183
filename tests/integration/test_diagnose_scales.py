"""Wrong scales are told by their factor even where the integers that come of them end."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import syncpoint as sp
from models.cnn import cnn_inputs, make_cnn
from models.onnx_files import feeds, onnx_file

FACTOR = 1.95


def test_a_wrong_scale_is_told_from_the_results_that_are_not_cut_off(tmp_path):
    """What stands for the first and the last integer is float32 by then."""
    model = onnx.load(onnx_file(tmp_path, "cnn", "qdq"))
    scale = next(i for i in model.graph.initializer if i.name == "classifier.weight_scale")
    off = (numpy_helper.to_array(scale) * FACTOR).astype(np.float32)
    scale.CopyFrom(numpy_helper.from_array(off, scale.name))
    target = sp.capture(model, feeds("cnn"), fusion="as-executed")
    values = {str(t.key): np.array(target.values(t)) for t in target.tensors}
    integers = values["linear_QuantizeLinear_Output"]
    assert (integers == 0).any() and (integers == 255).any()
    first = sp.compare(target, sp.capture(make_cnn(), cnn_inputs())).findings[0]
    assert (first.cause, first.kind, first.level) == ("precision", "scale", "cause")
    told = float(first.text.split(" is ")[1].split(" times")[0])
    assert told == pytest.approx(FACTOR, rel=0.02)
