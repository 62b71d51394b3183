"""Names that drive terminals, hide letters or look like markup: every command shows them, and
none obeys them."""

import ast
import json
import re
import struct
import unicodedata
import warnings
from itertools import pairwise

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from helpers.commands import run_command
from helpers.paths import ROOT
from helpers.small_runs import run
from syncpoint.api import Comparison
from syncpoint.comparison.engine import compare
from syncpoint.errors import FormatError, SyncpointWarning
from syncpoint.foreign_text import MAX_LINE_CHARS, make_visible
from syncpoint.run.model import RunInfo

HOSTILE = {
    "clear": "a\x1b[2J\x1b[Hb",
    "title": "t\x1b]0;owned\x07",
    "link": "l\x1b]8;;http://evil\x1b\\x\x1b]8;;\x1b\\",
    "csi": "c\x9b31mx",
    "verdict": "v\n□ close: compared 74 of 74 target tensors",
    "return": "r\rclose",
    "backspace": "b\b\b\bclose",
    "delete": "d\x7f\x7f",
    "bidi": "u\u202eesolc\u202c",
    "isolate": "i\u2066x\u2069",
    "invisible": "z\u200b\ufeff\u2060w",
    "separator": "s\u2028t\u0085u",
    "markup": "[red]m[/red][link=http://evil]x[/link]",
    "bad markup": "[/nothing]",
    "emoji": ":smile:",
    "nul": "n\0x",
    "long": "q" * 20_000,
}
ORDINARY = "Größe/变量/γ/🙂/مقدار"
_OURS = re.compile(rb"\x1b\[(?:[0-9;]*m|\?25[lh])|\r?\x1b\[(?:1A|2K)")
"""Colours, and the progress bar drawn again."""
_DRIVES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def assert_harmless(found, terminal=False):
    for stream in (found.stdout, found.stderr):
        text = (_OURS.sub(b"", stream) if terminal else stream).decode("utf-8")
        assert not _DRIVES.search(text), text
        lines = text.split("\n")
        assert not any(line.lstrip().startswith("□ close") for line in lines), text
        assert all(len(line) <= MAX_LINE_CHARS for line in lines)


def values(seed):
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal((2, 3)).astype(np.float32)
        for name in [*HOSTILE.values(), ORDINARY, "plain"]
    }


def write_safetensors(path, arrays):
    header, data = {}, b""
    for name, array in arrays.items():
        raw = array.tobytes()
        span = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": span}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Dumps, runs and a comparison with hostile names in all places that hold one."""
    folder = tmp_path_factory.mktemp("hostile text")
    target, reference = values(0), values(0)
    target["plain"] = -target["plain"]
    target[HOSTILE["clear"]] = -target[HOSTILE["clear"]]
    write_safetensors(folder / "t.safetensors", target)
    write_safetensors(folder / "r.safetensors", reference)
    for side, arrays in (("t", target), ("r", reference)):
        np.savez(folder / f"{side}.npz", **{k: v for k, v in arrays.items() if "\0" not in k})
    made = Comparison.of(compare(by_hand(1.0), by_hand(-1.0)))
    made.save(folder / "hand.cmp")
    return folder


def by_hand(sign):
    x = np.linspace(-1, 1, 6, dtype=np.float32)
    ops = [
        (name, f"type {name}", f"module {name}", ("x",), x * (sign if at % 3 else 1.0))
        for at, name in enumerate(HOSTILE.values())
    ]
    info = RunInfo(
        model=HOSTILE["clear"],
        runtime=HOSTILE["title"],
        runtime_version=HOSTILE["link"],
        device=HOSTILE["bidi"],
        precision=HOSTILE["verdict"],
        notes=(HOSTILE["csi"], HOSTILE["verdict"]),
    )
    return run(*ops, inputs=[("x", x)], outputs=[(ops[0][0], ops[0][4])], info=info)


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
@pytest.mark.parametrize(
    "words",
    [
        ("compare", "t.safetensors", "r.safetensors", "--rows", "0"),
        ("compare", "t.npz", "r.npz", "-q"),
        ("compare", "t.npz", "r.safetensors", "--sort", "operation"),
        ("compare", "t.npz", HOSTILE["title"]),
        ("compare", "t.npz", "r.npz", "--ignore", HOSTILE["clear"] + "("),
        ("compare", "t.npz", "r.npz", "--map", HOSTILE["bidi"]),
        ("compare", "t.npz", "r.npz", "--limits", HOSTILE["verdict"]),
        ("compare", "t.npz", "r.npz", "--preset", HOSTILE["clear"]),
        ("report", "hand.cmp", "--rows", "0"),
        ("report", HOSTILE["clear"]),
        ("diagnose", "hand.cmp", "--no-save"),
        ("inspect", "t.safetensors"),
        ("inspect", "t.npz"),
        ("inspect", "t.safetensors", HOSTILE["clear"]),
        ("inspect", "t.safetensors", HOSTILE["title"] + "x"),
        ("inspect", "t.npz", HOSTILE["verdict"]),
        ("capture", HOSTILE["clear"] + ".onnx", "-o", "c.run"),
        ("bisect", HOSTILE["clear"] + ".onnx", "r.npz"),
        ("analyze", HOSTILE["clear"] + ":x"),
        ("reduce", HOSTILE["clear"], "--to", "digest"),
        ("convert", HOSTILE["verdict"], "x.npz", "--to", "npz"),
        ("convert", "t.npz", "x.npz", "--to", HOSTILE["verdict"]),
        ("view", HOSTILE["clear"]),
        ("session", "--folder", HOSTILE["clear"]),
        (HOSTILE["clear"],),
        ("report", "hand.cmp", "--" + HOSTILE["clear"]),
        ("report", "hand.cmp", "--rows", HOSTILE["verdict"]),
        ("report", "hand.cmp", HOSTILE["title"]),
        ("doctor",),
    ],
    ids=lambda words: " ".join(word for word in words if word.isprintable()),
)  # fmt: skip
def test_no_command_obeys_a_name(place, words, terminal):
    assert_harmless(run_command(*words, cwd=place, terminal=terminal), terminal)


def test_names_stay_readable_and_exact_in_the_data(place, tmp_path):
    found = run_command(
        "compare", "t.safetensors", "r.safetensors", "--rows", "0",
        "-o", tmp_path / "a.cmp", "--json", tmp_path / "a.json", cwd=place,
    )  # fmt: skip
    shown = found.stdout.decode()
    assert ORDINARY in shown and HOSTILE["markup"] in shown and HOSTILE["emoji"] in shown
    assert r"a\x1b[2J\x1b[Hb" in shown and r"u\u202eesolc\u202c" in shown
    data = json.loads((tmp_path / "a.json").read_text())
    names = {row["target"]["op"] for row in data["sync_points"]}
    assert {*HOSTILE.values(), ORDINARY} <= names
    assert_harmless(run_command("report", tmp_path / "a.cmp", "--rows", "0", cwd=place))
    reached = run_command("inspect", "t.safetensors", HOSTILE["clear"], cwd=place)
    assert reached.returncode == 0 and b"min " in reached.stdout


def test_names_survive_the_way_through_other_formats(place, tmp_path):
    for to in ("run", "safetensors", "npy"):
        made = tmp_path / f"t.{to}"
        converted = run_command("convert", "t.npz", made, "--to", to, cwd=place)
        assert converted.returncode == 0, converted.stderr
        assert_harmless(converted)
        back = run_command("compare", made, "t.npz", "-q", cwd=place)
        assert_harmless(back)
        assert back.returncode == 0 and f"{len(HOSTILE) + 1} of" in back.stdout.decode()


def test_a_file_name_that_drives_a_terminal(place, tmp_path):
    for name in (HOSTILE["clear"] + HOSTILE["verdict"], HOSTILE["bidi"] + "\udcff"):
        folder = tmp_path / name.replace("/", "_")
        folder.mkdir()
        write_safetensors(folder / "x.safetensors", {"a": np.ones(3, np.float32)})
        np.save(folder / "x.npy", np.ones(3, np.float32))
        for words in (
            ("compare", folder / "x.safetensors", folder / "x.safetensors", "-o", folder / "a.cmp"),
            ("report", folder / "a.cmp", "--csv", folder / "a.csv", "--json", folder / "a.json"),
            ("diagnose", folder / "a.cmp"),
            ("inspect", folder / "x.safetensors"),
            ("convert", folder / "x.safetensors", folder / "x.npz", "--to", "npz"),
            ("reduce", folder / "x.npz", "--to", "digest", "-o", folder / "d.run"),
            ("inspect", folder),
            ("report", folder / "none.cmp"),
        ):
            assert_harmless(run_command(*words, cwd=tmp_path))


def test_the_names_of_an_onnx_model(tmp_path):
    x = np.linspace(-1, 1, 6, dtype=np.float32)
    names = [name for key, name in HOSTILE.items() if key not in ("nul", "long")]
    edges = ["x", *names]
    nodes = [
        helper.make_node("Neg", [before], [after], name=f"node {after}")
        for before, after in pairwise(edges)
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])],
        [helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, [6])],
    )
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=x)
    words = ("m.onnx", "--inputs", "x.npz")
    captured = run_command("capture", *words, "-o", "m.run", cwd=tmp_path)
    assert captured.returncode == 0, captured.stderr
    for found in (
        captured,
        run_command("inspect", "m.run", cwd=tmp_path),
        run_command("inspect", "m.run", names[0], cwd=tmp_path),
        run_command("compare", "m.onnx", "m.run", "--inputs", "x.npz", cwd=tmp_path),
        run_command("bisect", "m.onnx", "m.run", "--inputs", "x.npz", cwd=tmp_path),
        run_command("capture", "m.onnx", "--inputs", "zeros", "--shape", "y=1", "-o", "n.run",
                    cwd=tmp_path),
    ):  # fmt: skip
        assert_harmless(found)


def test_what_python_shows_of_a_comparison(place):
    made = Comparison.of(compare(by_hand(1.0), by_hand(-1.0)))
    for text in (str(made), repr(made)):
        assert not _DRIVES.search(text)
    html = made._repr_html_()
    assert not _DRIVES.search(html)
    assert "\\u202e" in html


def test_errors_and_warnings_keep_their_parts_and_show_them_in_one_line():
    error = FormatError(HOSTILE["clear"] + HOSTILE["verdict"], cure="y" * 100_000)
    assert error.found == HOSTILE["clear"] + HOSTILE["verdict"]
    assert not _DRIVES.search(str(error)) and "\n" not in str(error)
    assert len(str(error)) < 5000
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn(HOSTILE["clear"], SyncpointWarning, stacklevel=1)
    assert not _DRIVES.search(str(caught[0].message))


@given(st.text(st.characters(exclude_characters="'\\"), max_size=200))
def test_what_is_visible_can_be_printed_and_says_every_character(text):
    shown = make_visible(text)
    assert not _DRIVES.search(shown) and "\n" not in shown and "\t" not in shown
    shown.encode("utf-8")
    assert make_visible(shown) == shown
    assert ast.literal_eval(f"'{shown}'") == text


FILLERS = "\u115f\u1160\u3164\uffa0"
"""Letters of which nothing is seen."""


@given(st.text(st.characters(categories=["L", "N", "P", "S", "M"], exclude_characters=FILLERS)))
def test_ordinary_letters_stay_as_they_are(text):
    marks = {letter for letter in text if unicodedata.category(letter) == "Mn"}
    kept = "".join(letter for letter in text if letter not in marks)
    assert make_visible(kept) == kept


@pytest.mark.parametrize("length", [MAX_LINE_CHARS, MAX_LINE_CHARS + 1, 10**5])
def test_an_overlong_text_is_bounded_and_says_how_long_it_was(length):
    for text in ("q" * length, "\x1b" * length):
        shown = make_visible(text)
        assert len(shown) <= MAX_LINE_CHARS
        assert (f"{length:,} characters" in shown) == (shown != text)


def test_the_page_escapes_what_the_terminal_does_but_line_breaks_and_tabs():
    source = (ROOT / "web/src/escape_text.ts").read_text()
    letters = re.search(r"/\[(.+)\]/gu;", source)[1]
    ours = re.compile(
        "[" + re.sub(r"\\u\{(\w+)\}", lambda m: f"\\U{int(m[1], 16):08x}", letters) + "]"
    )
    for code in (*range(0x10000), *range(0xDFF00, 0xE1100)):
        letter = chr(code)
        escaped = make_visible(letter) != letter
        assert bool(ours.match(letter)) == (escaped and letter not in "\t\n"), hex(code)
