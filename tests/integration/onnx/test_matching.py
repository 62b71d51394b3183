"""PyTorch against ONNX Runtime: fusion hides nothing, names are not needed, faults stay visible."""

import copy
import os
from functools import cache

import numpy as np
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

import syncpoint as sp
from helpers import onnx_exports
from helpers.matching_oracle import Twins, share_paired, stripped
from models import onnx_files
from models.resnet import make_resnet, resnet_inputs
from models.transformer import block_inputs, make_block
from syncpoint.comparison.measuring.worst_slices_and_notes import REORDERED_NOTE
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Role

NETS = {**onnx_files.NETS, "block": (make_block, block_inputs)}
TOLERANCE = {"f32": 1e-4, "f16": 2e-2}


@cache
def reference_of(net):
    make, inputs = NETS[net]
    return sp.capture(make(), inputs())


@cache
def exported(net, dtype):
    make, inputs = NETS[net]
    if net not in onnx_files.NETS:
        return export(make(), inputs(), dtype)
    args = inputs() if dtype == "f32" else halved(inputs())
    return onnx_files.exported(net, dtype == "f16").model_proto, args


@cache
def target_of(net, dtype, fusion):
    return onnx_exports.run(*exported(net, dtype), fusion)


@cache
def clean(net, dtype, fusion):
    """The comparison of a net with its export."""
    return sp.compare(target_of(net, dtype, fusion), reference_of(net))


def export(model, args, dtype="f32"):
    if dtype == "f16":
        model, args = model.half(), halved(args)
    return onnx_exports.export(model, args), args


def halved(args):
    return tuple(a.half() if a.is_floating_point() else a for a in args)


def op_pairs(comparison):
    return {
        (r.target.key, r.reference.key) for r in comparison.rows if r.target.key.role is Role.OUTPUT
    }


@pytest.mark.parametrize("fusion", ["unfused", "as-executed"])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("net", NETS)
def test_a_clean_conversion_is_close_and_what_has_an_equal_is_paired(net, dtype, fusion):
    target, reference = target_of(net, dtype, fusion), reference_of(net)
    comparison = clean(net, dtype, fusion)
    assert {r.verdict for r in comparison.rows} == {Verdict.CLOSE}
    assert {r.introduced_verdict for r in comparison.rows} <= {Verdict.CLOSE, Verdict.NONE}
    assert comparison.exit_code() == 0
    twins = Twins(target, reference, TOLERANCE[dtype])
    assert share_paired(comparison, twins) >= 0.95
    assert all(twins.together(t, r) is not False for t, r in op_pairs(comparison))


def test_a_resnet_of_full_size_is_close():
    model, args = make_resnet(), resnet_inputs(96)
    target = onnx_exports.run(*export(model, args), "as-executed")
    comparison = sp.compare(target, sp.capture(model, args), introduced="off")
    assert {r.verdict for r in comparison.rows} == {Verdict.CLOSE}
    assert comparison.coverage.target == 1


def test_the_report_names_what_was_folded_into_what():
    comparison = clean("cnn", "f32", "as-executed")
    said = {u.op: u.detail for u in comparison.unmatched if u.side == "reference"}
    conv = next(r.target for r in comparison.rows if r.reference.label == "relu").key.op
    assert said["conv2d"] == said["batch_norm"] == f"folded into {conv}"
    assert said["conv.weight"] == f"read by conv2d, folded into {conv}"
    assert said["bn.running_var"] == f"read by batch_norm, folded into {conv}"
    comparison = clean("transformer", "f32", "unfused")
    inside = [u for u in comparison.unmatched if u.side == "target" and u.type == "MatMul"]
    assert {u.detail for u in inside} == {
        f"inside linear{n}" for n in ["", *map("_{}".format, range(1, 8))]
    }


@pytest.mark.parametrize("fusion", ["torch", "unfused", "as-executed"])
@pytest.mark.parametrize("net", ["cnn", "resnet", "transformer"])
def test_pairs_are_found_again_without_names_and_in_another_order(net, fusion):
    reference = reference_of(net)
    if fusion == "torch":
        target = sp.capture(NETS[net][0](), NETS[net][1]())
    else:
        target = target_of(net, "f32", fusion)
    named = op_pairs(sp.compare(target, reference, introduced="off"))
    twins = Twins(target, reference, TOLERANCE["f32"])
    bare, before = stripped(target, seed=7)
    found = {(before[t], r) for t, r in op_pairs(sp.compare(bare, reference, introduced="off"))}
    assert [p for p in found - named if not twins.together(*p)] == []
    # Which of several tensors with the same numbers is paired does not matter.
    again = [r for t, r in found if (t, r) in named or twins.together(t, r)]
    assert len({r for _, r in named} & set(again)) >= 0.9 * len(named)


def without_relu(name):
    def edit(model):
        node = next(n for n in model.graph.node if name in n.output)
        assert node.op_type == "Relu"
        for other in model.graph.node:
            for i, read in enumerate(other.input):
                if read == name:
                    other.input[i] = node.input[0]
        model.graph.node.remove(node)

    return edit


def query_for_key(model):
    node = next(n for n in model.graph.node if n.op_type == "Split")
    node.output[0], node.output[1] = node.output[1], node.output[0]


def permuted_channels(model):
    order = torch.randperm(8, generator=torch.Generator().manual_seed(3))
    block = model.block
    block.conv1.weight.data = block.conv1.weight.data[order]
    for name in ("weight", "bias", "running_mean", "running_var"):
        getattr(block.bn1, name).data = getattr(block.bn1, name).data[order].clone()


def swapped_layers(model):
    first, second = model.layers
    first.mlp.up, second.mlp.up = second.mlp.up, first.mlp.up


def swapped_blocks(model):
    model.layers = torch.nn.ModuleList([model.layers[1], model.layers[0]])


def set_to(path, change):
    def edit(model):
        where, name = path.rsplit(".", 1)
        module = model.get_submodule(where)
        value = getattr(module, name)
        if isinstance(value, torch.nn.Parameter):
            value.data = change(value.data)
        else:
            setattr(module, name, change(value))

    return edit


FAULTS = {
    # name: net, change of the model, change of the graph, reference ops that may be blamed
    "missing relu before a pool": ("cnn", None, without_relu("relu"), {"relu"}),
    "missing relu between convolutions": ("cnn", None, without_relu("relu_1"), {"relu_1"}),
    "missing relu at the end": ("cnn", None, without_relu("relu_2"), {"relu_2"}),
    "permuted channels": ("cnn", permuted_channels, None, {"batch_norm_1"}),
    "batch norm epsilon": ("cnn", set_to("block.bn1.eps", lambda e: 0.1), None, {"batch_norm_1"}),
    "convolution x1.5": (
        "cnn",
        set_to("block.conv1.weight", lambda w: 1.5 * w),
        None,
        {"conv2d_1"},
    ),
    "missing bias of a folded convolution": (
        "cnn",
        set_to("conv.bias", torch.zeros_like),
        None,
        {"conv2d"},
    ),
    "weight x1.5": (
        "transformer",
        set_to("layers.0.mlp.up.weight", lambda w: 1.5 * w),
        None,
        {"linear_2"},
    ),
    "missing bias": (
        "transformer",
        set_to("layers.1.mlp.up.bias", torch.zeros_like),
        None,
        {"linear_6"},
    ),
    "layer norm epsilon": (
        "transformer",
        set_to("layers.1.mlp_norm.eps", lambda e: 0.3),
        None,
        {"layer_norm_3"},
    ),
    "swapped layers": ("transformer", swapped_layers, None, {"linear_2"}),
    "swapped blocks": ("transformer", swapped_blocks, None, {"layer_norm"}),
    "query for key": ("transformer", None, query_for_key, {"chunk", "view", "matmul"}),
}


IN_F16 = ("missing relu", "query for key", "permuted channels", "batch norm epsilon", "weight x1.5")
"""Exporting takes most of the time; `HYPOTHESIS_PROFILE=thorough` looks at all of them."""
CASES = [
    (fault, dtype)
    for fault in FAULTS
    for dtype in ("f32", "f16")
    if dtype == "f32"
    or fault.startswith(IN_F16)
    or os.environ.get("HYPOTHESIS_PROFILE", "default") != "default"
]


@cache
def faulty(fault, dtype):
    """The export of a net with a fault in its model or its graph, and its inputs."""
    net, change, edit, _ = FAULTS[fault]
    if change is None:
        proto, args = exported(net, dtype)
    else:
        model = NETS[net][0]()
        change(model)
        proto, args = export(model, NETS[net][1](), dtype)
    proto = copy.deepcopy(proto)
    if edit is not None:
        edit(proto)
    return proto, args


@pytest.mark.parametrize(("fault", "dtype"), CASES)
def test_a_fault_is_not_matched_away(fault, dtype):
    net, _, _, blamed = FAULTS[fault]
    proto, args = faulty(fault, dtype)
    for fusion in ("unfused", "as-executed"):
        run = onnx_exports.run(proto, args, fusion)
        targets = [run, stripped(run)[0]] if dtype == "f32" else [run]
        for target in targets:
            comparison = sp.compare(target, reference_of(net))
            assert comparison.verdict is Verdict.LARGE
            guilty = [
                set(r.introduced.region) or {str(r.reference.key.op)}
                for r in comparison.rows
                if r.introduced_verdict is Verdict.LARGE and r.verdict is Verdict.LARGE
            ]
            assert any(region & blamed for region in guilty), (fusion, guilty)


def test_permuted_channels_are_named():
    target = onnx_exports.run(*faulty("permuted channels", "f32"), "unfused")
    comparison = sp.compare(target, reference_of("cnn"))
    noted = {r.reference.label for r in comparison.rows if REORDERED_NOTE in r.notes}
    assert noted == {"batch_norm_1"}
    assert not any(REORDERED_NOTE in r.notes for r in clean("cnn", "f32", "unfused").rows)


class Unbound(nn.Module):
    """Query, key and value out of one product, taken apart by unbind."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        return nn.functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("fusion", ["as-executed", "unfused"])
def test_outputs_of_one_op_that_became_several_are_told_apart(tmp_path, fusion):
    torch.manual_seed(0)
    model, inputs = Unbound().eval(), (torch.randn(2, 5, 16),)
    path = tmp_path / "unbound.onnx"
    torch.onnx.export(model, inputs, dynamo=True, verbose=False).save(path)
    comparison = sp.compare(str(path), model, inputs=inputs, target_options={"fusion": fusion})
    assert comparison.verdict == "close", str(comparison)
    taken = {r.reference.key.index: r for r in comparison.rows if "unbind" in r.reference.type}
    assert sorted(taken) == [0, 1, 2]
    assert all(row.numbers["psnr"] > 100 for row in taken.values())


class Apart(nn.Module):
    """Query, key and value out of three products."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.query, self.key, self.value, self.out = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        batch, length, _ = x.shape
        x = self.norm(x)
        q, k, v = (
            layer(x).view(batch, length, 2, 8).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, 16))


def with_one_product(proto, order=(0, 1, 2), scales=(1, 1, 1), split=True):
    """The three products and sums as one of each, taken apart again; `order` is that of the parts
    in the weights."""
    proto = copy.deepcopy(proto)
    graph = proto.graph
    given = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    made = {name: node for node in graph.node for name in node.output}
    weights, biases, parts = [], [], ["linear", "linear_1", "linear_2"]
    for part in parts:
        total = made[part]
        product = made[next(name for name in total.input if name in made)]
        weights.append(given[product.input[1]])
        biases.append(given[next(name for name in total.input if name in given)])
        x = product.input[0]
        graph.node.remove(total)
        graph.node.remove(product)
    at = 1 + list(graph.node).index(made[x])
    constants = {
        "one.weight": np.concatenate([scales[i] * weights[i] for i in order], 1),
        "one.bias": np.concatenate([biases[i] for i in order]),
        "sizes": np.array([16, 16, 16]),
        "axis": np.array([2]),
        **{f"edge{n}": np.array([16 * n]) for n in range(4)},
    }
    graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in constants.items())
    nodes = [
        helper.make_node("MatMul", [x, "one.weight"], ["product"]),
        helper.make_node("Add", ["product", "one.bias"], ["one"]),
    ]
    if split:
        nodes.append(
            helper.make_node("Split", ["one", "sizes"], ["part0", "part1", "part2"], axis=2)
        )
    else:
        nodes += [
            helper.make_node("Slice", ["one", f"edge{n}", f"edge{n + 1}", "axis"], [f"part{n}"])
            for n in range(3)
        ]
    for offset, node in enumerate(nodes):
        graph.node.insert(at + offset, node)
    for node in graph.node:
        for i, name in enumerate(node.input):
            if name in parts:
                node.input[i] = f"part{parts.index(name)}"
    return proto


@cache
def apart():
    torch.manual_seed(0)
    model, inputs = Apart().eval(), (torch.randn(2, 5, 16),)
    return onnx_exports.export(model, inputs), inputs, sp.capture(model, inputs)


@pytest.mark.parametrize("fusion", ["as-executed", "unfused"])
@pytest.mark.parametrize("split", [True, False])
def test_merged_products_are_paired_by_slice(split, fusion):
    proto, inputs, reference = apart()
    run = onnx_exports.run(with_one_product(proto, split=split), inputs, fusion)
    for target in (run, stripped(run)[0]):
        comparison = sp.compare(target, reference)
        assert {r.verdict for r in comparison.rows} == {Verdict.CLOSE}
        assert share_paired(comparison, Twins(target, reference, TOLERANCE["f32"])) >= 0.95
        paired = {r.reference.label for r in comparison.rows}
        assert {"linear", "linear_1", "linear_2"} <= paired
        said = [u.detail for u in comparison.unmatched if u.side == "target"]
        assert "holds linear, linear_1 and linear_2, compared by slice" in said
    swapped = onnx_exports.run(with_one_product(proto, (1, 0, 2), split=split), inputs, fusion)
    scaled = with_one_product(proto, scales=(1, 1, 1.5), split=split)
    for wrong, blamed in (
        (swapped, {"view", "view_1", "matmul"}),
        (onnx_exports.run(scaled, inputs, fusion), {"linear_2"}),
    ):
        for target in (wrong, stripped(wrong)[0]):
            guilty = [r for r in sp.compare(target, reference).rows if r.guilty]
            regions = [set(r.introduced.region) or {r.reference.label} for r in guilty]
            assert regions and all(region & blamed for region in regions), regions


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_a_fused_op_that_names_its_activation_ends_there(scale):
    """A traced module has other names, so that structure has to tell."""
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Sigmoid(), nn.Linear(16, 4)]
    model, inputs = nn.Sequential(*layers, nn.ReLU()).eval(), (torch.randn(32, 8),)
    reference = sp.capture(torch.jit.trace(model, inputs), inputs)
    model[0].weight.data *= scale
    target = onnx_exports.run(onnx_exports.export(model, inputs), inputs, "as-executed")
    assert [op.attributes["activation"] for op in target.ops] == ["Relu", "Sigmoid", "Relu"]
    comparison = sp.compare(target, reference)
    made = [r for r in comparison.rows if r.target.key.role is Role.OUTPUT]
    assert {r.reference.type for r in made} == {"aten.relu.default", "aten.sigmoid.default"}
    assert [r.reference.label for r in made if r.guilty] == ([] if scale == 1 else ["relu"])
