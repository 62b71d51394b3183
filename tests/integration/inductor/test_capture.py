"""torch.compile as it is executed: nothing added, nothing changed, nothing missed."""

import re
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import syncpoint as sp
from models.gpt import gpt_inputs, make_gpt, make_small_gpt, small_gpt_inputs
from models.mlp import make_mlp, mlp_inputs
from models.nested import make_nested, nested_inputs
from models.resnet import make_resnet, make_small_resnet, resnet_inputs, small_resnet_inputs
from syncpoint.errors import InputError, Unsupported
from syncpoint.run.model import Role
from syncpoint.runtimes import registry
from syncpoint.runtimes.inductor import codegen_hooks
from syncpoint.runtimes.inductor.compile import Compilation, CompiledGraph
from syncpoint.runtimes.options import parse_options

BUG = "cpp.inject_relu_bug_TESTING_ONLY=accuracy"
NETS = {
    "gpt": (lambda: make_small_gpt("relu"), small_gpt_inputs),
    "resnet": (make_small_resnet, small_resnet_inputs),
}


@cache
def net(name):
    make, inputs = NETS[name]
    return make(), inputs()


@cache
def compiled(name, **options):
    """A net with ReLU as inductor executes it, captured once."""
    return sp.capture(*net(name), runtime="inductor", **options)


@pytest.fixture
def sources(monkeypatch):
    """The code that inductor generates for the watched graphs."""
    found = []
    made = CompiledGraph.__init__

    def init(self, *args):
        made(self, *args)
        found.append(getattr(self.code, "source_code", ""))

    monkeypatch.setattr(CompiledGraph, "__init__", init)
    return found


def kept_buffers(source):
    """Names that kernels of generated code are called with. A name that is only another name's
    memory under way (`buf9 = buf7; del buf7  # reuse`) is in no call and does not count."""
    body = source[source.index("def call(") :]
    calls = [
        line
        for line in body.splitlines()
        if re.match(
            r"\s*(cpp_\w+|extern_kernels\.\w+|buf\d+ = (extern_kernels|torch\.ops)\S*)\(", line
        )
    ]
    return {name for line in calls for name in re.findall(r"\bbuf\d+\b", line)}


@pytest.mark.parametrize(
    ("make", "inputs", "count"),
    [(make_resnet, resnet_inputs, 57), (make_gpt, gpt_inputs, 109)],
    ids=["resnet", "gpt"],
)
def test_every_buffer_of_the_generated_code_is_captured(make, inputs, count, sources):
    run = sp.capture(make(), inputs(), runtime="inductor")
    captured = {op.key.op for op in run.ops}
    assert len(sources) == 1
    assert captured == kept_buffers(sources[0])
    assert len(captured) == count
    assert run.info.observer.equal
    assert run.info.fusion == "as-executed"
    assert all(op.source and op.module for op in run.ops)
    known = [op for op in run.ops if {"value_of", "copy_of"} & op.attributes.keys()]
    # The rest are the squared deviations inside layer norms, which no op gives.
    assert len(run.ops) - len(known) == source_count(run, "native_layer_norm")


def source_count(run, kind):
    return sum("value_of" not in op.attributes and kind in op.type for op in run.ops)


def test_values_are_those_of_the_ops_by_themselves():
    model, inputs = make_small_gpt(), small_gpt_inputs()
    compiled = sp.capture(model, inputs, runtime="inductor")
    graph = sp.capture(model, inputs, runtime="inductor", kernels="eager")
    single = {op.key.op: op for op in graph.ops}
    checked = 0
    for op in compiled.ops:
        said = op.attributes
        if "value_of" not in said:
            continue
        key = single[said["value_of"]].key
        mine = next(t for t in compiled.tensors if t.key.op == op.key and t.key.role == "output")
        theirs = next(
            t
            for t in graph.tensors
            if t.key.op == key and t.key.role == "output" and t.key.index == said["output"]
        )
        a = compiled.values(mine).astype(np.float64).ravel()
        b = graph.values(theirs).astype(np.float64).ravel()
        finite = np.isfinite(b)
        assert (np.isfinite(a) == finite).all()
        assert np.linalg.norm(a[finite] - b[finite]) <= 1e-5 * np.linalg.norm(b[finite])
        checked += 1
    assert checked > 30


def test_graph_breaks_keep_their_graphs_apart():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 8)
            self.second = nn.Linear(8, 8)

        def forward(self, x):
            x = torch.relu(self.first(x))
            torch._dynamo.graph_break()
            return torch.relu(self.second(x))

    torch.manual_seed(0)
    model, inputs = Broken().eval(), (torch.randn(4, 8),)
    compiled = sp.capture(model, inputs, runtime="inductor")
    graph = sp.capture(model, inputs, runtime="inductor", kernels="eager")
    assert {op.key.graph for op in compiled.ops} == {"graph0", "graph1"}
    assert compiled.info.observer.equal
    assert any("2 graphs" in note for note in compiled.info.notes)
    comparison = sp.compare(compiled, graph)
    assert comparison.verdict == "close"
    assert comparison.coverage.target == 1.0
    between = [r for r in comparison.rows if r.target.key.role is Role.INPUT]
    assert [r.verdict.value for r in between] == ["close"]


def test_a_graph_that_is_called_again_has_inputs_of_its_own():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.step = nn.Linear(8, 8)

        def forward(self, x):
            for _ in range(3):
                x = self.once(x)
                torch._dynamo.graph_break()
            return x

        def once(self, x):
            return torch.relu(self.step(x)) * 2

    torch.manual_seed(0)
    model, inputs = Twice().eval(), (torch.randn(4, 8),)
    compiled = sp.capture(model, inputs, runtime="inductor")
    graph = sp.capture(model, inputs, runtime="inductor", kernels="eager")
    assert compiled.info.observer.equal
    comparison = sp.compare(compiled, graph)
    assert comparison.verdict == "close"
    assert comparison.coverage.target == 1.0
    assert sum(row.introduced is not None for row in comparison.rows) >= 6


def test_nested_outputs_and_keyword_inputs():
    args, kwargs = nested_inputs()
    run = sp.capture(make_nested(), (args, kwargs), runtime="inductor")
    names = {t.name for t in run.tensors if t.key.role is Role.MODEL_OUTPUT}
    assert {'out["logits"][0]', 'out["logits"][1]', 'out["aux"]["right"]'} <= names
    given = {t.name for t in run.tensors if t.key.role is Role.MODEL_INPUT}
    assert given == {"x", 'extra["mask"]'}
    assert run.info.observer.equal


@pytest.mark.parametrize("options", [{"backend": "aot_eager"}, {"fusion": "unfused"}])
def test_other_ways_to_run_the_graph(options):
    model, inputs = make_mlp(), mlp_inputs()
    run = sp.capture(model, inputs, runtime="inductor", **options)
    assert run.info.observer.equal
    assert run.info.fusion == "unfused"
    kinds = [op.type for op in run.ops]
    assert kinds.count("aten.addmm.default") == 3
    assert kinds.count("aten.relu.default") == 2
    reference = sp.capture(model, inputs, runtime="inductor", kernels="eager")
    comparison = sp.compare(run, reference)
    assert comparison.verdict == "close"


def test_the_model_is_left_as_it_was():
    model, inputs = make_mlp(), mlp_inputs()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    plain = model(*inputs)
    sp.capture(model, inputs, runtime="inductor", dtype="bf16")
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert torch.equal(model(*inputs), plain)


def test_settings_of_the_compiler():
    with pytest.raises(InputError, match=r"cpp\.threads"):
        sp.capture(make_mlp(), mlp_inputs(), runtime="inductor", config="cpp.thread=1")
    with pytest.raises(InputError, match="max-autotune"):
        sp.capture(make_mlp(), mlp_inputs(), runtime="inductor", compile_mode="fastest")
    with pytest.raises(InputError, match="true or false"):
        sp.capture(
            make_mlp(), mlp_inputs(), runtime="inductor", config="emulate_precision_casts=maybe"
        )


def test_another_torch_is_refused_with_a_way_around(monkeypatch):
    from torch._inductor.codegen import cpp

    monkeypatch.delattr(cpp.KernelGroup, "call_kernel")
    with pytest.raises(Unsupported, match=r"no .*KernelGroup.call_kernel.*backend=aot_eager"):
        codegen_hooks.check_torch_internals()
    for way in ({"backend": "aot_eager"}, {"fusion": "unfused"}):
        assert _watching(way)
    with pytest.raises(Unsupported, match="KernelGroup"):
        _watching({})
    monkeypatch.undo()
    codegen_hooks.check_torch_internals()


def _watching(way):
    """What a model would be compiled with; compiling itself needs all of inductor."""
    runtime = registry.load_runtime("inductor")
    return Compilation(make_mlp(), parse_options(runtime, way))


def test_a_model_that_raises_says_so_in_one_line():
    with pytest.raises(InputError, match="do not fit"):
        sp.capture(make_mlp(), (torch.randn(8, 31),), runtime="inductor")


def test_replay_feeds_every_kernel_the_values_of_the_reference():
    graph = sp.capture(*net("gpt"), runtime="inductor", kernels="eager")
    broken = compiled("gpt", config=BUG)
    comparison = sp.compare(broken, graph, introduced="replay")
    guilty = {row.reference.label for row in comparison.rows if row.guilty}
    assert guilty == {"relu", "relu_1"}
    later = next(row for row in comparison.rows if row.reference.label == "addmm_7")
    assert later.verdict.value == "inherited"
    # On the reference's own values only its rounding is left.
    assert later.introduced.rel_l2 < 1e-6
    assert sp.compare(compiled("gpt"), graph, introduced="replay").verdict == "close"
    with pytest.raises(Unsupported, match="introduced local"):
        sp.compare(graph, graph, introduced="replay")


@pytest.mark.parametrize("name", NETS)
def test_compiled_code_against_the_model_as_it_was_written(name):
    """Other ops than those of the compiled graph: a softmax is one op, and not a division."""
    eager = sp.capture(*net(name))
    clean = sp.compare(compiled(name), eager)
    assert clean.verdict == "close"
    assert clean.coverage.target > 0.6
    broken = sp.compare(compiled(name, config=BUG), eager)
    assert broken.verdict == "large"
    guilty = [row for row in broken.rows if row.guilty]
    assert any(row.reference.type == "aten.relu.default" for row in guilty)
    for row in guilty:
        region = row.introduced.region or (row.reference.label,)
        assert any(name.startswith("relu") for name in region), row.reference.label


class Normed(nn.Module):
    """One fused kernel computes the activations and the norm between the convolutions."""

    def __init__(self, eps=1e-5):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 1)
        self.norm = nn.GroupNorm(2, 8, eps)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        return self.last(nn.functional.silu(self.norm(x)))


def compare_normed(**options):
    models = []
    for model in (Normed(**options), Normed()):
        torch.manual_seed(0)
        for parameter in model.parameters():
            nn.init.normal_(parameter)
        models.append(model.eval())
    inputs = (torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)),)
    return sp.compare(
        *models, inputs=inputs, target_options={"runtime": "inductor"}, keep_runs=True
    )


def test_buffers_of_a_fused_kernel_read_each_other():
    made = compare_normed()
    assert (made.verdict, made.exit_code()) == ("close", 0)
    run = made.run_references.alive()["target"]
    reads = {op.key.op: {edge.op.op for edge in op.inputs} for op in run.ops}
    (silu,) = [op for op in run.ops if op.type == "aten.silu.default"]
    kernel = silu.attributes["kernel"]
    fused = {op.key.op for op in run.ops if op.attributes["kernel"] == kernel}
    # The kernel gives the mean, the deviations and their scales, and what follows from them.
    assert len(fused) > 3
    assert fused - {silu.key.op} <= set.union(*(reads[name] for name in fused))
    assert not any({"norm.weight", "norm.bias"} <= reads[name] for name in fused)
    assert not made.coverage.unseen


def test_a_wrong_norm_inside_a_fused_kernel_is_found():
    made = compare_normed(eps=0.1)
    assert made.verdict == "large"
    (guilty,) = [row for row in made.rows if row.introduced_verdict == "large"]
    assert "silu" in guilty.reference.type


class ManyOutputs(nn.Module):
    """Ops with several outputs of one shape, and one whose other output nothing reads."""

    def __init__(self, correction=1):
        super().__init__()
        self.correction = correction
        self.linear = nn.Linear(12, 12)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.linear(x)), 2)
        variance, mean = torch.var_mean(x, -1, correction=self.correction)
        values, places = x.topk(2)
        return self.linear(torch.sin(x).repeat(1, 1, 1, 2)), variance, mean, values, places


def compare_many_outputs(**options):
    models = []
    for model in (ManyOutputs(**options), ManyOutputs()):
        torch.manual_seed(0)
        nn.init.normal_(model.linear.weight)
        nn.init.normal_(model.linear.bias)
        models.append(model.eval())
    inputs = (torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(1)),)
    return sp.compare(
        *models, inputs=inputs, target_options={"runtime": "inductor"}, keep_runs=True
    )


def test_only_the_first_output_of_an_op_has_its_type():
    made = compare_many_outputs()
    assert (made.verdict, made.exit_code()) == ("close", 0)
    run = made.run_references.alive()["target"]
    of_op = [op for op in run.ops if op.type.startswith("aten.") and "output" in op.attributes]
    assert {op.attributes["output"] for op in of_op} == {0}
    assert any(op.type.startswith("aten.max_pool2d") for op in of_op)
    topk = {row.reference.label: row.verdict for row in made.rows if "topk" in row.reference.label}
    assert topk == {"topk": "close", "topk:1": "close"}


def test_a_wrong_output_of_an_op_with_several_is_found():
    made = compare_many_outputs(correction=0)
    assert made.verdict == "large"
    wrong = {row.reference.label for row in made.rows if row.verdict == "large"}
    assert wrong
    assert all("var_mean" in name or name == "out[1]" for name in wrong)


class Joined(nn.Module):
    """Nothing fills the memory of the concatenation as a whole."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        return self.linear(self.norm(torch.cat([x[:, :1] * 2, self.linear(x)], 1)))


def test_what_reads_a_concatenation_reads_its_parts():
    torch.manual_seed(0)
    run = sp.capture(Joined(), (torch.randn(2, 3, 8),), runtime="inductor")
    depends = set()
    for op in run.ops:
        if any(e.role == "model-input" or e.op.op in depends for e in op.inputs):
            depends.add(op.key.op)
    assert depends == {op.key.op for op in run.ops}
    shown = {op.key.op for op in run.ops}
    assert {e.op.op for op in run.ops for e in op.inputs if e.role == "output"} <= shown
