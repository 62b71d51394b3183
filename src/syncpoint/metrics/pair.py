"""Data classes of what is measured: a pair of operands, each in memory or as a region of a file,
with scale, zero point and logical shape.

Nothing is copied: an operand is a view of memory with any strides, or a region of a file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncpoint.run.dtypes import from_numpy
from syncpoint.run.model import Quantization


@dataclass(frozen=True, slots=True)
class FileRegion:
    """A dense row-major tensor in a file, in the byte order of this machine.

    The kernel maps one window at a time, so that a tensor of any size needs little memory.
    """

    path: str
    offset: int
    """Offset of its first byte."""
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """One side of a pair, read in place."""

    data: np.ndarray | FileRegion
    """An array with any strides, whose shape is the logical shape, or a file region. For packed
    4-bit integers and file regions see `shape`."""
    dtype: str
    """Name of the element type; `data` may be unsigned integers or void of the same size."""
    quantization: Quantization | None = None
    """Its axis is an axis of the logical shape."""
    mask_below: float | None = None
    """Values at or below it are masked positions. None means half the minimum of f64, f32, f16 and
    bf16, and no mask for other or quantized types. -inf means that no finite value is masked."""
    shape: tuple[int, ...] | None = None
    """The logical shape of a file region or of packed i4 and u4. Packed `data` is 1-D uint8, two
    elements per byte, low nibble first, row-major without gaps. 4-bit integers in a file are always
    packed."""

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """The shape that is compared and indexed."""
        if self.shape is not None:
            return self.shape
        if isinstance(self.data, FileRegion):
            raise ValueError(f"the tensor in {self.data.path} needs a shape")
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
    """Tolerance of `allclose`; None means that of torch.testing for the coarser type."""
    atol: float | None = None


def operand(array: np.ndarray) -> Operand:
    """The operand of an array, with its element type."""
    return Operand(array, from_numpy(array.dtype).name)
