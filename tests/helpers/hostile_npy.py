""".npy files that are no arrays of numbers."""

from __future__ import annotations

import io
import os
import pickle
import struct

import ml_dtypes
import numpy as np


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.system, ("touch exploded",))


def npy(array: np.ndarray, **options: object) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def header(text: str, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    body = text.encode("latin1") + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H", len(body)) + body + data


PICKLED = npy(np.array([Bomb()], dtype=object), allow_pickle=True)
HOSTILE_NPY = [
    (PICKLED, "pickled Python objects"),
    (npy(np.zeros(2, [("a", "i4"), ("b", "f4")])), "a structured array"),
    (npy(np.array(["text"])), "an array of numbers"),
    (npy(np.array(["2020"], "M8[Y]")), "an array of numbers"),
    (npy(np.ones(3, ml_dtypes.bfloat16)), "elements without a type .* use safetensors"),
    (npy(np.ones(3, np.longdouble)), "an array of numbers"),
    (npy(np.ones(3))[:-1], "(header declares|should end at byte) 152"),
    (npy(np.ones(3))[:40], "no valid .npy header"),
    (b"", "no valid .npy header"),
    (b"\x93NUMPY", "no valid .npy header"),
    (pickle.dumps(Bomb()), "no valid .npy header"),
    (header("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", version=(9, 0)), "version"),
    (header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}"), "an impossible shape"),
    (
        header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2**62}, 99)}}"),
        "an impossible shape",
    ),
    (header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2**40},)}}", b"x"), "bytes"),
    (header("__import__('os').system('touch exploded')"), "no valid .npy header"),
    (header("(" * 5000), "no valid .npy header"),
    (header("{'descr': '<f8'}"), "no valid .npy header"),
]
