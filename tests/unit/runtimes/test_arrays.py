"""What counts as a tensor, and that its bits come over as they are."""

import ml_dtypes
import numpy as np
import pytest
import torch

from syncpoint.errors import InputError, SyncpointError
from syncpoint.runtimes.arrays import to_recordable


class Speaks:
    """An array of another package: whatever the keywords say."""

    def __init__(self, array, dlpack=False, plain=True, fails=False):
        self._array, self._fails = array, fails
        if plain:
            self.__class__ = type("Speaks", (Speaks,), {"__array__": self._as_array})
        if dlpack:
            methods = {"__dlpack__": self._as_dlpack, "__dlpack_device__": self._device}
            self.__class__ = type("Speaks", (self.__class__,), methods)

    def _as_array(self, dtype=None, copy=None):
        if self._fails:
            raise TypeError("implicit conversion is not allowed")
        return self._array

    def _as_dlpack(self, **options):
        return self._array.__dlpack__(**options)

    def _device(self):
        return self._array.__dlpack_device__()


def test_numpy_arrays_and_numbers():
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T
    found = to_recordable(array)
    assert found.array is array and found.strides == (1, 4) and found.dtype is None
    assert to_recordable(np.float16(1.5)).array.dtype == np.float16
    assert to_recordable(1.5).array.shape == () and to_recordable(1.5).array.dtype == np.float64
    assert to_recordable(True).array.dtype == np.bool_ and to_recordable(3).array.dtype == np.int64
    assert to_recordable(np.ones(3, ml_dtypes.bfloat16)).array.dtype == ml_dtypes.bfloat16
    assert to_recordable(np.ones((2, 0, 3), np.float32)).array.shape == (2, 0, 3)


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int64", "bool", "complex64"]
)
def test_torch_tensors_keep_their_bits(dtype):
    torch.manual_seed(0)
    value = torch.randn(5, 3).to(getattr(torch, dtype)).t()
    found = to_recordable(value)
    raw = value.contiguous().view(torch.uint8).numpy()
    assert np.ascontiguousarray(found.array).view(np.uint8).tobytes() == raw.tobytes()
    assert found.strides == (1, 3) and found.device == "cpu" and found.requires_grad is False


def test_torch_tensors_that_learn_are_detached():
    value = torch.ones(2, requires_grad=True) * 2
    assert to_recordable(value).requires_grad is True
    assert to_recordable(value).array.tolist() == [2, 2]


def test_whatever_has_array_or_dlpack():
    array = np.arange(6.0, dtype=np.float32)
    assert to_recordable(Speaks(array)).array.tolist() == array.tolist()
    assert to_recordable(Speaks(array, dlpack=True, plain=False)).array.tolist() == array.tolist()
    # An array on another device raises in __array__; what it gives by DLPack is taken.
    assert to_recordable(Speaks(array, dlpack=True, fails=True)).array.tolist() == array.tolist()


def test_dlpack_that_numpy_cannot_read_goes_through_torch():
    value = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    found = to_recordable(Speaks(value, dlpack=True, plain=False))
    assert found.dtype == "bf16" and found.array.astype(np.float32).tolist() == [1.5, -2.0]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        [1.0, 2.0],
        {"a": 1},
        object(),
        np.array(["a"]),
        np.array([None]),
        np.zeros(2, [("a", "f4")]),
        np.ma.masked_array([1.0, 2.0], [True, False]),
        2**70,
        np.float32,
        torch.empty(2, device="meta"),
        Speaks(np.ones(2), fails=True),
        np.datetime64("2020-01-01"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_is_no_tensor_is_refused_in_one_line(value):
    with pytest.raises(SyncpointError) as raised:
        to_recordable(value)
    assert "\n" not in str(raised.value)


def test_a_list_says_how_to_wrap_it():
    with pytest.raises(InputError, match=r"a list is not a NumPy array.*; wrap it: numpy.asarray"):
        to_recordable([1.0])
