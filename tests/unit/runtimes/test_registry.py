"""Runtimes are found by name, by model and from elsewhere."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from syncpoint.errors import InputError, SyncpointWarning
from syncpoint.runtimes import registry

GROUP = "syncpoint.runtimes"


class Elsewhere:
    API = 1
    name = "elsewhere"
    extra = ""

    def version(self):
        return "1"

    def accepts(self, model):
        return model == "a thing"

    def options(self):
        return ()

    def open(self, model, options):
        raise NotImplementedError


class Outdated(Elsewhere):
    API = 0


@pytest.fixture
def add(add_plugins):
    def added(**where):
        entries = [EntryPoint(n, f"{__name__}:{w}", GROUP) for n, w in where.items()]
        add_plugins(registry.RUNTIMES, *entries)

    return added


def test_importing_the_registry_loads_no_framework():
    code = (
        "import sys, syncpoint.runtimes.registry as r; r.load_runtimes();"
        "r.load_runtime('torch').options();"
        "r.load_runtime('torch').accepts('a.b:c'); r.load_runtime('onnxruntime').accepts('a.onnx');"
        "r.load_runtime('coreai').accepts('a.aimodel');"
        "assert not {'torch', 'onnx', 'onnxruntime', 'onnx_ir', 'coreai'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InputError, match=r"there is no runtime 'nope'; use one of: torch"):
        registry.load_runtime("nope")


def test_a_runtime_from_elsewhere_is_found_by_what_it_accepts(add):
    add(elsewhere="Elsewhere")
    assert registry.find_runtime("a thing").name == "elsewhere"
    assert registry.find_runtime("a.b:c").name == "torch"
    assert [r.name for r in registry.load_runtimes()] == [*registry.RUNTIMES.built_in, "elsewhere"]


def test_a_runtime_for_another_protocol_is_refused_in_one_line(add):
    add(old="Outdated")
    with pytest.raises(
        InputError,
        match=r"the runtime old .* cannot be used: it declares API = 0; this version takes 1",
    ):
        registry.load_runtime("old")
    with pytest.warns(SyncpointWarning, match="API = 0"):
        assert [r.name for r in registry.load_runtimes()] == list(registry.RUNTIMES.built_in)


def test_a_runtime_that_does_not_load_is_refused_in_one_line(add):
    add(broken="NoSuchClass")
    with pytest.raises(InputError, match=r"the runtime broken .* cannot be loaded: AttributeError"):
        registry.load_runtime("broken")


def test_what_no_runtime_takes_says_what_was_tried(add):
    add(elsewhere="Elsewhere")
    tried = "torch, inductor, onnxruntime, coreai, elsewhere"
    with pytest.raises(
        InputError, match=f"no runtime accepts a dict object; give a model for one of: {tried}"
    ):
        registry.find_runtime({})
    with pytest.raises(InputError, match="the runtime elsewhere does not accept 'b'"):
        registry.find_runtime("b", "elsewhere")
