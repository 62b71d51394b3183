"""INTERFACE.md and ARCHITECTURE.md say what the code has, and the code has what they say."""

import ast
import configparser
import importlib
import inspect
import re
import tomllib

import pytest
from typer.main import get_command

import syncpoint as sp
from helpers.paths import ROOT
from syncpoint import errors
from syncpoint.cli.app import app

SOURCE = ROOT / "src" / "syncpoint"
INTERFACE = (ROOT / "docs" / "design" / "INTERFACE.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "design" / "ARCHITECTURE.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMMANDS = get_command(app).commands


def section(text, heading):
    return re.split(r"^## ", text.partition(f"## {heading}\n")[2], flags=re.M)[0]


def described_flags(block):
    """The flags of each command in a block of usage lines; further lines of a command are
    indented."""
    flags = {}
    for line in block.splitlines():
        start = re.match(r" {4}syncpoint ([a-z]+)", line)
        if start:
            command = flags.setdefault(start[1], set())
        if line.startswith("    "):
            command.update(re.findall(r"(?<![\w-])--?[a-z][\w-]*", line))
    return flags


def usage_blocks():
    """The usage of what exists, and of what is planned."""
    existing, planned = section(INTERFACE, "Command line").split("\nPlanned", 1)
    block = "\n".join(line for line in planned.splitlines() if line.startswith("    "))
    return described_flags(existing), described_flags(block)


def real_flags(command):
    """The flags of a command, and among them the negations that need no mention."""
    options = [p for p in COMMANDS[command].params if p.param_type_name == "option"]
    negations = {flag for option in options for flag in option.secondary_opts}
    return {flag for option in options for flag in option.opts} | negations, negations


def source_strings():
    """Every string constant in the package."""
    trees = (ast.parse(path.read_text()) for path in SOURCE.rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def test_the_commands_are_those_of_the_document():
    assert usage_blocks()[0].keys() == COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_flags_of_a_command_are_those_of_the_document(command):
    described, (real, negations) = usage_blocks()[0][command], real_flags(command)
    assert sorted(described - real) == [], f"flags that {command} does not have"
    assert sorted(real - described - negations) == [], f"flags of {command} without a mention"


def test_what_is_planned_does_not_exist_yet():
    existing = {
        (command, flag)
        for command, flags in usage_blocks()[1].items()
        for flag in flags
        if command in COMMANDS and flag in real_flags(command)[0]
    }
    assert existing == set()


def test_the_exit_codes_are_those_of_the_document():
    rows = re.findall(r"^\| (\d+) \| `(EXIT_\w+)` \|", INTERFACE, re.M)
    real = {name: value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert {name: int(code) for code, name in rows} == real


def test_the_entry_points_are_those_of_the_document():
    described = set(
        re.findall(r"^\| `(syncpoint\.\w+)` \|", section(INTERFACE, "Entry points"), re.M)
    )
    groups = re.compile(r"syncpoint\.(?!toml)[a-z_]+")
    assert described == {text for text in source_strings() if groups.fullmatch(text)}


def test_the_entry_points_that_this_package_declares_are_those_of_the_document():
    declared = section(INTERFACE, "Entry points").partition("This package declares ")[2]
    names = re.findall(r"`([^`]+)`", declared)
    groups = PROJECT["entry-points"]
    expected = [*PROJECT["scripts"]]
    for group, entries in groups.items():
        expected += [group, *entries]
    assert names == expected


def test_the_extras_are_those_of_the_document():
    described = re.findall(r"^\| `([\w-]+)` \|", section(INTERFACE, "Extras"), re.M)
    assert sorted(described) == sorted(PROJECT["optional-dependencies"])


def test_every_extra_has_code_that_asks_for_it():
    extras = PROJECT["optional-dependencies"]
    assert sorted(extras.keys() - {"all", "dev"} - source_strings()) == []


def described_signatures():
    """The parameters of each function and method in the block of signatures, as text."""
    block = section(INTERFACE, "Python").partition("### Signatures\n")[2]
    lines = [line for line in block.splitlines() if line.startswith("    ")]
    text = re.sub(r"\n {5,}", " ", "\n".join(lines))
    signatures = {}
    for line in text.splitlines():
        name, parameters = re.fullmatch(r" {4}([\w.]+)\((.*)\)", line).groups()
        assert name not in signatures, f"{name} twice"
        (function,) = ast.parse(f"def f({parameters}): ...").body
        signatures[name] = ast.unparse(function.args)
    return signatures


def real_signature(function):
    """The parameters of a function as text, without annotations; of a method without `self`."""
    signature = inspect.signature(function)
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    if parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    plain = str(signature.replace(parameters=parameters, return_annotation=signature.empty))
    (function,) = ast.parse(f"def f{plain.replace('<built-in function print>', 'print')}: ...").body
    return ast.unparse(function.args)


def public_functions():
    """The functions of the package, and the methods that its results define, by name."""
    functions = {name: getattr(sp, name) for name in sp.__all__}
    named = {f"sp.{name}": f for name, f in functions.items() if inspect.isfunction(f)}
    for owner in (sp.Comparison, sp.Analysis, sp.Bisection):
        methods = {name: f for name, f in vars(owner).items() if inspect.isfunction(f)}
        named |= {
            f"{owner.__name__}.{name}": f for name, f in methods.items() if name.strip("_") == name
        }
    return named


def test_every_public_function_has_its_signature_in_the_document():
    assert sorted(public_functions().keys() - described_signatures().keys()) == []


@pytest.mark.parametrize("name", described_signatures())
def test_a_signature_in_the_document_is_that_of_the_code(name):
    owner, _, attribute = name.partition(".")
    function = getattr(sp if owner == "sp" else getattr(sp, owner), attribute)
    assert described_signatures()[name] == real_signature(function)


def example_calls():
    """The calls `sp.name(...)` in the document that are no signatures, as syntax trees."""
    text = INTERFACE.replace(section(INTERFACE, "Python").partition("### Signatures\n")[2], "")
    calls = []
    for match in re.finditer(r"\bsp\.\w+\(", text):
        depth, end = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        calls.append(text[match.start() : end])
    return calls


@pytest.mark.parametrize("text", example_calls())
def test_a_call_in_the_document_fits_its_function(text):
    call = ast.parse(text, mode="eval").body
    signature = inspect.signature(getattr(sp, call.func.attr))
    signature.bind(*call.args, **{keyword.arg: keyword.value for keyword in call.keywords})


def test_the_public_names_are_those_of_the_document():
    described = set(re.findall(r"\bsp\.(\w+)", INTERFACE))
    assert described == set(sp.__all__) - {"__version__"}
    for name in sp.__all__:
        assert getattr(sp, name) is not None
    with pytest.raises(AttributeError):
        _ = sp.nonsense


def listed_rooms():
    """The paths below src/syncpoint in the listing of the rooms."""
    listing = section(ARCHITECTURE, "The rooms").partition("    src/syncpoint/\n")[2]
    parents, rooms = [], []
    for line in listing.splitlines():
        if not line.startswith("      "):
            break
        entry = re.match(r"( +)([a-z_]+/|[a-z_]+\.py)  ?", line)
        if entry is None or len(entry[1]) > 12:
            continue  # the text of the entry above
        depth = len(entry[1]) // 2 - 3
        parents[depth:] = [entry[2].rstrip("/")]
        rooms.append("/".join(parents))
    return rooms


def real_rooms():
    packages = {p.parent.relative_to(SOURCE).as_posix() for p in SOURCE.rglob("__init__.py")}
    modules = {p.name for p in SOURCE.glob("*.py") if not p.name.startswith("__")}
    return (packages - {"."}) | modules


def test_every_listed_room_exists():
    rooms = listed_rooms()
    assert len(rooms) > 20 and len(set(rooms)) == len(rooms)
    assert [room for room in rooms if not (SOURCE / room).exists()] == []


def test_every_room_is_listed():
    assert sorted(real_rooms() - set(listed_rooms())) == []


def test_every_room_has_a_layer():
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    layers = parser["importlinter:contract:rooms"]["layers"]
    modules = re.findall(r"syncpoint[.\w]+", layers)
    for module in modules:
        importlib.import_module(module)
    top_level = {room.removesuffix(".py") for room in real_rooms() if "/" not in room}
    assert {module.split(".")[1] for module in modules} == top_level
