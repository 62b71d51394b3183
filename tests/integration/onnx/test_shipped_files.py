"""The files in which one trained net ships, with no names in common: a TorchScript that hides its
state and ONNX files with `If`, inlined, with other opsets, and with an LSTM or its steps."""

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import syncpoint as sp
from atlas.exhaustive import reach

silero_vad = pytest.importorskip("silero_vad")

FOLDER = Path(silero_vad.__file__).parent / "data"
WITH_IF, OPSET_15, SEQUENCE = "silero_vad", "silero_vad_16k_op15", "silero_vad_16k_sequence"
SPELLED_OUT, INLINED = "silero_vad_op18_ifless", "silero_vad_openvino_16k"
FILES = [WITH_IF, OPSET_15, SEQUENCE, SPELLED_OUT, INLINED]
SCRIPT = FOLDER / "silero_vad.jit"


def voice():
    time = np.arange(512) / 16000
    tones = sum(a * np.sin(2 * np.pi * f * time) for a, f in ((0.3, 140), (0.2, 700), (0.1, 1220)))
    return (tones + 0.02 * np.random.default_rng(0).standard_normal(512)).astype("f4")[None]


def inputs_of(name, starts_at_zero=True):
    """The inputs of a file: the context that TorchScript hides is zero in front of the voice."""
    state = np.random.default_rng(1).standard_normal((2, 1, 128)).astype("f4") * 0.3
    state = np.zeros_like(state) if starts_at_zero else state
    padded = np.pad(voice(), ((0, 0), (64, 0)))
    if name == SEQUENCE:
        return {"input": padded, "h": state[:1], "c": state[1:]}
    inputs = {"input": padded, "state": state}
    return inputs if name == INLINED else {**inputs, "sr": np.array(16000)}


@cache
def captured(name, starts_at_zero=True):
    if name == "script":
        return sp.capture(SCRIPT, {"x": voice(), "sr": np.array(16000)})
    return sp.capture(FOLDER / f"{name}.onnx", inputs_of(name, starts_at_zero))


def check_clean(target, reference):
    comparison = sp.compare(target, reference)
    assert not [row for row in comparison.rows if row.verdict.value in ("large", "inherited")]
    assert not [finding for finding in comparison.findings if finding.level != "note"]
    assert reach(comparison, target, reference).share >= 0.9
    return comparison


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_close_to_the_script(name):
    comparison = check_clean(captured(name), captured("script"))
    assert any(row.target.key.role == "model-output" for row in comparison.rows)


@pytest.mark.parametrize(
    ("target", "reference"),
    [
        (WITH_IF, SPELLED_OUT),
        (SPELLED_OUT, INLINED),
        (OPSET_15, WITH_IF),
        (INLINED, OPSET_15),
        (SEQUENCE, SPELLED_OUT),
        (SEQUENCE, WITH_IF),
    ],
)
def test_two_files_are_close_to_each_other(target, reference):
    check_clean(captured(target, False), captured(reference, False))


def change_constant(name, suffix, path):
    """The file with noise on the constant whose name ends so, also inside of branches."""
    model = onnx.load(FOLDER / f"{name}.onnx")

    def graphs(graph):
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    yield from graphs(attribute.g)

    tensors = [t for g in graphs(model.graph) for t in g.initializer if t.name.endswith(suffix)]
    for graph in graphs(model.graph):
        for node in graph.node:
            if node.op_type == "Constant" and node.output[0].endswith(suffix):
                tensors.append(node.attribute[0].t)
    for tensor in tensors:
        values = numpy_helper.to_array(tensor)
        noise = np.random.default_rng(5).standard_normal(values.shape) * np.abs(values).mean() / 5
        tensor.CopyFrom(numpy_helper.from_array((values + noise).astype("f4"), tensor.name))
    assert tensors
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    ("name", "suffix", "reference", "op"),
    [
        (WITH_IF, "encoder.3.reparam_conv.bias", "script", "relu_3"),
        (OPSET_15, "encoder.3.reparam_conv.weight", "script", "relu_3"),
        (INLINED, "stft.forward_basis_buffer", "script", "convolution"),
        (SPELLED_OUT, "rnn.weight_ih", "script", "addmm_1"),
        (SEQUENCE, "encoder.3.bias", WITH_IF, "encoder/3/activation/Relu_output_0"),
        (WITH_IF, "decoder.decoder.2.weight", SPELLED_OUT, "sigmoid_3"),
    ],
)
def test_a_changed_constant_is_found_at_its_op(tmp_path, name, suffix, reference, op):
    starts_at_zero = reference == "script"
    path = change_constant(name, suffix, tmp_path / "changed.onnx")
    target = sp.capture(path, inputs_of(name, starts_at_zero))
    comparison = sp.compare(target, captured(reference, starts_at_zero))
    assert comparison.verdict.value == "large"
    assert any(row.reference.label.endswith(op) for row in comparison.first_divergence)
