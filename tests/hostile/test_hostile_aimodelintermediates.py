"""Folders for Core AI's tools that lie, break off or lead astray: one line of error each."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.hostile_npy import HOSTILE_NPY, PICKLED, header
from helpers.refusals import refused
from syncpoint.dumps.aimodelintermediates.format import AimodelIntermediates
from syncpoint.dumps.open_dump import open_dump
from syncpoint.errors import FormatError, SyncpointError


def sound() -> dict[str, Any]:
    def entry(name: str, op: str, target: str, number: int) -> dict[str, Any]:
        return {
            "node_name": name,
            "node_op": op,
            "node_target": target,
            "data_file": f"data/{name}_{number:04d}.npy",
            "shape": [4],
            "torch_dtype": "torch.float32",
            "numel": 4,
        }

    return {
        "inputs": {"x": entry("x", "placeholder", "x", 0)},
        "outputs": {"relu": entry("relu", "call_function", "aten.relu.default", 2)},
        "intermediates": {"mm": entry("mm", "call_function", "aten.mm.default", 1)},
    }


def write(path: Path, body: object) -> Path:
    path = path / "a.aimodelintermediates"
    (path / "data").mkdir(parents=True, exist_ok=True)
    for name in ("x_0000", "mm_0001", "relu_0002"):
        np.save(path / "data" / f"{name}.npy", np.ones(4, np.float32))
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    (path / "metadata.json").write_bytes(text)
    return path


def changed(*path: str, value: object) -> dict[str, Any]:
    body = sound()
    *parents, last = path
    inner: Any = body
    for step in parents:
        inner = inner[step]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return body


def test_the_sound_one_opens(tmp_path):
    run = open_dump(write(tmp_path, sound()))
    assert len(run.tensors) == 4
    for tensor in run.tensors:
        assert run.values(tensor).tolist() == [1, 1, 1, 1]


MM = ("intermediates", "mm")
OURS = (*MM, "syncpoint")
KEY = [["mm", 0, "", "", 0], "output", 0]


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (b"", "valid JSON"),
        (b"{", "valid JSON"),
        (b"\xff\xfe{}", "valid JSON"),
        (b"[]", "inputs, outputs and intermediates"),
        (b"{}", "inputs, outputs and intermediates"),
        (b"[" * 200_000, "valid JSON"),
        (b'{"a":' * 200_000, "valid JSON"),
        (b'{"inputs": {"x": 1, "x": 2}, "outputs": {}, "intermediates": {}}', "'x' twice"),
        (b'{"inputs": ' + b"9" * 5000 + b"}", "valid JSON"),
        (changed("inputs", value=...), "no inputs"),
        (changed("outputs", value=...), "no outputs"),
        (changed("intermediates", value=...), "no intermediates"),
        (changed("inputs", value=[]), "no inputs"),
        (changed(*MM, value=3), "must be a JSON object"),
        (changed("outputs", "mm", value=sound()["intermediates"]["mm"]), "'mm' twice"),
        (changed("intermediates", "a\nb", value=sound()["inputs"]["x"]), "not printable"),
        (changed("intermediates", "\ud800", value=sound()["inputs"]["x"]), "not printable"),
        (changed("intermediates", "", value=sound()["inputs"]["x"]), "not printable"),
        (changed(*MM, "data_file", value=...), "data_file of .* but has 0"),
        (changed(*MM, "data_file", value=7), "data_file of .* must be printable text"),
        (changed(*MM, "data_file", value="data/none.npy"), "No such file"),
        (changed(*MM, "data_file", value="data"), "a regular file|a directory"),
        (changed(*MM, "data_file", value="/etc/passwd"), "leads out of it"),
        (changed(*MM, "data_file", value="../secret.npy"), "leads out of it"),
        (changed(*MM, "data_file", value="data/../../secret.npy"), "leads out of it"),
        (changed(*MM, "data_file", value="data/\0.npy"), "data_file of .* must be printable text"),
        (changed(*MM, "data_file", value="d" * 5000), "1 to .* characters, but has 5000"),
        (changed(*MM, "data_file", value="d" * 300), "cannot read"),
        (changed(*MM, "data_file", value="metadata.json"), "no valid .npy header"),
        (changed(*MM, "shape", value=[5]), r"the shape of .* is \[5\] in the metadata and"),
        (changed(*MM, "shape", value=[2, 2]), r"the shape of .* is \[2, 2\] in the metadata and"),
        (changed(*MM, "shape", value=[2**62, 2**62]), "the shape of .* in the metadata and"),
        (changed(*MM, "shape", value=[-4]), "the shape of .* in the metadata and"),
        (changed(*MM, "shape", value={"a": 1}), "is not a list"),
        (changed(*MM, "numel", value=5), "numel is 5"),
        (changed(*MM, "numel", value="4"), "numel of .* is not a number"),
        (changed(*MM, "numel", value=10**4000), "elements"),
        (changed(*MM, "torch_dtype", value="torch.int32"), "i32 in its metadata"),
        (changed(*MM, "torch_dtype", value="torch.float64"), "f64 in its metadata"),
        (changed(*MM, "torch_dtype", value=["torch.float32"]), "torch_dtype of .* must be print"),
        (changed(*MM, "node_target", value=5), "node_target of .* must be printable text"),
        (changed("mappings", value=[]), "must be a JSON object"),
        (changed("mappings", value={"sources": 3}), "must be a JSON object"),
        (changed("mappings", value={"sources": {"torch": {"1": {}}}}), "lacks a number 'id'"),
        (changed("mappings", value={"outputs": {}}), "the outputs in .* are not a list"),
        (changed("mappings", value={"outputs": [{}]}), "an id or index that is not an integer"),
        (changed("syncpoint", value=3), "has schema 'int', not 1"),
        (changed("syncpoint", value={"schema": 2}), "has schema 2, not 1"),
        (changed("syncpoint", value={"schema": 1}), "a malformed record"),
        (changed("syncpoint", value={"schema": 1, "info": {"options": 3}}), "a malformed record"),
        (changed(*OURS, value=[]), "key syncpoint is not a JSON object"),
        (changed(*OURS, value={}), "a malformed record"),
        (changed(*OURS, value={"tensor": {}}), "a malformed record"),
        (changed(*OURS, value={"tensor": {"key": KEY, "dtype": "i8"}}), "i8 in its metadata"),
        (changed(*OURS, value={"tensor": {"key": KEY, "dtype": "f64"}}), "f64 in its metadata"),
        (changed(*OURS, value={"tensor": {"key": KEY, "dtype": "text"}}), "unknown dtype 'text'"),
        (changed(*OURS, value={"tensor": {"key": KEY}, "op": {}}), "a malformed record"),
        (changed(*OURS, value={"tensor": {"key": KEY, "requires_grad": 3}}), "a malformed record"),
        (changed(*OURS, value={"tensor": {"key": KEY}, "also": [{"key": KEY}]}), "mm twice"),
        (changed(*OURS, value={"tensor": {"key": [["relu", 0, "", "", 0], "output", 0]}}), "twice"),
        (
            changed(*OURS, value={"tensor": {"key": KEY, "quantization": {"scale": [1, 2],
                    "zero_point": [0], "axis": 0, "block": 0, "table": []}}}),
            "does not fit its shape",
        ),
        (changed(*OURS, value={"same_as": 3}), "a malformed record"),
        (changed(*OURS, value={"same_as": "nobody"}), "'nobody'"),
        (changed(*OURS, value={"same_as": "relu"}), "'relu'"),
        (changed(*OURS, value={"same_as": "mm"}), "'mm'"),
    ],
)  # fmt: skip
def test_metadata_that_lies_is_a_format_error(tmp_path, body, match):
    np.save(tmp_path / "secret.npy", np.ones(4, np.float32))
    refused(open_dump, write(tmp_path, body), match=match)


@pytest.mark.parametrize(("data", "match"), HOSTILE_NPY)
def test_an_npy_that_is_no_array_of_numbers_is_a_format_error(tmp_path, monkeypatch, data, match):
    monkeypatch.chdir(tmp_path)
    body = changed(*MM, "shape", value=...)
    path = write(tmp_path, body)
    (path / "data" / "mm_0001.npy").write_bytes(data)
    refused(open_dump, path, match=f"{match}|elements")
    assert not (tmp_path / "exploded").exists()


def test_links_and_pipes_are_not_followed_out_of_the_folder(tmp_path):
    path = write(tmp_path, sound())
    np.save(tmp_path / "secret.npy", np.ones(4, np.float32))
    file = path / "data" / "mm_0001.npy"
    file.unlink()
    file.symlink_to(tmp_path / "secret.npy")
    refused(open_dump, path, match="leads out of it")
    file.unlink()
    file.symlink_to(file)
    refused(open_dump, path, match="cannot resolve")
    file.unlink()
    os.mkfifo(file)
    refused(open_dump, path, match="a regular file")
    (path / "metadata.json").unlink()
    os.mkfifo(path / "metadata.json")
    refused(open_dump, path, match="a regular file")


def test_metadata_of_absurd_size_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = write(tmp_path, sound())
    os.truncate(path / "metadata.json", 1 << 40)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(open_dump, path, match="more than the limit of")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_a_shape_that_the_file_cannot_hold_takes_no_memory(tmp_path):
    text = f"{{'descr': '<f4', 'fortran_order': True, 'shape': ({2**20}, {2**20})}}"
    path = write(tmp_path, changed(*MM, "shape", value=[2**20, 2**20]))
    (path / "data" / "mm_0001.npy").write_bytes(header(text, b"few"))
    refused(open_dump, path, match="should end at byte .*, and the file has")


def test_a_file_that_shrinks_after_opening_is_an_error_of_its_tensor(tmp_path):
    path = write(tmp_path, sound())
    run = open_dump(path)
    os.truncate(path / "data" / "mm_0001.npy", 130)
    bad = next(t for t in run.tensors if t.key.op.op == "mm")
    refused(run.values, bad, match="bytes at offset")


def test_a_folder_without_metadata_is_not_taken_for_a_folder_of_arrays(tmp_path):
    path = write(tmp_path, sound())
    (path / "metadata.json").unlink()
    refused(open_dump, path, match="wrote the folder probably stopped early")
    refused(open_dump, path.rename(tmp_path / ".a.aimodelintermediates.7-0.partial"),
            match="wrote the folder probably stopped early")  # fmt: skip


def test_a_pickle_is_never_loaded_even_if_its_label_asks_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, changed(*MM, "torch_dtype", value="torch.object"))
    (path / "data" / "mm_0001.npy").write_bytes(PICKLED)
    refused(open_dump, path, match="pickled Python objects")
    assert not (tmp_path / "exploded").exists()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
PLACES = [
    ("inputs",), MM, *((*MM, k) for k in sound()["inputs"]["x"]), ("mappings",), ("syncpoint",),
    ("mappings", "sources"), OURS,
]  # fmt: skip


@given(st.sampled_from(PLACES), JSON)
def test_any_json_in_any_place_brings_only_our_errors(tmp_path_factory, place, value):
    body = sound()
    inner: Any = body
    for step in place[:-1]:
        inner = inner.setdefault(step, {})
    inner[place[-1]] = value
    path = write(tmp_path_factory.mktemp("fuzz"), body)
    try:
        run = AimodelIntermediates().open(path)
        for tensor in run.tensors:
            run.values(tensor)
    except SyncpointError as error:
        assert "\n" not in str(error)


@given(st.binary(max_size=200))
def test_any_bytes_as_metadata_bring_only_our_errors(tmp_path_factory, data):
    path = write(tmp_path_factory.mktemp("fuzz"), data)
    with pytest.raises(SyncpointError):
        AimodelIntermediates().open(path)
        raise FormatError("it opened")
