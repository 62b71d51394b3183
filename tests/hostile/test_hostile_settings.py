"""Files that people write, and expressions that they type: whatever is wrong with them is one line
and exit code 2."""

import json
import random
import re

import numpy as np
import onnx
import pytest
import typer
from onnx import TensorProto, helper

from helpers.commands import run_command
from syncpoint.cli.app import app
from syncpoint.cli.config_file import defaults
from syncpoint.dumps.environment_file import add_environment
from syncpoint.dumps.open_dump import open_dump
from syncpoint.errors import FormatError, InputError, SyncpointError
from syncpoint.files.yaml_toml import read_yaml
from syncpoint.matching.matchers.map_file import MapFile
from syncpoint.metrics.limits import load_limits
from syncpoint.run import user_regex
from syncpoint.run.user_regex import Pattern

MAP = r"""
pairs:
  - target: lm_head
    reference: head
    view: transpose(0,2,1)
  - target: 'blocks\.(\d+)\.mlp'
    reference: 'layers.\1.feed_forward'
    regex: true
ignore: ['rotary.*', 'dropout']
dims:
  target: {'conv.*': n h w c}
  reference: {'conv.*': n c h w}
mask: {'encoder\..*': attention_mask, 'y': '[:, 100:]', 'z': {keep: m, axes: [0, 1]}}
"""
LIMITS = "preset: f16\npsnr: [50, 40]\nsqnr: [42, 32]\nintroduced: [4, 10]\n"
CONFIG = '[compare]\npreset = "f16"\nmin_coverage = 0.5\nrows = 3\nignore = ["a"]\nquiet = true\n'
COMMANDS = typer.main.get_command(app).commands
DEEP = 20_000
LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
BAD_YAML = {
    "nested": "[" * DEEP,
    "nested mappings": "{a: " * 5000,
    "nested by lines": "".join(f"{' ' * n}a:\n" for n in range(2000)),
    "laughs": f"pairs: [1]\n{LAUGHS}",
    "circle": "pairs: &a [*a]",
    "digits": f"psnr: {'9' * 5000}",
    "hex": f"psnr: [0x{'f' * 9000}, 1]",
    "date": "pairs: 2001-99-99",
    "sexagesimal": f"psnr: [{':'.join(['59'] * 400)}, 1]",
    "nul": "pairs: \0",
    "binary": "pairs: !!binary x",
    "object": "pairs: !!python/object/apply:os.system [id]",
    "list": "- a\n- b\n",
    "text": "hello",
    "number": "3",
    "false": "false",
    "repeated": "pairs: []\npairs: []\n",
    "limits": "limits: []",
    "key": "? [a]\n: b",
    "null key": "~: 1",
    "escape": '"\\e[2J\\n": 1',
}
BAD_BYTES = {
    "latin": "preset: ü".encode("latin-1"),
    "utf-16 cut": "preset: f16".encode("utf-16")[:-1],
    "zip": b"PK\x03\x04" + bytes(range(256)),
    "long": b"#" * (5 << 20),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("settings")
    x = np.linspace(0, 1, 6, dtype=np.float32)
    np.savez(folder / "t.npz", **{"a" * 40: x, "b": x})
    np.savez(folder / "r.npz", **{"a" * 40: x, "b": x})
    return folder


def refused(*words, cwd):
    found = run_command(*words, cwd=cwd)
    text = found.stderr.decode()
    assert found.returncode == 2, (found.stdout, text)
    assert text.startswith(("syncpoint: ", "Usage: ")) and len(text) < 5000, text
    assert "internal error" not in text
    if text.startswith("syncpoint: "):
        assert text.count("\n") == 1
    return text


@pytest.mark.parametrize("name", [*BAD_YAML, *BAD_BYTES])
def test_a_file_of_options_that_is_wrong(place, tmp_path, name):
    content = BAD_YAML[name].encode() if name in BAD_YAML else BAD_BYTES[name]
    (tmp_path / "x.yaml").write_bytes(content)
    refused("compare", "t.npz", "r.npz", "--map", tmp_path / "x.yaml", cwd=place)
    with pytest.raises(SyncpointError) as raised:
        load_limits(tmp_path / "x.yaml")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("flag", ["--map", "--limits"])
def test_a_file_of_options_that_is_none(place, tmp_path, flag):
    for path in (tmp_path, tmp_path / "none.yaml", "/dev/null/x", "a\0b"):
        refused("compare", "t.npz", "r.npz", flag, path, cwd=place)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_encodings_of_editors_are_read(tmp_path, encoding):
    (tmp_path / "m.yaml").write_bytes("ignore: ['Größe']".encode(encoding))
    assert [p.pattern for p in MapFile.load(tmp_path / "m.yaml").ignore] == ["Größe"]
    (tmp_path / "l.yaml").write_bytes(LIMITS.encode(encoding))
    assert load_limits(tmp_path / "l.yaml").psnr == (50, 40)


def test_aliases_that_stand_for_little_are_read(tmp_path):
    (tmp_path / "m.yaml").write_text(
        "dims:\n  target: &d {'conv.*': n h w c}\n  reference: *d\nignore: []\n"
    )
    assert len(MapFile.load(tmp_path / "m.yaml").dims) == 2


@pytest.mark.parametrize(
    "text",
    [
        "[compare]\nx = " + "[" * DEEP,
        "x = {a = " * 2000,
        f"[compare]\nrows = {'9' * 5000}",
        "[compare]\nrows = 'x'",
        "[compare]\nrows = [1, 2]",
        "[compare]\nrows = {a = 1}",
        "[compare]\nmin_coverage = 7",
        "[compare]\ncsv = 5",
        "[compare]\ncsv = []",
        "[compare]\nmap = {a = 1}",
        "[compare]\nmap = 'none.yaml'",
        "[compare]\nmapp = 'none.yaml'",
        "[comparison]\nmap = 'none.yaml'",
        "[compare]\ntarget = 'none.npz'",
        "[compare]\nhelp = true",
        "[compare]\nignore = [[1]]",
        "[compare]\nignore = 5",
        "[compare]\npreset = 3",
        "[compare]\npreset = 2001-01-01",
        "[compare]\nquiet = 'perhaps'",
        "compare = 3",
        "x = 1\n",
        "[compare]\nx = 1\x00",
        "a = 1\na = 2",
    ],
    ids=lambda text: text[:30],
)
def test_a_configuration_that_is_wrong(place, tmp_path, text):
    (tmp_path / "syncpoint.toml").write_text(text)
    words = ("compare", place / "t.npz", place / "r.npz")
    refused(*words, cwd=tmp_path)
    (tmp_path / "syncpoint.toml").write_bytes(b"\xff\xfe\x00")
    refused(*words, cwd=tmp_path)


@pytest.mark.parametrize("text", ["tool = 3", "[tool]\nsyncpoint = 5", "[tool.syncpoint]\nx = 1"])
def test_a_project_file_that_says_something_else(place, tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    found = run_command("compare", place / "t.npz", place / "r.npz", "-q", cwd=tmp_path)
    assert found.returncode == 2 and found.stderr.count(b"\n") == 1


def test_a_configuration_with_a_byte_order_mark_is_read(place, tmp_path):
    (tmp_path / "syncpoint.toml").write_bytes(CONFIG.encode("utf-8-sig"))
    words = ("compare", place / "t.npz", place / "r.npz")
    assert run_command(*words, cwd=tmp_path).returncode in (0, 3)


CATASTROPHIC = ["(a|aa)+$b", r"((a{1,20}){1,20}){1,20}!"]


@pytest.fixture
def short(monkeypatch):
    """A limit that tests can wait for."""
    monkeypatch.setattr(user_regex, "MAX_SECONDS", 0.05)


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_an_expression_that_would_not_end(short, pattern):
    with pytest.raises(InputError, match=r"takes more than 0\.05 seconds"):
        Pattern(pattern, "x").fullmatch("a" * 60)
    with pytest.raises(InputError, match=r"takes more than 0\.05 seconds"):
        Pattern(pattern, "x").search("a" * 60)


def test_the_time_of_an_expression_is_that_of_all_names(monkeypatch):
    monkeypatch.setattr(user_regex, "MAX_SECONDS", 0.5)
    slow = Pattern("(a|aa)+$b", "x")
    with pytest.raises(InputError):
        for length in [27] * 10_000:
            slow.fullmatch("a" * length)


def test_no_command_waits_for_an_expression(short, place, tmp_path):
    bad = CATASTROPHIC[0]
    assert "--ignore" in refused("compare", "t.npz", "r.npz", "--ignore", bad, cwd=place)
    for key, value in {
        "ignore": [bad],
        "pairs": [{"target": bad, "reference": "x", "regex": True}],
        "dims": {"target": {bad: "n"}},
        "mask": {bad: "[0]"},
    }.items():
        (tmp_path / "m.yaml").write_text(json.dumps({key: value}))
        text = refused("compare", "t.npz", "r.npz", "--map", tmp_path / "m.yaml", cwd=place)
        assert "m.yaml" in text
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["a" * 60], name="a" * 60)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("a" * 60, TensorProto.FLOAT, [2])],
    )
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
    words = ("capture", "m.onnx", "--inputs", "zeros", "-o", "x.run", "--filter", bad)
    assert "--filter" in refused(*words, cwd=tmp_path)


@pytest.mark.parametrize(
    "pattern",
    ["(", "[[:alpha:]]", r"\p{L}", "(?R)", "a{99999999999999999999}", "(" * 5000, "x" * 20_000],
)
def test_what_python_does_not_take_for_an_expression(place, pattern):
    refused("compare", "t.npz", "r.npz", "--ignore", pattern, cwd=place)


NAMES = ["", "a", "conv1", "blocks.3.mlp", "a{e}", "a{b", "x{2", "aa", "Größe_1", "a\nb", "A", "{}"]


@pytest.mark.parametrize(
    "pattern",
    [
        *("a{e}", "a{b", r"blocks\.(\d+)\.mlp", ".*", "^(?!.*conv).*", r"\w+", "(?i)a", r"a\Z"),
        *(
            "a{1,2}",
            "a{2}",
            "a{,2}",
            "x{2",
            "[{]",
            r"\{\}",
            "{}",
            "(?P<n>a)(?P=n)",
            "a.b",
            "(?s)a.b",
        ),
        *("a$", r"(?<!x)\d", "[^a]+", "a|b", "(?x) a  # b"),
    ],
)
def test_expressions_mean_what_they_mean_to_python(pattern):
    ours, theirs = Pattern(pattern, "x"), re.compile(pattern)
    for name in NAMES:
        for way in ("fullmatch", "search"):
            mine, python = getattr(ours, way)(name), getattr(theirs, way)(name)
            assert (mine and (mine.span(), mine.groups())) == (
                python and (python.span(), python.groups())
            )


def test_groups_of_an_expression_name_the_reference(tmp_path):
    hit = Pattern(r"blocks\.(\d+)\.mlp", "x").fullmatch("blocks.3.mlp")
    assert hit.expand(r"layers.\1.feed_forward") == "layers.3.feed_forward"


@pytest.mark.parametrize("reference", [r"\9", r"\g<none>", r"\g<", r"\d"])
def test_a_group_that_is_not_there(place, tmp_path, reference):
    pair = {"target": "(a+)", "reference": reference, "regex": True}
    (tmp_path / "m.yaml").write_text(json.dumps({"pairs": [pair]}))
    refused("compare", "t.npz", "r.npz", "--map", tmp_path / "m.yaml", cwd=place)


WRONG = [None, True, 3, 2.5, "", "(", [], {}, [[1]], {"a": 1}, "9" * 5000]


def paths(value, at=()):
    """Every place in plain data."""
    yield at
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths(inner, (*at, index))


def replaced(value, at, new):
    if not at:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[at[0]] = replaced(value[at[0]], at[1:], new)
    return copied


@pytest.mark.parametrize("text", [MAP, LIMITS], ids=["map", "limits"])
def test_a_wrong_type_at_every_key_is_an_error_or_a_meaning(tmp_path, text):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    valid = read_yaml(path, "x")
    load = MapFile.load if text is MAP else load_limits
    load(path)
    for at in paths(valid):
        for wrong in WRONG:
            path.write_text(json.dumps(replaced(valid, at, wrong)))
            accepts(load, path)


def accepts(load, *arguments):
    """An error of ours, in one line, or none at all."""
    try:
        load(*arguments)
    except SyncpointError as error:
        assert "\n" not in str(error) and len(str(error)) < 3000


def mutated(data, random):
    """Bytes with some changed, doubled, cut or put in."""
    data = bytearray(data)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(data) + 1)
        way = random.randrange(5)
        if way == 0 and at < len(data):
            data[at] = random.randrange(256)
        elif way == 1:
            del data[at : at + random.randint(1, 8)]
        elif way == 2:
            data[at:at] = data[at : at + random.randint(1, 30)]
        elif way == 3:
            data[at:at] = random.choice(
                [bytes([byte]) for byte in b"[{:-*&!\0\xff\x1b\n'"] + [b"!!int ", b"&a "]
            )
        else:
            data[at:at] = random.choice([b"9" * 5000, b"1e999", b"null", b"~", b"-", b"(a", b"\\"])
    return bytes(data)


@pytest.mark.parametrize("name", ["map", "limits", "config", "env"])
def test_random_changes_never_give_a_traceback(tmp_path, name):
    np.savez(tmp_path / "d.npz", a=np.ones(2, np.float32))
    run = open_dump(tmp_path / "d.npz")
    file, text, load = {
        "map": ("m.yaml", MAP, lambda path: MapFile.load(path)),
        "limits": ("l.yaml", LIMITS, load_limits),
        "config": ("syncpoint.toml", CONFIG, lambda path: defaults(COMMANDS, path.parent)),
        "env": ("d.env.json", '{"device": "npu", "x": 3, "y": true}',
                lambda path: add_environment(run, tmp_path / "d.npz")),
    }[name]  # fmt: skip
    rolled = random.Random(name)
    path = tmp_path / file
    for _ in range(100):
        path.write_bytes(mutated(text.encode(), rolled))
        accepts(load, path)


@pytest.mark.parametrize(
    "text", ["[]", "3", '{"a": []}', '{"a": null}', '{"a": 1, "a": 2}', "{", "[" * DEEP,
             '{"a": ' + "9" * 5000 + "}", '{"\\ud800": 1}', "\0", ""]
)  # fmt: skip
def test_an_environment_file_that_is_wrong(place, tmp_path, text):
    np.savez(tmp_path / "d.npz", a=np.ones(2, np.float32))
    (tmp_path / "d.env.json").write_text(text)
    with pytest.raises(FormatError):
        open_dump(tmp_path / "d.npz")
    refused("inspect", "d.npz", cwd=tmp_path)
