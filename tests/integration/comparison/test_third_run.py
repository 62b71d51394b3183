"""A run between target and reference splits an error in compression and runtime."""

import json

import numpy as np
import pytest

import syncpoint as sp
from helpers.commands import syncpoint
from models.onnx_files import NETS, feeds, onnx_file
from syncpoint.errors import InputError


def dumps(folder, **runs):
    for name, values in runs.items():
        np.savez(folder / f"{name}.npz", **values)


@pytest.fixture
def planted(tmp_path):
    """`a` is off by compression alone, `b` by the runtime alone, `c` by both, `d` not at all;
    the run in between lacks `e`."""
    rng = np.random.default_rng(0)
    noise = {n: rng.standard_normal((8, 8)).astype(np.float32) for n in "abcde"}
    off = {n: 1e-2 * rng.standard_normal((2, 8, 8)).astype(np.float32) for n in "abcde"}
    squeezed = {n: noise[n] + off[n][0] * (n in "ac") for n in "abcd"}
    shipped = {n: squeezed.get(n, noise[n]) + off[n][1] * (n in "bce") for n in "abcde"}
    dumps(tmp_path, target=shipped, through=squeezed, reference=noise)
    wide = {n: v.astype(np.float64) for n, v in noise.items()}
    expected = {
        n: (
            float(np.sqrt(np.mean((squeezed[n].astype(np.float64) - wide[n]) ** 2))),
            float(np.sqrt(np.mean((shipped[n].astype(np.float64) - squeezed[n]) ** 2))),
        )
        for n in "abcd"
    }
    return tmp_path, expected


def test_each_error_goes_to_whom_it_belongs(planted):
    folder, expected = planted
    comparison = sp.compare(
        folder / "target.npz", folder / "reference.npz", through=folder / "through.npz"
    )
    parts = {p.reference: p for p in comparison.through.parts}
    assert [parts[n].mostly for n in "abcd"] == ["compression", "runtime", "both", "equal"]
    for name, (compression, runtime) in expected.items():
        assert parts[name].compression == pytest.approx(compression, rel=1e-9)
        assert parts[name].runtime == pytest.approx(runtime, rel=1e-9)
    assert parts["e"].compression is parts["e"].runtime is None
    assert parts["e"].mostly == "" and parts["e"].total > 0
    plain = sp.compare(folder / "target.npz", folder / "reference.npz")
    assert [r.verdict for r in plain.rows] == [r.verdict for r in comparison.rows]


def test_it_is_printed_saved_and_written_as_json(planted):
    folder, _ = planted
    found = syncpoint(
        "compare", "target.npz", "reference.npz", "--through", "through.npz",
        "-o", "x.cmp", "--json", "x.json", cwd=folder,
    )  # fmt: skip
    said = "4 of 5 sync points split: 1 mostly compression, 1 mostly runtime, 1 both, 1 equal"
    assert found.returncode == 1 and said in found.stdout
    made = json.loads((folder / "x.json").read_text())["through"]
    points = {p["reference"]: p["mostly"] for p in made["sync_points"]}
    assert points == {"a": "compression", "b": "runtime", "c": "both", "d": "equal", "e": None}
    assert said in str(sp.open_comparison(folder / "x.cmp"))
    found = syncpoint("compare", "target.npz", "reference.npz", "--through", "no.npz", cwd=folder)
    assert found.returncode == 2 and len(found.stderr.strip().splitlines()) == 1
    with pytest.raises(InputError):
        sp.compare(folder / "target.npz", folder / "reference.npz", through=object())


def test_non_finite_values_are_no_small_error(tmp_path):
    values = np.linspace(-1, 1, 64, dtype=np.float32)
    broken = np.where(values > 0.9, np.nan, values).astype(np.float32)
    dumps(tmp_path, target={"a": broken}, through={"a": values}, reference={"a": values})
    paths = [tmp_path / f"{n}.npz" for n in ("target", "reference", "through")]
    part = sp.compare(paths[0], paths[1], through=paths[2]).through.parts[0]
    assert (part.compression, part.runtime, part.mostly) == (0.0, None, "")


def test_int8_is_compression_and_the_kernels_are_the_runtime(tmp_path):
    """The int8 file op by op in floats, between its execution by integer kernels and PyTorch."""
    path = str(onnx_file(tmp_path, "cnn", "qdq"))
    target = sp.capture(path, feeds("cnn"))
    middle = sp.capture(path, feeds("cnn"), fusion="unfused")
    make, inputs = NETS["cnn"]
    comparison = sp.compare(target, sp.capture(make(), inputs()), through=middle)
    (output,) = [p for p in comparison.through.parts if p.output]
    assert output.mostly == "compression"
    assert output.total == pytest.approx(output.compression, rel=0.5)
