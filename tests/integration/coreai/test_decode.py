"""A decode loop with a KV cache, step by step: PyTorch, and the Core AI asset made from it."""

import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.export.graph_signature import TensorArgument

import syncpoint as sp
from helpers.commands import syncpoint
from helpers.matching_oracle import Twins, share_paired
from models import decoder
from models.coreai_files import decomposed, save
from models.decoder import decoder_steps, make_decoder
from syncpoint.errors import SyncpointError
from syncpoint.run.model import Part, Role
from syncpoint.runtimes.protocol import Inputs

COUNT = 3
KEYS = "blocks.0.attention.keys"
WRONG = {"moderate", "large", "amplified", "inherited"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("decode")


def loop():
    return [Inputs(given) for given in decoder_steps(COUNT)]


@cache
def reference():
    return sp.capture(make_decoder(), loop(), steps=True)


def converted(path, model=None, change=None):
    """The asset of a model; `change` is done to the program on its way there."""
    program = decomposed(model or make_decoder(), decoder_steps(1)[0])
    if change is not None:
        change(program)
    return save(path, {"main": program})


@cache
def sound(folder):
    return sp.capture(str(converted(folder / "decode.aimodel")), loop(), steps=True)


def compared(folder, name, model=None, change=None):
    path = converted(folder / f"{name}.aimodel", model, change)
    run = sp.capture(str(path), loop(), steps=True)
    return sp.compare(run, reference(), confirm=False)


@cache
def sound_comparison(folder):
    return sp.compare(sound(folder), reference())


def by_step(comparison, number):
    return [row for row in comparison.rows if row.target.key.part.step == number]


@torch.no_grad()
def plain_steps(model):
    """What anyone gets who runs the loop: outputs and buffers after each step."""
    found = []
    for given in decoder_steps(COUNT):
        out = model(*given).numpy()
        found.append((out, {name: b.clone().numpy() for name, b in model.named_buffers()}))
    return found


def states(run, index, number):
    return {
        t.key.op.op: run.values(t)
        for t in run.tensors
        if t.key.role is Role.STATE and t.key.index == index and t.key.part == Part(step=number)
    }


def given_as(form, folder):
    model = make_decoder()
    if form == "module":
        return model, {}
    if form == "dispatch":
        return model, {"capture": "dispatch"}
    if form == "script":
        traced = torch.jit.trace(model, decoder_steps(1)[0])
        for buffer in traced.buffers():
            buffer.zero_()
        return traced, {}
    program = torch.export.export(model, decoder_steps(1)[0])
    if form == "program":
        return program, {}
    path = folder / f"{form}.pt2"
    if form == "functional":
        program = program.run_decompositions({})
    torch.export.save(program, path)
    return str(path), {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["module", "dispatch", "program", "saved", "functional", "script"])
def test_buffers_go_from_step_to_step_however_the_model_comes(folder, form):
    model, options = given_as(form, folder)
    run = sp.capture(model, loop(), steps=True, **options)
    assert run.info.observer.equal, run.info.observer.detail
    before = {name: np.zeros_like(b.numpy()) for name, b in make_decoder().named_buffers()}
    for number, (out, after) in enumerate(plain_steps(make_decoder())):
        part = Part(step=number)
        (found,) = (
            t for t in run.tensors if t.key.role is Role.MODEL_OUTPUT and t.key.part == part
        )
        assert np.asarray(run.values(found)).tobytes() == out.tobytes()
        for index, wanted in ((1, before), (0, after)):
            held = states(run, index, number)
            assert held.keys() == wanted.keys()
            assert all(held[name].tobytes() == wanted[name].tobytes() for name in wanted)
        before = after
    reads = {e.op.op for op in run.ops for e in op.inputs if e.role is Role.STATE}
    assert reads == before.keys()
    written = [t for t in run.tensors if t.key.role is Role.STATE and not t.key.index]
    assert all(t.alias_of for t in written)


def test_without_steps_samples_are_executions_of_their_own():
    run = sp.capture(make_decoder(), loop())
    assert sorted({t.key.part for t in run.tensors if t.key.role is Role.OUTPUT}) == [
        Part(sample=n) for n in range(COUNT)
    ]
    assert not any(t.key.role is Role.STATE and t.key.index for t in run.tensors)


class Kept(torch.nn.Module):
    """One layer whose outputs are kept, in one way or another."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.layer = torch.nn.Linear(4, 4)
        grows = torch.zeros(1, 0, 4)
        if way == "growing buffer":
            self.register_buffer("cache", grows)
        elif way == "growing attribute":
            self.cache = grows
        elif way == "list":
            self.cache = []
        elif way == "parameter":
            self.cache = torch.nn.Parameter(torch.zeros(1, 5, 4), requires_grad=False)
            self.register_buffer("place", torch.zeros(1, dtype=torch.int64))
        else:
            self.register_buffer("cache", torch.zeros(1, 5, 4))
        self.number = 0

    def forward(self, x):
        new = self.layer(x)
        if self.way == "list":
            self.cache.append(new)
            held = torch.cat(self.cache, 1)
        elif self.way.startswith("growing"):
            self.cache = held = torch.cat([self.cache, new], 1)
        elif self.way == "parameter":
            held = self.cache.index_copy_(1, self.place, new)
            self.place += 1
        else:
            self.cache[:, self.number : self.number + 1] = new
            self.number += 1
            held = self.cache[:, : self.number]
        if self.way == "raises" and self.number == 2:
            raise ValueError("no room")
        return torch.softmax(x @ held.transpose(1, 2), -1) @ held


def kept(way):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Kept(way).eval()


def tokens():
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(1, 1, 4, generator=generator),) for _ in range(3)]


@torch.no_grad()
@pytest.mark.parametrize(
    "way", ["counter", "growing buffer", "growing attribute", "list", "parameter"]
)
def test_models_that_keep_more_than_buffers_of_one_shape(way):
    model, plain = kept(way), kept(way)
    run = sp.capture(model, [Inputs(t) for t in tokens()], steps=True)
    assert run.info.observer.equal, run.info.observer.detail
    for number, given in enumerate(tokens()):
        expected = plain(*given)
        (found,) = (
            t
            for t in run.tensors
            if t.key.role is Role.MODEL_OUTPUT and t.key.part == Part(step=number)
        )
        assert np.asarray(run.values(found)).tobytes() == expected.numpy().tobytes()
    assert any("dispatch" in note for note in run.info.notes) == (way != "parameter")
    fresh = kept(way)
    assert model.number == 0
    assert model.state_dict().keys() == fresh.state_dict().keys()
    for name, value in fresh.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)
    if way == "list":
        assert model.cache == []
    if way == "growing attribute":
        assert model.cache.shape == (1, 0, 4)


def test_export_alone_says_that_it_cannot_follow():
    with pytest.raises(SyncpointError) as caught:
        sp.capture(kept("counter"), [Inputs(t) for t in tokens()], steps=True, capture="export")
    assert "keeps number from step to step" in str(caught.value)
    assert "use capture=dispatch" in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(SyncpointError, match="the runtime inductor has no option"):
        sp.capture(make_decoder(), loop(), runtime="inductor", steps=True)


@pytest.mark.parametrize("way", ["auto", "dispatch"])
def test_a_model_that_raises_in_a_later_step_is_left_as_it_was(way):
    model = kept("raises")
    with pytest.raises(SyncpointError, match="no room"):
        sp.capture(model, [Inputs(t) for t in tokens()], steps=True, capture=way)
    assert model.number == 0 and not model.cache.any()


def test_without_steps_too_a_model_that_grows_is_left_as_it_was():
    model = kept("growing buffer")
    cache = model.cache
    sp.capture(model, [Inputs(t) for t in tokens()], capture="dispatch")
    assert model.cache is cache and cache.shape == (1, 0, 4)


@torch.no_grad()
def test_a_prompt_and_then_single_tokens():
    """Steps of two shapes are two programs; what the first left, the second begins with."""

    class Sum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.zeros(1, 5, 4))
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, x, place):
            self.cache.index_copy_(1, place, x)
            self.count.add_(x.shape[1])
            return self.cache.cumsum(1) * self.count

    x = torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(2))
    places = [torch.arange(3), torch.tensor([3]), torch.tensor([4])]
    steps = [(x[:, p], p) for p in places]
    run = sp.capture(Sum(), [Inputs(s) for s in steps], steps=True)
    assert run.info.observer.equal
    plain = Sum()
    for number, given in enumerate(steps):
        expected = plain(*given).numpy()
        assert states(run, 0, number)["count"] == plain.count.numpy()
        (found,) = (
            t
            for t in run.tensors
            if t.key.role is Role.MODEL_OUTPUT and t.key.part == Part(step=number)
        )
        assert np.asarray(run.values(found)).tobytes() == expected.tobytes()


def test_a_sound_asset_is_close_in_every_step(folder):
    target, comparison = sound(folder), sound_comparison(folder)
    for number in range(COUNT):
        rows = by_step(comparison, number)
        assert rows and not {str(row.verdict) for row in rows} & WRONG, str(comparison)
    assert comparison.verdict == "close" and comparison.exit_code() == 0
    assert not comparison.first_divergence
    assert len(comparison.outputs) == COUNT
    assert comparison.coverage.target >= 0.95 and comparison.coverage.reference >= 0.95
    twins = Twins(target, reference(), 1e-4)
    assert share_paired(comparison, twins) >= 0.95
    for row in comparison.rows:
        if row.target.key.role is Role.OUTPUT:
            assert row.target.key.part == row.reference.key.part
            assert twins.together(row.target.key, row.reference.key) is not False, row
    unknown = [r for r in comparison.rows if r.target.key.role is Role.OUTPUT and not r.introduced]
    assert not unknown


def test_states_are_paired_by_the_names_that_export_gives_them(folder):
    rows = [r for r in sound_comparison(folder).rows if r.target.key.role is Role.STATE]
    assert len(rows) == 2 * 4 * COUNT
    for row in rows:
        assert row.target.key.op.op == "b_" + row.reference.key.op.op.replace(".", "_")
        assert row.target.key.index == row.reference.key.index


def test_each_state_of_an_asset_is_read_by_its_own_op(folder):
    """All caches begin as the same zeros: only their places in memory tell them apart."""
    run = sound(folder)
    by_key = {op.key: op for op in run.ops}
    found = {}
    for op in run.ops:
        if op.type == "coreai.scatter_nd":
            (copied,) = (by_key[e.op] for e in op.inputs if e.op.op.startswith("NDArray.copy"))
            found[op.key.op] = copied.inputs[0].op.op
    assert found == {
        "index_put": "b_blocks_0_attention_keys",
        "index_put_1": "b_blocks_0_attention_values",
        "index_put_2": "b_blocks_1_attention_keys",
        "index_put_3": "b_blocks_1_attention_values",
    }


@torch.no_grad()
def test_a_wrong_weight_is_found_in_the_first_step(folder):
    model = make_decoder()
    model.blocks[1].up.weight.mul_(1.5)
    comparison = compared(folder, "weight", model)
    (guilty,) = comparison.first_divergence
    assert guilty.reference.key.op.op == "linear_6"
    assert guilty.target.key.part == Part(step=0)
    assert comparison.exit_code() == 1
    large = {r.reference.key.op.op for r in comparison.rows if str(r.verdict) == "large"}
    assert large == {"linear_6", comparison.outputs[0].reference.key.op.op}


@torch.no_grad()
def test_what_a_cache_passes_on_is_inherited_in_the_steps_that_follow(folder):
    model = make_decoder()
    model.blocks[0].attention.qkv.weight.mul_(1.5)
    comparison = compared(folder, "qkv", model)
    (guilty,) = comparison.first_divergence
    assert guilty.reference.key.op.op == "linear" and guilty.target.key.part == Part(step=0)
    for row in comparison.rows:
        if row.target.key.role is Role.STATE and row.target.key.part.step > 0:
            assert str(row.verdict) == "inherited", row.target.label


def test_a_cache_written_at_a_wrong_place_is_found_in_the_step_that_does_it(folder):
    model = make_decoder()
    model.blocks[1].attention.place = lambda position: torch.clamp(position, max=1)
    comparison = compared(folder, "place", model)
    for number in (0, 1):
        assert {str(row.verdict) for row in by_step(comparison, number)} == {"close"}
    found = comparison.first_divergence
    assert {row.reference.key.op.op for row in found} == {"index_copy_2", "index_copy_3"}
    assert {row.target.key.part for row in found} == {Part(step=2)}


def without_writing(program):
    """The asset writes back what the cache held."""
    output = next(n for n in program.graph.nodes if n.op == "output")
    signature = program.graph_signature
    held = next(n for n, name in signature.inputs_to_buffers.items() if name == KEYS)
    results = list(output.args[0])
    for at, spec in enumerate(signature.output_specs):
        if spec.target == KEYS:
            results[at] = next(n for n in program.graph.nodes if n.name == held)
            spec.arg = TensorArgument(name=held)
    output.args = (tuple(results),)


def without_state(program):
    """The asset has no such cache: to it, the buffer is a constant."""
    output = next(n for n in program.graph.nodes if n.op == "output")
    specs = program.graph_signature.output_specs
    at = next(i for i, spec in enumerate(specs) if spec.target == KEYS)
    results = list(output.args[0])
    del results[at], specs[at]
    output.args = (tuple(results),)


def test_a_cache_that_is_not_kept_is_found_at_the_op_that_reads_it(folder):
    comparison = compared(folder, "constant", change=without_state)
    assert {str(row.verdict) for row in by_step(comparison, 0)} == {"close"}
    (guilty,) = comparison.first_divergence
    assert guilty.reference.key.op.op == "index_copy"
    assert guilty.target.key.part == Part(step=1)


def test_a_write_that_is_left_out_is_found_at_the_state(folder):
    """All ops of the step are right; what is wrong is what the step leaves."""
    comparison = compared(folder, "unwritten", change=without_writing)
    (guilty,) = comparison.first_divergence
    assert guilty.reference.key.op.op == KEYS and guilty.target.key.role is Role.STATE
    assert guilty.target.key.part == Part(step=0) and guilty.target.key.index == 0
    assert guilty.reference.module == "blocks.0.attention"
    assert "decoder.py" in guilty.reference.source
    others = [row for row in by_step(comparison, 0) if row is not guilty]
    assert {str(row.verdict) for row in others} == {"close"}
    outputs = [str(row.verdict) for row in comparison.outputs]
    assert outputs[0] == "close" and "large" in outputs[1:]
    said = str(comparison)
    assert "b_blocks_0_attention_keys after [step=0] (blocks.0.attention" in said


def test_a_loop_that_begins_with_another_cache_says_so(folder):
    model = make_decoder()
    model.blocks[0].attention.keys.fill_(0.25)
    comparison = sp.compare(sound(folder), sp.capture(model, loop(), steps=True), confirm=False)
    (guilty,) = comparison.first_divergence
    assert guilty.reference.key.op.op == KEYS and guilty.target.key.index == 1
    assert guilty.target.key.part == Part(step=0)
    assert comparison.exit_code() == 1


def test_a_recorded_loop_serves_as_reference(folder, tmp_path):
    """Its inputs and its steps are taken over; its model is run in steps to be known again."""
    path = tmp_path / "torch.run"
    sp.capture(make_decoder(), loop(), steps=True, out=path)
    asset = str(folder / "decode.aimodel") if sound(folder) else ""
    comparison = sp.compare(asset, path)
    assert comparison.verdict == "close" and comparison.coverage.target >= 0.95
    comparison = sp.compare(asset, path, reference_model=make_decoder(), confirm=False)
    assert comparison.verdict == "close"
    assert all(r.introduced for r in comparison.rows if r.target.key.role is Role.OUTPUT)
    with pytest.raises(SyncpointError, match="other ops or samples"):
        sp.compare(asset, path, reference_model=make_decoder(), reference_options={"steps": False})


def test_dispatch_and_an_asset_in_half_precision(folder):
    traced = sp.capture(make_decoder(), loop(), steps=True, capture="dispatch")
    comparison = sp.compare(sound(folder), traced, confirm=False)
    assert not {str(row.verdict) for row in comparison.rows} & WRONG
    assert comparison.coverage.target >= 0.95
    path = converted(folder / "half.aimodel", make_decoder().half())
    comparison = sp.compare(str(path), reference(), inputs=loop(), confirm=False)
    assert not {str(row.verdict) for row in comparison.rows} & {"large", "amplified"}


def test_the_command_line(folder, tmp_path):
    assert sound(folder)
    shutil.copy(Path(decoder.__file__), tmp_path / "model.py")
    shutil.copytree(folder / "decode.aimodel", tmp_path / "decode.aimodel")
    (tmp_path / "steps").mkdir()
    for number, (token, position) in enumerate(decoder_steps(COUNT)):
        np.savez(
            tmp_path / "steps" / f"{number}.npz", token=token.numpy(), position=position.numpy()
        )
    found = syncpoint(
        "compare", "decode.aimodel", "model.py:make_decoder", "--inputs", "steps",
        "--target-set", "steps=true", "--reference-set", "steps=true", cwd=tmp_path, code=0,
    )  # fmt: skip
    assert "[step=2]" in found.stdout and "close: compared" in found.stdout


def test_a_folder_of_intermediates_holds_steps(folder, tmp_path):
    """Apple's function writes one call; a run that is converted keeps all its steps."""
    assert sound(folder)
    sp.capture(make_decoder(), loop(), steps=True, out=tmp_path / "torch.run")
    syncpoint(
        "convert", "torch.run", "torch.aimodelintermediates", "--to", "aimodelintermediates",
        cwd=tmp_path, code=0,
    )  # fmt: skip
    comparison = sp.compare(
        str(folder / "decode.aimodel"),
        tmp_path / "torch.aimodelintermediates",
        reference_model=make_decoder(),
        confirm=False,
    )
    assert comparison.verdict == "close" and comparison.coverage.target >= 0.95
    assert {row.target.key.part.step for row in comparison.outputs} == set(range(COUNT))
    assert all(r.introduced for r in comparison.rows if r.target.key.role is Role.OUTPUT)
