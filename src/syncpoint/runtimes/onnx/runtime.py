"""The runtime "onnxruntime": what it accepts, its options, how it opens models, and its
capabilities (cuts, previews, fusion off).

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

_MODEL_CLASSES = (
    ("onnx", "ModelProto"),
    ("onnx_ir", "Model"),
    ("torch.onnx", "ONNXProgram"),
)
"""Module and class of objects that are models; their module is loaded if such an object exists."""


class OnnxRuntime:
    """Captures an ONNX model, fused as it is executed or op by op as it is written."""

    name = "onnxruntime"
    extra = "onnx"
    fused_types = ("com.microsoft.",)
    fusion_advice = "run with optimization=disabled, or add the optimizer to disabled_optimizers"

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
        for module, name in _MODEL_CLASSES:
            kind = getattr(sys.modules.get(module), name, None)
            if isinstance(kind, type) and isinstance(model, kind):
                return True
        return False

    def options(self) -> tuple[Option, ...]:
        """List the options of `open`."""
        return (
            Option("provider", str, "", "execution provider (default: ONNX Runtime's own choice)"),
            Option(
                "optimization",
                str,
                "all",
                "level of graph optimization in ONNX Runtime",
                ("disabled", "basic", "extended", "layout", "all"),
            ),
            Option(
                "disabled_optimizers",
                str,
                "",
                "optimizers to disable, such as NchwcTransformer,ConvActivationFusion",
            ),
            Option(
                "fusion",
                str,
                "as-executed",
                "record the fused graph that is executed, or the ops of the file",
                ("as-executed", "unfused"),
            ),
            Option("threads", int, 0, "threads per op; 0: ONNX Runtime chooses"),
            Option("seed", int, 0, "seed for random ops without a seed of their own"),
        )

    def open(self, model: object, options: Mapping[str, Any]) -> OnnxSession:
        """Load the model; the file or object is not changed."""
        if self.version() is None:
            raise MissingExtra("onnxruntime", self.extra, "the runtime onnxruntime")
        if not self.accepts(model):
            raise InputError(
                f"a {type(model).__qualname__} is not an ONNX model",
                cure="pass the path of an .onnx file",
            )
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
        """Preview the ops, precision and inputs of an .onnx file."""
        from syncpoint.runtimes.onnx.preview import preview_file

        return preview_file(path)

    def unfused_options(self) -> Mapping[str, Any]:
        """Return the options that record the ops of the file."""
        return {"fusion": "unfused"}

    def guide_options(self, options: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return runtime and options of the guide: the ops of the file, where it can be cut."""
        return self.name, {**options, **self.unfused_options()}

    def reference_options(self) -> Mapping[str, Any]:
        """Return the options of a reference: every op of the file has a value."""
        return self.unfused_options()

    def cutter(self, guide: Session, options: Mapping[str, Any]) -> Cutter:
        """Make a cutter, which cuts the graph of the file."""
        from syncpoint.runtimes.onnx.session import OnnxSession
        from syncpoint.runtimes.onnx.truncate import OnnxCutter

        assert isinstance(guide, OnnxSession)
        return OnnxCutter(guide, options)
