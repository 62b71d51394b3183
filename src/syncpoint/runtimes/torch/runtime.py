"""The runtime "torch": a PyTorch model, op by op, as eager mode computes it.

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


_SUFFIXES = (".pt2", ".pt", ".ts")


class TorchRuntime:
    """Captures an nn.Module, an exported program (.pt2) or TorchScript (.pt, .ts)."""

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
        """Whether `model` is one of PyTorch's, names one in code, or is a file that holds one."""
        if isinstance(model, str | Path):
            return is_import_path(str(model)) or Path(model).suffix in _SUFFIXES
        torch = sys.modules.get("torch")
        if torch is None:
            return False
        known = (torch.nn.Module, torch.export.ExportedProgram)
        return isinstance(model, known)

    def options(self) -> tuple[Option, ...]:
        """The settings that `open` understands."""
        return (
            Option(
                "dtype",
                str,
                "",
                "element type to run a copy of the model in; empty leaves it as it is",
                ("", "f64", "f32", "f16", "bf16"),
            ),
            Option("device", str, "cpu", "device to run on, such as cpu or cuda:0"),
            Option(
                "mode",
                str,
                "eval",
                "run in eval mode, in train mode, or as the model is",
                ("eval", "train", "as-is"),
            ),
            Option(
                "capture",
                str,
                "auto",
                "export takes the model through torch.export; dispatch records it while it runs;"
                " auto exports and records what cannot be exported",
                ("auto", "export", "dispatch"),
            ),
            Option(
                "steps",
                bool,
                False,
                "take the samples as steps of one sequence: states go from each to the next",
            ),
            Option("seed", int, 0, "seed of the random numbers, set before every run"),
            Option("threads", int, 0, "threads of torch's own kernels; 0 leaves them as they are"),
        )

    def open(self, model: object, options: Mapping[str, Any]) -> TorchSession:
        """Load the model; the one given is left as it was."""
        if self.version() is None:
            raise MissingExtra("torch", self.extra, "the runtime torch")
        if not self.accepts(model):
            raise InputError(
                "an nn.Module, an exported program, TorchScript, or code that gives one",
                f"a {type(model).__qualname__}",
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
        """The ops of the eager program, also of a model that is compiled otherwise."""
        eager = {option.name for option in TorchRuntime().options()}
        return TorchRuntime.name, {k: v for k, v in options.items() if k in eager}

    def reference_options(self) -> Mapping[str, Any]:
        """None: every op has a value, or its compiled form is what the user wants."""
        return {}

    def cutter(self, guide: Session, options: Mapping[str, Any]) -> Cutter:
        """Cuts the program that was exported for the guide."""
        from syncpoint.runtimes.torch.session import TorchSession
        from syncpoint.runtimes.torch.truncate import TorchCutter

        assert isinstance(guide, TorchSession)
        return TorchCutter(guide, self._compiles, options)
