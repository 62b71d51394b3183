"""The runtime "onnxruntime": ONNX models as ONNX Runtime executes them.

This module imports neither onnx nor onnxruntime until a model is opened.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.errors import InputError, MissingExtra
from syncpoint.runtimes.protocol import Cutter, ModelPreview, Option, Session

if TYPE_CHECKING:
    from syncpoint.runtimes.onnx.session import OnnxSession

_LIVE = (
    ("onnx", "ModelProto"),
    ("onnx_ir", "Model"),
    ("torch.onnx", "ONNXProgram"),
)
"""Module and class of the objects that are models; whoever holds one has loaded its module."""


class OnnxRuntime:
    """Captures an ONNX model, fused as it is executed or op by op as it is written."""

    name = "onnxruntime"
    extra = "onnx"
    fused_types = ("com.microsoft.",)
    fusion_advice = "run with optimization=disabled, or name the optimizer in disabled_optimizers"

    def version(self) -> str | None:
        """Version of ONNX Runtime, or None when it is not installed."""
        for package in ("onnxruntime", "onnxruntime-gpu"):
            try:
                return installed_version(package)
            except PackageNotFoundError:
                continue
        return None

    def accepts(self, model: object) -> bool:
        """Whether `model` is the path of an .onnx file, or a model that is loaded already."""
        if isinstance(model, str | Path):
            return str(model).endswith(".onnx")
        for module, name in _LIVE:
            kind = getattr(sys.modules.get(module), name, None)
            if isinstance(kind, type) and isinstance(model, kind):
                return True
        return False

    def options(self) -> tuple[Option, ...]:
        """The settings that `open` understands."""
        return (
            Option(
                "provider", str, "", "execution provider; empty takes ONNX Runtime's own choice"
            ),
            Option(
                "optimization",
                str,
                "all",
                "how far ONNX Runtime may rewrite the graph",
                ("disabled", "basic", "extended", "layout", "all"),
            ),
            Option(
                "disabled_optimizers",
                str,
                "",
                "rewrites to leave out, such as NchwcTransformer,ConvActivationFusion",
            ),
            Option(
                "fusion",
                str,
                "as-executed",
                "record the graph that is executed, or the ops as the file has them",
                ("as-executed", "unfused"),
            ),
            Option("threads", int, 0, "threads within an op; 0 leaves the choice to ONNX Runtime"),
            Option("seed", int, 0, "seed of the random numbers of ops that name none"),
        )

    def open(self, model: object, options: Mapping[str, Any]) -> OnnxSession:
        """Load the model; the file or the object given is left as it was."""
        if self.version() is None:
            raise MissingExtra("onnxruntime", self.extra, "the runtime onnxruntime")
        if not self.accepts(model):
            raise InputError("the path of an .onnx file", f"a {type(model).__qualname__}")
        try:
            from syncpoint.runtimes.onnx.session import OnnxSession
        except ImportError as error:
            package = (error.name or "").partition(".")[0]
            if package not in ("onnx", "onnx_ir", "onnxruntime"):
                raise
            raise MissingExtra(package, self.extra, "the runtime onnxruntime") from error
        defaults = {option.name: option.default for option in self.options()}
        return OnnxSession(model, {**defaults, **options})

    def preview(self, path: Path) -> ModelPreview | None:
        """What an .onnx file says of its ops, precision and inputs."""
        from syncpoint.runtimes.onnx.preview import preview_file

        return preview_file(path)

    def unfused_options(self) -> Mapping[str, Any]:
        """The ops as the file has them."""
        return {"fusion": "unfused"}

    def guide_options(self, options: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """The ops as the file has them, where it can be cut."""
        return self.name, {**options, **self.unfused_options()}

    def reference_options(self) -> Mapping[str, Any]:
        """Every op of the file has a value."""
        return self.unfused_options()

    def cutter(self, guide: Session, options: Mapping[str, Any]) -> Cutter:
        """Cuts the graph of the file."""
        from syncpoint.runtimes.onnx.session import OnnxSession
        from syncpoint.runtimes.onnx.truncate import OnnxCutter

        assert isinstance(guide, OnnxSession)
        return OnnxCutter(guide, options)
