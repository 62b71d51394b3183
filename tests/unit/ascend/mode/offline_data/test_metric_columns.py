"""The columns of the report on Ascend dumps: every row that msProbe itself computed, and the plain
NumPy formulas on whatever hypothesis thinks of."""

import csv
import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import ascend_column_oracle as oracle
from helpers.paths import ASCEND_DATA
from syncpoint.ascend.mode.offline_data.metric_columns import METRICS, columns, overflow

MIXED = ASCEND_DATA / "offline_mixed"
UNREADABLE_HERE = {"hif8"}  # its type has no NumPy name; the true reader decodes it


def escaped(name):
    return name.replace("/", "_").replace(".", "_")


def files_of(folder):
    """The newest file of each op, by the name in its file name."""
    found = {}
    for path in sorted(folder.iterdir()):
        parts = path.name.split(".")
        if len(parts) > 2:
            found[parts[1] if path.suffix != ".npy" else ".".join(parts[:-2])] = path
    for line in (folder / "mapping.csv").read_text().splitlines() if folder.name == "npu" else ():
        number, name = line.split(",")
        if (folder / number).exists():
            found[name.split(".")[1]] = folder / number
    return found


def golden_name(ops, op, role, index):
    """Which golden output a tensor of the device belongs to."""
    if role == "output":
        said = {a["key"]: a["value"] for a in ops[op]["output_desc"][index]["attr"]}
        origin = said.get("_datadump_origin_name", {}).get("s")
        if origin:
            return f"{escaped(origin)}.{said['_datadump_origin_output_index']['i']}"
        return golden_name(ops, op, "input", 0)  # TransData and the like
    producer, output = ops[op]["input"][index].rsplit(":", 1)
    return golden_name(ops, producer, "output", int(output))


def mixed_rows():
    ops = {
        op["name"]: op for op in json.loads((MIXED / "fusion.json").read_text())["graph"][0]["op"]
    }
    npu, golden = files_of(MIXED / "npu"), files_of(MIXED / "golden")
    with (MIXED / "expected_overflow_advisor.csv").open() as file:
        header, *rows = csv.reader(file)
    for row in rows:
        cells = dict(zip(header, row, strict=True))
        if row[3] == "NaN" or cells["NPUDump"] in UNREADABLE_HERE:
            continue
        op, role, index = cells["TensorIndex"].rsplit(":", 2)
        layout, target = oracle.device_tensors(npu[escaped(op)])[role, int(index)]
        path = golden[golden_name(ops, op, role, int(index))]
        reference = np.load(path)
        if op == "nhwc_gold":
            target = target.transpose(0, 2, 3, 1)
        target = oracle.logical(layout, target, reference.shape)
        target = target.reshape(-1)[: reference.size]  # as msProbe cuts padded tensors
        files = [str(p.relative_to(MIXED)) for p in (npu[escaped(op)], path)]
        yield pytest.param(target, reference, files, cells, id=cells["TensorIndex"])


def check(target, reference, files, cells):
    shape = oracle.shape_of(cells["Shape"])
    found = columns(target, reference, *files, shape)
    assert found.cells == {name: cells[name] for name in METRICS}
    assert list(found.cells) == list(METRICS)
    assert ",".join(found.reasons) == cells["CompareFailReason"]
    assert oracle.cells(target, reference, shape) == found.cells


@pytest.mark.parametrize(("target", "reference", "files", "cells"), list(mixed_rows()))
def test_a_row_is_what_msprobe_prints(target, reference, files, cells):
    check(target, reference, files, cells)
    assert overflow(target) == cells["OverFlow"]


def test_rows_of_two_device_dumps_are_what_msprobe_prints():
    folder = ASCEND_DATA / "offline_npu_vs_npu"
    sides = [files_of(folder / side) for side in "ab"]
    seen = 0
    with (folder / "expected.csv").open() as file:
        for row in csv.reader(file):
            if row[10] in ("CosineSimilarity", "NaN"):
                continue
            op, role, index = row[8].rsplit(":", 2)
            arrays = [oracle.device_tensors(side[op])[role, int(index)][1] for side in sides]
            if op == "mm":
                arrays = [oracle.logical(29, array, (4, 8)) for array in arrays]
            names = ("Shape", *METRICS, "CompareFailReason")
            check(*arrays, ("a", "b"), dict(zip(names, row[9:], strict=True)))
            seen += 1
    assert seen == 4


@pytest.mark.parametrize(
    ("folder", "rows"),
    [
        ("offline_quantized", [("npu", "data", "output", "data.0", 1),
                               ("npu", "conv1_quant_layer", "input", "data.0", 2),
                               ("npu", "conv1_dequant_layer", "output", "conv1.0", 3)]),
        ("offline_batch", [("20240101010101/0/ge_default_20240101010101_11/3/1", "r", "output",
                            "r.0", 1)]),
    ],
)  # fmt: skip
def test_rows_of_other_dumps_are_what_msprobe_prints(folder, rows):
    with (ASCEND_DATA / folder / "expected.csv").open() as file:
        expected = list(csv.DictReader(file))
    for place, op, role, golden, line in rows:
        paths = {p.name.split(".")[1]: p for p in (ASCEND_DATA / folder / place).iterdir()}
        _, target = oracle.device_tensors(paths[op])[role, 0]
        path = files_of(ASCEND_DATA / folder / "golden")[golden]
        check(target, np.load(path), ("t", "g"), expected[line - 1])


def test_rows_of_a_dump_without_fusion_are_what_msprobe_prints():
    folder = ASCEND_DATA / "offline_fusion_off"
    fused, plain = files_of(folder / "open"), files_of(folder / "close")
    with (folder / "expected.csv").open() as file:
        expected = list(csv.DictReader(file))
    tensors = (
        ("data", "output", "data"),
        ("convrelu", "input", "data"),
        ("convrelu", "output", "relu_c"),
    )
    for row, (op, role, other) in zip(expected, tensors, strict=True):
        arrays = [
            oracle.device_tensors(fused[op])[role, 0][1],
            oracle.device_tensors(plain[other])["output", 0][1],
        ]
        check(*arrays, ("t", "g"), row)


# --- what the reference data does not hold ---

FLOATS = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 0.5, 1e-8, 2.0**-52, 1e-20, 1e-38, 1e-42, -1e-45, 3e38, -3e38, 1e20, 7e4]
) | st.floats(-10, 10, width=32)  # fmt: skip
TYPES = [
    np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16,
    np.uint32, np.uint64, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4,
]  # fmt: skip


def made(seed, size, dtype, spread):
    """Random bit patterns where `spread` is wild, else numbers near each other."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return rng.random(size) < 0.5
    if spread == "wild":
        return np.frombuffer(rng.bytes(size * dtype.itemsize), dtype)
    with np.errstate(all="ignore"):
        return (rng.standard_normal(size) * 3).astype(np.float32).astype(dtype)


@given(
    st.integers(0, 1000) | st.sampled_from([4095, 8191, 8193, 16411, 33333]),
    st.sampled_from(TYPES),
    st.sampled_from(TYPES),
    st.sampled_from(["tame", "wild"]),
    st.integers(0, 1 << 30),
)
def test_any_types_and_sizes(size, target_type, golden_type, spread, seed):
    x, y = made(seed, size, target_type, spread), made(seed + 1, size, golden_type, spread)
    assert columns(x, y, "t", "g", (size, 9)).cells == oracle.cells(x, y, (size, 9))


@given(st.lists(st.tuples(FLOATS, FLOATS), max_size=300), st.data())
def test_any_floats(pairs, data):
    x, y = np.array(pairs, np.float32).reshape(-1, 2).T
    holes = st.lists(st.tuples(st.integers(0, 300), st.sampled_from([np.nan, np.inf, -np.inf])),
                     max_size=2)  # fmt: skip
    x, y = x.copy(), y.copy()
    for side in (x, y):
        for at, value in data.draw(holes) if x.size else ():
            side[at % x.size] = value
    found = columns(x, y, "t", "g", (x.size, 9))
    assert found.cells == oracle.cells(x, y, (x.size, 9))


@given(st.integers(1, 3000), st.integers(-24, 0), st.integers(0, 1 << 30))
def test_small_divergences_print_as_numpys(size, exponent, seed):
    """Where the quick logarithm is used, and where its sign may be in doubt."""
    rng = np.random.default_rng(seed)
    y = rng.standard_normal(size).astype(np.float32)
    x = y + np.float32(2.0**exponent) * rng.standard_normal(size).astype(np.float32)
    assert columns(x, y, "t", "g", (size, 9)).cells == oracle.cells(x, y, (size, 9))


@pytest.mark.parametrize("size", [(1 << 20) + 7, 999_983])
def test_large_tensors(size):
    rng = np.random.default_rng(size)
    y = rng.standard_normal(size, dtype=np.float32)
    x = y.astype(np.float16)
    assert columns(x, y, "t", "g", (size, 9)).cells == oracle.cells(x, y, (size, 9))


def test_strides_byte_order_and_shapes_do_not_matter():
    y = np.random.default_rng(0).standard_normal((3, 50, 70)).astype(np.float32)
    x = (y + 1e-3).astype(np.float16)
    plain = columns(x, y, "t", "g", (3, 50, 70))
    turned = np.ascontiguousarray(x.transpose(2, 0, 1)).transpose(1, 2, 0)
    assert columns(turned, y.astype(">f4"), "t", "g", (3, 50, 70)) == plain
    assert columns(x.reshape(-1), y, "t", "g", (3, 50, 70)) == plain


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_a_scalar_is_called_one_and_has_cosine_one(shape):
    found = columns(np.full(shape, 2.0), np.zeros(shape, np.float32), "t", "g", shape)
    assert found.cells["CosineSimilarity"] == "1.000000"
    assert found.reasons == ["This tensor is scalar."]
    assert found.cells["MaxAbsoluteError"] == "2.000000"


def test_complex_values_have_no_columns_and_say_so():
    complex_values, real = np.ones(3, np.complex64), np.ones(3, np.float32)
    for pair in ((real, complex_values), (complex_values, real)):
        found = columns(*pair, "npu/a", "golden/b.npy", (3,))
        assert set(found.cells.values()) == {"NaN"}
        (reason,) = found.reasons
        assert reason.startswith("complex values: ")
        assert "complex64" in reason


def test_a_side_without_a_true_is_named():
    true, false = np.ones(9, np.bool_), np.zeros(9, np.bool_)
    assert "zero in t." in columns(false, true, "t", "g", (9,)).reasons[0]
    found = columns(true, false, "t", "g", (9,))
    assert "zero in g." in found.reasons[0]
    assert found.cells["CosineSimilarity"] == "NaN"
    assert found.cells["RelativeEuclideanDistance"] == "0.000000"
    assert columns(false, false, "t", "g", (9,)).cells["CosineSimilarity"] == "1.0"


def test_an_infinite_divergence_gives_its_reason():
    """The sum of the golden side overflows, so its shares are 0."""
    y = np.full(20, 3e38, np.float32)
    x = np.arange(20, dtype=np.float32)
    found = columns(x, y, "t", "g", (20,))
    assert found.cells == oracle.cells(x, y, (20,))
    assert found.cells["KullbackLeiblerDivergence"] == "inf"
    assert found.reasons == ["Cannot compare by KL Divergence. The data contains 0 in 'g'."]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0, -2.0], "NO"), ([65504.0, 0.0], "YES"), ([-65504.0, 0.0], "YES"),
        ([65472.0, -65472.0], "NO"), ([np.inf, 0.0], "YES"), ([-np.inf, 0.0], "YES"),
        ([np.nan, np.inf], "NO"), ([], "NO"), ([-0.0], "NO"),
    ],
)  # fmt: skip
def test_overflow_of_float16(values, said):
    for dtype in ("<f2", ">f2"):
        assert overflow(np.array(values, dtype)) == said
    assert overflow(np.array(values, np.float32)) == "NaN"
    if values:
        assert bool(np.abs(np.array(values, np.float16)).max() >= 65504) == (said == "YES")


def test_sizes_that_differ_are_refused():
    with pytest.raises(ValueError, match="sizes differ: 3 and 4"):
        columns(np.ones(3), np.ones(4), "t", "g", (3,))
