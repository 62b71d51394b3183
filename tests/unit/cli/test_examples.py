"""The examples in the help of a command can be copied."""

import shlex

import pytest
from typer.main import get_command

from helpers.commands import syncpoint
from syncpoint.cli.app import app
from syncpoint.cli.examples import EXAMPLES

COMMANDS = get_command(app).commands


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_an_example_is_accepted_by_its_command(line):
    name, *arguments = shlex.split(line)[1:]
    COMMANDS[name].make_context(name, arguments)


def test_every_command_that_takes_arguments_has_an_example():
    with_arguments = {
        name
        for name, command in COMMANDS.items()
        if any(parameter.param_type_name == "argument" for parameter in command.params)
    }
    assert with_arguments == EXAMPLES.keys()


def test_the_help_ends_with_the_examples_one_in_a_line(tmp_path):
    text = syncpoint("compare", "--help", cwd=tmp_path, code=0).stdout
    assert text.split("Examples:\n")[1].splitlines() == [
        f"  {line}" for line in EXAMPLES["compare"]
    ]
