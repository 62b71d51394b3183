"""The runtime "coreai": its installed version, which models it accepts (`.aimodel`), its options,
and how it opens them.

This module imports nothing of Core AI until a model is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.errors import InputError, MissingExtra
from syncpoint.runtimes.protocol import Option

if TYPE_CHECKING:
    from syncpoint.runtimes.coreai.session import CoreAISession


class CoreAIRuntime:
    """Captures a Core AI asset kernel by kernel."""

    name = "coreai"
    extra = "coreai"

    def version(self) -> str | None:
        """Version of coreai-core, or None when it is not installed."""
        try:
            return installed_version("coreai-core")
        except PackageNotFoundError:
            return None

    def accepts(self, model: object) -> bool:
        """Whether `model` is the path of an .aimodel folder."""
        return isinstance(model, str | Path) and str(model).rstrip("/").endswith(".aimodel")

    def options(self) -> tuple[Option, ...]:
        """List the options of `open`."""
        return (
            Option("function", str, "", "function of the asset (default: main, or the only one)"),
            Option(
                "compute_units",
                str,
                "",
                "where to run it (default: Core AI chooses); needs macOS",
                ("cpu", "gpu", "neural_engine"),
            ),
            Option(
                "steps",
                bool,
                False,
                "treat the samples as steps of one sequence: each step gets the states of the last",
            ),
        )

    def open(self, model: object, options: Mapping[str, Any]) -> CoreAISession:
        """Load the asset; it is not changed."""
        if self.version() is None:
            raise MissingExtra("coreai-core", self.extra, "the runtime coreai")
        if not isinstance(model, str | Path) or not self.accepts(model):
            is_path = isinstance(model, str | Path)
            actual = repr(str(model)) if is_path else f"a {type(model).__qualname__}"
            raise InputError(
                f"the model must be the path of an .aimodel folder, not {actual}",
                cure="pass a path that ends in .aimodel",
            )
        try:
            from syncpoint.runtimes.coreai.session import CoreAISession
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "coreai":
                raise
            raise MissingExtra("coreai-core", self.extra, "the runtime coreai") from error
        defaults = {option.name: option.default for option in self.options()}
        return CoreAISession(Path(model), {**defaults, **options})
