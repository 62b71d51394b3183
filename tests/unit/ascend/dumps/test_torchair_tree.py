"""The folders of TorchAir dumps as runs."""

import numpy as np
import pytest

import syncpoint as sp
from helpers.paths import ASCEND_DATA
from helpers.torchair_dumps import Dumps, numbers
from syncpoint.ascend.dumps.fx_folder import FxName, group_fx_calls, parse_fx_name
from syncpoint.ascend.dumps.torchair_tree import DumpKind, find_tree
from syncpoint.dumps import registry
from syncpoint.run.model import OpKey, Part, Role, TensorKey


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "mm_0-aten.mm.default.INPUT.0.20240101010101000000.npy",
            FxName(
                op="mm_0-aten.mm.default",
                role=Role.INPUT,
                number=0,
                place=-1,
                time=20240101010101000000,
                reduced=False,
            ),
        ),
        (
            "cat-aten.cat.default.INPUT.0.12.20240101010101000000.npy",
            FxName(
                op="cat-aten.cat.default",
                role=Role.INPUT,
                number=0,
                place=12,
                time=20240101010101000000,
                reduced=False,
            ),
        ),
        (
            "add-aten.add.Tensor.OUTPUT.10.20240101010101000000_min_max.npy",
            FxName(
                op="add-aten.add.Tensor",
                role=Role.OUTPUT,
                number=10,
                place=-1,
                time=20240101010101000000,
                reduced=True,
            ),
        ),
        ("mm-aten.mm.default.INPUT.0.npy", None),
        ("mm-aten.mm.default.0.20240101010101000000.npy", None),
        (".OUTPUT.0.20240101010101000000.npy", None),
        ("a.OUTPUT.0.20240101010101000000.npy.tmp", None),
        ("a\n.OUTPUT.0.20240101010101000000.npy", None),
    ],
)
def test_names_of_files(text, wanted):
    assert parse_fx_name(text) == wanted


def test_inputs_are_in_the_order_of_their_numbers_and_executions_apart():
    names = [f"a-t.INPUT.{k}.1700000{k:03}.npy" for k in (0, 1, 10, 11, 2)]
    again = "a-t.INPUT.0.1700000999.npy"
    first, second = group_fx_calls([again, *names])
    assert [index for _, index, _, _ in first.indexed()] == [0, 1, 2, 10, 11]
    assert [file for _, _, file, _ in second.indexed()] == [again]
    assert (first.node, first.target) == ("a", "t")


def test_a_dump_opens_as_one_run_with_tokens_as_steps():
    run = sp.open_run(ASCEND_DATA / "torchair_rank" / "msprobe_ge_dump")
    assert {t.key.part for t in run.tensors} == {Part(step=0, rank=0), Part(step=1, rank=0)}
    run = sp.open_run(ASCEND_DATA / "torchair" / "msprobe_fx_dump")
    key = TensorKey(OpKey("mm_3-aten.mm.default"), Role.OUTPUT, 0, Part(step=1))
    (file,) = (ASCEND_DATA / "torchair").rglob("data_dump/2/gm*/mm_3*OUTPUT*")
    tensor = run.tensor(key)
    assert np.array_equal(run.values(tensor), np.load(file))
    assert run.op(key.op).type == "aten.mm.default"


def test_other_folders_of_arrays_stay_what_they_were(tmp_path):
    dumps = Dumps(tmp_path)
    dumps.node("relu-aten.relu.default", [numbers(2, 2)])
    assert registry.find_format(tmp_path).name == "torchair"
    np.save(tmp_path / "mine.npy", numbers(2, 2))
    assert registry.find_format(tmp_path).name == "npy"
    assert find_tree(tmp_path, "it").notes[-1] == "1 .npy files of other names are not read"


def test_ranks_graphs_and_tokens_come_from_the_folders(tmp_path):
    dumps = Dumps(tmp_path)
    for rank, graph, token in ((0, 1, 0), (0, 1, 10), (0, 2, 3), (12, 1, 0)):
        folder = f"worldsize16_global_rank{rank}/20240101010101/4/graph_1_0/{graph}"
        dumps.device("Op", "Op_1", [numbers(2, 2)], token=token, folder=folder)
    tree = find_tree(tmp_path, "it")
    found = [(leaf.rank, leaf.graph, leaf.token) for leaf in tree.leaves]
    assert tree.kind is DumpKind.GE
    assert found == [(0, "1", 0), (0, "1", 10), (0, "2", 3), (12, "1", 0)]
    # The folder of one token alone.
    tree = find_tree(tmp_path / "worldsize16_global_rank0/20240101010101/4/graph_1_0/2/3", "it")
    assert [(leaf.rank, leaf.graph, leaf.token) for leaf in tree.leaves] == [(0, "2", 3)]


def reduced(folder, count, dtype, rng):
    """Files with the ends of a tensor and of integers, as the script of the manual leaves them."""
    import ml_dtypes

    folder.mkdir(parents=True)
    types = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
    for k in range(count):
        ends = np.sort(rng.standard_normal(2)).astype(types[dtype])
        if dtype == "bfloat16":
            ends = ends.astype(np.float32)  # so it is decoded
        pairs = [[ends[0], ends[1]], [np.int64(0), np.int64(9)]]
        np.savez(folder / f"Op.Op_{k}.1.2.170000000000{k:04}_min_max.npz", inputs=[], outputs=pairs)


@pytest.mark.parametrize(
    ("dtype", "count", "wanted"),
    [("float16", 5, "f16"), ("bfloat16", 5, "bf16"), ("float32", 50, "f64"), ("float16", 2, "f64")],
)
def test_the_type_that_reducing_forgot_is_known_by_the_digits(dtype, count, wanted, tmp_path):
    reduced(tmp_path / "1" / "0", count, dtype, np.random.default_rng(0))
    run = sp.open_run(tmp_path)
    found = {t.dtype for t in run.tensors if t.key.index == 0}
    assert found == {wanted}
    assert {t.dtype for t in run.tensors if t.key.index == 1} == {"f64"}
    assert any("are taken as" in note for note in run.info.notes) == (wanted != "f64")
    for tensor in run.tensors:
        with np.load(tmp_path / tensor.shard) as file:
            assert np.array_equal(run.values(tensor), file["outputs"][tensor.key.index])


def test_reduced_files_are_never_among_those_not_read(tmp_path):
    """Also not beside files of other names, and the files of ops executed twice need no note."""
    rng = np.random.default_rng(0)
    dumps = Dumps(tmp_path)
    folder = "20240101010101/0/graph_1_0/1"
    for _ in range(2):
        dumps.device("Add", "Add_1", [numbers(2, 2)], folder=folder)
    [leaf] = find_tree(tmp_path, "it").leaves
    (tmp_path / leaf.folder / "readme.txt").write_text("by hand")
    reduced(tmp_path / "reduced", 2, "float16", rng)
    for file in (tmp_path / "reduced").iterdir():
        file.rename(tmp_path / leaf.folder / file.name)
    (tmp_path / "reduced").rmdir()
    notes = sp.open_run(tmp_path).info.notes
    assert [note for note in notes if "not read" in note] == [
        f"{leaf.folder}: 1 file (readme.txt) not read: their names are not TYPE.OP.TASK.STREAM.TIME"
    ]
    assert not any("more than once" in note for note in notes)
