"""Recurrent layers of PyTorch against ONNX, which has one op for each layer and another layout."""

import copy
import io
import logging
import warnings
from contextlib import redirect_stdout
from functools import partial

import onnx
import pytest
import torch
from torch import nn

import syncpoint as sp
from models.recurrent import drop_start, make_recurrent, swap_directions, swap_gates
from syncpoint.comparison.findings import Level

WHOLE = {"batch_first": True, "bidirectional": True, "num_layers": 2}
FORMS = [
    ("LSTM", "yhc", WHOLE, "dynamo"),
    ("LSTM", "yhc", WHOLE, "legacy"),
    ("LSTM", "y", {"num_layers": 2}, "legacy"),
    ("LSTM", "c", {"bidirectional": True}, "legacy"),
    ("GRU", "yh", {"batch_first": True, "num_layers": 2}, "legacy"),
    ("GRU", "h", {"batch_first": True, "bidirectional": True}, "dynamo"),
    ("RNN", "yh", WHOLE, "legacy"),
]
OPS = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_tanh"}


def export(net, inputs, exporter="legacy"):
    """The model that an exporter of torch writes."""
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            if exporter == "dynamo":
                return torch.onnx.export(net, inputs, dynamo=True, verbose=False).model_proto
            file = io.BytesIO()
            torch.onnx.export(net, inputs, file, dynamo=False, opset_version=17)
            return onnx.load_from_string(file.getvalue())
    finally:
        logging.disable(logging.NOTSET)


def pairs_of(comparison):
    """By reference op, the rows of its outputs."""
    return {
        row.reference.label: row for row in comparison.rows if row.reference.key.role == "output"
    }


def assert_named_at(comparison, op):
    """The recurrent op is guilty, and no other op; no finding is certain of an untrue cause."""
    guilty = {row.reference.key.op.op for row in comparison.rows if row.guilty}
    assert guilty == {op}
    assert comparison.exit_code() == 1
    for finding in comparison.findings:
        assert finding.confidence < 0.9 or finding.cause == "weights", finding.title


@pytest.mark.parametrize(("kind", "uses", "options", "exporter"), FORMS)
def test_a_recurrent_layer_is_paired_with_its_export(kind, uses, options, exporter):
    net, inputs = make_recurrent(kind, uses, **options)
    comparison = sp.compare(export(net, inputs, exporter), net, inputs=inputs)
    assert str(comparison.verdict) == "close"
    assert not [f for f in comparison.findings if f.level is not Level.NOTE]
    assert not [row for row in comparison.rows if str(row.verdict) == "none"]
    rows, op = pairs_of(comparison), OPS[kind]
    for index, use in enumerate("yhc"):
        if use in uses:
            assert (f"{op}:{index}" if index else op) in rows
    assert rows[op].target.type == kind


@pytest.mark.parametrize(
    "plant",
    [
        partial(swap_gates, name="weight_ih_l0"),
        partial(swap_gates, name="bias_hh_l1"),
        swap_directions,
        drop_start,
    ],
    ids=["weight", "bias", "directions", "start"],
)
def test_a_fault_of_a_layer_is_named_there(plant):
    net, inputs = make_recurrent("LSTM", "yh", **WHOLE)
    faulty = copy.deepcopy(net)
    plant(faulty)
    comparison = sp.compare(export(faulty, inputs), net, inputs=inputs)
    assert_named_at(comparison, "lstm")


def edit_perm(graph):
    """Leave out the transposition of the last layer's directions."""
    node = next(
        n
        for n in reversed(graph.node)
        if n.op_type == "Transpose" and list(n.attribute[0].ints) == [0, 2, 1, 3]
    )
    node.attribute[0].ints[:] = [0, 1, 2, 3]


def edit_states(graph):
    """Join the states of the layers in the wrong order."""
    states = {o for n in graph.node if n.op_type in OPS for o in n.output[1:2]}
    node = next(n for n in graph.node if n.op_type == "Concat" and {*n.input} == states)
    node.input[:] = list(node.input)[::-1]


def edit_reset(graph):
    """Apply the reset gate before the matrix product."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "linear_before_reset":
                attribute.i = 0


@pytest.mark.parametrize(
    ("edit", "kind", "options", "exporter"),
    [
        (edit_perm, "LSTM", WHOLE, "dynamo"),
        (edit_perm, "GRU", {"bidirectional": True}, "dynamo"),
        (edit_states, "LSTM", WHOLE, "legacy"),
        (edit_reset, "GRU", WHOLE, "legacy"),
    ],
)
def test_a_fault_in_the_layout_of_a_result_is_named_at_the_layer(edit, kind, options, exporter):
    """Not at the linear layer that reads it."""
    net, inputs = make_recurrent(kind, "yh", **options)
    proto = export(net, inputs, exporter)
    edit(proto.graph)
    assert_named_at(sp.compare(proto, net, inputs=inputs), OPS[kind])


def test_the_form_with_one_op_for_each_layer_may_be_the_reference():
    net, inputs = make_recurrent("LSTM", "yhc", **WHOLE)
    faulty = copy.deepcopy(net)
    proto = export(net, inputs)
    arrays = tuple(x.numpy() for x in inputs)
    clean = sp.compare(net, proto, inputs=arrays)
    assert str(clean.verdict) == "close"
    assert {row.reference.type for row in clean.rows} >= {"LSTM", "Concat"}
    swap_gates(faulty, "weight_hh_l1")
    comparison = sp.compare(faulty, proto, inputs=arrays)
    large = [row for row in comparison.rows if str(row.verdict) == "large"]
    assert min(large, key=lambda row: row.target.order).target.key.op.op == "lstm"


class Several(nn.Module):
    """Two layers of one size in a row, and one beside them."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.beside = (
            nn.GRU(8, 8, num_layers=n, batch_first=True) for n in (2, 1, 1)
        )
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        y = self.second(self.first(x)[0])[0]
        return self.out(torch.cat([y, self.beside(x)[0]], dim=-1))


def test_layers_of_one_size_are_told_apart():
    torch.manual_seed(0)
    net, inputs = Several().eval(), (torch.randn(3, 5, 8),)
    faulty = copy.deepcopy(net)
    faulty.second.weight_hh_l0.data *= 1.5
    for model in (net, faulty):
        comparison = sp.compare(export(model, inputs), net, inputs=inputs)
        rows = pairs_of(comparison)
        assert [rows[op].target.type for op in ("gru", "gru_1", "gru_2")] == ["GRU"] * 3
        guilty = {row.reference.key.op.op for row in comparison.rows if row.guilty}
        assert guilty == ({"gru_1"} if model is faulty else set())


def quantize(model, folder):
    """The model with dynamically quantized weights, which its LSTM multiplies as 8-bit integers."""
    from onnxruntime.quantization import quantize_dynamic

    onnx.save(model, folder / "float.onnx")
    logging.disable(logging.CRITICAL)
    try:
        quantize_dynamic(folder / "float.onnx", folder / "int8.onnx")
    finally:
        logging.disable(logging.NOTSET)
    return onnx.load(folder / "int8.onnx")


def test_an_lstm_in_eight_bits_is_judged_by_its_grid(tmp_path):
    net, inputs = make_recurrent("LSTM", "yhc", batch_first=True, num_layers=2)
    model = quantize(export(net, inputs), tmp_path)
    assert "DynamicQuantizeLSTM" in {node.op_type for node in model.graph.node}
    comparison = sp.compare(model, net, inputs=inputs)
    assert str(comparison.verdict) == "close"
    assert not [f for f in comparison.findings if f.level is not Level.NOTE]


def test_a_wrong_scale_of_an_lstm_in_eight_bits_is_guilty(tmp_path):
    net, inputs = make_recurrent("LSTM", "y", batch_first=True)
    model = quantize(export(net, inputs), tmp_path)
    (lstm,) = (node for node in model.graph.node if node.op_type == "DynamicQuantizeLSTM")
    (scale,) = (tensor for tensor in model.graph.initializer if tensor.name == lstm.input[8])
    wrong = onnx.numpy_helper.to_array(scale) * 3
    scale.CopyFrom(onnx.numpy_helper.from_array(wrong, scale.name))
    comparison = sp.compare(model, net, inputs=inputs)
    assert comparison.exit_code() == 1
    assert "lstm" in {row.reference.key.op.op for row in comparison.rows if row.guilty}
