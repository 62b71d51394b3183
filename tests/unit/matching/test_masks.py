"""Masks as data: what is written of them is read as the same masks."""

import json

import pytest

from syncpoint.matching.masks import masks_as_data, read_masks

ENTRIES = [
    "attention_mask",
    "[:, 100:]",
    "[..., -1]",
    "[2, ::3, :-4]",
    {"keep": "[0:2]"},
    {"drop": "key_padding", "axes": [0, -1]},
]


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_masks_survive_being_written(entry):
    (mask,) = read_masks({r"encoder\..*": entry}, "map.yaml")
    data = json.loads(json.dumps(masks_as_data([mask])))
    (read,) = read_masks(data, "comparison.json")
    assert read.as_list() == mask.as_list()
