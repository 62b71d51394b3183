"""The plain path for any processor: the same tests, and the same numbers as with vectors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.kernel_pairs import measure_hard_pairs
from helpers.paths import ROOT, TESTS
from syncpoint.errors import InputError
from syncpoint.metrics import _kernel, instruction_set

HERE = Path(__file__).parent
BASELINE = {**os.environ, "SYNCPOINT_ISA": "baseline"}

needs_vectors = pytest.mark.skipif(_kernel.isa() == "baseline", reason="all tests ran with it")


@needs_vectors
def test_the_plain_path_passes_the_same_tests():
    files = [
        HERE / f"test_{name}.py"
        for name in ("accuracy", "dtype_rules", "invariance", "windows", "paths")
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
    out = subprocess.run(command, env=BASELINE, capture_output=True, text=True, cwd=ROOT)
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
    assert f"SYNCPOINT_ISA must be avx2 or baseline, not {asked!r}" in out.stderr
    code = "import syncpoint as sp\ntry: sp.capture\nexcept Exception as e: print(type(e).__name__)"
    assert run_with(asked, code).stdout == "InputError\n"


def test_known_instruction_sets_are_taken():
    code = "import syncpoint.metrics; print(syncpoint.metrics._kernel.isa())"
    assert _kernel.isa() in instruction_set.KNOWN_ISAS
    for asked in {"baseline", _kernel.isa()}:
        assert run_with(asked, code).stdout == f"{asked}\n"
    assert run_with("", code).stdout == f"{_kernel.isa()}\n"


def test_a_processor_that_lacks_what_is_asked_for(monkeypatch):
    monkeypatch.setenv("SYNCPOINT_ISA", "avx2")
    monkeypatch.setattr(instruction_set._kernel, "isa", lambda: "baseline")
    with pytest.raises(InputError, match=r"SYNCPOINT_ISA=avx2 is set, .* supports only baseline"):
        instruction_set.check_isa()


SUMS = {
    *("mae", "mse", "rmse", "rel_l2", "euclid", "norm_ratio", "target_l2", "reference_l2"),
    *("mean_rel", "acc_rel", "mean_rel_robust", "lsb", "bulk_rmse"),
}
"""Of terms that are not negative, so that their own size is what an error is compared with."""


@needs_vectors
def test_both_paths_give_the_same_numbers():
    code = "from helpers import kernel_pairs; print(kernel_pairs.measure_hard_pairs())"
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={**BASELINE, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=True,
    )
    for fast, plain in zip(json.loads(measure_hard_pairs()), json.loads(out.stdout), strict=True):
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
