"""Row-major copies of arrays that lie in any other way."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.metrics import _kernel, dense

TYPES = [np.uint8, np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex128, ">f4"]
SIZES = st.sampled_from([1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 40])


def numbered(shape, dtype):
    """No two neighbours alike."""
    count = int(np.prod(shape))
    return (np.arange(count) % 251).astype(np.uint8).astype(dtype).reshape(shape)


def check(array):
    found = dense(array)
    assert found.flags.c_contiguous and found.dtype == array.dtype and found.shape == array.shape
    assert found.tobytes() == array.tobytes()


@given(st.lists(SIZES, min_size=1, max_size=4), st.sampled_from(TYPES), st.data())
def test_any_strides(shape, dtype, data):
    array = numbered(shape, dtype)
    for axis in range(array.ndim):
        step = data.draw(st.sampled_from([1, 1, 1, 2, -1]))
        start = data.draw(st.integers(0, 1)) if array.shape[axis] > 1 and step > 0 else None
        array = array[(slice(None),) * axis + (slice(start, None, step),)]
    order = data.draw(st.permutations(range(array.ndim)))
    check(array.transpose(order))


@pytest.mark.parametrize("dtype", TYPES)
def test_device_layouts(dtype):
    check(numbered((2, 3, 9, 7, 16), dtype).transpose(0, 1, 4, 2, 3))  # NC1HWC0
    check(numbered((5, 4, 16, 16), dtype).transpose(1, 2, 0, 3))  # FRACTAL_NZ
    check(
        numbered((3 * 9, 2, 16, 16), dtype).reshape(3, 3, 3, 2, 16, 16).transpose(3, 4, 0, 5, 1, 2)
    )
    check(numbered((300, 211), dtype).T)
    check(numbered((2, 37, 19, 23), dtype).transpose(0, 2, 3, 1))


def test_repeated_unaligned_and_empty_elements():
    check(np.broadcast_to(numbered((7,), np.float16), (5, 7)))
    check(np.broadcast_to(numbered((7, 1), np.float16), (7, 5)))
    memory = np.frombuffer(b"x" + numbered((20, 30), np.float32).tobytes(), np.uint8)[1:]
    check(memory.view(np.float32).reshape(20, 30).T)
    check(np.empty((3, 0, 2), np.float16).transpose(2, 1, 0))
    check(np.array(3.0))


def test_what_is_dense_is_not_copied():
    array = numbered((3, 4), np.float16)
    assert dense(array) is array


def test_sizes_that_the_kernel_does_not_know():
    check(np.zeros((5, 4), "S3").T)


def test_a_wrong_place_is_refused():
    array = numbered((4, 6), np.float16)
    frozen = np.empty((6, 4), np.float16)
    frozen.flags.writeable = False
    for place in (np.empty((4, 6), np.float16), np.empty((6, 4), np.float32), frozen):
        with pytest.raises(ValueError, match="needed"):
            _kernel.dense(array.T, place)
