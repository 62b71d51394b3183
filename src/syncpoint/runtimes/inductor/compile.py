"""A model compiled by torch.compile, with its graphs at hand."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Protocol

import torch
from torch import nn
from torch.fx import GraphModule

from syncpoint.errors import Unsupported
from syncpoint.runtimes.inductor.codegen_hooks import Emitter, Generated, emitting, probe
from syncpoint.runtimes.inductor.config import inductor_config
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.silence import silence_torch


class CompiledGraph:
    """One graph that dynamo cut out of the model, in the place of its compiled code."""

    _boxed_call = True  # torch hands the inputs over in a list, and lets go of them

    def __init__(
        self,
        owner: Compilation,
        generated: Generated,
        code: Callable[[list[Any]], Any],
        wanted: int | None,
    ) -> None:
        self._owner = owner
        self.generated = generated
        self.code = code
        self._wanted = wanted

    @property
    def module(self) -> GraphModule:
        """The graph that was lowered."""
        assert self.generated.module is not None
        return self.generated.module

    def plain(self, inputs: list[Any]) -> Tree:
        """Run the code; gives what the graph gives, whatever the code gives on top."""
        results = self.code(inputs)
        return results if self._wanted is None else results[: self._wanted]

    def __call__(self, inputs: list[Any]) -> Tree:
        """Called by the code that torch made around it."""
        return self._owner.called(self, inputs)


class Listener(Protocol):
    """Follows one execution of a compiled model."""

    def begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """What the model is called with."""

    def called(self, graph: CompiledGraph, inputs: list[Any]) -> Tree:
        """A graph is called; gives its results."""


class Compilation:
    """The compiled form of a model. Every call of one of its graphs can be listened to."""

    _latest: ClassVar[int] = 0

    def __init__(self, model: nn.Module, options: Mapping[str, Any]) -> None:
        self.graphs: list[CompiledGraph] = []
        """Those that were called when nobody listened, in that order."""
        self._listener: Listener | None = None
        self._options = options
        self._model = model
        # torch gives up on code that it compiled too often, and then runs it uncompiled.
        torch._dynamo.reset()
        Compilation._latest += 1
        self._number = Compilation._latest
        self.plain = self._compile(*self._usual())
        """The model as a user would compile it, nothing added."""
        self._watched = self._compile(self._watching())

    @property
    def valid(self) -> bool:
        """False once another was made: torch then forgets this one's code."""
        return self._number == Compilation._latest

    def run(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], listener: Listener | None
    ) -> Tree:
        """Execute; each graph that is called is handed to the listener, which gives its results."""
        self._listener = listener
        if listener is None:
            self.graphs.clear()
        if listener is not None:
            listener.begin(args, kwargs)
        try:
            with _caches_off():
                return self._watched(*args, **kwargs)
        finally:
            self._listener = None

    def called(self, graph: CompiledGraph, inputs: list[Any]) -> Tree:
        """A graph is called by the code around it."""
        if self._listener is None:
            if graph not in self.graphs:
                self.graphs.append(graph)
            return graph.plain(inputs)
        return self._listener.called(graph, inputs)

    def _usual(self) -> tuple[Any, dict[str, Any] | None]:
        backend = self._options["backend"]
        return backend, inductor_config(self._options) if backend == "inductor" else None

    def _watching(self) -> Callable[..., Any]:
        if self._options["backend"] == "aot_eager":
            return self._op_by_op
        from torch._inductor.compile_fx import compile_fx

        inner: Any = self._unfused
        if self._options["fusion"] != "unfused":
            probe()
            inner = self._inner
        return partial(
            compile_fx, inner_compile=inner, config_patches=inductor_config(self._options)
        )

    def _compile(self, backend: Any, options: dict[str, Any] | None = None) -> Callable[..., Any]:
        dynamic = {"auto": None, "true": True, "false": False}[self._options["dynamic"]]
        fullgraph = self._options["fullgraph"]
        return torch.compile(
            self._model, backend=backend, fullgraph=fullgraph, dynamic=dynamic, options=options
        )

    def _inner(self, module: GraphModule, examples: Any, **more: Any) -> CompiledGraph:
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx_inner

        if config.cpp_wrapper:
            raise Unsupported("a wrapper in Python", "cpp_wrapper=true", "leave cpp_wrapper out")
        emitter = Emitter()
        with emitting(emitter):
            code = compile_fx_inner(module, examples, **more)
        if emitter.generated.module is None:
            emitter.generated.module = module  # nothing was computed
        return self._keep(emitter.generated, code)

    def _unfused(self, module: GraphModule, examples: Any, **more: Any) -> CompiledGraph:
        """Every op becomes a result of the graph, and so gets memory of its own."""
        from torch._inductor.compile_fx import compile_fx_inner

        wide = _all_outputs(module)
        more.pop("static_input_idxs", None)
        code = compile_fx_inner(wide, examples, **more)
        last = next(iter(reversed(module.graph.nodes)))
        return self._keep(Generated(module), code, len(last.args[0]))

    def _op_by_op(self, module: GraphModule, examples: Any, **more: Any) -> Any:
        from torch._dynamo.backends.debugging import aot_eager

        def compiler(module: GraphModule, examples: Any, **more: Any) -> CompiledGraph:
            def code(inputs: list[Any]) -> Tree:
                given = list(inputs)
                inputs.clear()
                return module.forward(*given)

            return self._keep(Generated(module), code)

        return aot_eager(module, examples, fw_compiler=compiler)

    def _keep(
        self, generated: Generated, code: Callable[..., Any], wanted: int | None = None
    ) -> CompiledGraph:
        return CompiledGraph(self, generated, code, wanted)


def tensor_nodes(module: GraphModule) -> list[Any]:
    """The ops of a graph that give one tensor, in order."""
    return [
        node
        for node in module.graph.nodes
        if node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor)
    ]


def _all_outputs(module: GraphModule) -> GraphModule:
    wide = copy.deepcopy(module)
    last = next(iter(reversed(wide.graph.nodes)))
    extra = tensor_nodes(wide)
    last.args = ((*last.args[0], *extra),)
    wide.recompile()
    return wide


@contextlib.contextmanager
def _caches_off() -> Iterator[None]:
    """Cached code would not show its buffers, and ours is not for others."""
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor

    with (
        inductor.patch(fx_graph_cache=False, fx_graph_remote_cache=False),
        functorch.patch(enable_autograd_cache=False),
        silence_torch(),
    ):
        yield
