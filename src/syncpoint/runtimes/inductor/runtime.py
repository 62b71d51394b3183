"""The runtime "inductor" (torch.compile): its options, how it opens models and repro files, how to
turn fusion off, whether values can be replaced.

This module imports no torch until a model is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from syncpoint.errors import MissingExtra
from syncpoint.runtimes.protocol import Option, Repro
from syncpoint.runtimes.torch.runtime import TorchRuntime

if TYPE_CHECKING:
    from syncpoint.runtimes.inductor.session import InductorSession


class InductorRuntime(TorchRuntime):
    """Captures an nn.Module that is compiled by torch.compile.

    It must be chosen by name: the runtime torch accepts the same models and comes first.
    """

    name = "inductor"
    extra = "torch"
    fused_types: tuple[str, ...] = ()
    fusion_advice = "run with kernels=eager, or prevent the fusion in the option config"
    uncompiled = TorchRuntime.name
    shared_options = ("dtype", "device", "mode", "seed", "threads")
    _compiles = True

    def options(self) -> tuple[Option, ...]:
        """The settings that `open` understands."""
        return (
            *(option for option in super().options() if option.name != "steps"),
            Option(
                "backend",
                str,
                "inductor",
                "compiler of the graph: inductor, or aot_eager, which runs it op by op",
                ("inductor", "aot_eager"),
            ),
            Option(
                "fusion",
                str,
                "as-executed",
                "as-executed records the buffers of the compiled code; unfused makes every op an"
                " output of the graph, which changes the fusion",
                ("as-executed", "unfused"),
            ),
            Option(
                "kernels",
                str,
                "compiled",
                "compiled, or eager: runs the ops of the compiled graph one by one uncompiled",
                ("compiled", "eager"),
            ),
            Option("compile_mode", str, "default", "mode of torch.compile, such as max-autotune"),
            Option("fullgraph", bool, False, "treat a graph break as an error"),
            Option("dynamic", str, "auto", "dynamic shapes", ("auto", "true", "false")),
            Option(
                "config",
                str,
                "",
                "settings of torch._inductor.config, such as"
                " cpp.threads=1,emulate_precision_casts=true",
            ),
        )

    def open(self, model: object, options: Mapping[str, Any]) -> InductorSession:
        """Load the model; the given one is not changed."""
        if self.version() is None:
            raise MissingExtra("torch", self.extra, "the runtime inductor")
        from syncpoint.runtimes.inductor.session import InductorSession
        from syncpoint.runtimes.torch.load_model import load_model

        defaults = {option.name: option.default for option in self.options()}
        settings = {**defaults, **options}
        return InductorSession(load_model(model, settings), settings)

    def can_replace_values(self, options: Mapping[str, Any]) -> bool:
        """Whether the backend is inductor: aot_eager has no buffers."""
        return bool(options.get("backend", self.name) == self.name)

    def load_repro(self, path: str) -> Repro | None:
        """The module and the arguments of a `repro.py` that torch wrote."""
        from syncpoint.runtimes.torch.repro import is_repro, load_repro

        return load_repro(path) if is_repro(path) else None

    def unfused_options(self) -> Mapping[str, Any]:
        """Options that run the ops of the compiled graph with eager kernels."""
        return {"kernels": "eager"}
