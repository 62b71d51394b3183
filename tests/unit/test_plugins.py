"""A plugin that cannot be used is named in one line and left out; nothing else fails."""

import subprocess
import sys
import warnings
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Protocol

import pytest

from syncpoint import plugins
from syncpoint.errors import InputError, SyncpointWarning
from syncpoint.plugins import Seam

GROUP = "syncpoint.things"


class Thing(Protocol):
    name: str

    def work(self) -> int: ...


class BuiltIn:
    name = "built-in"

    def work(self):
        return 0


class Good:
    API = 1
    name = "good"

    def work(self):
        return 1


class NoApi(Good):
    API = None


class NewApi(Good):
    API = 2


class NoMethod:
    API = 1
    name = "bad"


class WorkIsNoMethod:
    API = 1
    name = "bad"
    work = 3


class RaisesWhenMade(Good):
    name = "bad"

    def __init__(self):
        raise ValueError("no\ndevice")


class EndsPython(Good):
    name = "bad"

    def __init__(self):
        sys.exit(3)


def entry(name, attribute, package="other", module=__name__):
    point = EntryPoint(name, f"{module}:{attribute}", GROUP)
    vars(point).update(dist=SimpleNamespace(name=package))
    return point


@pytest.fixture
def seam_of(monkeypatch):
    def make(*entries):
        monkeypatch.setattr(plugins, "installed_entry_points", lambda group: list(entries))
        return Seam(GROUP, "thing", Thing, 1, {"built-in": f"{__name__}:BuiltIn"})

    return make


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (entry("bad", "NoApi"), "it declares no API; this version takes API = 1"),
        (entry("bad", "NewApi"), "it declares API = 2; this version takes 1"),
        (entry("bad", "NoMethod"), "it lacks work"),
        (entry("bad", "WorkIsNoMethod"), "its work is not a method"),
        (entry("bad", "RaisesWhenMade"), "it cannot be loaded: ValueError: no device"),
        (entry("bad", "EndsPython"), "it cannot be loaded: SystemExit: 3"),
        (entry("bad", "Absent"), "it cannot be loaded: AttributeError: "),
        (entry("bad", "A", module="no_such"), "it cannot be loaded: ModuleNotFoundError: "),
        (entry("bad", "Good"), "its name is 'good', not that of its entry point"),
    ],
)
def test_a_bad_plugin_is_named_in_one_line_and_left_out(seam_of, bad, reason):
    seam = seam_of(bad, entry("good", "Good"))
    with pytest.warns(SyncpointWarning) as heard:
        assert [thing.work() for thing in seam.plugins()] == [1]
    (line,) = [str(warning.message) for warning in heard]
    assert line.startswith(f"the thing bad of other is skipped: {reason}")
    assert "\n" not in line
    assert [str(bad) for bad in seam.bad_plugins()] == [line]
    with pytest.raises(InputError, match="the thing bad of other cannot be used"):
        seam.load("bad")
    assert seam.load("built-in").work() == 0


def test_a_bad_plugin_is_named_once(seam_of):
    seam = seam_of(entry("bad", "NoApi"))
    with pytest.warns(SyncpointWarning):
        seam.plugins()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert seam.plugins() == ()


def test_of_two_plugins_of_one_name_neither_is_used(seam_of):
    seam = seam_of(entry("good", "Good", "one"), entry("good", "Good", "two"))
    with pytest.warns(SyncpointWarning, match="good of one and two is skipped: 2 entry points"):
        assert seam.plugins() == ()
    assert seam.names() == ("built-in",)


def test_a_built_in_name_wins(seam_of):
    seam = seam_of(entry("built-in", "Good"))
    with pytest.warns(SyncpointWarning, match="a built-in thing has this name"):
        assert seam.plugins() == ()
    assert isinstance(seam.load("built-in"), BuiltIn)


def test_an_entry_point_of_this_package_wins(seam_of):
    seam = seam_of(entry("good", "Absent"), entry("good", "Good", "syncpoint"))
    with pytest.warns(SyncpointWarning, match="good of other is skipped: a built-in thing"):
        assert [thing.work() for thing in seam.plugins()] == [1]


def test_plugins_come_in_the_order_of_their_names(seam_of):
    seam = seam_of(*(entry(n, f"Named{n}") for n in "bca"))
    for name in "abc":
        setattr(sys.modules[__name__], f"Named{name}", type("T", (Good,), {"name": name}))
    assert [thing.name for thing in seam.plugins()] == ["a", "b", "c"]


def test_what_raises_while_it_is_used_is_passed_over_unless_it_is_ours(seam_of):
    seam = seam_of(entry("good", "Good"), entry("own", "Good", "syncpoint"))
    with pytest.warns(SyncpointWarning, match="good of other raised ValueError: x; it is skipped"):
        seam.report_failure("good", ValueError("x"))
    for name in ("built-in", "own"):
        with pytest.raises(ValueError, match="x"):
            seam.report_failure(name, ValueError("x"))


def test_nothing_is_scanned_before_a_member_is_needed():
    code = (
        "import importlib.metadata as m\n"
        "def scan(**_): raise AssertionError('scanned')\n"
        "m.entry_points = scan\n"
        "import syncpoint.runtimes.registry as r, syncpoint.dumps.registry, syncpoint.cli.app\n"
        "import syncpoint.matching.matcher_chain, syncpoint.diagnosis.registry\n"
        "r.load_runtime('torch')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
