"""Names of fused ops, taken apart into the ops of the graph."""

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.ascend.dumps.graph_text import DynamoGraph, GraphOp
from syncpoint.ascend.matching.torchair.fused_ops import GraphNames, external_inputs, fx_output


def graph(*ops: GraphOp) -> GraphNames:
    return GraphNames(DynamoGraph({op.name: op for op in ops}))


@given(
    st.lists(st.sampled_from(["a", "ab", "abc", "b", "ba", "c/d", "e.f"]), min_size=1, max_size=6)
)
def test_names_in_a_row_are_taken_apart_into_names(row):
    names = graph(*(GraphOp(n) for n in ("a", "ab", "abc", "b", "ba", "c/d", "e.f")))
    joined = "".join(row)
    parts = names.parts(joined.replace("/", "_").replace(".", "_"))
    assert "".join(p.name for p in parts) == joined


def test_names_that_cannot_be_taken_apart_or_told_apart():
    names = graph(*(GraphOp(n) for n in ("Add_1", "Add", "a/b", "a.b")))
    assert [p.name for p in names.parts("Add_1")] == ["Add_1"]
    assert names.parts("Add_2") == ()
    assert names.parts("a_b") == ()  # two ops are written so
    assert [p.name for p in names.parts("a/b")] == ["a/b"]
    assert names.parts("Add" * 3000 + "x") == ()


def test_what_fused_ops_read_and_what_outputs_are():
    add = GraphOp("Add", inputs=(("x", 0), ("y", 1)), outputs=("add-t.OUTPUT.0", "", "odd"))
    mul = GraphOp("Mul", inputs=(("z", 0), ("Add", 0)), outputs=("",))
    found = [(o.op.name, o.index) for o in external_inputs((add, mul))]
    assert found == [("Add", 0), ("Add", 1), ("Mul", 0)]
    assert fx_output(add, 0) == ("add-t", 0)
    assert fx_output(add, 1) is None is fx_output(add, 2) and fx_output(mul, 0) is None
