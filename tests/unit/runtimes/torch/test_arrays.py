"""Tensors of torch become NumPy arrays and back without a changed bit."""

import ml_dtypes
import numpy as np
import pytest
import torch

from syncpoint.errors import Unsupported
from syncpoint.runtimes.torch.arrays import has_same_bits, to_numpy, to_torch


@pytest.mark.parametrize(
    ("dtype", "numpy"),
    [
        (torch.bfloat16, ml_dtypes.bfloat16),
        (torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
        (torch.float8_e5m2, ml_dtypes.float8_e5m2),
        (torch.float16, np.float16),
        (torch.complex64, np.complex64),
        (torch.uint16, np.uint16),
    ],
)
def test_tensors_cross_over_bit_by_bit(dtype, numpy):
    size = torch.empty(0, dtype=dtype).element_size()
    bits = torch.arange(0, 256, dtype=torch.uint8).repeat(size)
    tensor = bits.view(dtype).reshape(16, 16).t()
    array = to_numpy(tensor)
    assert array.dtype == np.dtype(numpy)
    back = to_torch(array)
    assert back.dtype == dtype
    assert has_same_bits(back, tensor)


def test_shapes_of_no_and_of_zero_elements_and_conjugates():
    assert to_numpy(torch.tensor(2.0, dtype=torch.bfloat16)).shape == ()
    assert to_numpy(torch.empty(0, 3)).shape == (0, 3)
    assert to_numpy(torch.tensor([1 + 2j]).conj())[0] == 1 - 2j
    read_only = np.ones(3, np.float32)
    read_only.flags.writeable = False
    assert to_torch(read_only).tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(Unsupported):
        to_numpy(torch.empty(2, dtype=torch.float8_e4m3fnuz))
