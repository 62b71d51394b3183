"""What is measured: two tensors in their own memory and types, and the rules their types imply.

Nothing is copied: an operand is a view of memory with any strides, and the kernel reads it there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncpoint.run.dtypes import from_numpy
from syncpoint.run.model import Quantization


@dataclass(frozen=True, slots=True)
class FileRegion:
    """A dense row-major tensor in this machine's byte order inside a file.

    The kernel maps it itself, a window at a time, so that a tensor of any size takes no memory.
    """

    path: str
    offset: int
    """Of its first byte."""
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """One side of a pair, read in place."""

    data: np.ndarray | FileRegion
    """An array's shape is the logical shape; any strides. See `shape` for packed 4-bit integers
    and for file regions."""
    dtype: str
    """Name of the element type; `data` may hold it as unsigned integers or void of that size."""
    quantization: Quantization | None = None
    """Its axis is one of the logical shape."""
    mask_below: float | None = None
    """Values at or below it are mask positions; None takes half the lowest finite value of
    f64, f32, f16 and bf16, and none for other and for quantized types. -inf: no finite value of
    this side is a mask."""
    shape: tuple[int, ...] | None = None
    """For a file region, and for packed i4 and u4: the logical shape. Packed `data` is 1-D uint8,
    two elements a byte, low nibble first, row-major without gaps; 4-bit integers in a file are
    always packed."""

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """The shape that is compared and indexed."""
        if self.shape is not None:
            return self.shape
        if isinstance(self.data, FileRegion):
            raise ValueError(f"no shape is given for the tensor in {self.data.path}")
        return self.data.shape

    @property
    def array(self) -> np.ndarray:
        """The data of an operand that is in memory."""
        if isinstance(self.data, FileRegion):
            raise TypeError(f"the tensor in {self.data.path} is not in memory")
        return self.data


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A target tensor and the reference tensor it should equal."""

    target: Operand
    reference: Operand
    rtol: float | None = None
    """Of `allclose`; None takes what torch.testing allows for the coarser of the two types."""
    atol: float | None = None


def operand(array: np.ndarray) -> Operand:
    """An operand of an ordinary array, its element type taken from it."""
    return Operand(array, from_numpy(array.dtype).name)
