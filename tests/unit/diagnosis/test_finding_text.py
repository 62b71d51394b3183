"""Texts that all findings share."""

from types import SimpleNamespace

import pytest

from syncpoint.diagnosis.finding_text import name_op, number, share


def row(label, module="", source=""):
    target = SimpleNamespace(label=label, module="", source="")
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


def test_an_op_without_module_and_line_is_named_by_its_label():
    assert name_op(row("add_8")) == "add_8"


def test_numbers_have_three_digits_and_small_shares_are_not_zero():
    assert [number(v) for v in (1234567.0, 0.12345, 1e-5)] == ["1,234,567", "0.123", "1.00e-05"]
    assert share(1, 100_000) == "0.001 %"
