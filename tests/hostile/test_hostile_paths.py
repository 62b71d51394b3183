"""Names of files that look like patterns, options or markup: every command takes them literally."""

import json

import numpy as np
import pytest
from starlette.testclient import TestClient

from helpers.commands import run_command
from syncpoint.runtimes.inputs.read_inputs import read_inputs
from syncpoint.server.app import create_app
from syncpoint.server.session import open_session

NAMES = ["tr[1]", "-{a,b} *? $HOME; %s\nkey=1 [red]", "~root"]


def write(folder):
    """Two dumps, and beside them files that a pattern would find in their place."""
    x = np.linspace(-1, 1, 6, dtype=np.float32)
    np.savez(folder / "t.npz", a=x, b=x)
    np.savez(folder / "r.npz", a=x, b=-x)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_takes_a_name_literally(tmp_path, name):
    write(tmp_path)
    bait = tmp_path / "tr1.cmp"
    words = ("compare", "t.npz", "t.npz", "-o", bait, "--no-diagnose")
    assert run_command(*words, cwd=tmp_path).returncode == 0
    folder = tmp_path / name
    folder.mkdir()
    inside = f"./{name}/{name}"

    def done(*words, code=0):
        found = run_command(*words, cwd=tmp_path)
        assert found.returncode == code, (words, found.stdout, found.stderr)
        return found.stdout.decode()

    done("convert", "t.npz", f"{inside}.run", "--to", "run")
    done("convert", "r.npz", f"{inside}.safetensors", "--to", "safetensors")
    done("convert", f"{inside}.safetensors", f"{inside}.npz", "--to", "npz")
    done("convert", f"{inside}.run", f"{inside}.npy", "--to", "npy")
    done("reduce", f"{inside}.npz", "--to", "statistics", "-o", f"{inside}.small.run")
    (folder / f"{name}.yaml").write_text("ignore: [zzz]")
    (folder / f"{name}.limits").write_text("preset: f16")
    for side in (f"{inside}.run", f"{inside}.npy"):
        done(
            "compare", side, f"{inside}.npz", "-q", "--map", f"{inside}.yaml",
            "--limits", f"{inside}.limits", code=1,
        )  # fmt: skip
    done(
        "compare", f"{inside}.run", f"{inside}.safetensors", "-o", f"{inside}.cmp",
        "--csv", f"{inside}.csv", "--json", f"{inside}.json", "--html", f"{inside}.html", code=1,
    )  # fmt: skip
    for suffix in ("csv", "json", "html", "cmp"):
        assert (folder / f"{name}.{suffix}").exists()
    assert json.loads((folder / f"{name}.json").read_text())["verdict"] == "large"
    shown = done("report", f"{inside}.cmp", code=1)
    assert "large" in shown and "2 of 2" in shown
    done("report", f"{inside}.cmp", "--csv", f"{inside}.2.csv", "-q", code=1)
    assert (folder / f"{name}.2.csv").read_bytes() == (folder / f"{name}.csv").read_bytes()
    done("diagnose", f"{inside}.cmp", code=1)
    done("inspect", f"{inside}.run", "a")
    done("inspect", f"{inside}.cmp", code=2)
    if name.startswith("-"):
        done("report", "--", f"{name}/{name}.cmp", code=1)
    bait_after = run_command("report", bait, "-q", cwd=tmp_path)
    assert bait_after.returncode == 0


def test_a_pattern_that_names_no_file_finds_no_comparison(tmp_path):
    write(tmp_path)
    run_command("compare", "t.npz", "t.npz", "-o", "tr1.cmp", cwd=tmp_path)
    for name in ("tr[1].cmp", "tr*.cmp", "{tr1,x}.cmp"):
        for command in ("report", "diagnose", "view"):
            found = run_command(command, name, cwd=tmp_path)
            assert found.returncode == 2 and found.stderr.count(b"\n") == 1
        found = run_command("compare", name, "r.npz", cwd=tmp_path)
        assert found.returncode == 2


def test_inputs_may_be_a_pattern_unless_a_file_has_that_very_name(tmp_path):
    for name, value in (("x1", 1.0), ("x2", 2.0)):
        np.save(tmp_path / f"{name}.npy", np.full(2, value, np.float32))

    def values(text):
        return [float(one.args[0][0]) for one in read_inputs(tmp_path / text)]

    assert values("x[12].npy") == [1.0, 2.0]
    np.save(tmp_path / "x[12].npy", np.full(2, 3.0, np.float32))
    assert values("x[12].npy") == [3.0]


def test_a_session_shows_comparisons_whose_names_look_like_patterns(tmp_path):
    write(tmp_path)
    for name in ("tr[1].cmp", "tr*.cmp", "key=1.cmp"):
        run_command("compare", "t.npz", "r.npz", "-o", name, cwd=tmp_path)
    opened, library = open_session([tmp_path], tmp_path / "out", "", "")
    client = TestClient(create_app(library, opened))
    try:
        listed = client.get("/api/session/past").json()["comparisons"]
    finally:
        opened.close()
    assert {one["name"] for one in listed} == {"tr[1]", "tr*", "key=1"}
    assert {one["level"] for one in listed} == {"large"}
