"""A filled form is the command that it is shown as."""

import shlex
from contextlib import chdir

import pytest
from polars.testing import assert_frame_equal

import syncpoint as sp
from helpers.session_server import write_dumps, write_models
from syncpoint.cli.app import app
from syncpoint.errors import InputError
from syncpoint.server.allowed_files import AllowedFolders
from syncpoint.server.form_request import RequestedComparison, find_warnings, preview_side
from syncpoint.server.session_schema import SessionSpec


def spec(target, reference, **more):
    def side(said):
        return said if isinstance(said, dict) else {"path": said}

    return SessionSpec(target=side(target), reference=side(reference), **more)


@pytest.fixture
def place(tmp_path):
    write_dumps(tmp_path)
    write_models(tmp_path)
    with chdir(tmp_path):
        yield tmp_path


def test_only_what_is_not_the_default_is_said(place):
    asked = spec(
        {
            "path": "net.py:shipped",
            "runtime": "inductor",
            "options": {"fusion": "unfused", "seed": "0", "dtype": "f16"},
            "record": "statistics",
        },
        {"path": "net.py:reference", "options": {"dtype": "", "mode": "eval"}},
        inputs="random:3",
        shapes=["x=2,16"],
        metric="rmse",
        introduced="off",
    )
    plan = RequestedComparison.of(asked, AllowedFolders([place]))
    assert shlex.split(plan.build_command("c/a b.cmp")) == [
        *("syncpoint", "compare", "net.py:shipped", "net.py:reference"),
        *("--inputs", "random:3", "--shape", "x=2,16", "--target-set", "runtime=inductor"),
        *("--target-set", "fusion=unfused", "--target-set", "dtype=f16"),
        *("--target-set", "record=statistics", "--metric", "rmse", "--introduced", "off"),
        *("-o", "c/a b.cmp"),
    ]


def test_the_command_makes_the_same_comparison_as_the_call(place):
    plan = RequestedComparison.of(
        spec("target.npz", "reference.npz", preset="f16"), AllowedFolders([place])
    )
    words = shlex.split(plan.build_command("shell.cmp"))
    with pytest.raises(SystemExit):
        app(words[1:])
    call = plan.build_call()
    made = sp.compare(call.pop("target"), call.pop("reference"), **call)
    assert_frame_equal(sp.open_comparison("shell.cmp").table, made.table)


@pytest.mark.parametrize(
    "asked",
    [
        spec("", "reference.npz"),
        spec("target.npz", "nothing.npz"),
        spec("target.npz", "/etc/passwd"),
        spec("target.npz", "reference.npz", inputs="/etc/passwd"),
        spec("target.npz", "reference.npz", inputs="../*.npz"),
        spec("net.py:shipped", "reference.npz", inputs="nothing.npz"),
        spec("target.npz", "reference.npz", reference_model="/etc/x.py:model"),
        spec("target.npz", "reference.npz", metric="nonsense"),
        spec("target.npz", "reference.npz", preset="nonsense"),
        spec("target.npz", "reference.npz", shapes=["x=a"]),
        spec({"path": "net.py:shipped", "options": {"nonsense": "1"}}, "reference.npz"),
        spec({"path": "net.py:shipped", "options": {"seed": "x"}}, "reference.npz"),
        spec({"path": "net.py:shipped", "runtime": "coreai"}, "reference.npz"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_runs(place, asked):
    with pytest.raises(InputError):
        RequestedComparison.of(asked, AllowedFolders([place]))


def test_names_are_fit_for_files_and_flags(place):
    (place / "-o.npz").write_bytes((place / "target.npz").read_bytes())
    folders = AllowedFolders([place])
    plan = RequestedComparison.of(spec("-o.npz", "reference.npz"), folders)
    assert plan.target == "./-o.npz"
    assert plan.name == "o_against_reference"
    assert RequestedComparison.of(spec("net.py:shipped", "net.py:reference"), folders).name == (
        "net_shipped_against_net_reference"
    )


def test_roles_that_look_swapped_are_warned_about(place):
    import numpy as np

    np.savez(place / "half.npz", a=np.ones(4, np.float16))
    folders = AllowedFolders([place])
    asked = spec("target.npz", "half.npz")
    seen = [preview_side(folders, side) for side in (asked.target, asked.reference)]
    assert "are they swapped?" in find_warnings(*seen)[0]
    assert find_warnings(*reversed(seen)) == []
    model = spec("net.py:shipped", {"path": "net.py:reference", "options": {"dtype": "f16"}})
    assert preview_side(folders, model.reference).precision == "f16"
