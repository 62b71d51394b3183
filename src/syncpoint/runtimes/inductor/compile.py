"""Compile a model with torch.compile (plain, watched, unfused or op by op, caches off), and call a
listener for each of its graphs."""

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
from syncpoint.runtimes.inductor.codegen_hooks import (
    GeneratedGraph,
    HookEmitter,
    check_torch_internals,
    emit_hooks,
)
from syncpoint.runtimes.inductor.config import parse_inductor_config
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.silence import silence_torch


class CompiledGraph:
    """One graph of the model, called in place of its compiled code."""

    _boxed_call = True  # torch passes the inputs in a list, so that they can be freed

    def __init__(
        self,
        owner: Compilation,
        generated: GeneratedGraph,
        code: Callable[[list[Any]], Any],
        output_count: int | None,
    ) -> None:
        self._owner = owner
        self.generated = generated
        self.code = code
        self._output_count = output_count

    @property
    def module(self) -> GraphModule:
        """The graph that was lowered."""
        assert self.generated.module is not None
        return self.generated.module

    def run_plain(self, inputs: list[Any]) -> Tree:
        """Run the code and return the outputs of the graph, without extra outputs."""
        results = self.code(inputs)
        return results if self._output_count is None else results[: self._output_count]

    def __call__(self, inputs: list[Any]) -> Tree:
        """Run the graph; called by the code that torch generated around it."""
        return self._owner.on_graph_call(self, inputs)


class Listener(Protocol):
    """Listens to one execution of a compiled model."""

    def begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Called with the inputs of the model before it runs."""

    def on_graph_call(self, graph: CompiledGraph, inputs: list[Any]) -> Tree:
        """Called instead of a graph; returns the outputs of the graph."""


class Compilation:
    """The compiled form of a model; a listener can follow each call of its graphs."""

    _latest: ClassVar[int] = 0

    def __init__(self, model: nn.Module, options: Mapping[str, Any]) -> None:
        self.graphs: list[CompiledGraph] = []
        """Graphs that were called in the run without a listener, in that order."""
        self._listener: Listener | None = None
        self._options = options
        self._model = model
        # After too many recompilations torch runs code uncompiled; a reset prevents that.
        torch._dynamo.reset()
        Compilation._latest += 1
        self._number = Compilation._latest
        self.plain = self._compile(*self._plain_backend())
        """The model as a user would compile it, without hooks."""
        self._watched = self._compile(self._watched_backend())

    @property
    def is_valid(self) -> bool:
        """False once a later compilation exists: torch has dropped the code of this one."""
        return self._number == Compilation._latest

    def run(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], listener: Listener | None
    ) -> Tree:
        """Run the model; each call of a graph goes to the listener, which returns its outputs."""
        self._listener = listener
        if listener is None:
            self.graphs.clear()
        if listener is not None:
            listener.begin(args, kwargs)
        try:
            with _disable_caches():
                return self._watched(*args, **kwargs)
        finally:
            self._listener = None

    def on_graph_call(self, graph: CompiledGraph, inputs: list[Any]) -> Tree:
        """Run a graph that the code around it calls, or pass it to the listener."""
        if self._listener is None:
            if graph not in self.graphs:
                self.graphs.append(graph)
            return graph.run_plain(inputs)
        return self._listener.on_graph_call(graph, inputs)

    def _plain_backend(self) -> tuple[Any, dict[str, Any] | None]:
        backend = self._options["backend"]
        return backend, parse_inductor_config(self._options) if backend == "inductor" else None

    def _watched_backend(self) -> Callable[..., Any]:
        if self._options["backend"] == "aot_eager":
            return self._compile_op_by_op
        from torch._inductor.compile_fx import compile_fx

        inner: Any = self._compile_unfused
        if self._options["fusion"] != "unfused":
            check_torch_internals()
            inner = self._compile_watched
        return partial(
            compile_fx, inner_compile=inner, config_patches=parse_inductor_config(self._options)
        )

    def _compile(self, backend: Any, options: dict[str, Any] | None = None) -> Callable[..., Any]:
        dynamic = {"auto": None, "true": True, "false": False}[self._options["dynamic"]]
        fullgraph = self._options["fullgraph"]
        return torch.compile(
            self._model, backend=backend, fullgraph=fullgraph, dynamic=dynamic, options=options
        )

    def _compile_watched(self, module: GraphModule, examples: Any, **more: Any) -> CompiledGraph:
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx_inner

        if config.cpp_wrapper:
            raise Unsupported(
                "intermediate values cannot be recorded from code compiled with cpp_wrapper=true",
                cure="set cpp_wrapper=false",
            )
        emitter = HookEmitter()
        with emit_hooks(emitter):
            code = compile_fx_inner(module, examples, **more)
        if emitter.generated.module is None:
            emitter.generated.module = module  # the graph computes nothing
        return self._wrap_code(emitter.generated, code)

    def _compile_unfused(self, module: GraphModule, examples: Any, **more: Any) -> CompiledGraph:
        """Compile with every op as an output of the graph, so that each has its own memory."""
        from torch._inductor.compile_fx import compile_fx_inner

        widened = _output_all_nodes(module)
        more.pop("static_input_idxs", None)
        code = compile_fx_inner(widened, examples, **more)
        last = next(iter(reversed(module.graph.nodes)))
        return self._wrap_code(GeneratedGraph(module), code, len(last.args[0]))

    def _compile_op_by_op(self, module: GraphModule, examples: Any, **more: Any) -> Any:
        from torch._dynamo.backends.debugging import aot_eager

        def compiler(module: GraphModule, examples: Any, **more: Any) -> CompiledGraph:
            def code(inputs: list[Any]) -> Tree:
                values = list(inputs)
                inputs.clear()
                return module.forward(*values)

            return self._wrap_code(GeneratedGraph(module), code)

        return aot_eager(module, examples, fw_compiler=compiler)

    def _wrap_code(
        self, generated: GeneratedGraph, code: Callable[..., Any], output_count: int | None = None
    ) -> CompiledGraph:
        return CompiledGraph(self, generated, code, output_count)


def find_tensor_nodes(module: GraphModule) -> list[Any]:
    """The ops of a graph that return one tensor, in order."""
    return [
        node
        for node in module.graph.nodes
        if node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor)
    ]


def _output_all_nodes(module: GraphModule) -> GraphModule:
    widened = copy.deepcopy(module)
    last = next(iter(reversed(widened.graph.nodes)))
    extra = find_tensor_nodes(widened)
    last.args = ((*last.args[0], *extra),)
    widened.recompile()
    return widened


@contextlib.contextmanager
def _disable_caches() -> Iterator[None]:
    """Disable the caches of torch: cached code has no hooks, and ours must not be cached."""
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor

    with (
        inductor.patch(fx_graph_cache=False, fx_graph_remote_cache=False),
        functorch.patch(enable_autograd_cache=False),
        silence_torch(),
    ):
        yield
