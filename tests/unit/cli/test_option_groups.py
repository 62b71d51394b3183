"""A dataclass in the signature of a command becomes flags, and its help has one section a panel."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer
from typer.main import get_command
from typer.testing import CliRunner

from syncpoint.cli.app import app as syncpoint_app
from syncpoint.cli.option_groups import PanelCommand, flatten, used_flags

COMMANDS = get_command(syncpoint_app).commands


@dataclass(frozen=True)
class Oven:
    """How to bake."""

    panel: ClassVar[str] = "Oven"

    heat: Annotated[int, typer.Option("-t", "--heat", min=0)] = 180
    tray: Annotated[list[str] | None, typer.Option()] = None
    map_: Annotated[Path | None, typer.Option("--map")] = None
    fan_speed: Annotated[str, typer.Option()] = "low"


def invoke(*words):
    bakery, calls = typer.Typer(rich_markup_mode=None, add_completion=False), []

    def bake(cake: str, *, oven: Oven, quick: bool = False) -> None:
        """Bake a cake."""
        calls.append((cake, oven, quick))

    bakery.command(cls=PanelCommand)(flatten(bake))
    return CliRunner().invoke(bakery, words), calls


def test_fields_become_flags_and_the_command_gets_the_group():
    result, calls = invoke("apple", "-t", "200", "--tray", "a", "--tray", "b", "--quick")
    assert result.exit_code == 0, result.output
    ((cake, oven, quick),) = calls
    assert (cake, quick) == ("apple", True)
    assert (oven.heat, oven.tray, oven.map_) == (200, ["a", "b"], None)


def test_the_limits_of_a_field_hold():
    result, calls = invoke("apple", "--heat", "-1")
    assert result.exit_code == 2 and not calls


def test_help_has_one_section_for_each_panel():
    result, _ = invoke("--help")
    titles = [line for line in result.output.splitlines() if line.endswith(":")]
    assert titles == ["Arguments:", "Options:", "Oven:"]


def test_used_flags_are_those_that_differ_from_their_defaults():
    assert used_flags(Oven()) == []
    oven = Oven(heat=1, tray=[], map_=Path("m"), fan_speed="high")
    assert used_flags(oven) == ["--heat", "--map", "--fan-speed"]


def test_the_flags_of_ascend_come_last_in_the_help_of_compare():
    options = [p for p in COMMANDS["compare"].params if p.param_type_name == "option"]
    panels = list(dict.fromkeys(p.rich_help_panel for p in options))
    assert panels == ["Inputs", "Pairing", "Verdict", "Output", "Resources", "Ascend"]


def test_a_flag_of_several_commands_is_in_the_same_panel_everywhere():
    # An option of its own (`report --preset` judges again) may differ in text, not in place.
    panels = {}
    for command in COMMANDS.values():
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.rich_help_panel:
                panels.setdefault(parameter.name, set()).add(parameter.rich_help_panel)
    assert {name: found for name, found in panels.items() if len(found) > 1} == {}
