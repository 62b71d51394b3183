"""What is no comparison is refused in words that say what it is and what to do."""

import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.dumps.open_dump import open_dump
from syncpoint.dumps.save_dump import save_dump
from syncpoint.errors import FormatError, InputError
from syncpoint.page.open_comparison import OpenComparison


@pytest.fixture
def place(tmp_path):
    x = np.ones((2, 3), np.float32)
    save_dump(run(("a", "relu", "", ("x",), x), inputs=[("x", x)]), tmp_path / "one.run", "run")
    np.savez(tmp_path / "one.npz", a=x)
    (tmp_path / "notes.txt").write_text("nothing of ours")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "problem", "cure"),
    [
        ("one.run", "is not a comparison (a folder with comparison.json) but a run", "compare it"),
        (
            "one.npz",
            "is not a comparison (a folder with comparison.json) but a recording (npz)",
            "compare it first: syncpoint compare",
        ),
        (
            "notes.txt",
            "is not a comparison (a folder with comparison.json)",
            "make one with: syncpoint compare",
        ),
        ("nowhere", "no such file or folder", "check the path"),
    ],
)
def test_a_path_without_a_comparison_is_refused_with_the_cure(place, name, problem, cure):
    with pytest.raises(InputError) as refusal:
        OpenComparison(place / name)
    assert problem in refusal.value.problem
    assert name in refusal.value.problem
    assert refusal.value.cure.startswith(cure)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["one.npz", "one.npy", "one.safetensors"])
@pytest.mark.parametrize("size", [0, 20])
def test_a_file_that_is_not_what_its_name_says_is_called_damaged(place, name, size):
    (place / name).write_bytes((place / "one.npz").read_bytes()[:size])
    with pytest.raises(FormatError, match="cut off or damaged" if size else "an empty file"):
        open_dump(place / name)
