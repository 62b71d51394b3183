"""Modules are rolled up where it tells most."""

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.page.module_groups import group_modules


def test_numbered_blocks_are_groups():
    found = group_modules({"blocks.0.attn": 9, "blocks.0.mlp": 4, "blocks.1.attn": 9, "head": 1})
    assert found == {
        "blocks.0.attn": "blocks.0",
        "blocks.0.mlp": "blocks.0",
        "blocks.1.attn": "blocks.1",
        "head": "head",
    }


def test_a_module_that_holds_nearly_all_is_opened():
    found = group_modules(
        {"model.embed": 3, "model.layers.0.attn": 9, "model.layers.1.attn": 9, "lm_head": 1}
    )
    assert set(found.values()) == {"model.embed", "model.layers.0", "model.layers.1", "lm_head"}


def test_a_sequence_of_single_ops_stays_together():
    found = group_modules(
        {"stem.0": 1, "stem.1": 1, "stem.2": 1, "blocks.0.a": 20, "blocks.1.a": 20}
    )
    assert found["stem.0"] == found["stem.2"] == "stem"


paths = st.lists(st.sampled_from(["a", "b", "0", "1", "12", ""]), max_size=6).map(".".join)


@given(st.dictionaries(paths.filter(bool), st.integers(1, 1000), max_size=20))
def test_a_group_is_a_beginning_of_its_modules(modules):
    found = group_modules(modules)
    assert set(found) == set(modules)
    for path, group in found.items():
        assert path == group or path.startswith(f"{group}.") or not group


def test_a_path_without_end_is_no_trouble():
    deep = ".".join(["a"] * 100_000)
    assert group_modules({deep: 1})
