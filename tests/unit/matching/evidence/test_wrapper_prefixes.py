"""A model that one side wraps in another one, for export or training."""

import numpy as np
import pytest

import syncpoint as sp
from helpers.small_runs import run
from syncpoint.matching.evidence.wrapper_prefixes import unwrap_names
from syncpoint.matching.matcher_chain import chain, match

X = np.arange(6, dtype=np.float32)
NAMES = ["stem.conv", "blocks.0.fc", "blocks.1.fc", "head"]


def test_the_prefix_of_either_side_is_found():
    inside = [f"module.{name}" for name in NAMES]
    assert unwrap_names(inside, NAMES) == dict(zip(inside, NAMES, strict=True))
    assert unwrap_names(NAMES, inside) == dict(zip(NAMES, inside, strict=True))
    assert unwrap_names([f"a.b.{n}" for n in NAMES], NAMES)["a.b.head"] == "head"


@pytest.mark.parametrize(
    ("target", "reference"),
    [
        (NAMES, NAMES),
        (["module.head", *NAMES], NAMES),
        (["a.fc", "b.fc", "c.fc"], ["fc"]),
        (["left.fc", "left.act"], ["fc", "act"]),
        ([f"{side}.{name}" for side in ("student", "teacher") for name in NAMES], NAMES),
        ([*(f"stem.{n}" for n in range(2)), *(f"body.{n}" for n in range(5))], list("0123456")),
        (list("0123456"), [*(f"stem.{n}" for n in range(2)), *(f"body.{n}" for n in range(5))]),
        (
            [
                "encoder.0",
                "encoder.1",
                "encoder.2",
                "encoder.3",
                "decoder.0",
                "decoder.1",
                "decoder.2",
            ],
            list("0123"),
        ),
        ([], NAMES),
    ],
)
def test_names_without_a_wrapper_stay(target, reference):
    assert unwrap_names(target, reference) == {}


def test_layers_that_repeat_are_not_taken_for_one_inside_another():
    names = ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    assert unwrap_names([f"net.{n}" for n in names], names) == {f"net.{n}": n for n in names}
    assert unwrap_names(names, names) == {}


def model(prefix):
    ops = [
        (f"linear_{index}", "aten.linear.default", f"{prefix}{name}", (), X + index)
        for index, name in enumerate(NAMES)
    ]
    parameters = [(f"{prefix}{name}.weight", X * index) for index, name in enumerate(NAMES)]
    return run(*ops, parameters=parameters)


def test_ops_and_parameters_are_paired_and_say_so():
    matching = match(model("module."), model(""), chain())
    assert len(matching.pairs) == 2 * len(NAMES)
    assert not matching.unmatched()
    assert {p.evidence for p in matching.pairs} == {
        "module path and type, in a wrapper",
        "parameter of the same name in a wrapper",
    }


def test_a_parameter_of_another_shape_is_not_the_same():
    other = run(parameters=[(f"module.{name}.weight", X[:5]) for name in NAMES])
    matching = match(other, run(parameters=[(f"{name}.weight", X) for name in NAMES]), chain())
    assert not matching.pairs


def test_names_of_dumps_lose_their_wrapper_and_keep_their_numbers(tmp_path):
    values = {f"{name}.out_{index}": X + index for index, name in enumerate(NAMES)}
    np.savez(tmp_path / "plain.npz", **values)
    inside = {f"module.{name}": value for name, value in reversed(values.items())}
    np.savez(tmp_path / "inside.npz", **inside)
    comparison = sp.compare(tmp_path / "inside.npz", tmp_path / "plain.npz")
    assert {(r.target.label, r.reference.label) for r in comparison.rows} == {
        (f"module.{name}", name) for name in values
    }
    assert comparison.verdict == "close"


def test_a_wrapper_with_a_head_of_its_own_keeps_that():
    names = [f"{name}.weight" for name in NAMES]
    target = run(parameters=[*((f"net.{n}", X) for n in names), ("head.weight", X + 1)])
    matching = match(target, run(parameters=[(n, X) for n in names]), chain())
    assert {p.target.op.op: p.reference.op.op for p in matching.pairs} == {
        f"net.{n}": n for n in names
    }


def test_layers_that_were_put_into_groups_are_paired_by_what_they_do():
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(0)
    layers = [nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU()]
    flat = nn.Sequential(*layers, nn.Linear(8, 8))
    parts = {"stem": nn.Sequential(*flat[:2]), "body": nn.Sequential(*flat[2:])}
    grouped = nn.Sequential()
    for name, part in parts.items():
        grouped.add_module(name, part)
    x = (torch.randn(3, 8, generator=torch.Generator().manual_seed(0)),)
    for target, reference in ((flat, grouped), (grouped, flat)):
        comparison = sp.compare(target.eval(), reference.eval(), inputs=x)
        assert comparison.verdict == "close"
        assert not comparison.findings
