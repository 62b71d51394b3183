"""Wrong scales are told by their factor even where the integers that come of them end."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import syncpoint as sp
from models.cnn import cnn_inputs, make_cnn
from models.onnx_files import NETS, feeds, onnx_file

FACTOR = 1.95


def scaled(path, name):
    """The model with another scale of one weight."""
    model = onnx.load(path)
    scale = next(i for i in model.graph.initializer if i.name == name)
    off = (numpy_helper.to_array(scale) * FACTOR).astype(np.float32)
    scale.CopyFrom(numpy_helper.from_array(off, scale.name))
    return model


def test_a_wrong_scale_is_told_from_the_results_that_are_not_cut_off(tmp_path):
    """What stands for the first and the last integer is float32 by then."""
    model = scaled(onnx_file(tmp_path, "cnn", "qdq"), "classifier.weight_scale")
    target = sp.capture(model, feeds("cnn"), fusion="as-executed")
    values = {str(t.key): np.array(target.values(t)) for t in target.tensors}
    integers = values["linear_QuantizeLinear_Output"]
    assert (integers == 0).any() and (integers == 255).any()
    first = sp.compare(target, sp.capture(make_cnn(), cnn_inputs())).findings[0]
    assert (first.cause, first.kind, first.level) == ("precision", "scale", "cause")
    told = float(first.text.split(" is ")[1].split(" times")[0])
    assert told == pytest.approx(FACTOR, rel=0.02)


@pytest.mark.parametrize("layer", ["conv1", "layers.0.0.conv2", "layers.1.0.conv1"])
def test_a_relu_that_integers_stand_for_is_no_clipping_and_no_fault(tmp_path, layer):
    """Behind the wrong layer no values tell any more what was folded into what; that the integers
    of a fused convolution begin at zero does."""
    model = scaled(onnx_file(tmp_path, "resnet", "qdq"), f"{layer}.weight_scale")
    make, inputs = NETS["resnet"]
    target = sp.capture(model, feeds("resnet"), fusion="as-executed")
    comparison = sp.compare(target, sp.capture(make(), inputs()))
    assert len([row for row in comparison.rows if row.guilty]) == 1
    first, *others = comparison.findings
    assert (first.cause, first.kind, first.level) == ("precision", "scale", "cause")
    assert [f.title for f in others if f.level != "note"] == []
