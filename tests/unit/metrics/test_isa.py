"""The plain path for any processor: the same tests, and the same numbers as with vectors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensors

from syncpoint.errors import InputError
from syncpoint.metrics import Operand, Pair, _kernel, isa, measure
from syncpoint.run.model import Quantization

HERE = Path(__file__).parent
BASELINE = {**os.environ, "SYNCPOINT_ISA": "baseline"}

needs_vectors = pytest.mark.skipif(_kernel.isa() == "baseline", reason="all tests ran with it")


@needs_vectors
def test_the_plain_path_passes_the_same_tests():
    files = [
        HERE / f"test_{name}.py" for name in ("accuracy", "rules", "invariance", "windows", "paths")
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
    out = subprocess.run(command, env=BASELINE, capture_output=True, text=True, cwd=HERE.parents[2])
    assert out.returncode == 0, out.stdout[-3000:]


def run_with(asked, code):
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "SYNCPOINT_ISA": asked}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("asked", ["avx512", "AVX2", "plain", " baseline"])
def test_an_unknown_instruction_set_is_one_line_that_names_the_known(asked):
    code = "from syncpoint.cli import main; main()"
    out = run_with(asked, f"import sys; sys.argv = ['syncpoint', 'doctor']; {code}")
    assert out.returncode == 2 and out.stderr.count("\n") == 1
    assert f"expected SYNCPOINT_ISA to be avx2 or baseline, or unset; found {asked!r}" in out.stderr
    code = "import syncpoint as sp\ntry: sp.capture\nexcept Exception as e: print(type(e).__name__)"
    assert run_with(asked, code).stdout == "InputError\n"


def test_known_instruction_sets_are_taken():
    code = "import syncpoint.metrics; print(syncpoint.metrics._kernel.isa())"
    assert _kernel.isa() in isa.KNOWN
    for asked in {"baseline", _kernel.isa()}:
        assert run_with(asked, code).stdout == f"{asked}\n"
    assert run_with("", code).stdout == f"{_kernel.isa()}\n"


def test_a_processor_that_lacks_what_is_asked_for(monkeypatch):
    monkeypatch.setenv("SYNCPOINT_ISA", "avx2")
    monkeypatch.setattr(isa._kernel, "isa", lambda: "baseline")
    with pytest.raises(InputError, match="SYNCPOINT_ISA=avx2 asks for; found one that can do base"):
        isa.check_isa()


def hard_pairs() -> list[Pair]:
    """Every kind of block there is: ordinary, equal, with zeros, holes, masks, offsets, scales."""
    rng = np.random.default_rng(11)
    pairs = []
    for names in (("f32", "f32"), ("f16", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("i8", "f32")):
        for recipe in ("normal", "exponents", "offset", "masks", "small integers", "outliers"):
            for relation in ("equal", "near", "unrelated"):
                with np.errstate(all="ignore"):
                    t, r = tensors.make_pair(rng, names, recipe, relation, 40_003)
                    if relation == "unrelated":
                        tensors.sprinkle(rng, t, names[0], 0.01)
                        tensors.sprinkle(rng, r, names[1], 0.01)
                pairs.append(Pair(Operand(t, names[0]), Operand(r, names[1])))
    stored = rng.integers(-128, 128, 40_003).astype(np.int8)
    for scale in (0.03, 0.03125, -0.5):
        real = scale * (stored.astype(np.float64) - 3)
        side = Operand(stored, "i8", Quantization((scale,), (3,)))
        pairs.append(Pair(side, Operand(real.astype(np.float32), "f32")))
        pairs.append(Pair(Operand(real.astype(np.float16), "f16"), side))
    return pairs


SUMS = {
    *("mae", "mse", "rmse", "rel_l2", "euclid", "norm_ratio", "target_l2", "reference_l2"),
    *("mean_rel", "acc_rel", "mean_rel_robust", "lsb", "bulk_rmse"),
}
"""Of terms that are not negative, so that their own size is what an error is compared with."""


def as_json() -> str:
    with np.errstate(all="ignore"):
        return json.dumps([m.as_dict() for m in measure(hard_pairs(), robust=True)])


@needs_vectors
def test_both_paths_give_the_same_numbers():
    code = "import test_isa; print(test_isa.as_json())"
    path = os.pathsep.join([str(HERE), str(HERE.parents[1])])
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={**BASELINE, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    for fast, plain in zip(json.loads(as_json()), json.loads(out.stdout), strict=True):
        for name, value in fast.items():
            other = plain[name]
            if name in SUMS and value is not None:
                assert value == pytest.approx(other, rel=1e-14, abs=0), name
            elif name in ("psnr", "sqnr", "bulk_sqnr", "cosine") and value is not None:
                assert value == pytest.approx(other, rel=0, abs=1e-12), name
            elif name.endswith("_mean") and value is not None:
                size = fast[name.replace("mean", "l2")] / max(fast["compared"], 1) ** 0.5
                assert abs(value - other) <= 1e-14 * size, name
            elif name.endswith("_std") and value is not None:
                # A difference of sums, of which up to five bits may cancel.
                assert value == pytest.approx(other, rel=1e-13, abs=0), name
            else:
                assert value == other, name
