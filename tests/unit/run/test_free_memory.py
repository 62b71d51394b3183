"""How much memory is free, on the machine and in its container."""

import sys

import pytest

from syncpoint.run import free_memory


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with 8 GiB free in a container without a limit."""
    (tmp_path / "meminfo").write_text("MemTotal: 16777216 kB\nMemAvailable:  8388608 kB\n")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text(f"{1 << 30}\n")
    monkeypatch.setattr(free_memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(free_memory, "_CGROUP", tmp_path)
    return tmp_path


def test_what_the_machine_has_free(machine):
    assert free_memory.available_bytes() == 8 << 30


def test_the_limit_of_a_container_counts(machine):
    (machine / "memory.max").write_text(f"{3 << 30}\n")
    assert free_memory.available_bytes() == 2 << 30
    (machine / "memory.current").write_text(f"{4 << 30}\n")
    assert free_memory.available_bytes() == 0


def test_without_these_files_it_is_what_the_machine_has(machine):
    for name in ("meminfo", "memory.max"):
        (machine / name).unlink()
    assert (1 << 20) < free_memory.available_bytes() <= sys.maxsize
