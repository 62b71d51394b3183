"""The paired tensors that an op of the target reads."""

import pytest

from syncpoint.comparison.introduced_error.regions import find_compared_inputs
from syncpoint.run.model import WHOLE, Edge, Op, OpKey, Part, Role, RunInfo, TensorKey
from syncpoint.run.reader import in_memory

X = Edge(OpKey("x"), 0, Role.MODEL_INPUT)


def op(name, kind, *reads):
    return Op(OpKey(name), kind, tuple(Edge(OpKey(r)) if isinstance(r, str) else r for r in reads))


GRAPH = in_memory(
    RunInfo(),
    [
        op("conv", "Conv", X),
        op("copy", "QuantizeLinear", "conv"),
        op("real", "DequantizeLinear", "copy"),
        op("flat", "Reshape", "real"),
        op("turned", "Transpose", "flat"),
        op("pool", "MaxPool", "copy"),
        op("on_float", "Tanh", "conv"),
        op("on_copy", "Tanh", "copy"),
        op("on_turned", "Tanh", "turned"),
        op("on_pool", "Tanh", "pool"),
        op("on_both", "Add", "conv", "real"),
    ],
    [],
)


def compared_inputs(name, *paired, part=WHOLE):
    keys = {TensorKey(OpKey(p), Role.OUTPUT, 0, part) for p in paired}
    keys.add(TensorKey(X.op, X.role, 0, part))
    return {key.op.op for key in find_compared_inputs(GRAPH, [OpKey(name)], part, keys)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("on_float", {"conv"}), ("on_copy", {"copy", "conv"}), ("on_both", {"copy", "conv"})],
)
def test_an_op_reads_a_copy_only_through_its_inputs(name, expected):
    """The copy in turn rounds the float tensor."""
    assert compared_inputs(name, "conv", "copy") == expected


@pytest.mark.parametrize("between", [(), ("real",), ("flat", "turned"), ("real", "flat", "turned")])
def test_an_op_reads_a_copy_through_ops_that_pass_its_numbers_on(between):
    assert compared_inputs("on_turned", "conv", "copy", *between) == {"conv", "copy", *between}


def test_an_op_reads_a_copy_through_an_op_that_is_not_paired():
    assert compared_inputs("on_pool", "conv", "copy") == {"conv", "copy"}


def test_a_paired_op_that_computes_new_numbers_ends_the_search():
    assert compared_inputs("on_pool", "conv", "copy", "pool") == {"pool"}


def test_the_search_goes_back_to_the_inputs_of_the_model():
    assert compared_inputs("on_turned") == {"x"}


def test_only_tensors_of_the_same_part_count():
    part = Part(sample=1)
    keys = {TensorKey(OpKey("conv"), Role.OUTPUT, 0, Part(sample=0))}
    assert not find_compared_inputs(GRAPH, [OpKey("on_float")], part, keys)
    assert compared_inputs("on_float", "conv", part=part) == {"conv"}
