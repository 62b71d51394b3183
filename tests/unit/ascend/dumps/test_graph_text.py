"""Graphs in protobuf's text form, against protobuf's own writer."""

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.ascend.dumps.graph_text import DynamoGraph, GraphOp, parse
from syncpoint.errors import FormatError


def _messages():
    """The part of the graph's messages that matters, and a nested one that does not."""
    file = descriptor_pb2.FileDescriptorProto(name="graph.proto", package="t", syntax="proto3")
    kinds = {"s": 12, "i": 3, "f": 2, "b": 8, "n": 9}

    def message(name, *fields):
        made = file.message_type.add(name=name)
        for number, (field, kind, repeated) in enumerate(fields, 1):
            one = made.field.add(name=field, number=number, label=3 if repeated else 1)
            if kind in kinds:
                one.type = kinds[kind]
            else:
                one.type, one.type_name = 11, f".t.{kind}"

    message(
        "Value", ("s", "s", False), ("i", "i", False), ("f", "f", False), ("list", "Lists", False)
    )
    message("Lists", ("s", "s", True), ("f", "f", True))
    message("Attr", ("key", "n", False), ("value", "Value", False))
    message("Desc", ("name", "n", False), ("attr", "Attr", True))
    message(
        "Op", ("name", "n", False), ("type", "n", False), ("input", "n", True),
        ("attr", "Attr", True), ("output_desc", "Desc", True),
    )  # fmt: skip
    message("Graph", ("name", "n", False), ("op", "Op", True))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return message_factory.GetMessageClass(find("t.Graph"))


GRAPH = _messages()
TEXT = st.text(max_size=12) | st.sampled_from(
    ["a: b", '"', "{", "}", "\\", "\n", "# no", "ü", "'", ";"]
)
NAMES = st.text(min_size=1, max_size=12)


@st.composite
def graphs(draw):
    graph = GRAPH(name=draw(TEXT))
    wanted = []
    for name in draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)):
        op = graph.op.add(name=name, type=draw(TEXT))
        producers = draw(st.lists(NAMES, max_size=3))
        op.input.extend(f"{producer}:{k}" for k, producer in enumerate(producers))
        op.input.append("control:-1")
        noise = op.attr.add(key=draw(TEXT))
        noise.value.list.s.extend(draw(st.lists(st.binary(max_size=6), max_size=3)))
        noise.value.list.f.extend([1.5, float("inf"), -2e-9])
        outputs = draw(st.lists(TEXT, max_size=3))
        for said in outputs:
            desc = op.output_desc.add(name=draw(TEXT))
            desc.attr.add(key="other").value.i = -3
            desc.attr.add(key="_fx_tensor_name").value.s = said.encode()
        reads = tuple((producer, k) for k, producer in enumerate(producers))
        wanted.append(GraphOp(name, op.type, reads, tuple(outputs)))
    return graph, wanted


@given(graphs(), st.booleans(), st.booleans())
def test_what_protobuf_writes_is_read(drawn, one_line, utf8):
    graph, wanted = drawn
    text = text_format.MessageToString(graph, as_one_line=one_line, as_utf8=utf8)
    assert list(parse(text, "it")) == wanted


def test_ops_are_found_at_the_top_and_inside_of_a_graph():
    inner = 'op { name: "a" input: "b:1" input: "c" }'
    for text in (inner, f"graph {{ {inner} }}", f'graph: < name: "g", {inner}; >', f"# x\n{inner}"):
        assert list(parse(text, "it")) == [GraphOp("a", "", (("b", 1), ("c", 0)), ())]


def test_lists_strings_in_a_row_and_escapes():
    text = (
        r"""op { name: "a" "b" 'c\'' input: ["x:0", 'y:1'] nums: [1, 2] """
        r"""blocks: [{ name: "no" }, { k: 1 }] type: "\x41\101\u00e4\n\t\q" }"""
    )
    (op,) = parse(text, "it")
    assert op == GraphOp("abc'", "AAä\n\tq", (("x", 0), ("y", 1)), ())


@pytest.mark.parametrize(
    "text",
    [
        "op {", "op }", "op { name: }", 'op { name: "a }', "{ }", "op { name: \"a\" > ", ":", "op",
        "op { name", "op { x: [1, 2", 'op { : "a" }', "op { " * 100 + "}" * 100, '"a": 3',
        "op { name: { }",
    ],
)  # fmt: skip
def test_what_is_no_such_text_is_told_with_its_line(text):
    with pytest.raises(FormatError, match=r"line \d+ of it"):
        list(parse(text, "it"))


@given(st.text(alphabet="op{}<>[]:,;\"'\\ \nname#1", max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        list(parse(text, "it"))
    except FormatError as error:
        assert "\n" not in str(error)


def test_a_file_without_ops_or_with_one_twice_is_refused(tmp_path):
    path = tmp_path / "graph.txt"
    for text, said in (
        ("", "has no ops"),
        ('op { name: "a" } op { name: "a" }', "has the op 'a' twice"),
    ):
        path.write_text(text)
        with pytest.raises(FormatError, match=said):
            DynamoGraph.load(path)
    path.write_bytes(b'op { name: "\xff" }')
    assert list(DynamoGraph.load(path).ops) == ["\\xff"]
