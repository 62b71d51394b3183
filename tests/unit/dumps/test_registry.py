"""Formats of other packages join by an entry point, if they are written for our API."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import numpy as np
import pytest

from syncpoint.dumps import registry
from syncpoint.dumps.open_dump import open_as, open_dump
from syncpoint.dumps.protocol import DumpFormat, Saves
from syncpoint.dumps.save_dump import save_dump
from syncpoint.errors import FormatError, SyncpointWarning, Unsupported
from syncpoint.run.model import OpKey, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import Run, in_memory
from syncpoint.server.allowed_files import AllowedFolders
from syncpoint.server.path_preview import preview_path

GROUP = "syncpoint.dumps"


class Foreign:
    API = 1
    name = "foreign"

    def sniff(self, path: Path) -> bool:
        return path.suffix == ".foreign"

    def open(self, path: Path) -> Run:
        tensor = Tensor(TensorKey(OpKey("a")), "f64", (1,))
        return in_memory(RunInfo(model="theirs"), [], [(tensor, np.ones(1))])


class Failing(Foreign):
    def open(self, path: Path) -> Run:
        raise ZeroDivisionError("by nought")


class Newer(Foreign):
    API = 2


class Poor:
    API = 1
    name = "poor"


@pytest.fixture
def installed(add_plugins):
    def install(attribute: str) -> None:
        own = [e for e in entry_points(group=GROUP) if e.dist.name == "syncpoint"]
        point = EntryPoint("foreign", f"{__name__}:{attribute}", GROUP)
        add_plugins(registry.FORMATS, *own, point)

    return install


def test_a_format_from_another_package_opens_its_files(installed, tmp_path):
    installed("Foreign")
    (tmp_path / "a.foreign").write_text("?")
    assert open_dump(tmp_path / "a.foreign").info.model == "theirs"
    with pytest.raises(
        Unsupported, match="choose one of these: run, safetensors, npz, aimodelintermediates, npy"
    ):
        save_dump(in_memory(RunInfo(), [], []), tmp_path / "b", "foreign")


def test_a_format_is_opened_with_the_environment_beside_the_file(tmp_path):
    (tmp_path / "a.env.json").write_text('{"cann": "8.0"}')
    run = open_as(Foreign(), tmp_path / "a.foreign")
    assert run.info.environment == {"cann": "8.0"}


def test_a_format_that_fails_is_one_line_wherever_it_is_opened(installed, tmp_path):
    installed("Failing")
    path = tmp_path / "a.foreign"
    path.write_text("?")
    for open_path in (open_dump, lambda path: open_as(Failing(), path)):
        with pytest.raises(FormatError, match="by nought"):
            open_path(path)
    preview = preview_path(AllowedFolders([tmp_path]), str(path))
    assert preview.kind == "nothing" and "by nought" in preview.text


@pytest.mark.parametrize(
    ("attribute", "why"),
    [("Newer", "API = 2; this version takes 1"), ("Poor", "lacks"), ("Absent", "cannot be loaded")],
)
def test_a_format_that_does_not_fit_is_left_out_with_a_warning(installed, attribute, why):
    installed(attribute)
    with pytest.warns(SyncpointWarning, match=why):
        names = [f.name for f in registry.iter_formats()]
    assert names == [
        *("run", "safetensors", "npz", "aimodelintermediates", "ascend", "ascend-golden"),
        *("msprobe", "torchair", "npy"),
    ]


def test_all_formats_keep_the_protocol():
    for found in registry.iter_formats():
        assert isinstance(found, DumpFormat)
        # What devices and msProbe write is a record; there is nothing to make of other runs.
        read_only = found.name.startswith(("msprobe", "ascend", "torchair"))
        assert isinstance(found, Saves) or read_only
