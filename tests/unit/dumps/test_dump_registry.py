"""Formats of other packages join by an entry point, if they are written for our API."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from syncpoint.dumps import registry
from syncpoint.dumps.protocol import DumpFormat, Saves
from syncpoint.errors import SyncpointWarning, Unsupported
from syncpoint.run.model import OpKey, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import Run, in_memory


class Foreign:
    API = 1
    name = "foreign"

    def sniff(self, path: Path) -> bool:
        return path.suffix == ".foreign"

    def open(self, path: Path) -> Run:
        tensor = Tensor(TensorKey(OpKey("a")), "f64", (1,))
        return in_memory(RunInfo(model="theirs"), [], [(tensor, np.ones(1))])


class Newer(Foreign):
    API = 2


class Poor:
    API = 1
    name = "poor"


@pytest.fixture
def installed(monkeypatch):
    def install(attribute: str) -> None:
        point = EntryPoint("theirs", f"{__name__}:{attribute}", registry.GROUP)
        monkeypatch.setattr(registry, "entry_points", lambda group: [point])
        registry._foreign.cache_clear()

    yield install
    registry._foreign.cache_clear()


def test_a_format_from_another_package_opens_its_files(installed, tmp_path):
    installed("Foreign")
    (tmp_path / "a.foreign").write_text("?")
    assert registry.open_dump(tmp_path / "a.foreign").info.model == "theirs"
    with pytest.raises(
        Unsupported, match="these can: run, safetensors, npz, aimodelintermediates, npy"
    ):
        registry.save_dump(in_memory(RunInfo(), [], []), tmp_path / "b", "foreign")


@pytest.mark.parametrize(
    ("attribute", "why"), [("Newer", "API 1"), ("Poor", "lacks"), ("Absent", "cannot be loaded")]
)
def test_a_format_that_does_not_fit_is_left_out_with_a_warning(installed, attribute, why):
    installed(attribute)
    with pytest.warns(SyncpointWarning, match=why):
        names = [f.name for f in registry.formats()]
    assert names == [
        *("run", "safetensors", "npz", "aimodelintermediates", "ascend", "ascend-golden"),
        *("msprobe", "torchair", "npy"),
    ]


def test_all_formats_keep_the_protocol():
    for found in registry.formats():
        assert isinstance(found, DumpFormat)
        # What devices and msProbe write is a record; there is nothing to make of other runs.
        read_only = found.name.startswith(("msprobe", "ascend", "torchair"))
        assert isinstance(found, Saves) or read_only
