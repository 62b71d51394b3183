"""One op in another precision: every place where a model names its type is rewritten."""

import numpy as np
import pytest
import torch
from torch import nn

from syncpoint.errors import InputError, Unsupported
from syncpoint.run.model import Edge, OpKey, Role
from syncpoint.runtimes.inputs.read_inputs import as_inputs
from syncpoint.runtimes.options import parse_options
from syncpoint.runtimes.protocol import Evaluates, Prepares, Region
from syncpoint.runtimes.registry import load_runtime


class Calls(nn.Module):
    """A model out of one function; its parameter is `weight`."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.linspace(-1.0, 1.0, 4))

    def forward(self, x):
        return self.function(self, x)


X = np.array([[0.1, -2.0, 3.3, 0.7]], np.float32)


def session_for(function, x=X):
    torch_runtime = load_runtime("torch")
    session = torch_runtime.open(Calls(function).eval(), parse_options(torch_runtime, {}))
    session.prepare(as_inputs((x,)))
    return session


def whole(session, output: str, index: int = 0) -> Region:
    program = next(iter(session._programs.values()))
    fed = Edge(OpKey("x"), role=Role.MODEL_INPUT)
    ops = tuple(OpKey(name) for name in program.nodes)
    return Region(ops, (fed,), (Edge(OpKey(output), index),))


def evaluated(function, dtype="f64", x=X, **more):
    session = session_for(function, x)
    program = next(iter(session._programs.values()))
    last = list(program.nodes)[-1]
    region = whole(session, last)
    return session.evaluate(region, {region.inputs[0]: x}, dtype, **more)[0]


def test_a_session_follows_the_protocols():
    session = session_for(lambda m, x: x + 1)
    assert isinstance(session, Evaluates)
    assert isinstance(session, Prepares)


THIRD = 1 / 3

REWRITTEN = {
    "cast by position": lambda m, x: x.to(torch.float32) * THIRD,
    "cast by name": lambda m, x: x.to(dtype=torch.float16) * THIRD,
    "half": lambda m, x: x.half().float() * THIRD,
    "softmax dtype": lambda m, x: torch.softmax(x, -1, torch.float32),
    "sum dtype": lambda m, x: x.sum(-1, dtype=torch.float32),
    "cumsum dtype": lambda m, x: x.cumsum(-1, dtype=torch.float32),
    "zeros": lambda m, x: torch.zeros(4) + x,
    "full": lambda m, x: torch.full((4,), THIRD) * x,
    "ones like": lambda m, x: torch.ones_like(x, dtype=torch.float32) * THIRD,
    "arange": lambda m, x: torch.arange(0, 1, 0.25) * x,
    "integer division": lambda m, x: torch.arange(1, 5) / 3,
    "root of integers": lambda m, x: torch.sqrt(torch.arange(1, 5)) + 0 * x,
    "mean of integers": lambda m, x: x + (torch.arange(5) / 7).mean(),
    "type as": lambda m, x: x.type_as(m.weight) * m.weight,
    "literal": lambda m, x: torch.tensor(THIRD) * x.float(),
    "linspace": lambda m, x: torch.linspace(0, THIRD, 4) + x,
    "float8": lambda m, x: x.to(torch.float8_e4m3fn).to(torch.float32) * THIRD,
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_everything_floating_is_in_the_wide_type(name):
    found = evaluated(REWRITTEN[name])
    assert found.dtype == np.float64
    rounded = found.astype(np.float32).astype(np.float64)
    if name not in ("sum dtype", "cumsum dtype", "zeros"):
        assert (found != rounded).any(), "it was rounded to float32 on the way"


def test_the_values_are_those_of_float64():
    wide = X.astype(np.float64)
    np.testing.assert_array_equal(evaluated(REWRITTEN["half"]), wide * THIRD)
    np.testing.assert_array_equal(evaluated(REWRITTEN["float8"]), wide * THIRD)
    np.testing.assert_array_equal(evaluated(REWRITTEN["integer division"]), np.arange(1, 5) / 3)


def test_integers_and_bools_stay():
    assert evaluated(lambda m, x: x > 0).dtype == bool
    assert evaluated(lambda m, x: x.argmax(-1)).dtype == np.int64
    assert evaluated(lambda m, x: x.to(torch.int32) + 1).dtype == np.int32


def test_complex_numbers_are_widened_too():
    assert evaluated(lambda m, x: torch.fft.rfft(x)).dtype == np.complex128
    assert evaluated(lambda m, x: torch.complex(x, x).to(torch.complex64)).dtype == np.complex128


def test_limits_of_the_models_own_type_stay():
    found = evaluated(lambda m, x: torch.nan_to_num(x / 0.0))
    assert found[0, 0] == np.finfo(np.float32).max


def test_attention_runs_in_float64():
    def attention(m, x):
        heads = x.reshape(1, 1, 2, 2)
        return nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)

    found = evaluated(attention)
    rows = X.astype(np.float64).reshape(2, 2)
    scores = rows @ rows.T / np.sqrt(2.0)
    weights = np.exp(scores[1] - scores[1].max())
    expected = np.stack([rows[0], weights / weights.sum() @ rows])
    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-14)


def test_parameters_may_be_rounded_first():
    weight = torch.linspace(-1.0, 1.0, 4).numpy()
    exact = evaluated(lambda m, x: x * m.weight)
    rounded = evaluated(lambda m, x: x * m.weight, parameter_dtype="f16")
    np.testing.assert_array_equal(exact, X.astype(np.float64) * weight)
    np.testing.assert_array_equal(rounded, X.astype(np.float64) * weight.astype(np.float16))


def test_values_of_other_kinds_are_taken_as_what_the_op_expects():
    session = session_for(lambda m, x: torch.where(x > 0, x, m.weight))
    compared, chosen = Edge(OpKey("gt")), Edge(OpKey("where"))
    fed = Edge(OpKey("x"), role=Role.MODEL_INPUT)
    region = Region((OpKey("where"),), (compared, fed), (chosen,))
    given = {compared: np.array([[1.0, 0, 1, 0]]), fed: X.astype(np.float64)}
    found = session.evaluate(region, given, "f64")[0]
    np.testing.assert_array_equal(found[0, [0, 2]], X[0, [0, 2]].astype(np.float64))


def test_results_do_not_share_the_callers_memory():
    session = session_for(lambda m, x: x.reshape(2, 2))
    region = whole(session, "reshape")
    given = X.astype(np.float64)
    found = session.evaluate(region, {region.inputs[0]: given}, "f64")[0]
    assert not np.shares_memory(found, given)


def test_quantizing_is_identity_and_stored_integers_are_dequantized():
    from torch.ao.quantization.fx import _decomposed  # noqa: F401  # registers the ops

    ops = torch.ops.quantized_decomposed
    stored = torch.tensor([3, -4, 5, 6], dtype=torch.int8)

    def around(m, x):
        q = ops.quantize_per_tensor.default(x, 0.5, 1, -128, 127, torch.int8)
        return ops.dequantize_per_tensor.default(q, 0.5, 1, -128, 127, torch.int8) * THIRD

    def weights(m, x):
        scale = ops.dequantize_per_tensor.default(stored, 0.1, 1, -128, 127, torch.int8)
        return scale * x

    np.testing.assert_array_equal(evaluated(around), X.astype(np.float64) * THIRD)
    expected = (stored.numpy().astype(np.float64) - 1) * 0.1 * X
    np.testing.assert_allclose(evaluated(weights), expected, rtol=1e-15)


def test_random_and_reinterpreting_ops_are_refused():
    with pytest.raises(Unsupported, match="draws random numbers"):
        evaluated(lambda m, x: x + torch.rand(4))
    with pytest.raises(Unsupported, match="it is a bitcast"):
        evaluated(lambda m, x: x.view(torch.int32) + 1)


def test_what_is_missing_or_misshapen_is_said():
    session = session_for(lambda m, x: (x + 1) * 2)
    fed = Edge(OpKey("x"), role=Role.MODEL_INPUT)
    with pytest.raises(InputError, match="no values for add, which the region reads"):
        session.evaluate(Region((OpKey("mul"),), (), (Edge(OpKey("mul")),)), {}, "f64")
    with pytest.raises(
        InputError,
        match=r"'x' is f32\[1, 4\] in this model, but .* value has shape \[3\]",
    ):
        session.evaluate(whole(session, "mul"), {fed: np.ones(3)}, "f64")
    with pytest.raises(Unsupported, match="not in the model"):
        session.evaluate(Region((OpKey("nope"),), (), ()), {}, "f64")
    with pytest.raises(InputError, match="not a floating-point type"):
        session.evaluate(whole(session, "mul"), {fed: X}, "i32")
    torch_runtime = load_runtime("torch")
    fresh = torch_runtime.open(nn.ReLU(), parse_options(torch_runtime, {}))
    with pytest.raises(InputError, match="call run or prepare first"):
        fresh.evaluate(Region((), (), ()), {}, "f64")


def test_the_default_type_is_put_back():
    before = torch.get_default_dtype()
    evaluated(REWRITTEN["zeros"])
    with pytest.raises(Unsupported):
        evaluated(lambda m, x: x.view(torch.int32) + 1)
    assert torch.get_default_dtype() == before
