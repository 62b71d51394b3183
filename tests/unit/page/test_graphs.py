"""The graphs that the page is sent say what the runs say."""

import base64
import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest

from helpers.mixed_comparison import mixed
from helpers.reseal_checksums import reseal
from helpers.small_runs import run
from syncpoint.api import Comparison
from syncpoint.comparison.engine import compare
from syncpoint.comparison.storage.comparison_folder import save
from syncpoint.comparison.storage.file_names import JSON_NAME
from syncpoint.dumps.save_dump import save_dump
from syncpoint.page.drift import build_drift_strip
from syncpoint.page.graphs import MAX_ENTRIES, build_graph
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.read_ops import CLASS, KEY, code_keys, first_indices, key_column
from syncpoint.run.model import Role
from syncpoint.run.reader import Run


def ints(text):
    return np.frombuffer(base64.b64decode(text), "<i4").tolist()


def edges(found):
    flat = ints(found.edges)
    return set(zip(flat[::2], flat[1::2], strict=True))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A comparison on disk, beside its two runs."""
    folder = tmp_path_factory.mktemp("kept")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4)).astype("f4")

    def side(name, *ops):
        made = run(*ops, inputs=[("x", x)], parameters=[("w", x)], outputs=[("out", x)])
        save_dump(made, folder / f"{name}.run", "run")
        return Run.open(folder / f"{name}.run")

    target = side(
        "target",
        ("a", "mul", "net.0", ("x", "w"), x),
        ("b", "add", "net.0", ("a", "x"), x + 1),
        ("alone", "noise", "net.0.deep", ("b",), x * 7),
        ("split", "chunk", "net.1", ("alone",), [x, x * 3]),
        ("out", "relu", "net.1", ("split", "b"), x),
    )
    reference = side(
        "reference",
        ("a", "mul", "net.0", ("x", "w"), x),
        ("b", "add", "net.0", ("a", "x"), x + 1),
        ("split", "chunk", "net.1", ("b",), [x, x * 2]),
        ("other", "noise", "net.1.deep", ("split",), x * 9),
        ("out", "relu", "net.1", ("split", "b"), x),
    )
    result = compare(target, reference)
    return save(result, folder / "kept.cmp")


def test_an_op_between_modules_belongs_to_neither(tmp_path):
    x = np.ones((2, 2), "f4")
    names = {"a": "net.0", "between": "", "b": "net.1", "after": ""}
    ops = [(name, "t", module, (), x * at) for at, (name, module) in enumerate(names.items())]
    sides = [run(*ops), run(*ops, ("alone", "t", "", (), x * 9))]
    opened = OpenComparison(save(compare(*sides), tmp_path / "between.cmp"))
    for side in ("target", "reference"):
        found = build_graph(opened, side)
        groups = [found.groups[at] for at in ints(found.group_of)]
        by_name = dict(zip(found.names, groups, strict=True))
        assert by_name.pop("alone", "") == ""
        assert {name: bool(group) for name, group in by_name.items()} == {
            name: bool(module) for name, module in names.items()
        }


@pytest.mark.parametrize("side", ["target", "reference"])
def test_entries_are_the_inputs_and_the_ops_in_execution_order(kept, side):
    opened = OpenComparison(kept)
    found = build_graph(opened, side)
    source = opened.run(side)
    assert found.names == ["x", *(str(op.key) for op in source.ops)]
    assert found.kinds == "i" + "o" * (len(source.ops) - 1) + "x"
    assert found.complete and not found.missing
    types, modules = ints(found.type_of), ints(found.module_of)
    for at, op in enumerate(source.ops, 1):
        assert found.types[types[at]] == op.type
        assert found.modules[modules[at]] == op.module


@pytest.mark.parametrize("side", ["target", "reference"])
def test_edges_are_those_of_the_run_without_parameters(kept, side):
    opened = OpenComparison(kept)
    found = build_graph(opened, side)
    place = {name: at for at, name in enumerate(found.names)}
    expected = {
        (place[edge.op.op], place[op.key.op])
        for op in opened.run(side).ops
        for edge in op.inputs
        if edge.role is not Role.PARAMETER
    }
    assert edges(found) == expected


@pytest.mark.parametrize("side", ["target", "reference"])
def test_every_sync_point_but_parameters_belongs_to_its_op(kept, side):
    opened = OpenComparison(kept)
    found = build_graph(opened, side)
    rows = opened.result.rows
    said = dict(zip(ints(found.rows), ints(found.row_of), strict=True))
    for at, row in enumerate(rows):
        end = getattr(row, side)
        if end.key.role is Role.PARAMETER:
            assert at not in said
        else:
            assert found.names[said[at]] == end.key.op.op
    split = found.names.index("split")
    assert ints(found.row_of).count(split) == 2, "each output is a sync point of its op"
    if side == "target":
        evidence = dict(zip(ints(found.rows), ints(found.evidence_of), strict=True))
        for at, which in evidence.items():
            assert found.evidence[which].startswith(rows[at].evidence)


def test_ops_without_a_partner_say_why(kept):
    opened = OpenComparison(kept)
    for side, name in (("target", "alone"), ("reference", "other")):
        found = build_graph(opened, side)
        reasons = [found.reasons[at] for at in ints(found.reason_of)]
        lonely = {u.op: u.reason for u in opened.result.unmatched if u.side == side}
        assert reasons[found.names.index(name)].startswith(lonely[name])
        assert {n for n, r in zip(found.names, reasons, strict=True) if r} == set(lonely)


def test_groups_are_those_of_the_navigator(kept):
    opened = OpenComparison(kept)
    for side in ("target", "reference"):
        found = build_graph(opened, side)
        groups = [found.groups[at] for at in ints(found.group_of)]
        for row, entry in zip(ints(found.rows), ints(found.row_of), strict=True):
            assert groups[entry] == opened.table.groups[row]
        assert groups[0] == "inputs"
    target = build_graph(opened, "target")
    groups = [target.groups[at] for at in ints(target.group_of)]
    assert groups[target.names.index("alone")] == groups[target.names.index("b")]


def test_a_group_alone_is_that_piece_of_the_whole(kept):
    opened = OpenComparison(kept)
    whole = build_graph(opened, "target")
    groups = [whole.groups[at] for at in ints(whole.group_of)]
    for group in set(groups):
        piece = build_graph(opened, "target", group)
        assert piece.names == [n for n, g in zip(whole.names, groups, strict=True) if g == group]
        inside = {
            (whole.names[a], whole.names[b])
            for a, b in edges(whole)
            if groups[a] == groups[b] == group
        }
        assert {(piece.names[a], piece.names[b]) for a, b in edges(piece)} == inside
        assert piece.complete


def test_a_run_that_is_too_large_comes_as_groups(kept):
    opened = OpenComparison(kept)
    whole = build_graph(opened, "target")
    groups = [whole.groups[at] for at in ints(whole.group_of)]
    found = build_graph(opened, "target", max_entries=3)
    assert not found.complete
    assert found.kinds == "igg", "a group of one is what is in it"
    assert [found.groups[at] for at in ints(found.group_of)] == list(dict.fromkeys(groups))
    assert found.names == ["x", *list(dict.fromkeys(groups))[1:]]
    assert sum(ints(found.counts)) == len(whole.names)
    between = {(groups[a], groups[b]) for a, b in edges(whole) if groups[a] != groups[b]}
    assert {(found.groups[a], found.groups[b]) for a, b in edges(found)} == between
    assert sorted(ints(found.rows)) == sorted(ints(whole.rows))


@pytest.mark.parametrize("side", ["target", "reference"])
def test_of_a_group_that_is_too_large_the_ops_around_a_sync_point_are_sent(tmp_path, side):
    x = np.ones((2, 2), "f4")
    ops = [(f"op{at}", "t", "net", (f"op{at - 1}",) if at else (), x * at) for at in range(30)]
    sides = [run(*ops), run(*ops[:4], ("alone", "t", "net", (), x * 99), *ops[4:])]
    opened = OpenComparison(save(compare(*sides), tmp_path / "group.cmp"))
    whole = build_graph(opened, side, "net").names
    assert len(whole) == (30 if side == "target" else 31)
    for row, synced in enumerate(opened.result.rows):
        found = build_graph(opened, side, "net", row, max_group_entries=7)
        assert len(found.names) == 7 and not found.complete
        assert found.names == whole[found.before : len(whole) - found.after]
        assert getattr(synced, side).key.op.op in found.names
        assert row in ints(found.rows)
    first = build_graph(opened, side, "net", max_group_entries=7)
    assert (first.names, first.before, first.after) == (whole[:7], 0, len(whole) - 7)


def test_ops_of_no_module_come_in_their_turn_between_the_modules(tmp_path):
    x = np.ones((2, 2), "f4")
    modules = {
        **dict.fromkeys("abc", "net.0"),
        "between": "",
        **dict.fromkeys("defg", "net.1"),
        **{"after": "", "then": "", "last": ""},
        **dict.fromkeys("hij", "head"),
    }
    names = list(modules)
    ops = [
        (name, "t", modules[name], (names[at - 1],) if at else (), x * at)
        for at, name in enumerate(names)
    ]
    sides = [run(*ops), run(("lonely", "t", "", (), x * 77), ("more", "t", "", (), x * 78), *ops)]
    opened = OpenComparison(save(compare(*sides), tmp_path / "turns.cmp"))
    target = build_graph(opened, "target", max_entries=12)
    assert target.names == ["net.0", "between", "net.1", "after … last", "head"]
    assert target.kinds == "goggg"
    assert edges(target) == {(0, 1), (1, 2), (2, 3), (3, 4)}
    reference = build_graph(opened, "reference", max_entries=12)
    assert reference.names == [*target.names, "lonely … more"], "its run is not at hand"
    keys = [target.groups[at] for at in ints(target.group_of)]
    assert [reference.groups[at] for at in ints(reference.group_of)][:-1] == keys
    for side in ("target", "reference"):
        assert build_graph(opened, side, keys[3], max_entries=12).names == ["after", "then", "last"]


def test_ops_of_no_module_between_all_others_are_still_few_groups(tmp_path):
    x = np.ones((2, 2), "f4")
    ops = [(f"op{at}", "t", "" if at % 2 else "net", (), x * at) for at in range(400)]
    opened = OpenComparison(save(compare(run(*ops), run(*ops)), tmp_path / "many.cmp"))
    found = build_graph(opened, "target", max_entries=40)
    assert len(found.names) <= 40
    assert sum(ints(found.counts)) == 400


def test_without_its_runs_the_target_keeps_its_edges_and_the_reference_its_pairs(kept, tmp_path):
    shutil.copytree(kept, tmp_path / "moved.cmp")
    opened, whole = OpenComparison(tmp_path / "moved.cmp"), OpenComparison(kept)
    target, before = build_graph(opened, "target"), build_graph(whole, "target")
    assert "target.run" in target.missing
    assert target.names == before.names
    assert {e for e in edges(before) if e[0]} == edges(target), "all but those of the input"
    assert target.reasons == before.reasons
    reference = build_graph(opened, "reference")
    assert "reference.run" in reference.missing
    assert sorted(reference.names) == sorted(build_graph(whole, "reference").names)
    assert not edges(reference)


def test_what_is_missing_in_the_target_is_marked_on_the_drift_strip(kept):
    opened = OpenComparison(kept)
    found = build_drift_strip(opened, "psnr").unmatched
    order = {row.target.label: int(opened.table.order[at]) for at, row in enumerate(rows(opened))}
    assert found == [order["split"]], "before the first sync point that comes after it"


def rows(opened):
    return opened.result.rows


def test_a_dump_without_modules_is_one_group_that_can_be_asked_for(tmp_path):
    x = np.ones((2, 2), "f4")
    sides = [run(*[(f"op{at}", "t", "", (), x) for at in range(5)]) for _ in range(2)]
    opened = OpenComparison(save(compare(*sides), tmp_path / "plain.cmp"))
    found = build_graph(opened, "target", max_entries=2)
    assert found.names == ["op0 … op4"]
    assert len(build_graph(opened, "target", found.groups[0], max_entries=2).names) == 5


@pytest.mark.parametrize("side", ["target", "reference"])
def test_a_comparison_of_all_kinds_of_rows_never_in_a_run(tmp_path, side):
    comparison = mixed()
    assert isinstance(comparison, Comparison)
    opened = OpenComparison(save(comparison, tmp_path / "mixed.cmp"))
    found = build_graph(opened, side)
    assert found.missing == "it was not saved to disk"
    pairs = set(zip(ints(found.rows), ints(found.row_of), strict=True))
    for at, row in enumerate(comparison.rows):
        end = getattr(row, side)
        if end.key.role is not Role.PARAMETER:
            [entry] = [entry for own, entry in pairs if own == at]
            assert found.names[entry] in (str(end.key.op), end.label)


def test_a_target_op_inside_a_reference_op_goes_with_the_one_that_completes_it(kept, tmp_path):
    shutil.copytree(kept, tmp_path / "inside.cmp")
    about = json.loads((kept / JSON_NAME).read_text())
    for one in about["unmatched"]:
        if one["op"] == "alone":
            one["detail"] = "inside split"
    reseal(tmp_path / "inside.cmp", unmatched=about["unmatched"])
    found = build_graph(OpenComparison(tmp_path / "inside.cmp"), "target")
    into = ints(found.into)
    assert found.names[into[found.names.index("alone")]] == "split"
    assert sum(at >= 0 for at in into) == 1


def test_the_page_may_hold_many_ops():
    assert MAX_ENTRIES >= 10_000


def test_panes_that_ask_at_once_all_get_the_run(kept):
    for _ in range(20):
        opened = OpenComparison(kept)
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(opened.run, ["target", "reference"] * 4))
        assert all(run is not None for run in found)
        assert found[0] is found[2] and found[1] is found[3]


def test_keys_that_only_read_alike_are_told_apart():
    """Names may hold anything, also what stands between the parts of a key."""
    keys = [
        ("a", 0, "", "", 0, "o"),
        ("a ", 0, "", "", 0, "o"),
        ("a", 0, " ", "", 0, "o"),
        ("a", 0, "", " ", 0, "o"),
        ("a", 1, "", "", 0, "o"),
        ("a", 0, "", "", 1, "o"),
        ("a", 0, "", "", 0, "i"),
        ("a  b", 0, "", "", 0, "o"),
        ("a", 0, "b", "", 0, "o"),
        ("a", 0, "", "b", 0, "o"),
        ("a", 0, None, "", 0, "o"),
        (None, 0, "", "", 0, "o"),
        ("a", None, "", "", 0, "o"),
    ]
    schema = ["op", "call", "graph", "path", "iteration", CLASS]
    frame = pl.DataFrame(keys, schema=schema, orient="row").with_columns(key_column())
    codes, again = code_keys(frame[KEY], frame[KEY].reverse())
    assert sorted(codes.tolist()) == list(range(len(keys)))
    assert codes.tolist() == again[::-1].tolist()
    assert first_indices(np.array([2, 0, 2, 0]), 4).tolist() == [1, -1, 0, -1]
