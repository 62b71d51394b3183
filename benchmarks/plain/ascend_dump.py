"""Writes a made-up Ascend dump: device files in three layouts, golden arrays, one rule file.

Three chains of ops, one for each layout: every op's input is what the op before it gave. Device
tensors are the golden ones in float16, with padding where the layout has it.
"""

import json
import struct
import sys
from math import isqrt
from pathlib import Path

import numpy as np

ND, NC1HWC0, FRACTAL_NZ = 2, 3, 29
FLOAT16 = 2
FIRST_TIME = 1700000000000000


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, *parts):
    body = b"".join(parts)
    return varint(field << 3 | 2) + varint(len(body)) + body


def tensor(field, size_field, original_field, layout, device, logical):
    """An OpInput or OpOutput."""
    return message(
        field,
        number(1, FLOAT16),
        number(2, layout),
        message(3, message(1, *map(varint, device.shape))),
        number(size_field, device.nbytes),
        message(original_field, message(1, *map(varint, logical))),
    )


def write_device(path, name, layout, shape, given, made):
    tensors = [] if given is None else [tensor(4, 5, 6, layout, given, shape)]
    tensors.append(tensor(3, 6, 7, layout, made, shape))
    header = b"".join([message(1, b"2.0"), number(2, 1), *tensors, message(6, name.encode())])
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)))
        file.write(header)
        for array in (given, made):
            if array is not None:
                array.tofile(file)


def shape_of(layout, count):
    """A logical shape of about so many elements, with padding on the device."""
    side = isqrt(count)
    if layout == NC1HWC0:
        return (1, 248, max(isqrt(count // 256), 1), max(isqrt(count // 256), 1))
    return (max(side - 5, 1), side)


def laid_out(layout, golden):
    """The golden array in float16 as the device keeps it."""
    half = golden.astype(np.float16)
    if layout == NC1HWC0:
        n, c, h, w = half.shape
        c1 = -(-c // 16)
        padded = np.zeros((n, c1 * 16, h, w), np.float16)
        padded[:, :c] = half
        return np.ascontiguousarray(padded.reshape(n, c1, 16, h, w).transpose(0, 1, 3, 4, 2))
    if layout == FRACTAL_NZ:
        m, n = half.shape
        m1, n1 = -(-m // 16), -(-n // 16)
        padded = np.zeros((m1 * 16, n1 * 16), np.float16)
        padded[:m, :n] = half
        return np.ascontiguousarray(padded.reshape(m1, 16, n1, 16).transpose(2, 0, 1, 3))
    return half


def attribute(key, **value):
    return {"key": key, "value": value}


def rule(name, kind, index, given, layout, shape):
    origin = [
        attribute("_datadump_origin_name", s=name),
        attribute("_datadump_origin_output_index", i=0),
        attribute("_datadump_origin_format", s="NCHW" if layout == NC1HWC0 else "ND"),
        attribute("origin_shape", list={"i": list(shape)}),
    ]
    return {
        "name": name,
        "type": kind,
        "id": index,
        "input": [] if given is None else [f"{given}:0"],
        "output_desc": [{"dtype": "DT_FLOAT16", "attr": origin}],
        "attr": [attribute("_datadump_original_op_names", list={"s": [name]})],
    }


def write(folder, ops, megabytes, seed=0):
    """`npu`, `golden` and `fusion.json`; about so many megabytes in all."""
    rng = np.random.default_rng(seed)
    for part in ("npu", "golden"):
        (folder / part).mkdir(parents=True)
    # Of each op the input and the output in two bytes, and the golden output in four.
    count = megabytes * 1_000_000 // ops // 8
    chains = {layout: [None, None] for layout in (NC1HWC0, FRACTAL_NZ, ND)}
    rules = []
    for i in range(ops):
        layout = (NC1HWC0, FRACTAL_NZ, ND)[i % 3]
        given_name, given = chains[layout]
        kind = {NC1HWC0: "Conv2D", FRACTAL_NZ: "MatMulV2", ND: "Add"}[layout]
        kind, name = ("Data", f"data{i}") if given is None else (kind, f"net/block{i % 7}/op{i}")
        shape = shape_of(layout, count)
        golden = rng.standard_normal(shape, dtype=np.float32)
        made = laid_out(layout, golden)
        escaped = name.replace("/", "_")
        time = FIRST_TIME + 1000 * i
        path = folder / "npu" / f"{kind}.{escaped}.{i}.1.{time}"
        write_device(path, name, layout, shape, given, made)
        np.save(folder / "golden" / f"{escaped}.0.{time}.npy", golden)
        rules.append(rule(name, kind, i, given_name, layout, shape))
        chains[layout] = [name, made]
    (folder / "fusion.json").write_text(json.dumps({"graph": [{"name": "net", "op": rules}]}))


def main():
    folder, ops, megabytes = sys.argv[1:]
    write(Path(folder), int(ops), int(megabytes))


if __name__ == "__main__":
    main()
