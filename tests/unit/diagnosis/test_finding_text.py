"""Texts that all findings share."""

from math import inf
from types import SimpleNamespace

import pytest

from syncpoint.diagnosis.finding_text import (
    describe_change,
    locate,
    name_inner_op,
    name_op,
    name_target_op,
    number,
    share,
)
from syncpoint.run.model import Frame, Op, OpKey, Role


def row(label, module="", source="", role=Role.OUTPUT, order=-1, own_module=""):
    key = SimpleNamespace(role=role)
    target = SimpleNamespace(label=label, module=own_module, source="", key=key, order=order)
    return SimpleNamespace(target=target, reference=SimpleNamespace(module=module, source=source))


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("add_8", "add_8 (blocks.0, model.py:41)"),
        ("getitem", "getitem (blocks.0, model.py:41)"),
        (
            "linear_3_QuantizeLinear_Output",
            "linear_3_QuantizeLinear_Output (blocks.0, model.py:41)",
        ),
        ("gelu", "gelu"),
        ("blocks.0.attention", "blocks.0.attention"),
    ],
)
def test_an_op_whose_label_does_not_say_where_it_is_gets_module_and_line(label, text):
    assert name_op(row(label, "blocks.0", "/home/me/model.py:41")) == text


def test_an_op_without_module_and_line_is_named_by_its_label_and_position():
    assert name_op(row("add_8")) == "add_8"
    assert name_op(row("add_8", order=16)) == "add_8 (op 17 in execution order)"
    assert name_target_op(row("gelu", order=16)) == "the target's gelu"


def test_numbered_modules_are_named_by_the_reference_or_spelled_out():
    numbered = "Block$1.Attention$2"
    assert locate(row("add_8", "blocks.0.attention", own_module=numbered)) == "blocks.0.attention"
    assert locate(row("add_8", own_module=numbered)) == "Attention 2 in Block 1"


def test_a_model_output_stands_in_quotes():
    assert name_op(row("out", "head", role=Role.MODEL_OUTPUT)) == "output 'out'"


def test_an_op_inside_another_is_named_with_it_and_never_with_itself():
    place = row("mul_1", "blocks.0", "model.py:41")
    source = (Frame("/home/me/model.py", 84),)
    silu = Op(OpKey("silu_1"), "aten.silu.default", module="blocks.0.mlp", source=source)
    text = "silu_1 (inside the target's mul_1; blocks.0.mlp, model.py:84)"
    assert name_inner_op(place, silu) == text
    text = "the target's mul_1 (silu_1 of the reference; blocks.0.mlp, model.py:84)"
    assert name_inner_op(place, silu, is_part=False) == text
    mul = Op(OpKey("mul_1"), "aten.mul.Tensor")
    assert name_inner_op(place, mul) == "the target's mul_1 (blocks.0, model.py:41)"


def test_a_change_is_described_with_both_differences_and_what_remains():
    args = ("with this fault", 2.0, 0.1, "RMS", "rounding explains the rest")
    assert describe_change(*args) == (
        "with this fault, the two results differ by 0.1 instead of 2 (RMS); rounding explains the"
        " rest"
    )
    assert describe_change("with this fault", 2.0, 0.0, "RMS") == (
        "with this fault, the two results are equal; without it they differ by 2 (RMS)"
    )
    assert "NaN or inf in the same places" in describe_change("with it", inf, 0.0, "RMS")


def test_numbers_have_three_digits_and_small_shares_are_not_zero():
    assert [number(v) for v in (1234567.0, 0.12345, 1e-5)] == ["1,234,567", "0.123", "1.00e-05"]
    assert share(1, 100_000) == "0.001 %"
