"""Separate products against slices of a merged one: query, key and value, gate and up."""

import io
import logging
import warnings
from contextlib import redirect_stdout

import onnx
import pytest
import torch

import syncpoint as sp
from models.merged import make_merged
from syncpoint.comparison.findings import Level

FORMS = [("split", 4), ("split", 2), ("heads", 4), ("perhead", 4)]
PRODUCTS = {"q": "linear", "k": "linear_1", "v": "linear_2", "gate": "linear_4", "up": "linear_5"}


def export(model, inputs):
    """The model as the exporter of TorchScript writes it, without names of the program."""
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            file = io.BytesIO()
            torch.onnx.export(model, inputs, file, dynamo=False, opset_version=17)
            return onnx.load_from_string(file.getvalue())
    finally:
        logging.disable(logging.NOTSET)


def ops_behind(rows, product):
    """The labels of a product and of its views."""
    number = {"linear": "", "linear_1": "_1", "linear_2": "_2"}.get(product)
    views = (
        set() if number is None else {f"unflatten{number}", f"view{number}", f"transpose{number}"}
    )
    return {row.reference.key.op.op for row in rows} & {product, *views}


@pytest.mark.parametrize("runtime", ["torch", "onnx"])
@pytest.mark.parametrize(("form", "key_heads"), FORMS)
def test_slices_of_a_merged_product_are_paired(form, key_heads, runtime):
    separate, merged, inputs = make_merged(form, key_heads)
    target = merged if runtime == "torch" else export(merged, inputs)
    comparison = sp.compare(target, separate, inputs=inputs)
    assert str(comparison.verdict) == "close"
    assert not [f for f in comparison.findings if f.level is not Level.NOTE]
    assert not [row for row in comparison.rows if str(row.verdict) == "none"]
    for product in PRODUCTS.values():
        assert ops_behind(comparison.rows, product), product


@pytest.mark.parametrize("runtime", ["torch", "onnx"])
@pytest.mark.parametrize(
    ("form", "key_heads", "part"),
    [
        ("split", 4, "q"),
        ("split", 2, "k"),
        ("heads", 4, "v"),
        ("perhead", 4, "k"),
        ("split", 4, "gate"),
        ("heads", 4, "up"),
    ],
)
def test_a_fault_in_one_slice_is_named_at_that_slice(form, key_heads, part, runtime):
    separate, merged, inputs = make_merged(form, key_heads)
    merged.spoil(part)
    target = merged if runtime == "torch" else export(merged, inputs)
    comparison = sp.compare(target, separate, inputs=inputs)
    guilty = [row for row in comparison.rows if row.guilty]
    assert len(guilty) == 1
    assert ops_behind(guilty, PRODUCTS[part])
    assert all(finding.confidence < 0.9 for finding in comparison.findings)


def test_the_merged_form_may_be_the_reference():
    separate, merged, inputs = make_merged("split")
    merged.spoil("k")
    rows = sp.compare(separate, merged, inputs=inputs).rows
    assert {row.target.key.op.op for row in rows if row.guilty} == {"linear_1"}
