"""Pins win, ignored ops are excluded, and a wrong map is an error of one line."""

import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.errors import FormatError, InputError
from syncpoint.matching.matcher_chain import chain, match
from syncpoint.matching.matchers.map_file import MapFile
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import ReasonCode

X = np.zeros((2, 3), np.float32)


def dump(*names):
    return run(*((n, "", "", (), X) for n in names))


def matched(target, reference, map_data):
    return match(target, reference, chain(MapFile.of(map_data)))


def test_a_pin_comes_before_names_and_carries_its_view():
    map_data = {"pairs": [{"target": "a", "reference": "b", "view": "transpose(1,0)"}]}
    matching = matched(dump("a", "b"), dump("a", "b"), map_data)
    first = matching.pairs[0]
    assert (first.target.op.op, first.reference.op.op, str(first.view)) == (
        "a",
        "b",
        "transpose(1,0)",
    )
    assert first.confidence == 1
    assert len(matching.pairs) == 1


def test_a_regex_pins_many():
    map_data = {
        "pairs": [{"target": r"blocks\.(\d)\.x", "reference": r"layers.\1.y", "regex": True}]
    }
    matching = matched(dump("blocks.0.x", "blocks.1.x"), dump("layers.0.y", "layers.1.y"), map_data)
    assert {(p.target.op.op, p.reference.op.op) for p in matching.pairs} == {
        ("blocks.0.x", "layers.0.y"),
        ("blocks.1.x", "layers.1.y"),
    }


def test_ignored_ops_are_excluded_on_both_sides():
    matching = matched(dump("a", "rope_0x"), dump("a", "rope_0x"), {"ignore": ["rope.*"]})
    assert [p.target.op.op for p in matching.pairs] == ["a"]
    assert {(u.side, u.reason.code) for u in matching.unmatched()} == {
        ("target", ReasonCode.EXCLUDED),
        ("reference", ReasonCode.EXCLUDED),
    }


@pytest.mark.parametrize(
    ("map_data", "error"),
    [
        ([], FormatError),
        ({"pears": []}, FormatError),
        ({"pairs": [{"target": "a"}]}, FormatError),
        ({"pairs": [{"target": "a", "reference": "b", "veiw": "x"}]}, FormatError),
        ({"pairs": [{"target": "a", "reference": "b", "view": "rotate(1)"}]}, InputError),
        ({"pairs": [{"target": "(", "reference": "b", "regex": True}]}, InputError),
        ({"pairs": 3}, FormatError),
        ({3: 4}, FormatError),
        ({"pairs": [{"target": "a", "reference": "b", "view": "transpose(-)"}]}, InputError),
        ({"pairs": [{"target": "a", "reference": "b", "view": "transpose(1 2)"}]}, InputError),
        ({"ignore": "a"}, FormatError),
        ({"ignore": ["("]}, InputError),
        ({"mask": ["a"]}, FormatError),
        ({"mask": {"(": "a"}}, InputError),
        ({"mask": {"a": 3}}, FormatError),
        ({"mask": {"a": "[1, x]"}}, FormatError),
        ({"mask": {"a": "[::0]"}}, FormatError),
        ({"mask": {"a": "[..., ...]"}}, FormatError),
        ({"mask": {"a": "[1"}}, FormatError),
        ({"mask": {"a": {"keep": "m", "drop": "m"}}}, FormatError),
        ({"mask": {"a": {"keep": "m", "axes": "0"}}}, FormatError),
        ({"mask": {"a": {"drop": "[:]", "axes": [0]}}}, FormatError),
        ({"dims": {"a": "n c"}}, FormatError),
        ({"dims": {"target": "n c"}}, FormatError),
        ({"dims": {"target": {"a": "n n"}}}, InputError),
        ({"dims": {"target": {"a": 3}}}, InputError),
        ({"dims": {"target": {"(": "n c"}}}, InputError),
    ],
)
def test_a_wrong_map_is_one_line(map_data, error):
    with pytest.raises(error) as caught:
        MapFile.of(map_data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("pin", [("nobody", "a"), ("a", "nobody")])
def test_a_pin_that_matches_no_op_is_an_error(pin):
    with pytest.raises(InputError, match="nobody"):
        matched(dump("a"), dump("a"), {"pairs": [{"target": pin[0], "reference": pin[1]}]})


def test_a_pin_with_a_group_that_is_not_there_is_an_error():
    map_data = {"pairs": [{"target": "(a)", "reference": r"\9", "regex": True}]}
    with pytest.raises(InputError, match="groups"):
        matched(dump("a"), dump("a"), map_data)


def test_map_file_that_is_no_yaml(tmp_path):
    path = tmp_path / "map.yaml"
    path.write_text("pairs: [")
    with pytest.raises(FormatError, match=r"map\.yaml"):
        MapFile.load(path)
    with pytest.raises(InputError, match="readable"):
        MapFile.load(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("view", "shape"),
    [
        ("transpose(1,0)", (3, 2)),
        ("reshape(6)", (6,)),
        ("reshape(3,-1) transpose(1,0)", (2, 3)),
        ("slice(1,0,2)", (2, 2)),
        ("flip(0)", (2, 3)),
        ("", (2, 3)),
    ],
)
def test_views_apply_in_order(view, shape):
    array = np.arange(6).reshape(2, 3)
    viewed = View(view).apply(array)
    assert viewed.shape == shape
    assert set(viewed.ravel().tolist()) <= set(range(6))


@pytest.mark.parametrize("view", ["transpose(0,1,2)", "slice(5,0,1)", "slice(1)", "reshape(4)"])
def test_a_view_that_does_not_fit_is_a_value_error(view):
    with pytest.raises(ValueError):
        View(view).apply(np.zeros((2, 3)))


def image(*names, shape=(2, 3, 4, 5), seed=0):
    generator = np.random.default_rng(seed)
    return {n: generator.standard_normal(shape).astype(np.float32) for n in names}


def test_axes_named_in_the_map_give_the_view():
    values = image("a", "b")
    reference = run(*((n, "", "", (), v) for n, v in values.items()))
    target = run(*((n, "", "", (), v.transpose(0, 2, 3, 1)) for n, v in values.items()))
    map_data = {"dims": {"target": {"a": "n h w c"}, "reference": {"[ab]": "n c h w"}}}
    views = {p.target.op.op: str(p.view) for p in matched(target, reference, map_data).pairs}
    # One op alone proves no layout: the other is compared as it stands.
    assert views == {"a": "transpose(0,3,1,2)", "b": ""}


@pytest.mark.parametrize(
    ("target_axes", "reference_axes", "shapes"),
    [
        ("b s h(tp) d", "b h s d", ((2, 3, 4, 5), (2, 4, 3, 5))),
        ("1 s d", "d s", ((1, 3, 5), (5, 3))),
        ("d s", "s 1 d", ((5, 3), (3, 1, 5))),
        ("a b c d e", "e d c b a", ((2, 3, 4, 5, 6), (6, 5, 4, 3, 2))),
    ],
)
def test_any_two_orders_of_the_same_names_are_a_view(target_axes, reference_axes, shapes):
    names = [
        [w.partition("(")[0] for w in text.split() if w != "1"]
        for text in (target_axes, reference_axes)
    ]
    array = np.arange(np.prod(shapes[0]), dtype=np.float32).reshape(shapes[0])
    plain = array.reshape([n for n in shapes[0] if n != 1])
    expected = plain.transpose([names[0].index(n) for n in names[1]]).reshape(shapes[1])
    map_data = {"dims": {"target": {"a": target_axes}, "reference": {"a": reference_axes}}}
    matching = matched(run(("a", "", "", (), array)), run(("a", "", "", (), expected)), map_data)
    (view,) = (p.view for p in matching.pairs)
    assert (view.apply(array) == expected).all()


def test_model_outputs_are_transposed_too():
    value = image("a")["a"]
    reference = run(("a", "", "", (), value), outputs=[("a", value)])
    transposed = np.ascontiguousarray(value.transpose(0, 2, 3, 1))
    target = run(("a", "", "", (), transposed), outputs=[("a", transposed)])
    map_data = {"dims": {"target": {"a": "n h w c"}, "reference": {"a": "n c h w"}}}
    assert {str(p.view) for p in matched(target, reference, map_data).pairs} == {
        "transpose(0,3,1,2)"
    }


def test_axes_that_fit_nothing_are_an_error():
    with pytest.raises(InputError, match="no tensor of the target matches 'a'"):
        matched(dump("a"), dump("a"), {"dims": {"target": {"a": "n c h"}}})
    with pytest.raises(InputError, match="axis 0 has length 1, but the shape is"):
        matched(dump("a"), dump("a"), {"dims": {"target": {"a": "1 c"}}})
