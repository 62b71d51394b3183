"""The runtime "inductor": a PyTorch model as torch.compile executes it.

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
    """Captures an nn.Module that is compiled by torch.compile. It comes after the runtime torch,
    which accepts the same models, and so is only taken where it is named."""

    name = "inductor"
    extra = "torch"
    fused_types: tuple[str, ...] = ()
    fusion_advice = "run with kernels=eager, or keep it from being fused by inductor's config"
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
                "what compiles the graph: inductor, or aot_eager, which runs it op by op",
                ("inductor", "aot_eager"),
            ),
            Option(
                "fusion",
                str,
                "as-executed",
                "as-executed shows the buffers that the compiled code keeps; unfused makes every"
                " op a result of the graph, which changes what is fused",
                ("as-executed", "unfused"),
            ),
            Option(
                "kernels",
                str,
                "compiled",
                "compiled, or eager: the ops of the compiled graph, run one by one uncompiled",
                ("compiled", "eager"),
            ),
            Option("compile_mode", str, "default", "mode of torch.compile, such as max-autotune"),
            Option("fullgraph", bool, False, "whether a graph break is an error"),
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
        """Load the model; the one given is left as it was."""
        if self.version() is None:
            raise MissingExtra("torch", self.extra, "the runtime inductor")
        from syncpoint.runtimes.inductor.session import InductorSession
        from syncpoint.runtimes.torch.load_model import subject_of

        defaults = {option.name: option.default for option in self.options()}
        settings = {**defaults, **options}
        return InductorSession(subject_of(model, settings), settings)

    def can_replace_values(self, options: Mapping[str, Any]) -> bool:
        """Whether inductor compiles: aot_eager has no buffers of its own."""
        return bool(options.get("backend", self.name) == self.name)

    def load_repro(self, path: str) -> Repro | None:
        """The module and the arguments of a `repro.py` that torch wrote."""
        from syncpoint.runtimes.torch.repro import is_repro, load_repro

        return load_repro(path) if is_repro(path) else None

    def unfused_options(self) -> Mapping[str, Any]:
        """The ops of the compiled graph, by eager kernels."""
        return {"kernels": "eager"}
