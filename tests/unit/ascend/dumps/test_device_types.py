"""Element types that no array library reads: against their definitions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from helpers.device_dump_files import dump, one_output, output
from helpers.paths import ASCEND_DATA
from syncpoint.ascend.dumps.device_folder import DeviceFolder
from syncpoint.ascend.dumps.device_types import format_name, layout, stored_type
from syncpoint.ascend.dumps.golden_folder import GoldenFolder
from syncpoint.run.model import OpKey, TensorKey

TIME = 1700000000004000


def opened(tmp_path, code: int, shape: tuple[int, ...], data: bytes):
    whole = dump(output(shape, len(data), code), data=data)
    (tmp_path / f"Add.a.1.2.{TIME}").write_bytes(whole)
    run = DeviceFolder().open(tmp_path)
    return run, run.tensors[0]


def hifloat8_by_bits(byte: int) -> float:
    """The definition of arXiv 2409.16626 on the text of the bits, apart from the decoder."""
    bits = f"{byte:08b}"
    sign, rest = (-1) ** int(bits[0]), bits[1:]
    if rest == "0000000":
        return 0.0 if sign == 1 else float("nan")
    if rest == "1101111":
        return sign * float("inf")
    for dot, width in (("11", 4), ("10", 3), ("01", 2), ("001", 1), ("0001", 0)):
        if not rest.startswith(dot):
            continue
        field, fraction = rest[len(dot) :][:width], rest[len(dot) + width :]
        exponent = 0
        if width:
            exponent = int("1" + field[1:], 2) * (-1) ** int(field[0])
        mantissa = 1 + Fraction(int(fraction, 2), 2 ** len(fraction))
        return float(sign * mantissa * Fraction(2) ** exponent)
    return float(sign * Fraction(2) ** (int(rest[4:], 2) - 23))


def test_every_hifloat8_is_what_its_definition_says(tmp_path):
    run, tensor = opened(tmp_path, 33, (256,), bytes(range(256)))
    wanted = np.array([hifloat8_by_bits(b) for b in range(256)], np.float32)
    found = run.values(tensor)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("byte", "value"),
    # Landmarks that are printed in the description of the format.
    [(0x08, 1.0), (0x10, 2.0), (0x18, 0.5), (0x20, 4.0), (0x38, 0.125), (0x40, 16.0),
     (0x50, 0.0625), (0x60, 256.0), (0x6E, 2.0**15), (0x7E, 2.0**-15), (0x01, 2.0**-22),
     (0x07, 2.0**-16), (0x88, -1.0), (0x00, 0.0)],
)  # fmt: skip
def test_landmarks_of_hifloat8(tmp_path, byte, value):
    run, tensor = opened(tmp_path, 33, (1,), bytes([byte]))
    assert run.values(tensor).tolist() == [value]


def test_the_hifloat8_of_the_mixed_dump_is_the_golden_array_to_the_bit():
    """The tool that made the report decodes 1.25, 0.5 and -1.25 here, which is not the format."""
    run = DeviceFolder().open(ASCEND_DATA / "offline_mixed/npu")
    golden = GoldenFolder().open(ASCEND_DATA / "offline_mixed/golden")
    key = TensorKey(OpKey("hif8"))
    found = run.values(run.tensor(key))
    np.testing.assert_array_equal(found, golden.values(golden.tensor(key)))
    assert run.op(OpKey("hif8")).attributes["outputs"][0]["stored_type"] == "HIFLOAT8"


def test_scales_that_are_exponents_are_powers_of_two(tmp_path):
    run, tensor = opened(tmp_path, 36, (256,), bytes(range(256)))
    wanted = [2.0 ** (k - 127) for k in range(255)]
    assert run.values(tensor)[:255].tolist() == wanted
    assert np.isnan(run.values(tensor)[255])


def test_floats_of_four_bits_lie_two_in_a_byte_the_first_low(tmp_path):
    run, tensor = opened(tmp_path, 39, (3, 5), bytes(k | (k + 1) % 16 << 4 for k in range(8)))
    e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
    wanted = [e2m1[n] for k in range(8) for n in (k, (k + 1) % 16)][:15]
    assert run.values(tensor).shape == (3, 5)
    assert run.values(tensor).reshape(-1).tolist() == wanted
    assert np.signbit(run.values(tensor)).sum() == sum(np.signbit(w) for w in wanted)


def test_floats_of_one_bit_of_exponent_are_quarters(tmp_path):
    run, tensor = opened(tmp_path, 40, (16,), bytes(k | k + 1 << 4 for k in range(0, 16, 2)))
    assert run.values(tensor).tolist() == [
        (-1) ** (k >> 3) * ((k >> 2 & 1) + (k & 3) / 4 if k >> 2 & 1 else (k & 3) / 4)
        for k in range(16)
    ]


def test_complex_numbers_of_halves_are_widened(tmp_path):
    halves = np.array([1, 2, -3, 0.5, np.inf, np.nan], np.float16)
    run, tensor = opened(tmp_path, 32, (3,), halves.tobytes())
    found = run.values(tensor)
    assert found.dtype == np.complex64
    np.testing.assert_array_equal(found.view(np.float32), halves.astype(np.float32))


def test_packed_int4_stays_packed(tmp_path):
    run, tensor = opened(tmp_path, 28, (5,), bytes([0x21, 0x8F, 0x07]))
    assert (tensor.dtype, tensor.nbytes) == ("i4", 3)
    assert run.values(tensor).astype(int).tolist() == [1, 2, -1, -8, 7]


@pytest.mark.parametrize("code", [33, 36, 39, 40, 32])
def test_windows_of_decoded_elements_are_those_of_the_whole(tmp_path, code):
    data = np.random.default_rng(0).integers(0, 128, 64, np.uint8).tobytes()
    count = 64 * 8 // stored_type(code).bits
    run, tensor = opened(tmp_path, code, (count,), data)
    whole = run.values(tensor)
    for start, stop in ((0, 0), (0, 1), (1, 4), (3, 15), (7, count), (count, count)):
        np.testing.assert_array_equal(run.window(tensor, start, stop), whole[start:stop])
    assert not whole.flags.writeable
    assert run.dense_file(tensor) is None


def test_plain_elements_are_measured_where_they_lie(tmp_path):
    (tmp_path / f"Add.a.1.2.{TIME}").write_bytes(one_output(np.ones(3, np.float32)))
    run = DeviceFolder().open(tmp_path)
    assert run.dense_file(run.tensors[0]) == tmp_path / f"Add.a.1.2.{TIME}"


@pytest.mark.parametrize("code", [13, 24, 25, 26, 29, 30, 31, 37, 38, 41, 42, 43, -1, 1 << 20])
def test_what_is_not_known_for_certain_is_named_and_not_read(tmp_path, code):
    whole = dump(output((1,), 64, code), data=bytes(64))
    (tmp_path / f"Add.a.1.2.{TIME}").write_bytes(whole)
    run = DeviceFolder().open(tmp_path)
    assert run.tensors == []
    assert f"elements of type {stored_type(code).name} " in run.ops[0].attributes["damage"]


def test_the_tables_have_every_number_of_the_format():
    names = [stored_type(code).name for code in range(43)]
    assert len(set(names)) == 43
    assert not any(name.startswith("data_type") for name in names)
    assert [format_name(k) for k in (0, 2, 3, 4, 12, 29, 32, 39, 49)] == [
        *("NCHW", "ND", "NC1HWC0", "FRACTAL_Z", "NC1HWC0_C04", "FRACTAL_NZ"),
        *("NDC1HWC0", "FRACTAL_Z_G", "C1HWC0"),
    ]
    assert format_name(-1) == "format -1"
    assert layout(2) == ""
