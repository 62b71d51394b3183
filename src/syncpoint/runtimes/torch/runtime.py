"""The runtime "torch" (eager mode): its version, which models it accepts, its options, how it opens
and cuts them.

This module imports no torch until a model is opened.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.errors import InputError, MissingExtra
from syncpoint.runtimes.import_path import is_import_path
from syncpoint.runtimes.protocol import Cutter, Option, Session

if TYPE_CHECKING:
    from syncpoint.runtimes.torch.session import TorchSession


FILE_SUFFIXES = (".pt2", ".pt", ".ts", ".jit", ".torchscript")
"""Suffixes of exported programs and TorchScript."""


class TorchRuntime:
    """Captures an nn.Module, an exported program (.pt2) or TorchScript (.pt, .ts,
    .jit, .torchscript)."""

    name = "torch"
    extra = "torch"
    _compiles = False

    def version(self) -> str | None:
        """Version of torch, or None when it is not installed."""
        try:
            return installed_version("torch")
        except PackageNotFoundError:
            return None

    def accepts(self, model: object) -> bool:
        """Whether `model` is a PyTorch model, `file.py:attribute`, or a file of a model."""
        if isinstance(model, str | Path):
            return is_import_path(str(model)) or Path(model).suffix in FILE_SUFFIXES
        torch = sys.modules.get("torch")
        if torch is None:
            return False
        model_types = (torch.nn.Module, torch.export.ExportedProgram)
        return isinstance(model, model_types)

    def options(self) -> tuple[Option, ...]:
        """The settings that `open` understands."""
        return (
            Option(
                "dtype",
                str,
                "",
                "element type to run a copy of the model in (default: that of the model)",
                ("", "f64", "f32", "f16", "bf16"),
            ),
            Option("device", str, "cpu", "device to run on, such as cpu or cuda:0"),
            Option(
                "mode",
                str,
                "eval",
                "run in eval mode, in train mode, or in the mode of the model (as-is)",
                ("eval", "train", "as-is"),
            ),
            Option(
                "capture",
                str,
                "auto",
                "export uses torch.export; dispatch records the ops while the model runs;"
                " auto tries export, then dispatch",
                ("auto", "export", "dispatch"),
            ),
            Option(
                "steps",
                bool,
                False,
                "treat the samples as steps of one sequence: states go from each to the next",
            ),
            Option("seed", int, 0, "seed of the random numbers, set before every run"),
            Option(
                "threads",
                int,
                0,
                "number of threads of torch kernels; 0 keeps the setting of torch",
            ),
        )

    def open(self, model: object, options: Mapping[str, Any]) -> TorchSession:
        """Load the model; the given one is not changed."""
        if self.version() is None:
            raise MissingExtra("torch", self.extra, "the runtime torch")
        if not self.accepts(model):
            raise InputError(
                f"the runtime torch cannot open a {type(model).__qualname__}",
                cure=(
                    "give an nn.Module, an exported program, TorchScript, or code that returns one"
                ),
            )
        try:
            from syncpoint.runtimes.torch.session import open_session
        except ImportError as error:
            if error.name and not error.name.startswith("torch"):
                raise
            raise MissingExtra("torch", self.extra, "the runtime torch") from error
        defaults = {option.name: option.default for option in self.options()}
        return open_session(model, {**defaults, **options})

    def guide_options(self, options: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Options for the eager program, also of a compiled model."""
        eager = {option.name for option in TorchRuntime().options()}
        return TorchRuntime.name, {k: v for k, v in options.items() if k in eager}

    def reference_options(self) -> Mapping[str, Any]:
        """No options: every op of an eager run has a value."""
        return {}

    def cutter(self, guide: Session, options: Mapping[str, Any]) -> Cutter:
        """A cutter of the program that was exported for the guide."""
        from syncpoint.runtimes.torch.session import TorchSession
        from syncpoint.runtimes.torch.truncate import TorchCutter

        assert isinstance(guide, TorchSession)
        return TorchCutter(guide, self._compiles, options)
