"""ONNX files that are broken, or that mean harm: one line each, and nothing outside is read."""

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import syncpoint as sp
from syncpoint.errors import FormatError, InputError, SyncpointError

X = {"x": np.ones((2, 3), np.float32)}


def model_with(tensor=None, domain="", op="Add"):
    weight = numpy_helper.from_array(np.ones((2, 3), np.float32), "w") if tensor is None else tensor
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w"], ["y"], domain=domain)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [weight],
    )
    opsets = [helper.make_opsetid("", 21)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def outside(location="w.bin", offset="0", length="24", dims=(2, 3), kind=TensorProto.FLOAT):
    tensor = TensorProto(name="w", data_type=kind, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=value)
    return model_with(tensor)


def refused(path, error=SyncpointError):
    with pytest.raises(error) as raised:
        sp.capture(str(path), X)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file(tmp_path, share):
    whole = model_with().SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(whole[: int(share * len(whole))])
    refused(path)


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, b"import torch\n" * 20, b"PK\x03\x04" * 50, os.urandom(500)]
)
def test_what_is_no_onnx_file(tmp_path, content):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    assert "is not an ONNX model" in refused(path, FormatError)


def test_a_missing_file(tmp_path):
    assert "no such file" in refused(tmp_path / "none.onnx", InputError)


def test_an_op_of_an_unknown_domain(tmp_path):
    onnx.save(model_with(domain="elsewhere", op="Fancy"), tmp_path / "m.onnx")
    assert "elsewhere" in refused(tmp_path / "m.onnx", InputError)


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "/etc/passwd",
        "a/../../secret.bin",
        "..\\secret.bin",
        "C:\\x",
        "",
        "link.bin",
    ],
)
def test_weights_outside_the_folder_are_not_read(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\1" * 24)
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "m.onnx").write_bytes(outside(location).SerializeToString())
    assert "beside it" in refused(folder / "m.onnx", FormatError)


def test_missing_weights(tmp_path):
    (tmp_path / "m.onnx").write_bytes(outside().SerializeToString())
    message = refused(tmp_path / "m.onnx", InputError)
    assert "'w.bin'" in message
    assert "no such file" in message


@pytest.mark.parametrize(
    "said",
    [
        {"length": "25"},
        {"offset": "1"},
        {"offset": "-24"},
        {"length": "many"},
        {"dims": (2, -3)},
        {"dims": (1 << 40, 1 << 40)},
        {"length": "9" * 400},
    ],
)
def test_weights_that_are_not_there_in_full(tmp_path, said):
    (tmp_path / "w.bin").write_bytes(b"\0" * 24)
    (tmp_path / "m.onnx").write_bytes(outside(**said).SerializeToString())
    refused(tmp_path / "m.onnx", FormatError)


def test_a_tensor_that_says_it_is_huge(tmp_path):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 31, 1 << 31])
    tensor.raw_data = b"\0" * 16
    (tmp_path / "m.onnx").write_bytes(model_with(tensor).SerializeToString())
    refused(tmp_path / "m.onnx")


def test_metadata_that_is_no_list_is_passed_over(tmp_path):
    model = model_with()
    for key in ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"):
        for text in ("[" * 5000, "__import__('os').abort()", "{'a': 1}", "[1, 2]"):
            del model.graph.node[0].metadata_props[:]
            model.graph.node[0].metadata_props.add(key=key, value=text)
            onnx.save(model, tmp_path / "m.onnx")
            run = sp.capture(str(tmp_path / "m.onnx"), X)
            assert run.ops[0].module == ""


def test_a_provider_that_is_not_there(tmp_path):
    onnx.save(model_with(), tmp_path / "m.onnx")
    with pytest.raises(
        InputError, match=r"no execution provider 'Abacus'; choose one of these: .*CPUExecution"
    ):
        sp.capture(str(tmp_path / "m.onnx"), X, provider="Abacus")


# Sub-graphs inside sub-graphs: a small file, and twice as many of them with every level.

MEASURED = """
import resource, sys
import numpy as np
import syncpoint as sp
from syncpoint.errors import SyncpointError

peak = 0
for path in sys.argv[1:]:
    before, peak = peak, peak
    try:
        run = sp.capture(path, {"x": np.ones((2, 3), np.float32), "c": np.array(True)})
        print(len(run.ops), *run.info.notes, sep="; ")
    except SyncpointError as error:
        print(error)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(peak - before)
"""


def nested(depth):
    """`If` inside both branches of `If`, so deep."""
    value = helper.make_tensor_value_info("r0", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["r0"])], "g0", [], [value])
    for level in range(1, depth + 1):
        value = helper.make_tensor_value_info(f"r{level}", TensorProto.FLOAT, [2, 3])
        node = helper.make_node(
            "If", ["c"], [f"r{level}"], then_branch=graph, else_branch=graph, name=f"if{level}"
        )
        graph = helper.make_graph([node], f"g{level}", [], [value])
    graph.input.extend(
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_nested_sub_graphs_do_not_take_memory_without_end(tmp_path):
    depths = (3, 9, 14)
    paths = [str(tmp_path / f"{depth}.onnx") for depth in depths]
    for path, depth in zip(paths, depths, strict=True):
        onnx.save(nested(depth), path)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *paths], capture_output=True, text=True, check=True
    )
    whole, _, hidden, grown, refused, more = done.stdout.splitlines()
    assert whole == "4"
    assert hidden == "1; 1022 ops inside sub-graphs were not recorded: If r9"
    assert f"{paths[2]} has 32,766 sub-graphs (of If, Loop and Scan); at most 4,096" in refused
    # In kB. The file of 14 levels took 4.3 GB.
    assert int(grown) < 500_000 and int(more) < 200_000


def test_values_inside_a_few_levels_of_sub_graphs_are_recorded(tmp_path):
    onnx.save(nested(5), tmp_path / "m.onnx")
    run = sp.capture(str(tmp_path / "m.onnx"), {**X, "c": np.array(False)})
    assert [op.key.op for op in run.ops].count("r0") == 1
    inner = next(op.key for op in run.ops if op.key.op == "r0")
    assert inner.path.count("else_branch") == 5
