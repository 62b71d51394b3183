"""The benchmarks import: they name the same things as the code they measure."""

import importlib.util
import json
import subprocess
import sys

import pytest

from helpers.paths import ROOT

BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_imports_and_can_be_run(path):
    spec = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert callable(module.main)


def test_the_benchmark_of_offline_dumps_runs_and_both_sides_print_the_same(tmp_path):
    """It ends with an error where a single cell differs."""
    script = BENCHMARKS[0].parent / "offline.py"
    size = ["--ops", "9", "--megabytes", "1", "--rounds", "1", "--folder", str(tmp_path)]
    out = subprocess.run(
        [sys.executable, script, *size], capture_output=True, text=True, check=True
    )
    figures = {line["figure"]: line for line in map(json.loads, out.stdout.splitlines())}
    assert figures["offline dump, plain NumPy: CPU seconds"]["rows"] == 15
    assert figures["offline dump, parts: peak megabytes"]["value"] > 10
    assert list(tmp_path.iterdir()) == []
