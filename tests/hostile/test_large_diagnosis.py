"""Pairs of large arrays that differ: a diagnosis keeps to its budget of memory.

Only with `SYNCPOINT_LARGE=1`, since each takes some seconds and files of up to 270 MB."""

import os
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    not os.environ.get("SYNCPOINT_LARGE"), reason="set SYNCPOINT_LARGE=1 for large arrays"
)

MEASURED = """
import resource, sys
import syncpoint as sp

found = sp.compare(sys.argv[1], sys.argv[2])
assert found.exit_code() == 1 and found.diagnosis is not None
assert not found.diagnosis.has_failed, found.diagnosis.troubles
assert all(finding.certainty != "sure" for finding in found.findings)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize(
    ("dtype", "count"), [(np.int8, 1 << 27), (np.float32, 1 << 26), (np.float16, 1 << 25)]
)
def test_a_large_pair_is_diagnosed_in_bounded_memory(tmp_path, dtype, count):
    rng = np.random.default_rng(0)
    values = rng.integers(-100, 100, count, dtype=np.int8).astype(dtype)
    np.savez(tmp_path / "reference.npz", x=values)
    values[::7] += dtype(5)
    np.savez(tmp_path / "target.npz", x=values)
    del values
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, tmp_path / "target.npz", tmp_path / "reference.npz"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    # In kB. The int8 arrays took 6.5 GB and the diagnosis did not end.
    assert int(done.stdout) < 1_000_000
