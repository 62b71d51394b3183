"""The example package is installed as a stranger would install one, and all four plugins of it
work; packages that are broken are named in one line and cost nothing else."""

import json
import os
import re
import shutil
import subprocess
import sys
from textwrap import indent

import numpy as np
import pytest

from helpers.paths import ROOT
from syncpoint.runtimes import protocol

EXAMPLE = ROOT / "examples" / "syncpoint-example"
WEIGHTS = np.random.default_rng(0).standard_normal((2, 4, 4)).round(3)
LAYERS = [
    {"name": "fc0", "type": "MatMul", "weight": WEIGHTS[0].tolist()},
    {"name": "act0", "type": "Relu"},
    {"name": "fc1", "type": "MatMul", "weight": WEIGHTS[1].tolist()},
]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that the example package is installed into."""
    source = tmp_path_factory.mktemp("source") / "example"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    options = ["--no-build-isolation", "--disable-pip-version-check", "--target", str(target)]
    subprocess.run([*pip, *options, str(source)], check=True)
    return target


def python(code, *paths, cwd):
    """Run Python code in a process that sees the packages in these folders."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def syncpoint(*words, paths, cwd, code=0):
    arguments = ["syncpoint", *map(str, words)]
    done = python(
        f"import sys; sys.argv = {arguments!r}; from syncpoint.cli import main; main()",
        *paths,
        cwd=cwd,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def place(tmp_path):
    (tmp_path / "net.chain.json").write_text(json.dumps(LAYERS))
    wrong = [dict(layer) for layer in LAYERS]
    wrong[2]["weight"] = (WEIGHTS[1] * 1.5).tolist()
    (tmp_path / "wrong.chain.json").write_text(json.dumps(wrong))
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(1).standard_normal((3, 4), np.float32))
    return tmp_path


def write_reference(place):
    """The same net in PyTorch."""
    (place / "net.py").write_text(
        f"""
import numpy as np, torch
layers = {LAYERS!r}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        weights = [layer["weight"] for layer in layers if "weight" in layer]
        self.weights = torch.nn.ParameterList(torch.tensor(w) for w in weights)
    def forward(self, x):
        return torch.relu(x @ self.weights[0]) @ self.weights[1]
reference = Net()
"""
    )


def write_lines(path, tensors):
    lines = [
        {"op": name, "type": "", "dtype": value.dtype.name, "values": value.tolist()}
        for name, value in tensors.items()
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_doctor_names_all_four(installed, place):
    lines = syncpoint("doctor", paths=[installed], cwd=place).stdout.splitlines()
    assert any(line.startswith("runtime    numpy-chain ") for line in lines)
    assert "    --set dtype=f32 (f16, f32, f64)  element type to compute in" in lines
    assert "format     json-lines: read and written" in lines
    assert "matcher    at-sign: of syncpoint-example" in lines
    assert "cause      byte-order: of syncpoint-example" in lines


def test_the_runtime_is_captured_and_compared_on_the_command_line(installed, place):
    inputs, options = ("--inputs", "x.npz"), {"paths": [installed], "cwd": place}
    syncpoint("capture", "net.chain.json", *inputs, "-o", "net.run", **options)
    syncpoint("compare", "net.chain.json", "net.run", **options)
    done = syncpoint("compare", "wrong.chain.json", "net.run", **options, code=1)
    assert "fc1" in done.stdout
    half = ("--target-set", "dtype=f16")
    syncpoint("compare", "net.chain.json", "net.chain.json", *inputs, *half, **options)


def test_the_runtime_gets_full_coverage_against_pytorch(installed, place):
    write_reference(place)
    code = """
import numpy as np, syncpoint as sp
x = np.load("x.npz")["x"].astype(np.float32)
found = sp.compare("net.chain.json", "net.py:reference", inputs=(x,))
assert (found.coverage.target, found.coverage.reference) == (1.0, 1.0), found.coverage
assert found.exit_code() == 0
wrong = sp.compare("wrong.chain.json", "net.py:reference", inputs=(x,))
assert [row.target.label for row in wrong.rows if row.guilty] == ["fc1"], wrong.rows
"""
    done = python(code, installed, cwd=place)
    assert done.returncode == 0, done.stderr


def test_the_dump_format_is_written_and_read_again(installed, place):
    options = {"paths": [installed], "cwd": place}
    syncpoint("capture", "net.chain.json", "--inputs", "x.npz", "-o", "net.run", **options)
    syncpoint("convert", "net.run", "net.jsonl", "--to", "json-lines", **options)
    lines = map(json.loads, (place / "net.jsonl").read_text().splitlines())
    computed = [line["op"] for line in lines if line["role"] == "output"]
    assert computed == [layer["name"] for layer in LAYERS]
    syncpoint("compare", "net.jsonl", "net.run", **options)
    (place / "bad.jsonl").write_text('{"op": 3}\n')
    done = syncpoint("inspect", "bad.jsonl", **options, code=2)
    assert done.stderr.startswith("syncpoint: bad.jsonl has a line that is not a tensor")


def test_the_matcher_pairs_what_nothing_else_pairs(installed, place):
    random = np.random.default_rng(2)
    values = {name: random.standard_normal((2, 3)) for name in ("moon", "tide")}
    write_lines(place / "reference.jsonl", values)
    write_lines(place / "target.jsonl", {f"{n}@7": v + 0.5 for n, v in values.items()})
    code = """
import syncpoint as sp
found = sp.compare("target.jsonl", "reference.jsonl", diagnose=False)
pairs = {row.target.label: (row.reference.label, row.evidence) for row in found.rows}
evidence = "the name before the at sign"
assert pairs == {"moon@7": ("moon", evidence), "tide@7": ("tide", evidence)}, pairs
"""
    done = python(code, installed, cwd=place)
    assert done.returncode == 0, done.stderr


def test_the_cause_explains_a_dump_in_the_other_byte_order(installed, place):
    value = np.random.default_rng(3).standard_normal((4, 5)).astype(np.float32)
    write_lines(place / "reference.jsonl", {"fc": value, "act": np.abs(value)})
    write_lines(place / "target.jsonl", {"fc": value, "act": np.abs(value).byteswap()})
    options = {"paths": [installed], "cwd": place}
    done = syncpoint("compare", "target.jsonl", "reference.jsonl", **options, code=1)
    assert "act has the bytes of each value in the wrong order" in " ".join(done.stdout.split())


BROKEN = {
    "import_error": ("import no_such_module", "ModuleNotFoundError: No module named"),
    "no_api": ("class Plugin: name = 'bad'", "it declares no API"),
    "newer_api": ("class Plugin: API = 99", "it declares API = 99; this version takes 1"),
    "form": ("class Plugin: API, name = 1, 'bad'", "it lacks "),
    "constructor": (
        "class Plugin:\n API = 1\n def __init__(self): raise OSError('no device')",
        "it cannot be loaded: OSError: no device",
    ),
    "ends_python": ("raise SystemExit(4)", "it cannot be loaded: SystemExit: 4"),
}
NOUNS = {"runtimes": "runtime", "dumps": "dump format", "matchers": "matcher", "causes": "cause"}


def package(folder, name, groups, code="class Plugin: API, name = 1, 'bad'", plugin="bad"):
    """What pip would leave of a package with one module that declares plugins."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(code + "\n")
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    entries = "".join(f"[syncpoint.{group}]\n{plugin} = {name}:Plugin\n" for group in groups)
    (info / "entry_points.txt").write_text(entries)
    return folder


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_package_is_named_in_one_line_and_nothing_else_fails(installed, place, fault):
    code, reason = BROKEN[fault]
    paths = [installed, package(place / "packages", "bad_package", NOUNS, code)]
    options = {"paths": paths, "cwd": place}
    both = ("net.chain.json", "net.chain.json", "--inputs", "x.npz")
    done = syncpoint("compare", *both, "--target-set", "dtype=f16", **options)
    lines = done.stderr.splitlines()
    for noun in NOUNS.values():
        start = f"syncpoint: warning: the {noun} bad of bad_package is skipped: "
        (line,) = [line for line in lines if line.startswith(start)]
        assert reason in line
    listed = syncpoint("doctor", **options)
    assert listed.stderr == ""
    assert (
        sum("bad of bad_package is skipped: " in line for line in listed.stdout.splitlines()) == 4
    )
    assert "runtime    numpy-chain " in listed.stdout


def test_of_two_packages_with_one_name_neither_is_used(installed, place):
    folder = package(place / "packages", "one_package", ["matchers"])
    package(folder, "two_package", ["matchers"])
    both = ("net.chain.json", "net.chain.json", "--inputs", "x.npz")
    done = syncpoint("compare", *both, "--no-diagnose", paths=[installed, folder], cwd=place)
    (line,) = [line for line in done.stderr.splitlines() if "is skipped" in line]
    assert "one_package and two_package is skipped: 2 entry points have this name" in line


def test_a_package_cannot_replace_what_is_built_in(installed, place):
    code = "class Plugin:\n API = 1\n def __init__(self): raise AssertionError('loaded')"
    folder = package(place / "packages", "thief", ["dumps"], code, plugin="npy")
    package(folder, "rogue", ["dumps"], code, plugin="ascend")
    done = syncpoint("doctor", paths=[installed, folder], cwd=place)
    left_out = [line for line in done.stdout.splitlines() if line.startswith("left out")]
    assert [line.split(" is skipped: ")[1] for line in left_out] == [
        "a built-in dump format has this name; upgrade or remove the package"
    ] * 2
    assert "format     npy: read and written" in done.stdout
    assert "format     ascend: read" in done.stdout


def test_a_plugin_that_raises_while_it_is_used_costs_one_line(installed, place):
    code = """
class Plugin:
    API, name, extra = 1, "bad", ""
    def version(self): return "1"
    def accepts(self, model): raise ValueError("who asks")
    def options(self): return ()
    def open(self, *given): raise ValueError("who opens")
    def sniff(self, path): raise ValueError("who sniffs")
    def match(self, matching): raise ValueError("who pairs")
    title = "bad luck"
    def look(self, case): raise ValueError("who looks")
"""
    paths = [installed, package(place / "packages", "bad_package", NOUNS, code)]
    options = {"paths": paths, "cwd": place}
    syncpoint("capture", "net.chain.json", "--inputs", "x.npz", "-o", "net.run", **options)
    done = syncpoint("compare", "wrong.chain.json", "net.run", **options, code=1)
    assert (
        "the matcher bad of bad_package raised ValueError: who pairs; it is skipped" in done.stderr
    )
    assert "Traceback" not in done.stderr
    assert "who looks" in done.stdout + done.stderr
    done = syncpoint("inspect", "net.chain.json", **options, code=2)
    assert "the dump format bad of bad_package raised ValueError: who sniffs" in done.stderr


def test_a_runtime_that_raises_while_it_runs_is_one_line(place):
    code = """
class Plugin:
    API, name, extra = 1, "bad", ""
    def version(self): return "1"
    def accepts(self, model): return str(model).endswith(".bad")
    def options(self): return ()
    def open(self, *given): return self
    def run(self, inputs, recorder): raise KeyError("weight")
"""
    folder = package(place / "packages", "bad_package", ["runtimes"], code)
    words = ("capture", "net.bad", "--inputs", "x.npz", "-o", "bad.run")
    done = syncpoint(*words, paths=[folder], cwd=place, code=2)
    assert (
        "bad of bad_package failed to run net.bad, because it raised KeyError: 'weight'"
        in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_the_page_lists_every_capability():
    page = (ROOT / "docs" / "extending.md").read_text()
    table = page[page.index("| protocol | on the |") : page.index("## A dump format")]
    capabilities = {
        name
        for name, value in vars(protocol).items()
        if getattr(value, "_is_runtime_protocol", False) and value.__module__ == protocol.__name__
    }
    listed = set(re.findall(r"`(\w+)`", table))
    assert capabilities - {"Runtime", "Session"} <= listed


def test_the_page_shows_the_files_of_the_package_and_its_code_runs(installed, place):
    page = (ROOT / "docs" / "extending.md").read_text()
    blocks = re.findall(r"```(?:python|toml)\n(.*?)```", page, re.DOTALL)
    sources = EXAMPLE / "src" / "syncpoint_example"
    files = [sources / name for name in ("runtime.py", "dump_format.py", "matcher.py", "cause.py")]
    *shown, test, calls = blocks
    assert shown == [path.read_text() for path in (EXAMPLE / "pyproject.toml", *files)]
    (place / "test_chain.py").write_text(f"{test}\n\ndef test_calls():\n{indent(calls, '    ')}")
    write_reference(place)
    samples = place / "folder_of_npz_files"
    samples.mkdir()
    for name in ("a.npz", "b.npz"):
        shutil.copy(place / "x.npz", samples / name)
    code = "import pytest, sys; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '.']))"
    done = python(code, installed, cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
