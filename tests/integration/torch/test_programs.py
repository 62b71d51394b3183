"""Exported programs, as objects and as .pt2 files, are captured as what they are."""

import io
import zipfile
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import syncpoint as sp
from helpers.paths import MODELS
from helpers.torch_captures import assert_evaluates_to_its_bits, captured, opened
from models.gpt import make_small_gpt, small_gpt_inputs
from models.resnet import make_small_resnet, small_resnet_inputs
from models.transformer import make_transformer, transformer_inputs
from models.zoo import NETS
from syncpoint.errors import InputError
from syncpoint.run.model import Part, Role, RunInfo
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.open_run import open_run
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.inputs.read_inputs import as_inputs

ALL = NETS | {
    "gpt": (make_small_gpt, small_gpt_inputs),
    "resnet": (make_small_resnet, small_resnet_inputs),
}


@cache
def exported(net, dtype=torch.float32):
    make, inputs = ALL[net]
    given = as_inputs(inputs())
    args = tuple(a.to(dtype) if a.is_floating_point() else a for a in given.args)
    return torch.export.export(make().to(dtype), args, dict(given.kwargs))


def saved(folder, program, name="net.pt2"):
    path = folder / name
    torch.export.save(program, path)
    return path


@pytest.mark.parametrize("net", ["nested", "inplace", "several", "reused", "casts", "gpt"])
def test_a_plain_program_has_the_ops_tensors_and_names_of_its_module(tmp_path, net):
    make, inputs = ALL[net]
    path = saved(tmp_path, exported(net))
    wanted, _ = captured(tmp_path / "a.run", make(), inputs(), capture="export")
    for number, model in enumerate((exported(net), path)):
        run, _ = captured(tmp_path / f"{number}.run", model, inputs())
        assert run.info.observer.equal, run.info.observer.detail
        assert run.info.notes == wanted.info.notes
        for theirs, ours in zip(wanted.ops, run.ops, strict=True):
            assert (ours.key, ours.type, ours.inputs) == (theirs.key, theirs.type, theirs.inputs)
            assert (ours.module, ours.module_type) == (theirs.module, theirs.module_type)
            assert ours.source == theirs.source
            assert ours.attributes == theirs.attributes
            assert set(theirs.origins) <= set(ours.origins)
        assert {(str(t.key), t.name, t.digest) for t in run.tensors} == {
            (str(t.key), t.name, t.digest) for t in wanted.tensors
        }


@pytest.mark.parametrize(("net", "way"), [("transformer", "file"), ("inplace", "object")])
def test_a_decomposed_program_knows_what_its_ops_were_made_from(tmp_path, net, way):
    make, inputs = ALL[net]
    program = exported(net)
    plain = {node.name for node in program.graph.nodes if node.op == "call_function"}
    model = make()
    modules = {name: type(module).__name__ for name, module in model.named_modules()}
    found = program.run_decompositions()
    if way == "file":
        found = str(saved(tmp_path, found))
    run, session = captured(tmp_path / f"{way}.run", found, inputs())
    assert run.info.observer.equal
    assert len(run.ops) > len(plain) / 2
    here = str(MODELS)
    for op in run.ops:
        assert op.source[-1].file.startswith(here), op.key
        assert modules[op.module] == op.module_type
        assert op.origins[0] == op.key.op
        assert plain & set(op.origins), (op.key, op.origins)
        if not op.random:
            assert_evaluates_to_its_bits(session, op, run)
    if net == "transformer":
        by_type = {op.type: op for op in run.ops}
        assert any(name.startswith("linear") for name in by_type["aten.addmm.default"].origins)


@pytest.mark.parametrize("net", ["gpt", "resnet"])
def test_a_bf16_program_is_compared_with_a_plain_capture_in_full(tmp_path, net):
    make, inputs = ALL[net]
    path = str(saved(tmp_path, exported(net, torch.bfloat16)))
    reference = sp.capture(make(), inputs())
    target = sp.capture(path, inputs(), dtype="bf16")
    assert target.info.model == path
    assert target.info.precision == "bf16"
    comparison = sp.compare(target, reference)
    assert comparison.coverage.target == comparison.coverage.reference == 1.0
    assert comparison.verdict in ("close", "amplified")
    computed = [row for row in comparison.rows if row.target.key.role is Role.OUTPUT]
    known = [row for row in computed if row.introduced is not None]
    assert len(known) == len(computed)
    assert max(row.introduced.ratio for row in known) < 4


def test_a_program_with_an_open_size_runs_at_any_and_is_evaluated_at_each(tmp_path):
    length = Dim("length", min=2, max=16)
    program = torch.export.export(
        make_transformer(), transformer_inputs(), dynamic_shapes=({1: length},)
    )
    for number, model in enumerate((program, str(saved(tmp_path, program)))):
        session = opened(model)
        folder = tmp_path / f"{number}.run"
        with RunWriter(folder, RunInfo()) as writer:
            recorder = Recorder(writer)
            for sample, size in enumerate((16, 9, 5)):
                fed = as_inputs(transformer_inputs(length=size))
                session.run(fed, recorder.for_part(Part(sample=sample)))
        run = open_run(folder)
        assert run.info.observer.equal
        for sample in range(3):
            for op in run.ops:
                assert_evaluates_to_its_bits(session, op, run, Part(sample=sample))
        for op in run.ops:
            assert op.source, op.key
            assert op.module_type, op.key
        with pytest.raises(InputError, match=r"Guard failed: ids.size\(\)\[1\] <= 16"):
            captured(tmp_path / "long.run", model, transformer_inputs(length=17), session)


def test_inputs_are_taken_by_name_by_position_and_from_a_run(tmp_path):
    inputs = ALL["nested"][1]
    args, kwargs = inputs()
    first, _ = captured(tmp_path / "a.run", exported("nested"), (args, kwargs))
    second, _ = captured(tmp_path / "b.run", exported("nested"), {"x": args[0], **kwargs})
    assert first.digest() == second.digest()
    again = sp.compare(exported("nested"), tmp_path / "a.run")
    assert again.verdict == "close"
    with pytest.raises(InputError, match="not in the structure that"):
        captured(tmp_path / "c.run", exported("nested"), (args, {"extra": [args[0], args[0]]}))
    with pytest.raises(
        InputError, match=r"the input 'extra' of .* is missing: \d+ of \d were given"
    ):
        captured(tmp_path / "c.run", exported("nested"), args)


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x).relu()


def linear_program():
    return torch.export.export(Linear().eval(), (torch.ones(2, 4),))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "bf16"}, "an exported program in f32, not in bf16; export the model in bf16"),
        ({"mode": "train"}, "does not support mode=train; remove mode"),
        ({"capture": "dispatch"}, "does not support capture=dispatch; remove capture"),
    ],
)
def test_what_is_fixed_in_a_program_is_not_changed(options, message):
    with pytest.raises(InputError, match=message):
        opened(linear_program(), **options)


def test_files_that_hold_no_program_are_told_in_one_line(tmp_path, capfd):
    whole = saved(tmp_path, linear_program())
    torch.save({"weight": torch.ones(2)}, tmp_path / "weights.pt")
    (tmp_path / "text.pt2").write_text("no archive")
    (tmp_path / "cut.pt2").write_bytes(whole.read_bytes()[:-200])
    with zipfile.ZipFile(tmp_path / "aoti.pt2", "w") as archive:
        archive.writestr("aoti/data/aotinductor/model/model.so", b"")
    broken = io.BytesIO()
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(broken, "w") as target:
        for name in source.namelist():
            text = source.read(name)
            target.writestr(name, b"{}" if name.endswith("model.json") else text)
    (tmp_path / "broken.pt2").write_bytes(broken.getvalue())
    for name, message in {
        "weights.pt": "a file of torch.save",
        "text.pt2": "not a ZIP file",
        "cut.pt2": "not a ZIP file, or a damaged one",
        "aoti.pt2": "a package of AOTInductor",
        "broken.pt2": "cannot load broken.pt2: .*; write it with torch.export.save",
        "missing.pt2": "no such file",
    }.items():
        with pytest.raises(InputError, match=message) as raised:
            opened(str(tmp_path / name))
        assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


def test_a_program_that_writes_to_its_buffers_is_left_as_it_was(tmp_path):
    inputs = ALL["inplace"][1]
    program = exported("inplace")
    before = {name: value.clone() for name, value in program.state_dict.items()}
    run, _ = captured(tmp_path / "a.run", program, inputs())
    assert all(torch.equal(value, before[name]) for name, value in program.state_dict.items())
    state = [t for t in run.tensors if t.key.role is Role.STATE]
    assert [float(np.asarray(run.values(t))) for t in state] == [1.0]


def test_code_may_give_a_program(tmp_path, monkeypatch):
    (tmp_path / "gives.py").write_text(
        "import torch\n"
        "def program():\n"
        "    return torch.export.export(torch.nn.ReLU(), (torch.ones(2),))\n"
    )
    monkeypatch.chdir(tmp_path)
    run, _ = captured(tmp_path / "a.run", "gives.py:program", (torch.ones(2),))
    assert [op.key.op for op in run.ops] == ["relu"]
