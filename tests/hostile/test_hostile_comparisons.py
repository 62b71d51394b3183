"""Comparison folders that lie about their size, or that no checksum protects."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from polars.exceptions import PanicException
from typer.testing import CliRunner

import syncpoint as sp
from helpers.paths import OLDER_DATA
from helpers.reseal_checksums import reseal
from syncpoint.cli.app import app
from syncpoint.comparison.storage.file_names import TABLE_NAME
from syncpoint.errors import FormatError, InputError
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.run.storage import probe_process
from syncpoint.server.allowed_files import AllowedFolders
from syncpoint.server.past_comparisons import PastList

ROWS = 250_000


@pytest.fixture
def older(tmp_path) -> Path:
    """A comparison without checksums."""
    return shutil.copytree(OLDER_DATA / "pair.cmp", tmp_path / "older.cmp")


@pytest.fixture
def current(older, tmp_path) -> Path:
    """The same with checksums."""
    return sp.open_comparison(older).save(tmp_path / "current.cmp")


def repeat_first_row(table: Path, rows: int, **columns: pl.Expr) -> int:
    first = pl.read_parquet(table).head(1)
    repeated = pl.DataFrame([column.new_from_index(0, rows) for column in first])
    repeated.with_columns(**columns).write_parquet(table)
    return table.stat().st_size


_OPEN_ALL = """
import resource, sys, syncpoint as sp
from syncpoint.comparison.storage.comparison_folder import load
from syncpoint.errors import SyncpointError

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3

before = peak()
for path in sys.argv[1:]:
    try:
        sp.open_comparison(path)
    except SyncpointError as error:
        print(error)
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")
def test_a_small_table_of_many_rows_takes_little_memory(current, tmp_path):
    distinct = shutil.copytree(current, tmp_path / "distinct.cmp")
    sizes = [
        repeat_first_row(current / TABLE_NAME, ROWS),
        repeat_first_row(distinct / TABLE_NAME, ROWS, target_step=pl.int_range(ROWS)),
    ]
    assert max(sizes) < 2e6
    for folder in (current, distinct):
        reseal(folder, rows=ROWS)
    done = subprocess.run(
        [sys.executable, "-c", _OPEN_ALL, str(current), str(distinct)],
        capture_output=True,
        text=True,
        check=True,
    )
    equal_error, distinct_error, megabytes = done.stdout.splitlines()
    assert "damaged: 250,000 rows with repeated keys" in equal_error
    assert "250,000 rows, which take 1.5 GB" in distinct_error
    assert float(megabytes) < 500


def test_more_rows_than_the_document_says_are_damage(current):
    repeat_first_row(current / TABLE_NAME, 50)
    reseal(current)
    with pytest.raises(FormatError, match="damaged: 50 rows instead of 11"):
        sp.open_comparison(current)


def test_a_table_whose_decoding_aborts_ends_neither_the_list_nor_the_command(older, monkeypatch):
    """Polars aborts on few tables, and on others in the next version; so the process that decodes
    aborts here whatever it is given."""
    abort = "import os, sys; sys.stdin.readline(); os.abort()"
    prober = probe_process._ProbeProcess()
    prober._process.kill()
    prober._process = subprocess.Popen(
        [sys.executable, "-c", abort], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    monkeypatch.setattr(probe_process, "_current_process", prober)
    monkeypatch.setattr(probe_process, "_decodable_digests", set())
    [listed] = PastList(AllowedFolders([older.parent]), older.parent / "out").list_all().comparisons
    damage = "syncpoints.parquet is damaged: decoding it ended the process (SIGABRT)"
    assert damage in listed.problem.problem
    # The next table gets a process of its own.
    assert OpenComparison(older).table.size == 11


def test_a_table_that_takes_too_long_to_decode_is_damage(older, monkeypatch):
    prober = probe_process._ProbeProcess()
    prober._process.kill()
    prober._process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    monkeypatch.setattr(probe_process, "_current_process", prober)
    monkeypatch.setattr(probe_process, "_decodable_digests", set())
    monkeypatch.setattr(probe_process, "_MAX_SECONDS", 0.1)
    with pytest.raises(FormatError, match="could not be decoded within"):
        sp.open_comparison(older)
    assert prober._process.poll() is not None


def test_a_table_that_is_none_is_one_line_and_exit_code_2(older):
    table = older / TABLE_NAME
    data = bytearray(table.read_bytes())
    data[-8:-4] = (2**31 - 1).to_bytes(4, "little")  # the footer begins in front of the file
    for broken in (bytes(data), bytes(data[:-4]), b"PAR1" * 2, b""):
        table.write_bytes(broken)
        with pytest.raises(FormatError, match=r"syncpoints.parquet is damaged: ") as caught:
            sp.open_comparison(older)
        assert "\n" not in str(caught.value)
    done = CliRunner().invoke(app, ["report", str(older)])
    assert isinstance(done.exception, FormatError) and done.exception.exit_code == 2


def test_a_panic_of_polars_is_caught_though_it_is_no_exception(current, monkeypatch):
    def panic(*_: object, **__: object) -> None:
        raise PanicException("called `Option::unwrap()` on a `None` value")

    monkeypatch.setattr(pl, "scan_parquet", panic)
    with pytest.raises(FormatError, match="damaged: called `Option::unwrap"):
        sp.open_comparison(current)


def test_a_document_whose_seal_was_cut_off_is_damage(current):
    file = current / "comparison.json"
    body = json.loads(file.read_text())
    del body["checksum"]
    file.write_text(json.dumps(body, indent=1))
    with pytest.raises(FormatError, match=r"comparison.json is damaged: its checksum is missing"):
        sp.open_comparison(current)


def test_a_comparison_that_may_not_be_read_is_not_called_damaged(current):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (current / TABLE_NAME).chmod(0)
    with pytest.raises(InputError, match="Permission denied"):
        sp.open_comparison(current)


def test_an_overwrite_that_fails_before_its_renames_leaves_the_older_comparison(
    current, monkeypatch
):
    import syncpoint.comparison.storage.comparison_folder as storage

    comparison = sp.open_comparison(current)
    monkeypatch.setattr(storage, "seal_json", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        comparison.save(current, overwrite=True)
    monkeypatch.undo()
    assert sp.open_comparison(current).table.equals(comparison.table)


def test_an_overwrite_that_dies_between_its_files_leaves_no_mixture(current, monkeypatch):
    from syncpoint.files.atomic_writes import Partial

    comparison = sp.open_comparison(current)
    rename = Partial._rename

    def dying(partial):
        if partial.final.suffix == ".json":
            raise KeyboardInterrupt
        rename(partial)

    monkeypatch.setattr(Partial, "_rename", dying)
    with pytest.raises(KeyboardInterrupt):
        comparison.save(current, overwrite=True)
    monkeypatch.undo()
    with pytest.raises(InputError, match="a comparison"):
        sp.open_comparison(current)
    assert sp.open_comparison(comparison.save(current)).verdict == comparison.verdict


def test_a_server_has_tables_with_a_checksum_decoded_elsewhere_too(current, monkeypatch):
    """A table that is made to harm can have a checksum that fits."""
    asked = []
    monkeypatch.setattr(
        "syncpoint.run.storage.checked_parquet.probe", lambda path, _: asked.append(path) or ""
    )
    sp.open_comparison(current)
    assert not asked
    monkeypatch.setattr(probe_process, "_every_table", False)
    probe_process.probe_every_table()
    sp.open_comparison(current)
    assert asked == [current / TABLE_NAME]
