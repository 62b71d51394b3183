"""Device layouts against an oracle: each element is put where the definition of the layout says,
one at a time, with garbage in the padding; the view must bring back the logical array."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.paths import ASCEND_DATA
from syncpoint.ascend.dumps.device_folder import DeviceFolder
from syncpoint.ascend.dumps.golden_folder import GoldenFolder
from syncpoint.ascend.matching.device_layouts import to_logical, transpose_axes
from syncpoint.ascend.matching.device_views import Misfit, target_view
from syncpoint.matching.views import View
from syncpoint.run.model import OpKey, TensorKey

GARBAGE = -7.0


def blocks(size: int, block: int) -> int:
    return (size + block - 1) // block


def placed(shape, place, device_shape) -> tuple[np.ndarray, np.ndarray]:
    """The logical array, and the device's with each element at `place(*index)`."""
    logical = np.arange(prod(shape), dtype=np.float64).reshape(shape)
    device = np.full(device_shape, GARBAGE)
    for index in product(*map(range, shape)):
        at = place(*index)
        assert device[at] == GARBAGE, "two elements in one place"
        device[at] = logical[index]
    return logical, device


# From the definitions: where element (n, c, h, w) of NCHW, or the like, lies.


def nc1hwc0(n, c, h, w, c0):
    return placed(
        (n, c, h, w),
        lambda i, j, y, x: (i, j // c0, y, x, j % c0),
        (n, blocks(c, c0), h, w, c0),
    )


def c1hwnc0(n, c, h, w, c0):
    return placed(
        (n, c, h, w),
        lambda i, j, y, x: (j // c0, y, x, i, j % c0),
        (blocks(c, c0), h, w, n, c0),
    )


def nhwc1c0(n, c, h, w, c0):
    logical, device = placed(
        (n, h, w, c),
        lambda i, y, x, j: (i, y, x, j // c0, j % c0),
        (n, h, w, blocks(c, c0), c0),
    )
    return logical.transpose(0, 3, 1, 2), device


def fractal_z(n, c, h, w, c0):
    return placed(
        (n, c, h, w),
        lambda i, j, y, x: ((j // c0 * h + y) * w + x, i // 16, i % 16, j % c0),
        (blocks(c, c0) * h * w, blocks(n, 16), 16, c0),
    )


def fractal_z_c04(n, c, h, w, c0=16):
    def place(i, j, y, x):
        k = (y * w + x) * 4 + j
        return (k // c0, i // 16, i % 16, k % c0)

    return placed((n, c, h, w), place, (blocks(h * w * 4, c0), blocks(n, 16), 16, c0))


SPLIT = {
    "NC1HWC0": (nc1hwc0, (4, 8, 16, 32)),
    "NC1HWC0_C04": (nc1hwc0, (4,)),
    "C1HWNC0": (c1hwnc0, (8, 16)),
    "NHWC1C0": (nhwc1c0, (8, 16)),
    "FRACTAL_Z": (fractal_z, (8, 16, 32)),
}
ORDERS = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 2, 3, 1), "HWCN": (2, 3, 1, 0), "CHWN": (1, 2, 3, 0)}
SIZE = st.integers(1, 5)
CHANNELS = st.integers(1, 37)


def check(device, layout, golden_axes, golden, original=(), sub_format=0):
    view = target_view(device.shape, layout, golden_axes, golden.shape, original, sub_format)
    assert isinstance(view, str), view
    np.testing.assert_array_equal(View(view).apply(device), golden)


@pytest.mark.parametrize("layout", SPLIT)
@pytest.mark.parametrize("axes", ORDERS)
@given(st.data())
def test_four_axes_come_back_in_any_order(layout, axes, data):
    make, sides = SPLIT[layout]
    n, c = data.draw(CHANNELS if layout == "FRACTAL_Z" else SIZE), data.draw(CHANNELS)
    h, w = data.draw(SIZE), data.draw(SIZE)
    logical, device = make(n, c, h, w, data.draw(st.sampled_from(sides)))
    golden = logical.transpose(ORDERS[axes])
    check(device, layout, axes, golden)
    check(device, layout, axes, golden, original=golden.shape)
    check(device, layout, axes, golden, original=logical.shape)


@given(CHANNELS, st.integers(1, 4), SIZE, SIZE, st.sampled_from(list(ORDERS)))
def test_weights_with_few_channels_come_back(n, c, h, w, axes):
    logical, device = fractal_z_c04(n, c, h, w)
    check(device, "FRACTAL_Z_C04", axes, logical.transpose(ORDERS[axes]))


@given(st.integers(2, 3), st.integers(1, 2), st.integers(1, 2), SIZE, st.integers(1, 2))
@settings(max_examples=20)
def test_weights_in_groups_come_back_where_each_fills_its_blocks(groups, n1, c1, h, w):
    n, c = n1 * 16, c1 * 16
    place_in = fractal_z(n, c, h, w, 16)[1].shape
    logical, device = placed(
        (groups * n, c, h, w),
        lambda i, j, y, x: (
            i // n * place_in[0] + (j // 16 * h + y) * w + x, i % n // 16, i % 16, j % 16
        ),
        (groups * place_in[0], *place_in[1:]),
    )  # fmt: skip
    for layout in ("FRACTAL_Z", "FRACTAL_Z_G"):
        check(device, layout, "NCHW", logical, sub_format=groups)


def test_groups_that_share_a_block_are_told_and_not_guessed():
    found = target_view((9, 1, 16, 16), "FRACTAL_Z", "NCHW", (8, 2, 3, 3), sub_format=4)
    assert isinstance(found, Misfit)
    assert "4 groups" in found.reason


@given(SIZE, st.integers(1, 3), CHANNELS, st.integers(1, 3), SIZE, st.sampled_from((8, 16)))
def test_five_axes_come_back(n, d, c, h, w, c0):
    logical, device = placed(
        (n, c, d, h, w),
        lambda i, j, z, y, x: (i, z, j // c0, y, x, j % c0),
        (n, d, blocks(c, c0), h, w, c0),
    )
    check(device, "NDC1HWC0", "NCDHW", logical)
    check(device, "NDC1HWC0", "NDHWC", logical.transpose(0, 2, 3, 4, 1))
    check(device, "NDC1HWC0", "ND", logical)


@given(CHANNELS, st.integers(1, 3), CHANNELS, st.integers(1, 3), st.integers(1, 3))
def test_weights_of_five_axes_come_back(n, d, c, h, w):
    logical, device = placed(
        (n, c, d, h, w),
        lambda i, j, z, y, x: (((z * blocks(c, 16) + j // 16) * h + y) * w + x,
                               i // 16, i % 16, j % 16),
        (d * blocks(c, 16) * h * w, blocks(n, 16), 16, 16),
    )  # fmt: skip
    check(device, "FRACTAL_Z_3D", "NCDHW", logical)
    check(device, "FRACTAL_Z_3D", "DHWCN", logical.transpose(2, 3, 4, 1, 0))
    swapped = logical.transpose(1, 0, 2, 3, 4)
    check(device, "FRACTAL_Z_3D_TRANSPOSE", "NCDHW", swapped)
    check(device, "FRACTAL_Z_3D_TRANSPOSE", "DHWNC", swapped.transpose(2, 3, 4, 0, 1))


@pytest.mark.parametrize("layout", ["FRACTAL_NZ", "FRACTAL_ZZ"])
@given(st.lists(st.integers(1, 3), max_size=2), CHANNELS, CHANNELS, st.sampled_from((8, 16, 32)))
def test_matrices_in_blocks_come_back(layout, lead, m, n, n0):
    def place(*index):
        *front, i, j = index
        two = (j // n0, i // 16) if layout == "FRACTAL_NZ" else (i // 16, j // n0)
        return (*front, *two, i % 16, j % n0)

    m1, n1 = blocks(m, 16), blocks(n, n0)
    two = (n1, m1) if layout == "FRACTAL_NZ" else (m1, n1)
    logical, device = placed((*lead, m, n), place, (*lead, *two, 16, n0))
    check(device, layout, "ND", logical)
    check(device, layout, "", logical, original=logical.shape)
    if not lead:
        check(device, layout, "NCHW", logical.reshape(m, n, 1, 1), original=(m, n))
    found = to_logical(device.shape, layout, logical.shape)
    np.testing.assert_array_equal(View(found.view).apply(device), logical)
    assert (found.axes, found.cropped) == ("ND", True)


@pytest.mark.parametrize("layout", [*ORDERS, "FILTER_HWCK"])
def test_layouts_that_are_only_an_order_are_turned(layout):
    axes = "HWCN" if layout == "FILTER_HWCK" else layout
    logical = np.arange(2.0 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    device = logical.transpose(ORDERS[axes])
    for golden_axes, order in ORDERS.items():
        check(device, layout, golden_axes, logical.transpose(order))


def test_a_golden_array_that_lies_the_other_way_than_said_is_turned():
    logical = np.arange(2.0 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    check(logical, "NCHW", "NCHW", logical.transpose(0, 2, 3, 1), original=(2, 4, 5, 3))


@pytest.mark.parametrize(
    ("shape", "layout", "axes", "golden", "original"),
    [
        ((1, 16, 4, 4), "", "ND", (1, 10, 4, 4), (1, 16, 4, 4)),  # other channels, no padding
        ((1, 16, 4, 4), "NCHW", "NCHW", (1, 10, 4, 4), ()),
        ((2, 3), "", "ND", (3, 2), (2, 3)),
        ((2, 3), "", "", (3, 2), ()),
        ((1, 2, 8, 8, 16), "NC1HWC0", "NCHW", (1, 10, 8, 8), ()),  # a whole block less
        ((1, 2, 8, 8, 16), "NC1HWC0", "NCHW", (1, 20, 8, 8), (1, 32, 8, 8)),  # said otherwise
        ((1, 2, 8, 8, 16), "NC1HWC0", "NCHW", (1, 20, 7, 8), ()),
        ((3, 2, 16, 16), "FRACTAL_NZ", "ND", (16, 40), ()),
        ((9, 1, 16, 16), "FRACTAL_Z", "NCHW", (8, 2, 3, 2), ()),
        ((5,), "FRACTAL_ZN_LSTM", "ND", (5,), ()),
        ((1, 2, 3, 4, 5, 6), "C1HWNCoC0", "NCHW", (1, 2, 3, 4), ()),
        ((1, 2), "format 200", "NCHW", (1, 2), ()),
        ((5,), "", "ND", (5, 5), ()),
        ((1, 1, 16, 16), "FRACTAL_NZ", "NCHW", (1, 2, 1, 1), ()),  # a row or a column
    ],
)
def test_what_cannot_be_laid_over_the_golden_array_is_told(shape, layout, axes, golden, original):
    found = target_view(shape, layout, axes, golden, original)
    assert isinstance(found, Misfit), found
    assert "\n" not in found.reason
    assert len(found.reason) > 20


@pytest.mark.parametrize(
    ("shape", "layout", "axes", "golden", "original"),
    [
        ((2, 3), "", "ND", (6,), (2, 3)),  # merged
        ((1024, 8), "", "ND", (8, 128, 8), (1024, 8)),
        ((1, 3, 1), "", "ND", (3,), ()),
        ((3,), "", "NCHW", (1, 3, 1, 1), ()),
        ((4, 2, 1, 1, 16), "NC1HWC0", "ND", (4, 20), (4, 20)),
        ((1, 2, 1, 1, 16), "NC1HWC0", "ND", (20,), ()),
        ((2, 64, 16, 16), "FRACTAL_NZ", "ND", (8, 127, 20), (1016, 20)),
    ],
)
def test_axes_of_length_one_and_merged_axes_do_not_stand_in_the_way(
    shape, layout, axes, golden, original
):
    found = target_view(shape, layout, axes, golden, original)
    assert isinstance(found, str), found
    assert View(found).apply(np.empty(shape)).shape == golden


def test_an_order_that_only_the_original_shape_tells_is_found():
    logical, device = nc1hwc0(1, 24, 8, 7, 16)
    golden = logical.transpose(0, 2, 3, 1)
    check(device, "NC1HWC0", "ND", golden, original=golden.shape)
    assert isinstance(target_view(device.shape, "NC1HWC0", "ND", golden.shape), Misfit)


def test_padding_that_the_device_declares_is_cut_from_a_plain_layout_too():
    device = np.arange(32.0).reshape(4, 8)
    check(device, "", "ND", device[:3, :5], original=(3, 5))


@given(st.integers(1, 3), CHANNELS, SIZE, SIZE)
def test_the_logical_tensor_is_cropped_by_the_original_shape_in_whatever_order(n, c, h, w):
    logical, device = nc1hwc0(n, c, h, w, 16)
    for order in ORDERS.values():
        found = to_logical(device.shape, "NC1HWC0", logical.transpose(order).shape)
        if found is None:
            continue  # sizes that fit in two ways
        assert found.axes == "NCHW"
        np.testing.assert_array_equal(View(found.view).apply(device), logical)
    padded = to_logical(device.shape, "NC1HWC0")
    assert (padded.cropped, padded.shape[1]) == (False, blocks(c, 16) * 16)


def test_the_usual_original_shape_is_never_in_doubt():
    for shape in ((1, 3, 224, 224), (8, 64, 56, 56), (2, 20, 7, 7), (1, 1000, 1, 1), (1, 24, 8, 8)):
        n, c, h, w = shape
        found = to_logical((n, blocks(c, 16), h, w, 16), "NC1HWC0", shape)
        assert found.shape == shape
        assert found.cropped


def test_axes_turn_into_each_other():
    assert transpose_axes("NCHW", "NHWC") == "transpose(0,2,3,1)"
    assert transpose_axes("NCHW", "NCHW") == ""
    assert transpose_axes("NCHW", "NCDHW") is None
    assert transpose_axes("ND", "NC") is None


def test_shapes_of_many_axes_end_at_once():
    assert isinstance(target_view((1,) * 60, "", "ND", (1,) * 59 + (2,)), Misfit)
    assert isinstance(target_view((1,) * 60, "", "ND", (1,) * 61), Misfit)


@given(st.lists(st.integers(0, 40), max_size=7),
       st.sampled_from((*SPLIT, "FRACTAL_NZ", "NCHW", "")),
       st.sampled_from((*ORDERS, "ND", "")), st.lists(st.integers(0, 40), max_size=6),
       st.lists(st.integers(0, 1 << 64), max_size=5), st.integers(-2, 5))  # fmt: skip
def test_any_shapes_give_a_view_that_applies_or_a_reason(
    shape, layout, axes, golden, original, groups
):
    found = target_view(shape, layout, axes, golden, original, groups)
    to_logical(shape, layout, original, groups)
    if isinstance(found, str):
        seen = np.broadcast_to(np.empty(()), shape)
        assert View(found).apply(seen).shape == tuple(golden)


@pytest.mark.parametrize(("op", "layout", "axes"), [
    ("layer1/conv1layer1/relu1", "NC1HWC0", "NCHW"), ("fz", "FRACTAL_Z", "NCHW"),
    ("mm", "FRACTAL_NZ", "ND"), ("nhwc_gold", "NCHW", "NCHW"),
])  # fmt: skip
def test_the_layouts_of_real_dumps_come_to_their_golden_arrays(op, layout, axes):
    run = DeviceFolder().open(ASCEND_DATA / "offline_mixed/npu")
    golden = GoldenFolder().open(ASCEND_DATA / "offline_mixed/golden")
    tensor = run.tensor(TensorKey(OpKey(op)))
    assert tensor.layout == layout
    name = "layer1_relu1" if op.startswith("layer1") else op
    wanted = golden.values(golden.tensor(TensorKey(OpKey(name))))
    original = run.op(tensor.key.op).attributes["outputs"][0]["original_shape"]
    view = target_view(tensor.shape, layout, axes, wanted.shape, original)
    found = View(view).apply(run.values(tensor)).astype(np.float32)
    assert np.abs(found - wanted).max() < 0.004
