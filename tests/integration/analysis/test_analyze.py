"""Compiled against eager and float64: who made the error, and who is right."""

import json
import subprocess
import sys
from functools import cache, partial

import pytest
import torch
from torch import nn

import syncpoint as sp
from models.gpt import make_small_gpt, small_gpt_inputs
from models.mlp import make_mlp, mlp_inputs
from models.nested import make_nested, nested_inputs
from models.resnet import make_small_resnet, small_resnet_inputs
from syncpoint.comparison.storage.comparison_folder import load, save
from syncpoint.errors import InputError
from syncpoint.metrics.limits import PRESETS

NETS = {
    "mlp": (make_mlp, mlp_inputs),
    "resnet": (make_small_resnet, small_resnet_inputs),
    "gpt": (partial(make_small_gpt, "relu"), small_gpt_inputs),
}
SYNCPOINT = [sys.executable, "-c", "from syncpoint.cli import main; main()"]
BUG = "cpp.inject_relu_bug_TESTING_ONLY=accuracy"


@cache
def analysis(net, config=""):
    make, inputs = NETS[net]
    return sp.analyze(make(), inputs(), config=config)


@pytest.mark.parametrize("net", NETS)
def test_a_clean_build_is_close(net):
    made = analysis(net)
    assert made.exit_code == 0
    assert made.verdict == "close"
    assert made.guilty == []
    assert not made.lowering
    assert not made.runs.missing
    assert made.uncompiled == ()
    assert "not compiled" not in made.to_text()
    assert all(not ops for ops in made.runs.unsteady.values())
    assert [output.truth.passes for output in made.outputs] == [True]
    assert all(t.compiled is not None and t.eager is not None for t in made.truths.values())


@pytest.mark.parametrize("net", NETS)
def test_the_text_of_an_analysis_has_the_rows_that_are_asked_for(net):
    made = analysis(net)
    assert made.to_text() == str(made)
    assert made.to_text().splitlines()[-1] == made.headline
    assert "--rows 0 shows all" in made.to_text(rows=1)
    assert "--rows 0 shows all" not in made.to_text(rows=0)
    runs = made.comparison.run_references.alive()
    assert runs == {"target": made.runs.compiled, "reference": made.runs.graph}


@pytest.mark.parametrize("net", NETS)
def test_an_injected_bug_is_found_in_exactly_the_kernels_that_have_it(net):
    made = analysis(net, BUG)
    assert made.exit_code == 1
    with_relu = {
        op.key
        for op in made.runs.compiled.ops
        if "relu" in op.attributes["kernel"]
        and _computes_relu(op.attributes.get("value_of", ""), op.attributes.get("computes", ()))
    }
    guilty = {row.target.key.op for row in made.guilty}
    assert guilty
    assert guilty == {k for k in with_relu if _is_first(made, k)}
    assert [output.truth.nearer for output in made.outputs] == ["eager"]
    assert [output.truth.passes for output in made.outputs] == [False]


def _computes_relu(value_of, computes):
    return value_of.startswith("relu") or any(name.startswith("relu") for name in computes)


def _is_first(made, key):
    """Whether relu is between the buffer and those it reads: where a relu has a buffer of its
    own in the same kernel, what follows it there is not to blame."""
    op = made.runs.compiled.op(key)
    if op.attributes.get("value_of", "").startswith("relu"):
        return True
    own = {o.attributes.get("value_of", "") for o in made.runs.compiled.ops}
    relus = [name for name in op.attributes.get("computes", ()) if name.startswith("relu")]
    return bool(relus) and not set(relus) & own


def test_replacing_the_last_guilty_value_mends_the_output():
    shares = {c.op: c.share for c in analysis("mlp", BUG).contributions}
    assert shares.keys() == {"buf1", "buf3"}
    assert shares["buf3"] == 1.0
    assert 0 < shares["buf1"] < 1


class Chain(nn.Module):
    def forward(self, x, y, z):
        return (x * y + z) * y - x


def chain_inputs():
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(64, 64, generator=generator).bfloat16() for _ in range(3))


def test_what_is_nearer_to_the_truth_stays_close_when_it_is_judged_again(tmp_path):
    result = sp.analyze(Chain(), chain_inputs()).result
    saved = load(save(result, tmp_path / "nearer.cmp"))
    for again in (result.rejudged("auto"), saved, saved.rejudged("auto")):
        assert [row.verdict for row in again.rows] == [row.verdict for row in result.rows]
        assert again.verdict == "close"
    strict = saved.rejudged(PRESETS["f32"])
    nearer = [row for row in strict.rows if row.nearer_to_float64]
    assert nearer and not any(row.verdict.severity for row in nearer)


def test_a_compiled_result_that_is_nearer_to_the_truth_is_no_fault():
    inputs = chain_inputs()
    made = sp.analyze(Chain(), inputs, emulate_precision_casts=True)
    assert made.exit_code == 0
    [output] = made.outputs
    assert output.truth.compiled < output.truth.eager
    text = str(made)
    assert "compiled is nearer to float64 than eager" in text
    assert "large" not in text
    assert "elided rounding explains the difference" in made.emulated
    # By hand: the same formula in float64.
    x, y, z = (value.double() for value in inputs)
    truth = (x * y + z) * y - x
    eager = Chain()(*inputs).double()
    assert output.truth.eager == pytest.approx((eager - truth).pow(2).mean().sqrt().item())


def test_outputs_are_named_by_their_paths():
    args, kwargs = nested_inputs()
    made = sp.analyze(make_nested(), (args, kwargs))
    assert {'out["logits"][0]', 'out["aux"]["right"]'} <= {o.path for o in made.outputs}
    assert made.exit_code == 0


def test_kernels_that_hide_ops_are_named():
    hidden = analysis("gpt").hidden()
    assert hidden["exp"].startswith("cpp_fused__softmax")
    assert not set(hidden) & {
        op.attributes.get("value_of") for op in analysis("gpt").runs.compiled.ops
    }


def test_wrong_graph_passes_are_told_from_wrong_kernels():
    """A pass that rewrites the graph before it is lowered: kernels are right, the graph is not."""
    from torch._inductor import config

    class Pass:
        def __call__(self, graph):
            for node in graph.nodes:
                if node.target is torch.ops.aten.relu.default:
                    node.target = torch.ops.aten.abs.default

        def uuid(self):
            return None

    with config.patch(post_grad_custom_post_pass=Pass()):
        made = sp.analyze(make_mlp(), mlp_inputs())
    assert made.exit_code == 1
    assert made.guilty == []
    assert "graph passes changed the computation" in made.lowering


class TwoAttentions(nn.Module):
    """Inductor wraps the second attention, so that it stays after the first."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Linear(8, 24) for _ in range(2))

    def forward(self, x):
        for linear in (self.first, self.second):
            x = nn.functional.scaled_dot_product_attention(*linear(x).chunk(3, -1))
        return x


def analyze_two_attentions():
    torch.manual_seed(0)
    return sp.analyze(TwoAttentions(), (torch.randn(2, 4, 6, 8),))


def test_ops_that_are_wrapped_for_their_order_run_in_float64():
    made = analyze_two_attentions()
    assert made.verdict == "close"
    assert not made.runs.missing
    rows = [row for row in made.result.rows if row.target.key.role == "output"]
    attention = [row for row in rows if "attention" in row.reference.type]
    assert len({row.reference.key.op for row in attention}) == 2
    assert all(row.introduced is not None for row in attention)
    assert all(row.reference.key in made.truths for row in attention)


def test_a_wrong_graph_pass_shows_in_an_op_that_is_wrapped_for_its_order():
    from torch._inductor import config

    class Pass:
        def __call__(self, graph):
            attention = [node for node in graph.nodes if "flash_attention" in node.name]
            attention[-1].kwargs = {**attention[-1].kwargs, "scale": 3.0}

        def uuid(self):
            return None

    with config.patch(post_grad_custom_post_pass=Pass()):
        made = analyze_two_attentions()
    assert made.exit_code == 1
    assert not made.runs.missing
    assert "graph passes changed the computation" in made.lowering


class TwoNorms(nn.Module):
    """The second norm reads numbers whose mean is near zero."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.first, self.second = (nn.LayerNorm(32) for _ in range(2))

    def forward(self, x):
        x = self.first(x)
        return self.second(x + 1e-4 * self.linear(x))


def test_the_mean_of_a_norm_near_zero_is_judged_beside_what_it_adds_up():
    torch.manual_seed(0)
    made = sp.analyze(TwoNorms(), (torch.randn(2, 7, 32),))
    assert made.verdict == "close"
    means = [row for row in made.result.rows if row.introduced and row.introduced.terms_error]
    assert [row.reference.label for row in means] == ["var_mean_1:1"]
    assert means[0].numbers["psnr"] < 100


def test_something_unsteady_is_named():
    calls = []  # outside of the model, whose own attributes are put back after each run

    class Unsteady(nn.Module):
        def forward(self, x):
            return torch.sin(x) + self.noise(x)

        @torch._dynamo.disable
        def noise(self, x):
            calls.append(1)
            return torch.full_like(x, float(len(calls)))

    made = sp.analyze(Unsteady(), (torch.randn(4, 4),))
    assert made.runs.unsteady["compiled"]


def test_the_command(tmp_path):
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "torch.manual_seed(0)\n"
        "model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()\n"
        "def inputs():\n"
        "    return (torch.randn(2, 8, generator=torch.Generator().manual_seed(1)),)\n"
    )
    command = [
        *(*SYNCPOINT, "analyze", "net.py:model"),
        *("--inputs", "net.py:inputs", "-o", "kept", "--json", "a.json"),
        *("--set", f"config={BUG}"),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "error introduced in cpp_fused_relu_0" in done.stdout
    said = json.loads((tmp_path / "a.json").read_text())
    assert said["guilty"] == [{"op": "buf1", "kernel": "cpp_fused_relu_0"}]
    assert said["verdict"] == "large"
    assert sp.open_comparison(tmp_path / "kept" / "compiled.cmp").verdict == "large"
    assert {p.name for p in (tmp_path / "kept").glob("*.run")} == {
        "compiled.run",
        "graph.run",
        "graph64.run",
        "eager.run",
        "float64.run",
    }


def test_files_that_torch_writes_to_repeat_a_failure(tmp_path):
    from torch._dynamo.repro.after_aot import save_graph_repro
    from torch.fx.experimental.proxy_tensor import make_fx

    def function(x, y):
        return (torch.relu(x @ y),)

    generator = torch.Generator().manual_seed(0)
    args = [torch.randn(8, 8, generator=generator) for _ in range(2)]
    path = tmp_path / "repro.py"
    with path.open("w") as file:
        graph = make_fx(function)(*args)
        save_graph_repro(file, graph, args, "inductor", save_dir=str(tmp_path / "kept"))
    made = sp.analyze(str(path), config=BUG)
    assert made.exit_code == 1
    assert [row.target.type for row in made.guilty] == ["aten.relu.default"]
    run = made.runs.compiled
    given = [run.values(t) for t in run.tensors if t.key.role == "model-input"]
    assert len(given) == 2
    assert any((value == args[0].numpy()).all() for value in given)
    path.write_text(path.read_text().replace(str(tmp_path / "kept"), str(tmp_path / "lost")))
    lost = sp.analyze(str(path))
    assert any("2 of 2 inputs" in note and "random" in note for note in lost.notes)


class Numbers(nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        return {"y": y, "k": int(y.argmax()), "n": None}


def test_outputs_that_are_no_tensors():
    made = sp.analyze(Numbers(), (torch.randn(4, 4, generator=torch.Generator().manual_seed(0)),))
    assert made.exit_code == 0
    assert [output.path for output in made.outputs] == ['out["y"]']


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return nn.functional.dropout(self.linear(x), 0.5, self.training)


def test_random_numbers_are_the_same_in_both_executions():
    torch.manual_seed(0)
    made = sp.analyze(Dropping(), (torch.randn(4, 8),), mode="train")
    assert made.exit_code == 0
    assert "draws random numbers" in made.runs.missing["float64"]
    assert "without a float64 run it is unknown which side is right" in str(made)


def test_what_is_not_compiled_is_compared_by_its_outputs():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 8, batch_first=True)

        def forward(self, x):
            return self.lstm(x)[0]

    torch.manual_seed(0)
    made = sp.analyze(Recurrent(), (torch.randn(2, 3, 4),))
    assert made.exit_code == 0
    assert [output.path for output in made.outputs] == ["out"]
    assert any("no graph to compile" in note for note in made.runs.compiled.info.notes)
    assert [op.type for op in made.uncompiled_ops()] == ["aten.lstm.input"]


class Rectified(nn.Linear):
    def forward(self, x):
        return torch.relu(super().forward(x))


class Around(nn.Module):
    """Torch compiles what is before and after the LSTM, which runs in eager mode."""

    def __init__(self):
        super().__init__()
        self.before = Rectified(4, 4)
        self.lstm = nn.LSTM(4, 8, batch_first=True)
        self.after = Rectified(8, 8)

    def forward(self, x):
        return self.after(self.lstm(self.before(x))[0])


@pytest.mark.parametrize("config", ["", BUG])
def test_what_is_not_compiled_between_compiled_graphs_is_named(config):
    torch.manual_seed(0)
    made = sp.analyze(Around(), (torch.randn(2, 3, 4),), config=config)
    assert bool(made.guilty) is bool(config)
    assert made.exit_code == bool(config)
    assert [op.type for op in made.uncompiled_ops()] == ["aten.lstm.input"]
    assert made.headline.endswith("1 op was not compiled")
    assert "not compiled, so without buffers: lstm (lstm, test_analyze.py:" in made.to_text()


def test_settings_of_a_wrong_type_are_refused():
    for config in ("cpp.threads=abc", "cpp.nope=1", "cpp.threads"):
        with pytest.raises(InputError, match=config.partition("=")[0]):
            sp.analyze(make_mlp(), mlp_inputs(), config=config)
    assert sp.analyze(make_mlp(), mlp_inputs(), fullgraph=True).exit_code == 0
