"""Makes inductor's generated code show every buffer it keeps, without changing what it fuses.

PyTorch has a hook for intermediate values (`generate_intermediate_hooks`), but on the CPU it is
emitted for few extern kernels only. The lines that call it are added here where the wrapper code
of any kernel is written: they come after the kernel's own call, so that neither fusion nor memory
planning sees them. These places are private to torch, so they are looked for before they are
used; what does not exist in another version is said, with the ways around it.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from syncpoint.errors import Unsupported

_FALLBACK = "use --set backend=aot_eager, or --set fusion=unfused, which need none of it"


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """A piece of memory that generated code keeps."""

    name: str
    kernel: str
    """The function that wrote it: `cpp_fused_relu_view_4`, `extern_kernels.addmm`."""
    origin: str
    """The node whose value it holds as inductor says; "" where it says none."""
    origins: tuple[str, ...]
    """Nodes that went into its value, also those that other kernels computed."""
    computes: tuple[str, ...]
    """Nodes that its kernel computes, as far as inductor says."""
    reads: tuple[str, ...]
    """Buffers and graph inputs that its kernel reads."""


@dataclass
class Generated:
    """What is known of one graph after it was compiled."""

    module: GraphModule | None = None
    """The graph that was lowered, after all passes."""
    buffers: dict[str, Buffer] = field(default_factory=dict)


class Emitter:
    """Adds the calls while code is generated, and keeps what they stand for."""

    def __init__(self) -> None:
        self.generated = Generated()

    def emit(
        self,
        wrapper: Any,
        name: str,
        kernel: str,
        reads: tuple[str, ...],
        writes: tuple[str, ...] = (),
    ) -> None:
        """Add a call that shows `name`, after the line that fills it. `writes` are all buffers
        of a fused kernel, those too that live in it alone."""
        from torch._inductor.virtualized import V

        graph: Any = V.graph
        if self.generated.module is None:
            self.generated.module = graph.module
        elif self.generated.module is not graph.module:
            return  # a sub-graph: its buffers have names of their own
        buffer = graph.try_get_buffer(name)
        origin = buffer.get_origin_node() if buffer is not None else None
        inside = {n for written in writes for n in _origins(graph.try_get_buffer(written))}
        ordered = {node.name: i for i, node in enumerate(graph.module.graph.nodes)}

        def in_order(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(sorted(names, key=lambda n: ordered.get(n, -1)))

        self.generated.buffers[name] = Buffer(
            name=name,
            kernel=kernel,
            origin=origin.name if isinstance(origin, Node) else "",
            origins=in_order(_origins(buffer)),
            computes=in_order(inside),
            reads=reads,
        )
        wrapper.writeline(f"run_intermediate_hooks({name!r}, {name})")


@contextlib.contextmanager
def emitting(emitter: Emitter) -> Iterator[None]:
    """While this is open, what inductor generates shows its buffers to the intermediate hook."""
    from torch._inductor.codegen import cpp, cpp_template_kernel, wrapper
    from torch._inductor.ir import Layout, MutationLayoutSHOULDREMOVE

    python_wrapper = wrapper.PythonWrapperCodegen

    def fused(original: Callable[..., Any]) -> Callable[..., Any]:
        def call_kernel(self: Any, wrapper: Any, kernel_name: str, *more: Any) -> Any:
            result = original(self, wrapper, kernel_name, *more)
            reads, writes = _reads(self.args), _writes(self.args)
            for name in _filled(self.args):
                emitter.emit(wrapper, name, kernel_name, reads, writes)
            return result

        return call_kernel

    def template(original: Callable[..., Any]) -> Callable[..., Any]:
        def call_kernel(self: Any, name: str, node: Any) -> Any:
            from torch._inductor.virtualized import V

            result = original(self, name, node)
            for out in _filled(self.args):
                reads, writes = _reads(self.args), _writes(self.args)
                emitter.emit(V.graph.wrapper_code, out, name, reads, writes)
            return result

        return call_kernel

    def out(original: Callable[..., Any]) -> Callable[..., Any]:
        def helper(self: Any, kernel: str, out: str, *more: Any, **named: Any) -> Any:
            from torch._inductor.virtualized import V

            result = original(self, kernel, out, *more, **named)
            emitter.emit(self, out, kernel, _names_read(V.graph.try_get_buffer(out)))
            return result

        return helper

    def alloc(original: Callable[..., Any]) -> Callable[..., Any]:
        def helper(self: Any, extern_kernel: Any, args: Any) -> Any:
            result = original(self, extern_kernel, args)
            layout = extern_kernel.layout
            writes_elsewhere = isinstance(layout, MutationLayoutSHOULDREMOVE)
            if isinstance(layout, Layout) and not writes_elsewhere:
                kernel = str(extern_kernel.get_kernel_name())
                emitter.emit(self, extern_kernel.get_name(), kernel, _names_read(extern_kernel))
            return result

        return helper

    def several(original: Callable[..., Any]) -> Callable[..., Any]:
        def multi_output(self: Any, node: Any) -> Any:
            result = original(self, node)
            maker = node.inputs[0]
            if isinstance(node.layout, Layout) and hasattr(maker, "get_kernel_name"):
                kernel = str(maker.get_kernel_name())
                emitter.emit(self, node.get_name(), kernel, _names_read(maker))
            return result

        return multi_output

    places: list[tuple[type, str, Callable[..., Any]]] = [
        (cpp.KernelGroup, "call_kernel", fused),
        (cpp_template_kernel.CppTemplateKernel, "call_kernel", template),
        (python_wrapper, "_generate_extern_kernel_out_helper", out),
        (python_wrapper, "_generate_extern_kernel_alloc_helper", alloc),
        (python_wrapper, "codegen_multi_output", several),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    try:
        for owner, name, wrap in places:
            setattr(owner, name, wrap(getattr(owner, name)))
        yield
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)


_PLACES = (
    ("torch._inductor.codegen.cpp", "KernelGroup.call_kernel", ("wrapper", "kernel_name")),
    (
        "torch._inductor.codegen.cpp_template_kernel",
        "CppTemplateKernel.call_kernel",
        ("name", "node"),
    ),
    (
        "torch._inductor.codegen.wrapper",
        "PythonWrapperCodegen._generate_extern_kernel_out_helper",
        ("kernel", "out"),
    ),
    (
        "torch._inductor.codegen.wrapper",
        "PythonWrapperCodegen._generate_extern_kernel_alloc_helper",
        ("extern_kernel", "args"),
    ),
    ("torch._inductor.codegen.wrapper", "PythonWrapperCodegen.codegen_multi_output", ("node",)),
    ("torch._inductor.codegen.common", "KernelArgs.live_output_buffers", ()),
    ("torch._inductor.graph", "GraphLowering.try_get_buffer", ("buffer_name",)),
    ("torch._inductor.codegen.common", "Kernel.remove_inplace_buffer", ("name",)),
    ("torch._inductor.hooks", "intermediate_hook", ("fn",)),
    ("torch._inductor.compile_fx", "compile_fx", ("model_", "example_inputs_", "inner_compile")),
    ("torch._inductor.compile_fx", "compile_fx_inner", ()),
)
"""Where in torch something is taken hold of, and what its parameters must begin with."""


def probe() -> None:
    """Raise if this torch is not made as the capture of compiled code needs it."""
    import importlib

    # Its modules import each other in circles; this one is a way in.
    importlib.import_module("torch._inductor.compile_fx")
    for module, path, parameters in _PLACES:
        try:
            found: Any = importlib.import_module(module)
            for name in path.split("."):
                found = getattr(found, name)
        except (ImportError, AttributeError):
            raise _unlike(f"no {module}.{path}") from None
        if not parameters:
            continue
        known = [p for p in inspect.signature(found).parameters if p != "self"]
        if tuple(known[: len(parameters)]) != parameters:
            raise _unlike(f"{module}.{path} takes {', '.join(known)}")


def _unlike(found: str) -> Unsupported:
    return Unsupported(
        "a torch whose inductor can be watched, such as 2.13",
        f"torch {torch.__version__}: {found}",
        _FALLBACK,
    )


def _filled(args: Any) -> list[str]:
    """The buffers that a fused kernel leaves behind. One that was to be written in place and lives
    in the kernel alone is not written: its memory still holds what was there before."""
    from torch._inductor.virtualized import V

    graph: Any = V.graph
    gone = {*graph.removed_buffers, *graph.inplaced_to_remove}
    return [name for name in args.live_output_buffers() if name not in gone]


def _reads(args: Any) -> tuple[str, ...]:
    """The buffers and graph inputs that a fused kernel is given, written ones included."""
    found = dict.fromkeys(args.input_buffers)
    for inplaced in args.inplace_buffers.values():
        names = getattr(inplaced, "other_names", None)
        if names:
            found[names[0]] = None
    return tuple(found)


def _writes(args: Any) -> tuple[str, ...]:
    """All buffers that a fused kernel fills, those too that never leave it."""
    found = dict.fromkeys(args.output_buffers)
    for inplaced in args.inplace_buffers.values():
        found.update(dict.fromkeys(getattr(inplaced, "other_names", ())[1:]))
    return tuple(found)


def _origins(buffer: Any) -> set[str]:
    return {node.name for node in getattr(buffer, "origins", None) or ()}


def _names_read(kernel: Any) -> tuple[str, ...]:
    """The buffers and graph inputs that an extern kernel is given."""
    found: dict[str, None] = {}
    waiting = list(getattr(kernel, "inputs", None) or ())
    for value in waiting:
        if isinstance(value, (list, tuple)):
            waiting.extend(value)
        else:
            with contextlib.suppress(AttributeError, NotImplementedError):
                found[value.get_name()] = None
    return tuple(found)
