"""Real comparisons to look at, and the real server that shows them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

import syncpoint as sp
from models import vit


def make(folder: Path) -> None:
    """Comparisons of all kinds in a folder:

    guilty: f16, one op guilty, another makes the first non-finite values, the rest inherited;
    clean: all close; statistics: the target kept as statistics; digest: both as digests;
    missing: guilty without its runs; plain: two dumps without source, modules or edges;
    fused: ONNX Runtime as executed against PyTorch, with unmatched ops;
    sourceless: two dumps that differ in many ways, without source, modules or edges.
    """
    inputs = (vit.image(),)
    reference = sp.capture(vit.model(), inputs, out=folder / "reference.run")
    target = sp.capture(vit.broken(), inputs, out=folder / "target.run", dtype="f16")
    sp.compare(target, reference, reference_model=vit.model(), out=folder / "guilty.cmp")
    sp.compare(folder / "reference.run", reference, out=folder / "clean.cmp")
    light = sp.capture(
        vit.broken(), inputs, out=folder / "light.run", dtype="f16", record="statistics"
    )
    sp.compare(light, reference, out=folder / "statistics.cmp")
    for name, net in (("a", vit.model()), ("b", vit.broken())):
        sp.capture(net, inputs, out=folder / f"{name}.run", record="digest")
    sp.compare(folder / "b.run", folder / "a.run", out=folder / "digest.cmp")
    (folder / "elsewhere").mkdir()
    shutil.copytree(folder / "guilty.cmp", folder / "elsewhere" / "missing.cmp")
    rng = np.random.default_rng(0)
    plain = {f"op{at}": rng.standard_normal((3, 5)).astype("f4") for at in range(6)}
    np.savez(folder / "good.npz", **plain)
    np.savez(folder / "bad.npz", **{**plain, "op3": plain["op3"] * 2, "extra": plain["op1"]})
    sp.compare(folder / "bad.npz", folder / "good.npz", out=folder / "plain.cmp")
    _sourceless(folder, rng)
    _fused(folder, inputs)


def _sourceless(folder: Path, rng: np.random.Generator) -> None:
    """Tensors that are off by noise, by a factor and at one element: each metric sees another."""
    good = {f"op{at}": rng.standard_normal((2, 3, 5)).astype("f4") for at in range(14)}
    bad = {}
    for at, (name, values) in enumerate(good.items()):
        size = np.float32(10.0 ** -(at // 3 + 1))
        noise = rng.standard_normal(values.shape).astype("f4")
        bad[name] = (values * (1 + size), values + size * noise, values.copy())[at % 3]
        if at % 3 == 2:
            bad[name][1, 2, at % 5] += size
    np.savez(folder / "there.npz", **good)
    np.savez(folder / "here.npz", **bad)
    sp.compare(folder / "here.npz", folder / "there.npz", out=folder / "sourceless.cmp")


def _fused(folder: Path, inputs: tuple) -> None:
    import torch

    program = torch.onnx.export(vit.broken(), inputs, dynamo=True, verbose=False)
    program.save(folder / "vit.onnx")
    sp.compare(
        folder / "vit.onnx",
        vit.model(),
        inputs=inputs,
        out=folder / "fused.cmp",
        store=folder / "fused",
    )


class Served:
    """A comparison that is being served."""

    def __init__(self, address: str, process: subprocess.Popen) -> None:
        self.address, self.process = address, process
        parts = urlsplit(address)
        self.origin = f"{parts.scheme}://{parts.netloc}"

    def at(self, **state: object) -> str:
        """The address with the state of the page in it."""
        said = "&".join(f"{key}={value}" for key, value in state.items())
        return f"{self.address}#{said}"


def start(*arguments: str, **environment: str) -> Served:
    """A command of ours that serves, in a process of its own."""
    code = "from syncpoint.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments, "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )
    return Served(process.stdout.readline().strip(), process)


def stop(served: Served) -> None:
    served.process.terminate()
    try:
        served.process.wait(10)
    except subprocess.TimeoutExpired:
        served.process.kill()
        served.process.wait(10)


def open_page(page, served: Served, **state: object) -> None:
    """Open a comparison and wait until its rows and their states are there."""
    page.goto(served.at(**state))
    settled(page)


def settled(page) -> None:
    """Wait until the page knows its rows and how bad each of them is."""
    page.locator("[role=treeitem]").first.wait_for()
    page.wait_for_function(
        "() => { const strip = document.querySelector('.drift canvas');"
        " return !strip || !/over 0 /.test(strip.ariaLabel ?? ''); }"
    )
