"""Two graphs of ten thousand ops with modules, branches and residuals, as a comparison on disk."""

from pathlib import Path

import numpy as np

from helpers.small_runs import run
from syncpoint.comparison.engine import compare
from syncpoint.comparison.storage.comparison_folder import save
from syncpoint.dumps.save_dump import save_dump
from syncpoint.run.reader import Run

BLOCK = 20
"""Ops of one block."""


def make(folder: Path, ops: int = 10_000) -> Path:
    """The comparison; its runs lie beside it."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((ops, 4)).astype("f4")
    off = np.where(np.arange(ops) < 0.6 * ops, 1e-7, 1e-2).astype("f4")
    target = values + off[:, None] * rng.standard_normal((ops, 4)).astype("f4")
    target[int(0.9 * ops)] = np.nan
    sides = []
    for name, made in (("target", target), ("reference", values)):
        save_dump(_run(made), folder / f"{name}.run", "run")
        sides.append(Run.open(folder / f"{name}.run"))
    return save(compare(*sides), folder / "large.cmp")


def _run(values):
    made = []
    before = "x"
    for block in range(len(values) // BLOCK):
        at = block * BLOCK
        stem = f"layers.{block}"
        skip = before

        def add(kind, module, *reads, stem=stem):
            at = len(made)
            made.append((f"{kind}_{at}", kind, f"{stem}.{module}".rstrip("."), reads, values[at]))
            return made[-1][0]

        norm = add("norm", "norm1", before)
        heads = [add("linear", f"attn.{name}", norm) for name in "qkv"]
        views = [add("view", "attn", head) for head in heads]
        score = add("matmul", "attn", views[0], views[1])
        soft = add("softmax", "attn", score)
        mixed = add("matmul", "attn", soft, views[2])
        out = add("linear", "attn.proj", mixed)
        skip = add("add", "", out, skip)
        norm = add("norm", "norm2", skip)
        wide = add("linear", "mlp.fc1", norm)
        for _ in range(BLOCK - 17 + 1):
            wide = add("gelu", "mlp", wide)
        before = add("add", "", add("linear", "mlp.fc2", wide), skip)
        assert len(made) == at + BLOCK, len(made) - at
    return run(*made, inputs=[("x", values[0])], outputs=[(before, values[-1])])
