"""Folders for Core AI's tools, held against what those tools write and read themselves."""

from __future__ import annotations

import copy
import json
import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import syncpoint as sp
from helpers.commands import syncpoint
from helpers.paths import ROOT, TESTS
from models.cnn import cnn_inputs, make_cnn
from models.gpt import make_small_gpt, small_gpt_inputs
from models.mixed import make_mixed, mixed_inputs
from models.nested import make_nested, nested_inputs
from models.onnx_files import quiet
from models.resnet import make_small_resnet, small_resnet_inputs
from models.several import make_several, several_inputs
from models.transformer import make_transformer, transformer_inputs
from syncpoint.dumps.save_dump import save_dump
from syncpoint.errors import CaptureError, InputError, MissingExtra
from syncpoint.intermediates.run_nodes import unpack_weight
from syncpoint.run.array_bytes import to_bytes
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Role
from syncpoint.runtimes.inputs.read_inputs import read_recorded_inputs

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from coreai_torch import TorchConverter, get_decomp_table
    from coreai_torch._compression._intx import UintxTensor
    from coreai_torch.debugging import torch_utils as apple

NETS = {
    "cnn": (make_cnn, cnn_inputs),
    "resnet": (make_small_resnet, small_resnet_inputs),
    "transformer": (make_transformer, transformer_inputs),
    "gpt": (make_small_gpt, small_gpt_inputs),
    "mixed": (make_mixed, mixed_inputs),
    "several": (make_several, several_inputs),
    "nested": (make_nested, nested_inputs),
}
MANY = ("cnn", "transformer", "mixed", "several", "nested")
CONVERTED = ("cnn", "resnet", "transformer", "gpt")
FILTERS = {"default": apple._default_node_filter, "all": lambda node, result: True}


class Regions(torch.nn.Module):
    """Graphs inside the graph."""

    def forward(self, x):
        with torch.no_grad():
            y = torch.sin(x) * 2
        return torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (y,)) * x


class Exported:
    def __init__(self, name: str) -> None:
        make, inputs = NETS[name]
        given = inputs()
        named = isinstance(given[-1], dict)
        self.model = make()
        self.args, self.kwargs = given if named else (given, {})
        self.flat = (*self.args, *self.kwargs.values())
        self.converted = None
        with quiet():
            self.program = torch.export.export(self.model, self.args, self.kwargs)
            if name in CONVERTED:
                self.program = self.program.run_decompositions(get_decomp_table())
                self.converted = (
                    TorchConverter().add_exported_program(copy.deepcopy(self.program)).to_coreai()
                )

    def by_apple(self, folder: Path, node_filter="all", **options) -> Path:
        # Theirs leaves the new values in the buffers of the program.
        program = copy.deepcopy(self.program)
        made = apple.save_intermediates(program, self.flat, folder, FILTERS[node_filter], **options)
        return Path(made).parent

    def by_us(self, folder: Path, **options) -> Path:
        return Path(sp.save_intermediates(self.program, self.flat, folder, **options)).parent


@pytest.fixture(scope="module")
def nets():
    made: dict[str, Exported] = {}

    def get(name: str) -> Exported:
        if name not in made:
            made[name] = Exported(name)
        return made[name]

    return get


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.mark.parametrize("node_filter", FILTERS)
@pytest.mark.parametrize("name", NETS)
def test_with_a_filter_every_byte_is_that_of_apples_writer(nets, tmp_path, name, node_filter):
    net = nets(name)
    for converted in {None, net.converted}:
        where = tmp_path / str(converted is None)
        theirs = net.by_apple(where / "a", node_filter, coreai_program=converted)
        ours = net.by_us(where / "b", node_filter=FILTERS[node_filter], coreai_program=converted)
        assert ours.name == "main.aimodelintermediates"
        assert files(ours) == files(theirs)
        assert len(files(ours)) > 5


def test_options_reach_the_run_as_they_do_in_apples_writer(nets, tmp_path):
    net = nets("cnn")
    for options in ({"enable_autocast": True}, {"model_name": "the net"}):
        where = tmp_path / next(iter(options))
        theirs = net.by_apple(where / "a", "default", **options)
        ours = net.by_us(where / "b", node_filter=FILTERS["default"], **options)
        assert files(ours) == files(theirs)
    assert ours.name == "the net.aimodelintermediates"


def test_what_numpy_cannot_hold_is_left_out_and_its_number_stays_unused(tmp_path):
    class Eighth(torch.nn.Module):
        def forward(self, x):
            return x.to(torch.float8_e5m2).float() * torch.complex(x, x).conj().real

    given = (torch.linspace(-2, 2, 7),)
    with quiet():
        program = torch.export.export(Eighth(), given)
    theirs = apple.save_intermediates(program, given, tmp_path / "a", FILTERS["all"])
    ours = sp.save_intermediates(program, given, tmp_path / "b", FILTERS["all"])
    assert files(Path(ours).parent) == files(Path(theirs).parent)
    numbers = [int(name[-8:-4]) for name in files(Path(ours).parent) if name.endswith(".npy")]
    assert sorted(numbers) != list(range(len(numbers)))
    run = sp.open_run(Path(sp.save_intermediates(program, given, tmp_path / "c")).parent)
    narrow = next(t for t in run.tensors if t.dtype == "f8_e5m2")
    np.testing.assert_array_equal(
        run.values(narrow).astype(np.float32), given[0].to(torch.float8_e5m2).float().numpy()
    )


@pytest.mark.parametrize("name", NETS)
def test_apples_folders_hold_the_values_that_numpy_loads(nets, tmp_path, name):
    folder = nets(name).by_apple(tmp_path, coreai_program=nets(name).converted)
    run = sp.open_run(folder)
    body = json.loads((folder / "metadata.json").read_text())
    entries = {**body["inputs"], **body["outputs"], **body["intermediates"]}
    held = {t.shard: t for t in run.tensors}
    assert held.keys() == {entry["data_file"] for entry in entries.values()}
    for file, tensor in held.items():
        loaded = np.load(folder / file)
        assert tensor.shape == loaded.shape
        np.testing.assert_array_equal(run.values(tensor), loaded)
        flat = loaded.reshape(-1)
        np.testing.assert_array_equal(
            run.window(tensor, flat.size // 3, flat.size), flat[flat.size // 3 :]
        )
    roles = {role: [t for t in run.tensors if t.key.role is role] for role in Role}
    assert [t.name for t in roles[Role.MODEL_INPUT]] == list(body["inputs"])
    targets = {e["node_target"] for e in entries.values() if e["node_op"] == "get_attr"}
    assert {t.key.op.op for t in roles[Role.PARAMETER]} == targets
    numbers = [int(run.tensor(t.key).shard[-8:-4]) for t in roles[Role.OUTPUT]]
    assert numbers == sorted(numbers)
    assert [op.key.op for op in run.ops] == [t.key.op.op for t in roles[Role.OUTPUT]]
    for op in run.ops:
        assert op.type in (entries[op.key.op]["node_target"], "getitem")


def test_what_core_ai_made_of_a_node_is_kept_as_an_attribute(nets, tmp_path):
    net = nets("gpt")
    run = sp.open_run(net.by_apple(tmp_path, coreai_program=net.converted))
    theirs = apple.get_torch_to_coreai_output_mapping(net.converted)
    mapped = [op for op in run.ops if "coreai_outputs" in op.attributes]
    known = [op for op in mapped if op.key.op in theirs]
    assert len(known) > 20
    for op in known:
        row = theirs[op.key.op]
        expected = [row.source_output, row.target_op_id, row.target_output]
        assert expected in op.attributes["coreai_outputs"], op.key


@pytest.mark.parametrize("name", CONVERTED)
def test_every_node_that_core_ai_knows_has_its_value_in_the_complete_form(nets, tmp_path, name):
    """Apple's filter leaves out more than half of them in a transformer."""
    net = nets(name)
    mapped = apple.get_torch_to_coreai_output_mapping(net.converted)
    trace = apple.load_intermediates(net.by_us(tmp_path, coreai_program=net.converted))
    assert mapped.keys() <= trace.outputs.keys() | trace.intermediates.keys()


@pytest.mark.parametrize("name", MANY)
def test_the_complete_form_has_all_that_apples_has_and_loads_in_apples_loader(nets, tmp_path, name):
    net = nets(name)
    theirs = apple.load_intermediates(net.by_apple(tmp_path / "a", coreai_program=net.converted))
    ours = apple.load_intermediates(net.by_us(tmp_path / "b", coreai_program=net.converted))
    assert ours.mappings == theirs.mappings
    for category in ("inputs", "outputs", "intermediates"):
        mine, other = getattr(ours, category), getattr(theirs, category)
        assert other.keys() <= mine.keys()
        for key, value in other.items():
            assert torch.equal(mine[key].to(value.dtype), value), key
    assert ours.outputs.keys() == theirs.outputs.keys()


@pytest.mark.parametrize("name", MANY)
def test_the_complete_form_is_the_run_that_a_capture_records(nets, tmp_path, name):
    """By names and values; a capture makes in-place ops functional first."""
    net = nets(name)
    captured = sp.capture(net.program, (net.args, net.kwargs) if net.kwargs else net.args)
    run = sp.open_run(net.by_us(tmp_path))
    made = {t.key: t for t in run.tensors}
    compared = 0
    for tensor in captured.tensors:
        found = made.get(tensor.key)
        if found is None:
            assert name == "mixed", tensor.key
            continue
        compared += 1
        assert (found.dtype, found.shape, found.name) == (tensor.dtype, tensor.shape, tensor.name)
        raw = [
            to_bytes(r.values(t), DTYPES[t.dtype]).tobytes()
            for r, t in ((run, found), (captured, tensor))
        ]
        assert raw[0] == raw[1], tensor.key
    assert compared > 5
    for op in captured.ops:
        found = run.op(op.key)
        if found is not None:
            assert (found.type, found.module, found.source) == (op.type, op.module, op.source)
            assert found.inputs == op.inputs or name == "mixed"


def test_outputs_keep_their_paths_and_bf16_its_name(nets, tmp_path):
    net = nets("mixed")
    run = sp.open_run(net.by_us(tmp_path))
    outputs = {t.name: t for t in run.tensors if t.key.role is Role.MODEL_OUTPUT}
    with torch.no_grad():
        expected = copy.deepcopy(net.model)(*net.args, **net.kwargs)
    assert list(outputs) and {f'out["{key}"]' for key in expected} == set(outputs)
    for key, value in expected.items():
        found = outputs[f'out["{key}"]']
        assert found.dtype == {"narrow": "bf16", "where": "i64"}.get(key, "f32")
        np.testing.assert_array_equal(
            run.values(found).astype(np.float64), value.detach().double().numpy()
        )
    (state,) = (t for t in run.tensors if t.key.role is Role.STATE)
    assert state.key.op.op == "seen"
    (given,) = read_recorded_inputs(run)
    assert set(given.kwargs) == {"ids", "scale"}


@pytest.mark.parametrize("bits", [1, 2, 4, 6])
def test_weights_packed_into_parts_of_bytes_are_unpacked(bits):
    values = torch.arange(48, dtype=torch.uint8).reshape(2, 24) % 2**bits
    packed = UintxTensor.from_unpacked(values, bits)
    assert packed.elem.numel() < values.numel()
    assert torch.equal(unpack_weight(packed), values)
    assert unpack_weight(values) is values and unpack_weight(3) == 3


def test_a_region_of_its_own_is_one_op_and_its_graph_no_parameter(tmp_path):
    given = (torch.linspace(-1, 2, 6),)
    with quiet():
        program = torch.export.export(Regions().eval(), given)
    made = sp.save_intermediates(program, given, tmp_path / "b")
    theirs = apple.save_intermediates(program, given, tmp_path / "a", FILTERS["all"])
    run = sp.open_run(made)
    known = {(t.key.op, t.key.role) for t in run.tensors}
    assert all((e.op, e.role) in known for op in run.ops for e in op.inputs)
    assert {"cond", "wrap_with_set_grad_enabled"} <= {op.type for op in run.ops}
    outputs = apple.load_intermediates(theirs).outputs
    ours = apple.load_intermediates(made).outputs
    assert outputs.keys() == ours.keys() and outputs
    assert all(torch.equal(outputs[name], ours[name]) for name in outputs)


def test_the_program_is_left_as_it_was(nets, tmp_path):
    net = nets("mixed")
    before = {k: v.clone() for k, v in net.program.state_dict.items()}
    first, second = net.by_us(tmp_path / "a"), net.by_us(tmp_path / "b")
    assert files(first) == files(second)
    for key, value in net.program.state_dict.items():
        assert torch.equal(value, before[key]), key


@pytest.mark.parametrize("name", MANY)
def test_a_run_written_and_read_is_the_same_run(nets, tmp_path, name):
    net = nets(name)
    given = (net.args, net.kwargs) if net.kwargs else net.args
    run = sp.capture(net.model, given, out=tmp_path / "a.run")
    folder = tmp_path / "a.aimodelintermediates"
    save_dump(run, folder, "aimodelintermediates")
    again = sp.open_run(folder)
    assert again.info == run.info
    assert {op.key: op for op in again.ops} == {op.key: op for op in run.ops}
    assert [op.key for op in again.ops] == [op.key for op in run.ops]
    tensors = {t.key: t for t in again.tensors}
    assert tensors.keys() == {t.key for t in run.tensors}
    for tensor in run.tensors:
        found = tensors[tensor.key]
        for field in ("dtype", "shape", "name", "strides", "device", "alias_of", "requires_grad"):
            assert getattr(found, field) == getattr(tensor, field)
        values, others = run.values(tensor), again.values(found)
        assert values.dtype == others.dtype and values.tobytes() == others.tobytes()
    trace = apple.load_intermediates(folder)
    assert len(trace.inputs) == len(net.flat)
    assert any(t.dtype is torch.bfloat16 for t in trace.outputs.values()) == (name == "mixed")


def test_a_folder_may_be_named_by_its_metadata_and_found_by_its_content(nets, tmp_path):
    folder = nets("cnn").by_us(tmp_path)
    by_file = sp.open_run(folder / "metadata.json")
    other = folder.rename(tmp_path / "renamed")
    assert len(by_file.tensors) > 20
    assert len(sp.open_run(other).tensors) == len(by_file.tensors)


def test_the_commands_take_such_folders(nets, tmp_path):
    net = nets("transformer")
    net.by_apple(tmp_path, "default", model_name="theirs")
    net.by_us(tmp_path, model_name="ours")
    sp.capture(net.program, net.flat, out=tmp_path / "a.run")
    syncpoint("convert", "a.run", "b.aimodelintermediates", "--to", "aimodelintermediates",
              cwd=tmp_path, code=0)  # fmt: skip
    whole = syncpoint("compare", "b.aimodelintermediates", "a.run", cwd=tmp_path, code=0).stdout
    assert "(100%) and of" in whole
    ours = syncpoint("compare", "a.run", "ours.aimodelintermediates", cwd=tmp_path, code=0)
    assert "(100%) and of" in ours.stdout
    # Theirs lacks what the filter drops, the model's output among it.
    poor = syncpoint("compare", "a.run", "theirs.aimodelintermediates", cwd=tmp_path, code=3)
    assert "a model output was not compared" in poor.stderr
    shown = syncpoint("inspect", "ours.aimodelintermediates", cwd=tmp_path, code=0).stdout
    assert "layers.0.attention" in shown and "transformer.py:" in shown
    again = syncpoint("convert", "a.run", "b.aimodelintermediates", "--to",
                      "aimodelintermediates", cwd=tmp_path, code=2)  # fmt: skip
    assert again.stderr.count("\n") == 1
    wrong = syncpoint("convert", "a.run", "b", "--to", "aimodelintermediates", cwd=tmp_path, code=2)
    assert "does not end in .aimodelintermediates" in wrong.stderr


def test_a_model_finds_its_inputs_in_apples_folder(nets, tmp_path):
    net = nets("cnn")
    folder = net.by_apple(tmp_path, "default")
    comparison = sp.compare(make_cnn(), folder)
    assert comparison.verdict == "close"
    assert comparison.coverage.reference == 1.0
    assert len(comparison.outputs) == 1


def test_a_wrong_weight_is_seen_against_apples_folder(nets, tmp_path):
    net = nets("cnn")
    folder = net.by_apple(tmp_path, "default")
    model = make_cnn()
    with torch.no_grad():
        model.block.conv1.weight[0] *= 1.5
    # The channel is dead behind a ReLU on this input: every output has the very same bits.
    assert sp.compare(model, folder).verdict == "moderate"
    with torch.no_grad():
        model.block.conv1.weight *= 1.5
    assert sp.compare(model, folder).verdict == "large"


def test_the_guilty_op_is_found_where_the_folder_knows_what_reads_what(nets, tmp_path):
    given = cnn_inputs()
    with quiet():
        program = torch.export.export(make_cnn(), given)
    model = make_cnn()
    with torch.no_grad():
        model.block.conv1.weight[0] *= 1.5
    metadata = sp.save_intermediates(program, given, tmp_path)
    comparison = sp.compare(model, metadata, reference_model=make_cnn())
    assert [row.target.key.op.op for row in comparison.first_divergence] == ["conv2d_1"]
    assert any(row.verdict == "inherited" for row in comparison.rows)
    with pytest.raises(InputError, match=r"other values at block\.conv1\.weight"):
        sp.compare(model, metadata, reference_model=model)
    # Apple's says nothing of edges, so nobody is accused.
    theirs = apple.save_intermediates(program, given, tmp_path / "a", FILTERS["all"])
    poor = sp.compare(model, theirs, reference_model=make_cnn())
    assert poor.verdict == "large"
    assert not any(row.guilty for row in poor.rows)


def test_mistakes_bring_one_line_and_leave_nothing(nets, tmp_path):
    net = nets("cnn")
    first = net.by_us(tmp_path)
    with pytest.raises(InputError, match=r"main\.aimodelintermediates already exists"):
        net.by_us(tmp_path)
    wrong = [
        (net.model, net.flat, {}, InputError, "an exported program"),
        (net.program, net.flat[0], {}, InputError, "a tuple or list"),
        (net.program, (*net.flat, 1), {}, InputError, "takes 1 inputs, but 2 were passed"),
        (net.program, (torch.ones(2, 4, 16, 16),), {}, CaptureError, "failed on these inputs"),
        (net.program, net.flat, {"coreai_program": 3}, InputError, "a converted program"),
        (net.program, net.flat, {"node_filter": lambda node: True}, CaptureError, "node_filter"),
    ]
    for program, given, options, kind, match in wrong:
        with pytest.raises(kind, match=match) as caught:
            sp.save_intermediates(program, given, tmp_path / "new", **options)
        assert "\n" not in str(caught.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write .*file is not a folder"):
        net.by_us(tmp_path / "file")
    assert not list((tmp_path / "new").iterdir())
    assert {p.name for p in tmp_path.iterdir()} == {first.name, "file", "new"}


def test_without_torch_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"syncpoint\[torch\]"):
        sp.save_intermediates(None, (), tmp_path)


def test_the_example_of_the_document_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "intermediates.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile(code, "intermediates.md", "exec"), {})
    assert (tmp_path / "out" / "net.aimodelintermediates" / "metadata.json").is_file()


_DYING = """
import os, signal, sys, torch
import syncpoint as sp
from models.cnn import cnn_inputs, make_cnn

program = torch.export.export(make_cnn(), cnn_inputs())

def passes(node, result):
    if node.name == "conv2d_2":
        os.kill(os.getpid(), signal.SIGKILL)
    return True

sp.save_intermediates(program, cnn_inputs(), sys.argv[1], passes)
"""


def test_a_writer_that_is_killed_leaves_nothing_that_opens(tmp_path):
    died = subprocess.run(
        [sys.executable, "-c", _DYING, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert not (tmp_path / "main.aimodelintermediates").exists()
    (left,) = tmp_path.iterdir()
    assert list(left.rglob("*.npy"))
    with pytest.raises(sp.api.SyncpointError, match="wrote the folder probably stopped early"):
        sp.open_run(left)
