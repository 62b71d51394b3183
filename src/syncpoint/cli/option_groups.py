"""The mechanism of option groups: turns each dataclass in the signature of a command into flags,
and groups them in the help.

A group is declared once and taken by every command that needs it:

    @dataclass(frozen=True)
    class BrowserOptions:
        panel: ClassVar[str] = "Output"
        port: Annotated[int | None, typer.Option(help="Port on 127.0.0.1.")] = None

    def view(comparison: Path, *, browser: BrowserOptions) -> None: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, get_args, get_type_hints

from typer.core import TyperCommand
from typer.models import OptionInfo

Command = Callable[..., None]


class PanelCommand(TyperCommand):
    """A command whose help has one section for each panel, in the order of its options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the options without a panel, then the panels."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                title = "Arguments"
            else:
                title = getattr(parameter, "rich_help_panel", None) or "Options"
            sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, one in a line, so that they can be copied."""
        if self.epilog:
            with formatter.section("Examples"):
                for line in self.epilog.splitlines():
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def flatten(command: Command) -> Command:
    """Replace each group in the signature of a command by its options."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {
        name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)
    }
    parameters: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        group = groups.get(parameter.name)
        if group is None:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
        else:
            parameters.extend(_option_parameters(group))

    @wraps(command)
    def flat_command(**values: Any) -> None:
        for name, group in groups.items():
            group_values = {field.name: values.pop(field.name) for field in fields(group)}
            values[name] = group(**group_values)
        command(**values)

    flat_signature = signature(command).replace(parameters=parameters)
    flat_command.__signature__ = flat_signature  # type: ignore[attr-defined]
    flat_command.__annotations__ = {p.name: p.annotation for p in parameters}
    return flat_command


def _option_parameters(group: type[Any]) -> Iterator[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        value_type, declared = get_args(hints[field.name])
        option = copy(declared)
        option.rich_help_panel = option.rich_help_panel or group.panel
        yield Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=Annotated[value_type, option],
        )


def used_flags(*groups: Any) -> list[str]:
    """The flags of these groups that differ from their defaults."""
    flags = []
    for group in groups:
        hints = get_type_hints(type(group), include_extras=True)
        for field in fields(group):
            value = getattr(group, field.name)
            if value and value != field.default:
                flags.append(_flag_name(field.name, get_args(hints[field.name])[1]))
    return flags


def _flag_name(field_name: str, option: OptionInfo) -> str:
    names = (option.default, *(option.param_decls or ()))
    long_names = (n for n in names if isinstance(n, str) and n.startswith("--"))
    return next(long_names, f"--{field_name.replace('_', '-')}")
