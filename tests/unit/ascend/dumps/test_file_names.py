"""Names of device dumps and golden arrays, and the table of those that were too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.ascend.dumps.file_names import (
    DeviceName,
    GoldenName,
    escape_name,
    find_full_name,
    parse_device_name,
    parse_golden_name,
    read_mapping,
)
from syncpoint.errors import FormatError

TIME = 1700000000004000


def name_of(type, op, task, stream, timestamp, **more):
    return DeviceName(type=type, op=op, task=task, stream=stream, timestamp=timestamp, **more)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Relu.r.1.2.{TIME}", name_of("Relu", "r", 1, 2, TIME)),
        (f"Relu.r.1.{TIME}", name_of("Relu", "r", 1, None, TIME)),
        ("Relu.r.1.2.3", name_of("Relu", "r", 1, 2, 3)),
        ("Relu.r.1.2", name_of("Relu", "r", 1, None, 2)),
        (f"Conv2D.a-b_c.10.20.{TIME}.4.5.6.7", name_of("Conv2D", "a-b_c", 10, 20, TIME,
            task_type=4, context=5, thread=6, device=7)),
        (f"Conv2D.a.10.20.{TIME}.4.5.6", name_of("Conv2D", "a", 10, 20, TIME,
            task_type=4, context=5, thread=6)),
        (f"Conv2D.a.10.{TIME}.4.5.6.7", name_of("Conv2D", "a", 10, None, TIME,
            task_type=4, context=5, thread=6, device=7)),
        (f"Conv2D.a.10.{TIME}.4.5.6", name_of("Conv2D", "a", 10, None, TIME,
            task_type=4, context=5, thread=6)),
        (f"Relu.r.1.2.{TIME}.3", name_of("Relu", "r", 1, 2, TIME, device=3)),
        (f"Add.a_lxslice3.1.2.{TIME}", name_of("Add", "a", 1, 2, TIME, slice=3)),
        (f"Add.layer.1.add.1.2.{TIME}", name_of("Add", "layer.1.add", 1, 2, TIME)),
        (f"Add.layer.7.1.2.{TIME}", name_of("Add", "layer.7", 1, 2, TIME)),
        ("Relu.r.1.2." + "9" * 200, name_of("Relu", "r", 1, 2, 0)),
    ],
)  # fmt: skip
def test_a_device_name_gives_its_parts(text, expected):
    assert parse_device_name(text) == expected


@pytest.mark.parametrize(
    "text",
    ["mapping.csv", "1234567890", "Relu.r", "Relu.r.1", "r.0.1700000000004000.npy", "",
     f"Relu.r.1.2.{TIME}.npy", f"Relu.r.1.2.{TIME}.output.0.npy", f"../Relu.r.1.2.{TIME}",
     f"Relu.r\n.1.2.{TIME}", "numpy.1.2.3.4", "a b.r.1.2.3", "Relu.r.1.2.3.4.5.6.7.8"],
)  # fmt: skip
def test_other_names_are_not_of_a_device(text):
    assert parse_device_name(text) is None


def test_a_golden_name_gives_its_parts():
    assert parse_golden_name(f"a_b.0.{TIME}.npy") == GoldenName("a_b", 0, TIME, "npy")
    assert parse_golden_name(f"a.b.1.2.{TIME}.npy") == GoldenName("a.b.1", 2, TIME, "npy")
    assert parse_golden_name(f"a.0.{TIME}.quant") == GoldenName("a", 0, TIME, "quant")
    assert parse_golden_name("a.npy") is None
    assert parse_golden_name(f"a.x.{TIME}.npy") is None


@given(
    st.from_regex(r"[A-Za-z0-9_-]{1,9}", fullmatch=True),
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,20}", fullmatch=True),
    st.integers(0, 10**6),
    st.integers(0, 10**6) | st.none(),
    st.integers(10**15, 10**16 - 1),
    st.lists(st.integers(0, 999), min_size=4, max_size=4) | st.just([]),
)
def test_what_a_name_is_made_of_is_read_from_it(kind, op, task, stream, time, more):
    parts = [kind, op, task, *([] if stream is None else [stream]), time, *more]
    found = parse_device_name(".".join(map(str, parts)))
    last = dict(zip(("task_type", "context", "thread", "device"), more, strict=False))
    assert found == name_of(kind, op, task, stream, time, **last)


@given(st.text())
def test_any_text_as_a_name_gives_parts_or_nothing(text):
    parse_device_name(text)
    parse_golden_name(text)


def test_an_op_name_is_escaped_as_the_dumper_does():
    assert escape_name("a/b.c\\d e") == "a_b_c_d_e"


def test_mapping_gives_the_names_that_were_too_long(tmp_path):
    (tmp_path / "mapping.csv").write_text("12,Relu.long.1.2.3\n34,g.0.5.npy\n56,h.0.5\n\n")
    mapping = read_mapping(tmp_path)
    assert find_full_name("12", mapping) == "Relu.long.1.2.3"
    assert find_full_name("34.npy", mapping) == "g.0.5.npy"
    assert find_full_name("56.npy", mapping) == "h.0.5.npy"
    assert find_full_name("other", mapping) == "other"


def test_no_mapping_is_an_empty_one(tmp_path):
    assert read_mapping(tmp_path) == {}


@pytest.mark.parametrize(
    "data", [b"a\n", b"a,b,c\n", b"\xff\xfe,b\n", b"1,a\n1,b\n", b",b\n", b"1,a\x01\n"]
)
def test_a_damaged_mapping_is_a_format_error(tmp_path, data):
    (tmp_path / "mapping.csv").write_bytes(data)
    with pytest.raises(FormatError, match=r"mapping\.csv"):
        read_mapping(tmp_path)
