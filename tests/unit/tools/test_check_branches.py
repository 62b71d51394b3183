"""The counter of branches: what counts, and what it prints."""

import ast
import importlib.util
import sys

import pytest

from helpers.paths import ROOT

SCRIPT = ROOT / "tools" / "check_branches.py"


@pytest.fixture(scope="module")
def counter():
    spec = importlib.util.spec_from_file_location("check_branches", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize(
    ("body", "branches"),
    [
        ("pass", 1),
        ("if a: pass", 2),
        ("if a: pass\n elif b: pass\n else: pass", 3),
        ("for x in a: pass\n else: pass", 2),
        ("while a: pass", 2),
        ("try: pass\n except A: pass\n except B: pass\n finally: pass", 3),
        ("with a, b: pass", 2),
        ("assert a", 2),
        ("return a if b else c", 2),
        ("return a and b", 2),
        ("return a and b and c or d", 4),
        ("return not a", 1),
        ("return [x for x in a]", 2),
        ("return {x for x in a if b if c}", 4),
        ("return [x for y in a for x in y]", 3),
        ("return sum(x for x in a)", 2),
        ("match a:\n  case 1: pass\n  case _: pass", 3),
        ("return lambda x: a if x else b", 2),
        ("def inner():\n  if a: pass", 2),
    ],
)
def test_each_place_with_two_paths_counts_once(counter, body, branches):
    function = ast.parse(f"def f():\n {body}\n").body[0]
    assert counter.count_branches(function) == branches


def test_loops_and_contexts_that_wait_count_too(counter):
    source = "async def f():\n async for x in a: pass\n async with b: pass\n"
    assert counter.count_branches(ast.parse(source).body[0]) == 3


def write_function(path, name, branches):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"def {name}(a):\n" + "    if a: pass\n" * (branches - 1) + "    return a\n")


def test_a_function_above_the_limit_is_named_in_one_line(counter, tmp_path, capsys):
    write_function(tmp_path / "src/syncpoint/room/full.py", "at_limit", 20)
    write_function(tmp_path / "tools/over.py", "above_limit", 21)
    write_function(tmp_path / "benchmarks/generated_pb2.py", "generated", 99)
    write_function(tmp_path / "tests/test_long.py", "elsewhere", 99)
    assert counter.main(tmp_path) == 1
    assert capsys.readouterr().out == "tools/over.py:1 above_limit 21 branches (limit 20)\n"


def test_without_offenders_the_exit_code_is_zero(counter, tmp_path, capsys):
    write_function(tmp_path / "tools/small.py", "small", 2)
    assert counter.main(tmp_path) == 0
    assert capsys.readouterr().out == "branches: at most 20 in each of 1 functions\n"
