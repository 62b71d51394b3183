"""Clean conversions raise no alarm; a planted fault is found where it is and nowhere else."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import syncpoint as sp
from models.cnn import Cnn, Residual, cnn_inputs, make_cnn
from models.transformer import make_transformer, transformer_inputs
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Role

VIEWS = ("view", "transpose", "reshape", "permute", "chunk", "flatten", "slice", "expand")


@pytest.fixture(scope="module")
def references():
    made = {
        "transformer": sp.capture(make_transformer(), transformer_inputs()),
        "finfo": sp.capture(make_transformer(mask="finfo"), transformer_inputs()),
        "cnn": sp.capture(make_cnn(), cnn_inputs()),
    }
    return made


MAKERS = {
    "transformer": (make_transformer, transformer_inputs),
    "finfo": (lambda: make_transformer(mask="finfo"), transformer_inputs),
    "cnn": (make_cnn, cnn_inputs),
}


def op_rows(comparison):
    return [r for r in comparison.rows if r.target.key.role is Role.OUTPUT]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("net", ["transformer", "finfo", "cnn"])
def test_clean_conversion_is_close_everywhere(references, net, dtype):
    make, inputs = MAKERS[net]
    target = sp.capture(make(), inputs(), dtype=dtype)
    comparison = sp.compare(target, references[net])
    assert {r.verdict for r in comparison.rows} == {Verdict.CLOSE}
    assert comparison.verdict is Verdict.CLOSE
    assert comparison.coverage.target == comparison.coverage.reference == 1
    assert comparison.exit_code() == 0
    assert comparison.first_divergence == []
    for row in op_rows(comparison):
        assert row.introduced_verdict is Verdict.CLOSE, row
        reads = {edge.role for edge in target.op(row.target.key.op).inputs}
        # A view of a parameter shows how the parameter itself was rounded.
        if row.target.type.split(".")[1] in VIEWS and Role.PARAMETER not in reads:
            assert row.introduced.rmse == 0 and row.introduced.ratio == 0, row
    presets = {r.preset for r in op_rows(comparison)}
    assert presets <= {dtype, "exact"} and dtype in presets


class NoFirstRelu(Residual):
    def forward(self, x):
        inner = self.bn1(self.conv1(x))
        inner = self.bn2(self.conv2(inner))
        return functional.relu(x + inner)


class NoLastRelu(Residual):
    def forward(self, x):
        inner = functional.relu(self.bn1(self.conv1(x)))
        inner = self.bn2(self.conv2(inner))
        return x + inner


class NoStemRelu(Cnn):
    def forward(self, image):
        x = self.bn(self.conv(image))
        x = self.block(self.pool(x))
        return self.classifier(self.dropout(torch.flatten(x, 1)))


def with_block(kind):
    def make():
        model = make_cnn()
        block = copy.copy(model.block)
        block.__class__ = kind
        model.block = block
        return model

    return make


def without_stem_relu():
    model = make_cnn()
    model.__class__ = NoStemRelu
    return model


def edited(make, edit):
    def made():
        model = make()
        with torch.no_grad():
            edit(model)
        return model

    return made


def scale_weight(m):
    m.layers[0].mlp.up.weight *= 1.5


def drop_bias(m):
    m.layers[1].mlp.up.bias.zero_()


def wrong_epsilon(m):
    m.layers[1].mlp_norm.eps = 0.3


FAULTS = {
    # name: (net, maker of the target, module of the guilty op, words of its type)
    "weight x1.5": (
        "transformer",
        edited(make_transformer, scale_weight),
        "layers.0.mlp.up",
        "linear",
    ),
    "missing bias": (
        "transformer",
        edited(make_transformer, drop_bias),
        "layers.1.mlp.up",
        "linear",
    ),
    "layer norm epsilon": (
        "transformer",
        edited(make_transformer, wrong_epsilon),
        "layers.1.mlp_norm",
        "layer_norm",
    ),
    "masked with the lowest value": (
        "finfo",
        edited(lambda: make_transformer(mask="finfo"), scale_weight),
        "layers.0.mlp.up",
        "linear",
    ),
    "conv weight x1.5": (
        "cnn",
        edited(make_cnn, lambda m: m.block.conv1.weight.mul_(1.5)),
        "block.conv1",
        "conv2d",
    ),
    "batch norm epsilon": (
        "cnn",
        edited(make_cnn, lambda m: setattr(m.block.bn2, "eps", 0.3)),
        "block.bn2",
        "batch_norm",
    ),
    # The relu that is not there cannot be blamed: the next op that is paired stands for it.
    "first relu of the block missing": ("cnn", with_block(NoFirstRelu), "block.conv2", "conv2d"),
    "stem relu missing": ("cnn", without_stem_relu, "pool", "max_pool2d"),
    "last relu of the block missing": ("cnn", with_block(NoLastRelu), "", "flatten"),
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_guilty_alone_and_the_rest_inherits(references, fault, dtype):
    net, make, module, kind = FAULTS[fault]
    target = sp.capture(make(), MAKERS[net][1](), dtype=dtype)
    comparison = sp.compare(target, references[net])
    rows = op_rows(comparison)
    guilty = [r for r in rows if r.introduced_verdict is not Verdict.CLOSE]
    assert [(r.target.module, r.target.type.split(".")[1]) for r in guilty] == [(module, kind)]
    assert guilty[0].introduced_verdict is Verdict.LARGE
    # A fault within the limits of bfloat16 is not red, and not green either.
    seen = guilty[0].verdict
    assert seen is Verdict.LARGE or (dtype == "bf16" and seen is Verdict.MODERATE)
    assert guilty[0].introduced.ratio > (1000 if dtype == "f32" else 10)
    if "missing" in fault and "bias" not in fault:
        assert any("relu" in op for op in guilty[0].introduced.region)
    after = [r for r in rows if r.target.order > guilty[0].target.order]
    assert after
    # In bfloat16 the damage may fade below the limits on its way; in float32 it does not.
    allowed = {Verdict.INHERITED} if dtype == "f32" else {Verdict.INHERITED, Verdict.CLOSE}
    reached = [r for r in after if depends(comparison, r.target.key.op, guilty[0].target.key.op)]
    assert {r.verdict for r in reached} <= allowed
    if seen is Verdict.LARGE:
        assert any(r.verdict is Verdict.INHERITED for r in reached)
    assert all(r.verdict is Verdict.CLOSE for r in rows if r.target.order < guilty[0].target.order)
    assert comparison.first_divergence == guilty
    assert comparison.verdict is seen
    assert comparison.exit_code(fail_on="moderate") == 1
    assert comparison.exit_code() == (seen is Verdict.LARGE)


def depends(comparison, op, on):
    """Whether an op of the target reads, directly or not, what another made."""
    waiting, seen = [op], set()
    while waiting:
        now = waiting.pop()
        if now == on:
            return True
        if now not in seen:
            seen.add(now)
            waiting.extend(comparison.edges[now])
    return False


@pytest.mark.parametrize("mask", ["inf", "finfo"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_ruined_scores_are_not_hidden_by_an_attention_mask(mask, dtype):
    reference = sp.capture(make_transformer(mask=mask), transformer_inputs())

    def flip(model):
        width = model.layers[0].attention.qkv.weight.shape[1]
        model.layers[0].attention.qkv.weight[:width] *= -1
        model.layers[0].attention.qkv.bias[:width] *= -1

    target = sp.capture(
        edited(lambda: make_transformer(mask=mask), flip)(), transformer_inputs(), dtype=dtype
    )
    comparison = sp.compare(target, reference)
    rows = {r.target.key.op.op: r for r in op_rows(comparison)}
    assert rows["linear"].introduced_verdict is Verdict.LARGE
    masked = rows["masked_fill"]
    assert masked.verdict is Verdict.INHERITED
    assert masked.numbers["masked"] > 0 and masked.numbers["mismatched"] == 0
    assert masked.numbers["psnr"] < 20


def test_one_sided_mask_is_a_divergence():
    """A target that lost its mask differs where the reference is masked."""
    reference = sp.capture(make_transformer(mask="finfo"), transformer_inputs())
    target = sp.capture(make_transformer(mask="none"), transformer_inputs())
    comparison = sp.compare(target, reference)
    guilty = [r for r in op_rows(comparison) if r.introduced_verdict is Verdict.LARGE]
    assert [r.target.type for r in guilty] == ["aten.softmax.int"] * 2
    assert all(
        "masked_fill" in r.introduced.region[0] or len(r.introduced.region) > 1 for r in guilty
    )


class AddedMask(nn.Module):
    """Scores with the lowest value of their type added, as many libraries mask."""

    def __init__(self, lost=False):
        super().__init__()
        self.lost = lost

    def forward(self, scores, keep):
        bias = torch.where(keep, 0.0, torch.finfo(scores.dtype).min).to(scores.dtype)
        if self.lost:
            bias = bias * 0.0
        return (scores + bias).softmax(-1)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_a_mask_that_overflows_by_a_score_is_still_a_mask(dtype):
    """In float16, -65504 plus -40 is -inf; neither that nor -65504 plus 5 is an error."""
    torch.manual_seed(0)
    inputs = (60 * torch.randn(4, 16), torch.rand(4, 16) > 0.4)
    reference = sp.capture(AddedMask(), inputs)
    comparison = sp.compare(sp.capture(AddedMask(), inputs, dtype=dtype), reference)
    rows = {r.target.key.op.op: r for r in op_rows(comparison)}
    assert {r.verdict for r in rows.values()} == {Verdict.CLOSE}
    assert rows["add"].numbers["masked"] > 0
    if dtype == "f16":
        assert rows["add"].numbers["target_inf"] > 0
    lost = sp.compare(sp.capture(AddedMask(lost=True), inputs, dtype=dtype), reference)
    bad = {r.target.key.op.op for r in op_rows(lost) if r.introduced_verdict is Verdict.LARGE}
    assert bad == {"add"}


class Overflowing(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.scale = scale

    def forward(self, x):
        y = self.first(x) * self.scale
        return torch.relu(y * 100.0)


def test_first_non_finite_op_is_marked_and_what_follows_inherits():
    torch.manual_seed(0)
    model = Overflowing(3000.0)
    inputs = (torch.randn(4, 8),)
    reference = sp.capture(model, inputs)
    target = sp.capture(model, inputs, dtype="f16")
    comparison = sp.compare(target, reference)
    marked = [r for r in comparison.rows if r.first_non_finite]
    assert [r.target.key.op.op for r in marked] == ["mul_1"]
    assert marked[0].verdict is Verdict.LARGE
    relu = next(r for r in op_rows(comparison) if r.target.type == "aten.relu.default")
    assert relu.verdict is Verdict.INHERITED
    assert comparison.exit_code() == 1


class Dropping(nn.Module):
    def forward(self, x):
        return functional.dropout(x, 0.5, True) + 1.0


def test_random_ops_are_excluded_and_not_guilty():
    inputs = (torch.ones(4, 8),)
    reference = sp.capture(Dropping(), inputs, seed=1)
    target = sp.capture(Dropping(), inputs, seed=2)
    comparison = sp.compare(target, reference)
    rows = {r.target.key.op.op: r for r in op_rows(comparison)}
    assert rows["dropout"].verdict is Verdict.NONE and rows["dropout"].reason.startswith("random")
    assert rows["add"].verdict is Verdict.INHERITED


class Amplifying(nn.Module):
    """The small difference of two large numbers, enlarged."""

    def forward(self, x):
        return ((x + 1000.0) - 1000.0) * 1e4


def test_outputs_that_are_off_with_nobody_guilty_are_amplified():
    inputs = (torch.rand(64) + 0.5,)
    reference = sp.capture(Amplifying(), inputs)
    target = sp.capture(Amplifying(), inputs, dtype="bf16")
    comparison = sp.compare(target, reference)
    assert [r.verdict for r in comparison.outputs] == [Verdict.AMPLIFIED]
    assert comparison.exit_code() == 1


def test_ties_of_indices_are_close():
    class Choosing(nn.Module):
        def forward(self, scores):
            return torch.argmax(scores, dim=-1), torch.topk(scores, 3).indices

    # 1.0 and 1.001 are the same number in bfloat16.
    scores = torch.tensor([[0.0, 1.0, 1.001, -1.0], [3.0, 1.0, 2.0, 0.5]])
    reference = sp.capture(Choosing(), (scores,))
    target = sp.capture(Choosing(), (scores,), dtype="bf16")
    comparison = sp.compare(target, reference)
    rows = {(r.target.key.op.op, r.target.key.index): r for r in op_rows(comparison)}
    chosen = [
        run.values(run.tensor(rows["argmax", 0].target.key)).tolist() for run in (target, reference)
    ]
    assert chosen[0] != chosen[1]
    assert rows["argmax", 0].verdict is Verdict.CLOSE
    assert rows["topk", 1].verdict is Verdict.CLOSE


def test_a_target_left_in_training_mode_is_found():
    """Random on one side only is no excuse."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    inputs = (torch.randn(4, 8),)
    reference = sp.capture(model, inputs, mode="eval")
    comparison = sp.compare(sp.capture(model, inputs, mode="train"), reference)
    assert [r.target.type for r in comparison.first_divergence] == ["aten.dropout.default"]
    assert comparison.exit_code() == 1


def test_a_random_model_output_is_not_passed_over():
    inputs = (torch.ones(4, 8),)
    runs = [sp.capture(nn.Dropout(0.5), inputs, mode="train", seed=s) for s in (1, 2)]
    assert sp.compare(*runs).exit_code() == 3


def test_the_reference_is_its_recording_even_if_the_model_was_changed_since():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    inputs = (torch.randn(4, 8),)
    reference = sp.capture(model, inputs)
    with torch.no_grad():
        model[2].weight.mul_(1.5)
    comparison = sp.compare(sp.capture(model, inputs), reference)
    assert [r.target.key.op.op for r in comparison.first_divergence] == ["linear_1"]


def test_indices_that_repeat_are_wrong_however_good_their_scores():
    class Choosing(nn.Module):
        def __init__(self, wrong):
            super().__init__()
            self.wrong = wrong

        def forward(self, scores):
            found = torch.topk(scores, 2).indices
            return found[:, :1].expand(-1, 2).clone() if self.wrong else found.clone()

    scores = torch.ones(3, 5) + 1e-7 * torch.arange(5)
    reference = sp.capture(Choosing(False), (scores,))
    comparison = sp.compare(sp.capture(Choosing(True), (scores,)), reference)
    assert comparison.exit_code() == 1


@pytest.mark.parametrize("how", ["argmax", "max", "topk", "pool"])
def test_model_outputs_that_are_indices_may_tie(how):
    class Choosing(nn.Module):
        def __init__(self):
            super().__init__()
            self.scores = nn.Linear(16, 64)

        def forward(self, x):
            y = self.scores(x)
            if how == "pool":
                return functional.max_pool1d(y, 4, return_indices=True)[1]
            return y.topk(3).indices if how == "topk" else getattr(y, how)(-1)

    torch.manual_seed(0)
    model = Choosing()
    inputs = (torch.randn(512, 16),)
    comparison = sp.compare(sp.capture(model, inputs, dtype="bf16"), sp.capture(model, inputs))
    assert comparison.verdict is Verdict.CLOSE


def test_a_wrong_choice_among_scores_with_an_offset_is_found():
    class Choosing(nn.Module):
        def __init__(self, least):
            super().__init__()
            self.least = least

        def forward(self, scores):
            return torch.argmax(-scores if self.least else scores, -1)

    scores = 1e6 + torch.arange(8.0).repeat(4, 1)
    reference = sp.capture(Choosing(False), (scores,))
    assert sp.compare(sp.capture(Choosing(True), (scores,)), reference).exit_code() == 1


def test_one_wrong_choice_among_many_is_found():
    torch.manual_seed(0)
    scores = torch.randn(5000, 10)

    class Choosing(nn.Module):
        def __init__(self, wrong):
            super().__init__()
            self.wrong = wrong

        def forward(self, scores):
            found = scores.argmax(-1)
            return (
                torch.where(torch.arange(5000) == 7, scores.argmin(-1), found)
                if self.wrong
                else found
            )

    runs = [sp.capture(Choosing(wrong), (scores,)) for wrong in (True, False)]
    assert sp.compare(*runs).exit_code() == 1


class Constants(nn.Module):
    def forward(self, x):
        return (x == 0.1).float() + (x > 0.1).float() + torch.remainder(x, 0.1)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_constants_that_are_other_numbers_in_float64_raise_no_alarm(dtype):
    x = torch.cat([torch.full((4,), 0.1), torch.linspace(-1, 1, 32)])
    reference = sp.capture(Constants(), (x,), dtype=dtype)
    comparison = sp.compare(sp.capture(Constants(), (x,), dtype=dtype), reference)
    assert {r.verdict for r in comparison.rows} == {Verdict.CLOSE}


@pytest.mark.parametrize("mean", [0.0, 50.0, 1000.0])
def test_a_faulty_normalisation_is_found_whatever_the_mean_of_its_input(mean):
    torch.manual_seed(0)
    inputs = (mean + torch.randn(8, 64),)
    reference = sp.capture(nn.LayerNorm(64), inputs)
    wrong = nn.LayerNorm(64)
    with torch.no_grad():
        wrong.weight *= 1.5
    comparison = sp.compare(sp.capture(wrong, inputs, dtype="bf16"), reference)
    assert [r.target.key.op.op for r in comparison.first_divergence] == ["layer_norm"]


def test_float64_computed_in_float32_is_found(tmp_path):
    class Product(nn.Module):
        def forward(self, x):
            return x @ x.T

    x = torch.randn(32, 64, dtype=torch.float64)
    reference = sp.capture(Product(), (x,))
    narrow = (x.float() @ x.float().T).double().numpy()
    name = next(op.key.op for op in reference.ops if "matmul" in op.type)
    np.savez(tmp_path / "target.npz", **{name: narrow})
    row = next(r for r in sp.compare(tmp_path / "target.npz", reference).rows if r.introduced)
    assert row.introduced_verdict is Verdict.LARGE


def test_a_mask_in_a_narrow_type_does_not_loosen_the_limits():
    class Masked(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x, mask):
            return (x + mask) * self.factor

    inputs = (torch.randn(16, 16), torch.zeros(16, 16, dtype=torch.bfloat16))
    runs = [sp.capture(Masked(f), inputs) for f in (1.008, 1.0)]
    comparison = sp.compare(*runs)
    assert comparison.exit_code() == 1
    assert {r.preset for r in op_rows(comparison)} == {"f32"}


def test_one_more_constant_does_not_shift_the_others():
    class Adding(nn.Module):
        def __init__(self, more):
            super().__init__()
            self.more = more

        def forward(self, x):
            if self.more:
                x = x * torch.tensor([1.0, 1.0])
            return x + torch.tensor([3.0, 4.0])

    x = torch.randn(4, 2)
    comparison = sp.compare(*(sp.capture(Adding(more), (x,)) for more in (True, False)))
    assert comparison.verdict is Verdict.CLOSE


def test_ops_that_do_not_fit_into_memory_are_not_run_in_float64(references, monkeypatch):
    from syncpoint.comparison.introduced_error import local_calculation

    monkeypatch.setattr(local_calculation, "_ALWAYS_FITS", 1 << 8)
    monkeypatch.setattr(local_calculation, "available_bytes", lambda: 32 << 12)
    found = sp.compare(sp.capture(make_cnn(), cnn_inputs(), dtype="f16"), references["cnn"])
    unknown = [r for r in op_rows(found) if r.introduced is None]
    assert unknown and len(unknown) < len(op_rows(found))
    for row in unknown:
        assert "elements, more than the limit of 4,096 for float64" in row.unknown.detail
