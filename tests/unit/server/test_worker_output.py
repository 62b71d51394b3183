"""What models print is passed on as it comes, and never more of it than can be shown."""

import time

import pytest

from helpers.session_server import Server, write_dumps
from syncpoint.server.worker_process import OutputLine, OutputLines

MODEL = """
import ctypes
import sys
import time

libc = ctypes.CDLL(None)


def plain():
    print("by Python")
    time.sleep(60)


def native():
    libc.printf(b"by C\\n")
    time.sleep(60)


def bar():
    for share in (10, 20, 30):
        sys.stderr.write(f"\\r{share} %")
        time.sleep(0.4)
    time.sleep(60)


def much():
    for at in range(20_000):
        print(at, "x" * 1000)
    sys.stdout.write("y" * 5_000_000)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("printing")
    write_dumps(folder)
    (folder / "loud.py").write_text(MODEL)
    made = Server(folder)
    yield made
    made.stop()


def model(name):
    return {
        "target": {"path": f"loud.py:{name}"},
        "reference": {"path": "reference.npz"},
        "inputs": "random:0",
        "shapes": ["x=2,16"],
    }


def printed(server, name, says):
    """What has been printed while the model still runs, once it includes `says`."""
    _, job = server.ask("/jobs", model(name))
    found = server.until(job["id"], says=says, within=30)
    server.ask(f"/jobs/{job['id']}/cancel", post=True)
    server.until(job["id"], "cancelled", within=15)
    assert found["state"] == "running"
    return [line["text"] for line in found["log"] if not line["stage"]]


def test_a_line_comes_while_the_model_runs(server):
    assert printed(server, "plain", "by Python") == ["by Python"]
    assert printed(server, "native", "by C") == ["by C"]


def test_a_bar_that_is_drawn_again_is_one_line(server):
    assert printed(server, "bar", "30 %") == ["30 %"]


def test_of_a_flood_the_end_is_kept(server):
    began = time.monotonic()
    found = printed(server, "much", "yyy")
    assert time.monotonic() - began < 20
    assert len(found) <= 40
    assert max(map(len, found)) == 400
    assert found[-2].startswith("19999 xxx")


def test_lines_are_the_same_however_they_are_cut():
    said = "one\ntwo\r\n\n10 %\r20 %\rdone\nä€ end".encode()
    whole = OutputLines()
    expected = [*whole.add_bytes(said), *whole.flush()]
    assert expected == [
        OutputLine("one"),
        OutputLine("two"),
        OutputLine("10 %"),
        OutputLine("20 %", replaces_last=True),
        OutputLine("done", replaces_last=True),
        OutputLine("ä€ end"),
    ]
    for size in (1, 2, 3, 5):
        lines = OutputLines()
        found = []
        for at in range(0, len(said), size):
            found += lines.add_bytes(said[at : at + size])
        assert [*found, *lines.flush()] == expected


def test_a_line_that_goes_on_takes_the_place_of_its_beginning():
    lines = OutputLines()
    assert lines.add_bytes(b"loading") == []
    assert lines.has_unfinished_line
    assert lines.flush() == [OutputLine("loading")]
    assert not lines.has_unfinished_line
    assert lines.add_bytes(b" done\nnext\n") == [
        OutputLine("loading done", replaces_last=True),
        OutputLine("next"),
    ]


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (b"\x1b[31mred\x1b[0m\n", "red"),
        (b"\x1b]0;title\x07text\n", "text"),
        (b"a\x1b[2K\x1b[1Ab\n", "ab"),
        (b"a\x07\x1b\n", r"a\x07\x1b"),
        ("u\u202etxt\n".encode(), r"u\u202etxt"),
    ],
)
def test_colours_are_left_out_and_what_hides_text_is_shown(sent, shown):
    assert OutputLines().add_bytes(sent) == [OutputLine(shown, replaces_last=False)]
