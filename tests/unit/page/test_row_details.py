"""What the inspector and the source pane are told, against NumPy and the runs themselves."""

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

import syncpoint as sp
from helpers.saved_comparisons import array_of, compared, row_of, write_run
from syncpoint.comparison.engine import compare
from syncpoint.comparison.storage.comparison_folder import save
from syncpoint.errors import InputError
from syncpoint.page import tensor_values
from syncpoint.page.heatmaps import HeatMapRequest, build_heatmap
from syncpoint.page.histograms_and_worst_elements import build_distribution
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.overview import build_overview
from syncpoint.page.row_details import build_row_detail
from syncpoint.page.source_code import read_source
from syncpoint.page.tensor_values import name_axes, split_blocks
from syncpoint.run.model import Frame, Kept, Quantization
from syncpoint.run.reader import Run


def pooled(r, t, patch):
    """The pooling again, one cell at a time: (reference, target, difference, place)."""
    r, t = np.asarray(r, np.float64), np.asarray(t, np.float64)
    height, width = r.shape
    high, wide = patch
    rows = []
    for y in range(0, height, high):
        row = []
        for x in range(0, width, wide):
            best, found = -1.0, None
            for i in range(y, min(y + high, height)):
                for j in range(x, min(x + wide, width)):
                    a, b = t[i, j], r[i, j]
                    if np.isfinite(a) and np.isfinite(b):
                        off = abs(a - b)
                    else:
                        off = 0.0 if a == b or (a != a and b != b) else np.inf
                    if off > best:
                        with np.errstate(invalid="ignore"):
                            d = a - b if off else 0.0
                        best, found = off, (b, a, d, i * width + j)
            row.append(found)
        rows.append(row)
    return np.array(rows, np.float64)


def shown(opened, row, wish=None):
    """A heat map with its arrays decoded."""
    found = build_heatmap(opened, row, wish or HeatMapRequest())
    kind = "<f8" if found.wide else "<f4"
    size = (found.rows, found.columns)
    arrays = [array_of(getattr(found, name), kind, *size) for name in ("reference", "target")]
    arrays.append(array_of(found.difference, "<f4", *size))
    arrays.append(array_of(found.places, "<u4", *size))
    return found, arrays


def check(opened, name, r, t, wish=None):
    """A heat map of two planes against the pooling above."""
    found, arrays = shown(opened, row_of(opened, name), wish)
    top, bottom, left, right = found.window
    wanted = pooled(r[top:bottom, left:right], t[top:bottom, left:right], found.patch)
    width = right - left
    places = wanted[..., 3].astype(int)
    whole = (places // width + top) * r.shape[1] + places % width + left
    kind = arrays[0].dtype
    np.testing.assert_array_equal(arrays[0], wanted[..., 0].astype(kind))
    np.testing.assert_array_equal(arrays[1], wanted[..., 1].astype(kind))
    np.testing.assert_array_equal(arrays[2], wanted[..., 2].astype(np.float32))
    np.testing.assert_array_equal(arrays[3], whole)
    return found


RNG = np.random.default_rng(0)


def pair(shape, dtype=np.float32, noise=0.01):
    r = RNG.standard_normal(shape)
    return (r + noise * RNG.standard_normal(shape)).astype(dtype), r.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_every_cell_shows_the_element_that_is_furthest_off(tmp_path, dtype):
    t, r = pair((50, 70), dtype)
    t[13, 41] += 9
    opened = compared(tmp_path, [("a", t)], [("a", r)])
    found = check(opened, "a", r, t, HeatMapRequest(rows=16, columns=16))
    assert found.patch == [4, 5] and (found.rows, found.columns) == (13, 14)
    assert found.wide == (dtype == np.float64)
    assert found.difference_scale == pytest.approx(float(t[13, 41]) - float(r[13, 41]))
    check(opened, "a", r, t)  # unpooled


def test_integers_of_any_size_are_exact(tmp_path):
    r = RNG.integers(-(2**40), 2**40, (9, 11))
    t = r + RNG.integers(0, 2, r.shape)
    opened = compared(tmp_path, [("a", t)], [("a", r)])
    assert check(opened, "a", r, t, HeatMapRequest(rows=4, columns=4)).wide
    huge = np.array([[2**62 + 1, 5]])
    opened = compared(tmp_path / "huge", [("a", huge)], [("a", np.array([[2**62, 5]]))])
    assert build_distribution(opened, 0).worst[0].index == [0, 0]


def test_what_is_not_finite_comes_first_and_what_agrees_is_no_difference(tmp_path):
    t, r = pair((30, 30))
    t[3, 4], r[5, 6] = np.nan, -np.inf
    t[7, 8] = r[7, 8] = np.nan
    t[20, 21], r[20, 21] = np.inf, -np.inf
    opened = compared(tmp_path, [("a", t)], [("a", r)])
    check(opened, "a", r, t, HeatMapRequest(rows=5, columns=5))
    check(opened, "a", r, t)
    worst = build_distribution(opened, 0).worst
    assert [w.index for w in worst[:3]] == [[3, 4], [5, 6], [20, 21]]
    assert (worst[0].target, worst[1].reference) == ("nan", "-inf")
    assert all(w.index != [7, 8] for w in worst)
    assert "3 of 900 elements" in build_row_detail(opened, 0, "psnr").story


def test_masked_positions_are_no_difference(tmp_path):
    t, r = pair((20, 20), np.float16)
    r = r.astype(np.float32)
    t[:, 5:8], r[:, 5:8] = -65504, -3.4e38
    t[2, 2] = -65504  # on one side only
    opened = compared(tmp_path, [("a", t)], [("a", r)])
    _, (_, _, difference, _) = shown(opened, 0)
    assert (difference[:, 5:8] == 0).all()
    worst = build_distribution(opened, 0).worst
    assert worst[0].index == [2, 2] and not any(5 <= w.index[1] < 8 for w in worst)
    assert opened.table.frame["mismatched"][0] == 1


def test_the_picture_is_seen_through_the_view(tmp_path):
    t, _ = pair((6, 5, 4))
    said = {"pairs": [{"target": "a", "reference": "b", "view": "transpose(2,0,1)slice(2,1,4)"}]}
    wanted = t.transpose(2, 0, 1)[:, :, 1:4]
    opened = compared(tmp_path, [("a", t)], [("b", np.ascontiguousarray(wanted + 1))], said)
    wish = HeatMapRequest(index=[2, 0, 0])
    check(opened, "a", wanted[2] + 1, wanted[2], wish)
    assert build_row_detail(opened, 0, "psnr").view == "transpose(2,0,1)slice(2,1,4)"


@pytest.mark.parametrize("block", [0, 2])
def test_quantized_values_are_shown_as_the_numbers_they_stand_for(tmp_path, block):
    stored = RNG.integers(-128, 127, (7, 6, 8)).astype(np.int8)
    scales = tuple(0.01 * (i + 1) for i in range(3 if block else 6))
    meaning = Quantization(scales, (3,), axis=1, block=block)
    real = (stored - 3.0) * np.repeat(scales, block or 1).reshape(1, 6, 1)
    reference = (real + 0.001).astype(np.float32)
    given = [("a", stored, {"quantization": meaning})]
    opened = compared(tmp_path, given, [("a", reference)])
    check(opened, "a", reference[4], real[4], HeatMapRequest(index=[4, 0, 0]))
    # The axis of the scales as rows, as columns, and fixed.
    check(
        opened,
        "a",
        reference[:, 2],
        real[:, 2],
        HeatMapRequest(row_axis=0, column_axis=2, index=[0, 2, 0]),
    )
    check(
        opened,
        "a",
        reference[:, :, 5],
        real[:, :, 5],
        HeatMapRequest(row_axis=0, column_axis=1, index=[0, 0, 5], rows=3, columns=4),
    )
    check(
        opened,
        "a",
        reference[..., 5].T,
        real[..., 5].T,
        HeatMapRequest(row_axis=1, column_axis=0, index=[0, 0, 5], window=[1, 5, 2, 6]),
    )


def test_planes_of_five_axes_in_either_order_and_a_window(tmp_path):
    t, r = pair((3, 4, 5, 6, 7))
    opened = compared(tmp_path, [("a", t)], [("a", r)])
    at = [2, 1, 3, 0, 4]
    check(opened, "a", r[2, 1, 3], t[2, 1, 3], HeatMapRequest(index=at))
    check(
        opened,
        "a",
        r[2, :, 3, 0].T,
        t[2, :, 3, 0].T,
        HeatMapRequest(row_axis=4, column_axis=1, index=at),
    )
    window = [1, 5, 2, 7]
    found = check(
        opened, "a", r[2, 1, 3], t[2, 1, 3], HeatMapRequest(index=at, window=window, rows=2)
    )
    assert found.window == window and found.patch == [2, 1]


def test_the_first_plane_holds_the_greatest_difference(tmp_path):
    t, r = pair((5, 8, 9), noise=0.0)
    t[3, 2, 7] += 4
    opened = compared(tmp_path, [("a", t)], [("a", r)])
    assert build_heatmap(opened, 0, HeatMapRequest()).at == [3, 2, 7]
    t[1, 1, 1] = np.nan
    opened = compared(tmp_path / "nan", [("a", t)], [("a", r)])
    assert build_heatmap(opened, 0, HeatMapRequest()).at == [1, 1, 1]


def test_scalars_vectors_and_empty_tensors(tmp_path):
    t, r = pair(300)
    given = [("v", t), ("s", np.float32(2)), ("e", np.empty((0, 3), np.float32))]
    wanted = [("v", r), ("s", np.float32(1)), ("e", np.empty((0, 3), np.float32))]
    opened = compared(tmp_path, given, wanted)
    found = check(opened, "v", r[None], t[None], HeatMapRequest(columns=100))
    assert (found.row_axis, found.column_axis, found.patch) == (-1, 0, [1, 3])
    found = check(opened, "s", np.array([[1.0]]), np.array([[2.0]]))
    assert (found.row_axis, found.column_axis, found.shape) == (-1, -1, [])
    empty = build_heatmap(opened, row_of(opened, "e"), HeatMapRequest())
    assert (empty.rows, empty.columns, empty.reference) == (0, 0, "")
    assert build_distribution(opened, row_of(opened, "e")).worst == []
    assert build_row_detail(opened, row_of(opened, "e"), "psnr").headline == "No verdict."


def test_complex_values_are_shown_by_their_modulus(tmp_path):
    r = (RNG.standard_normal((4, 4)) + 1j * RNG.standard_normal((4, 4))).astype(np.complex64)
    t = r * np.complex64(1j)
    opened = compared(tmp_path, [("a", t)], [("a", r)])
    _, (reference, target, difference, _) = shown(opened, 0)
    np.testing.assert_allclose(reference, np.abs(r), rtol=1e-6)
    np.testing.assert_allclose(target, np.abs(t), rtol=1e-6)
    np.testing.assert_allclose(difference, np.abs(t - r), rtol=1e-6)


def test_large_tensors_are_read_in_pieces_to_the_same_numbers(tmp_path, monkeypatch):
    t, r = pair((70, 90), np.float16)
    opened = compared(tmp_path, [("a", t)], [("a", r)])
    monkeypatch.setattr("syncpoint.comparison.measuring.measure_rows._MIN_FILE_REGION_BYTES", 100)
    monkeypatch.setattr(tensor_values, "BLOCK_ELEMENTS", 1 << 9)
    monkeypatch.setattr("syncpoint.page.heatmaps.BLOCK_ELEMENTS", 1 << 9)
    check(opened, "a", r, t, HeatMapRequest(rows=20, columns=20))
    check(opened, "a", r.T, t.T, HeatMapRequest(row_axis=1, column_axis=0, rows=20, columns=20))


def test_the_worst_elements_are_those_of_a_sort(tmp_path, monkeypatch):
    t, r = pair((11, 13, 17))
    t[:, 6, 3] += np.arange(1, 12)
    opened = compared(tmp_path, [("a", t)], [("a", r)])
    off = np.abs(t.astype(np.float64) - r)
    places = np.lexsort((np.arange(off.size), -off.reshape(-1)))
    for size in (1 << 16, 50):
        monkeypatch.setattr(tensor_values.split_blocks, "__defaults__", (size,))
        found = build_distribution(opened, 0).worst
        wanted = [list(map(int, np.unravel_index(at, off.shape))) for at in places[: len(found)]]
        assert [w.index for w in found] == wanted
        index = tuple(found[0].index)
        assert (found[0].reference, found[0].target) == (r[index], t[index])


def test_ties_go_to_the_lowest_index_whatever_the_threads_do(tmp_path, monkeypatch):
    r = np.zeros((100, 100), np.float32)
    opened = compared(tmp_path, [("a", r + 1)], [("a", r)])
    monkeypatch.setattr(tensor_values.split_blocks, "__defaults__", (70,))
    for _ in range(5):
        found = build_distribution(opened, 0).worst
        assert [w.index for w in found] == [[0, i] for i in range(24)]


def test_what_the_worst_share_is_said(tmp_path):
    t, r = pair((4, 50, 8), noise=1e-4)
    t[..., 5] += 1
    opened = compared(tmp_path, [("a", t, {"layout": "b s c"})], [("a", r, {"layout": "b s c"})])
    assert build_distribution(opened, 0).pattern == "all in index 5 of c"


def test_histograms_count_every_element_once(tmp_path):
    t, r = pair((40, 50))
    t[0, 0] = np.nan
    found = build_distribution(compared(tmp_path, [("a", t)], [("a", r)]), 0)
    edges = np.asarray(found.edges)
    np.testing.assert_array_equal(found.reference, np.histogram(r.astype("f8"), edges)[0])
    assert sum(found.target) + found.target_outside == 2000 and found.target_outside == 1


@pytest.mark.parametrize(
    ("shape", "most"), [((3, 4, 5), 7), ((3, 4, 5), 1), ((2, 100), 30), ((), 5), ((9,), 4)]
)
def test_blocks_cover_a_shape_in_order(shape, most):
    whole = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    pieces = [whole[index].reshape(-1) for index in split_blocks(shape, most)]
    assert all(0 < len(piece) <= most for piece in pieces)
    np.testing.assert_array_equal(np.concatenate(pieces), whole.reshape(-1))
    assert list(split_blocks((0, 3))) == []


@pytest.mark.parametrize(
    "wish",
    [
        HeatMapRequest(row_axis=5),
        HeatMapRequest(row_axis=1, column_axis=1),
        HeatMapRequest(index=[0]),
        HeatMapRequest(index=[0, 99]),
        HeatMapRequest(window=[0, 9, 0, 9]),
        HeatMapRequest(window=[1]),
    ],
)
def test_planes_that_there_are_not_are_refused(tmp_path, wish):
    t, r = pair((4, 5))
    with pytest.raises(InputError):
        build_heatmap(compared(tmp_path, [("a", t)], [("a", r)]), 0, wish)


def test_axes_have_the_names_that_the_reference_gives_them():
    assert name_axes("NCHW", (1, 2, 3, 4)) == ["batch", "channel", "height", "width"]
    assert name_axes("b s h(tp)", (1, 2, 3)) == ["b", "s", "h"]
    assert name_axes("NC1HWC0", (1, 2)) == ["axis 0", "axis 1"]


# ---- words and numbers ---------------------------------------------------------------------------


def chain(tmp_path, **more):
    """Five ops of which the third goes wrong; the fourth and fifth pass it on."""
    names = ["a", "b", "c", "d", "e"]
    r = {name: RNG.standard_normal((6, 8)).astype(np.float32) for name in names}
    t = {name: value + np.float32(name > "b") for name, value in r.items()}
    given, wanted = ([(name, side[name]) for name in names] for side in (t, r))
    return compared(tmp_path, given, wanted, **more)


class Sharp(nn.Module):
    """A wrong layer, and a softmax that overflows in ops of which the reference has none."""

    def __init__(self, wrong):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.wrong = nn.Linear(16, 16), nn.Linear(16, 16), wrong

    def forward(self, x):
        scores = 20 * self.last(self.first(x) * (1.5 if self.wrong else 1))
        if not self.wrong:
            return torch.softmax(scores, -1)
        powers = torch.exp(scores)
        return powers / powers.sum(-1, keepdim=True)


def test_values_that_are_not_finite_are_not_blamed_on_a_wrong_number(tmp_path):
    x = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
    made = sp.compare(
        Sharp(True).eval(), Sharp(False).eval(), inputs=(x,), target_options={"dtype": "f16"}
    )
    made.save(tmp_path / "sharp.cmp")
    opened = OpenComparison(tmp_path / "sharp.cmp")
    out = next(at for at, row in enumerate(made.rows) if row.output)
    found = build_row_detail(opened, out, "psnr")
    assert found.headline == "NaN or infinite on one side only." and found.guilty_row is None
    assert "these values do not begin there" in found.story
    assert "begin elsewhere" in build_overview(opened).aside


def test_guilt_that_is_not_known_is_said_with_the_place_where_they_part(tmp_path):
    opened = chain(tmp_path)
    first = build_row_detail(opened, row_of(opened, "c"), "psnr")
    assert first.headline == "Off, guilt unknown."
    assert "this is where the two runs diverge" in first.story and first.guilty_row is None
    later = build_row_detail(opened, row_of(opened, "e"), "psnr")
    assert (later.guilty_label, later.guilty_how) == ("c", "2 sync points before")
    assert build_row_detail(opened, 0, "psnr").headline == "Close."


def test_metrics_have_their_limits_and_the_total_stands_beside_the_peak(tmp_path):
    opened = chain(tmp_path)
    row = row_of(opened, "d")
    found = build_row_detail(opened, row, "psnr")
    metrics = {metric.id: metric for metric in found.metrics}
    assert metrics["psnr"].limits == [100, 80] and metrics["psnr"].level == "large"
    assert len(metrics) > 40 and metrics["count"].value == 48
    flat = opened.table.frame.row(row, named=True)
    assert found.bars.total == pytest.approx(flat["rmse"] / flat["peak"])
    assert found.bars.introduced is None and found.rounding == -24
    assert sum(count for _, count in found.error_histogram) == 48 - flat["equal"]


def test_statistics_are_shown_for_both_sides(tmp_path):
    opened = chain(tmp_path, record=Kept.STATISTICS)
    found = build_row_detail(opened, row_of(opened, "d"), "psnr")
    rows = {row.name: row for row in found.statistics}
    run = opened.run("reference")
    values = run.values(next(t for t in run.tensors if t.key.op.op == "d"))
    assert rows["max"].reference == pytest.approx(float(values.max()))
    assert rows["max"].target == pytest.approx(float(values.max()) + 1, rel=1e-6)
    assert rows["max"].relative == pytest.approx(1 / abs(float(values.max())), rel=1e-5)
    assert "hardly equality" in found.story and "statistics" in found.missing
    with pytest.raises(InputError, match="statistics"):
        build_heatmap(opened, row_of(opened, "d"), HeatMapRequest())


def test_digests_say_equal_or_not(tmp_path):
    given = [("a", np.arange(4)), ("b", np.arange(4))]
    wanted = [("a", np.arange(4)), ("b", np.arange(1, 5))]
    for side, tensors_ in (("target", given), ("reference", wanted)):
        made = [(name, array, {}) for name, array in tensors_]
        write_run(tmp_path / f"{side}.run", made, Kept.DIGEST)
    opened = chained_from(tmp_path)
    assert [build_row_detail(opened, row, "psnr").same_bytes for row in (0, 1)] == [True, False]
    assert build_row_detail(opened, 0, "psnr").target.digest_kind == "xxh3-128"
    assert build_row_detail(opened, 0, "psnr").headline == "The same bytes."


def chained_from(folder):
    both = [Run.open(folder / f"{side}.run") for side in ("target", "reference")]
    return OpenComparison(save(compare(*both), folder / "pair.cmp"))


def test_without_its_runs_a_comparison_says_which_are_missing(tmp_path):
    opened = chain(tmp_path)
    (tmp_path / "target.run").rename(tmp_path / "moved.run")
    opened = type(opened)(opened.path)
    found = build_row_detail(opened, 2, "psnr")
    assert "no such file: target.run in" in found.missing
    assert found.metrics and found.target.op and not found.target.kept
    with pytest.raises(InputError, match=r"target\.run"):
        build_heatmap(opened, 2, HeatMapRequest())
    with pytest.raises(InputError, match=r"target\.run"):
        build_distribution(opened, 2)


# ---- source --------------------------------------------------------------------------------------


def test_lines_carry_the_sync_points_of_their_ops(tmp_path):
    file = tmp_path / "net.py"
    file.write_text("".join(f"line {i}\n" for i in range(1, 6)))
    opened = chain(tmp_path, source=file)
    file.write_text("changed since")
    found = read_source(opened, "reference", str(file))
    assert found.text.startswith("line 1\n") and found.others == []
    assert [(mark.line, mark.rows) for mark in found.marks] == [(i + 1, [i]) for i in range(5)]


def test_only_files_of_the_snapshot_are_read(tmp_path):
    file = tmp_path / "net.py"
    file.write_text("x\n")
    opened = chain(tmp_path, source=file)
    for name in ("/etc/passwd", "../net.py", "", f"{file}x", "source/index.json"):
        with pytest.raises(InputError):
            read_source(opened, "target", name)


def test_a_source_that_was_not_kept_says_so(tmp_path):
    opened = chain(tmp_path, source=tmp_path / "gone.py")
    found = read_source(opened, "target", str(tmp_path / "gone.py"))
    assert found.text is None and "no copy" in found.why_not and len(found.marks) == 5


def test_places_in_files_are_taken_apart_at_the_last_colon():
    assert Frame.from_text("C:\\net.py:12") == Frame("C:\\net.py", 12)
    assert Frame.from_text("") is Frame.from_text("net.py") is None


MASKED = {"mask": {"a": "[:, 4:]"}}


def masked_pair(rubbish):
    """Two planes that differ a little, with rubbish in the columns that the map masks."""
    t, r = pair((6, 9))
    t[:, 4:] = rubbish
    return t, r


@pytest.mark.parametrize("rubbish", [1e6, np.nan, -np.inf])
def test_what_the_map_masks_is_neither_off_nor_counted(tmp_path, rubbish):
    t, r = masked_pair(rubbish)
    opened = compared(tmp_path, [("a", t)], [("a", r)], MASKED)
    difference = np.abs(t - r)[:, :4]
    worst = np.unravel_index(difference.argmax(), difference.shape)
    spread = build_distribution(opened, 0)
    assert tuple(spread.worst[0].index) == worst
    assert all(element.index[1] < 4 for element in spread.worst)
    assert sum(spread.target) == sum(spread.reference) == 24
    assert spread.target_outside == spread.reference_outside == 30
    found, (_, target, off, _) = shown(opened, 0)
    np.testing.assert_array_equal(off[:, 4:], 0.0)
    np.testing.assert_array_equal(off[:, :4], (t - r)[:, :4])
    np.testing.assert_array_equal(target, t)
    assert found.difference_scale == pytest.approx(difference.max())
    assert found.scale == pytest.approx(np.abs([t[:, :4], r[:, :4]]).max())


def test_values_of_a_comparison_whose_mask_no_longer_fits_are_refused(tmp_path):
    t, r = masked_pair(0.0)
    opened = compared(tmp_path, [("a", t)], [("a", r)], MASKED)
    opened.about["masks"]["a"] = {"keep": "[:, :, 1:]"}
    with pytest.raises(InputError, match="the mask of the map does not fit the tensors"):
        build_distribution(opened, 0)
