"""Patch inductor's code generation so that compiled code shows every buffer, fusion unchanged;
which buffers a kernel reads and writes.

PyTorch has a hook for intermediate values (`generate_intermediate_hooks`), but on the CPU only few
extern kernels call it. Here each kernel gets such a call in the wrapper code, after its own call,
so that neither fusion nor memory planning changes. The patched functions are private to torch. So
they are checked before use; a version without them is refused with a message that names the
alternatives.
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

_FALLBACK_CURE = "use --set backend=aot_eager or --set fusion=unfused"


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """A buffer in memory that generated code writes."""

    name: str
    kernel: str
    """The function that wrote it: `cpp_fused_relu_view_4`, `extern_kernels.addmm`."""
    origin: str
    """The node whose value it holds, according to inductor; "" where unknown."""
    origins: tuple[str, ...]
    """Nodes that contribute to its value, also those that other kernels compute."""
    computes: tuple[str, ...]
    """Nodes that its kernel computes, according to inductor."""
    reads: tuple[str, ...]
    """Buffers and graph inputs that it is computed from, also buffers of the same kernel."""


@dataclass
class GeneratedGraph:
    """One graph after compilation: the lowered graph and its buffers."""

    module: GraphModule | None = None
    """The graph that was lowered, after all passes."""
    buffers: dict[str, Buffer] = field(default_factory=dict)


class HookEmitter:
    """Adds hook calls while code is generated, and stores the buffers they show."""

    def __init__(self) -> None:
        self.generated = GeneratedGraph()

    def emit(
        self,
        wrapper: Any,
        name: str,
        kernel: str,
        reads: tuple[str, ...],
        writes: tuple[str, ...] = (),
    ) -> None:
        """Add a call that shows the buffer `name`, after the line that fills it.

        `writes` are all buffers of a fused kernel, with those that exist only inside it.
        """
        from torch._inductor.virtualized import V

        graph: Any = V.graph
        if self.generated.module is None:
            self.generated.module = graph.module
        elif self.generated.module is not graph.module:
            return  # a sub-graph, whose buffers have other names
        buffer = graph.try_get_buffer(name)
        origin = buffer.get_origin_node() if buffer is not None else None
        computed_names = {
            n for written in writes for n in _origin_names(graph.try_get_buffer(written))
        }
        position_by_name = {node.name: i for i, node in enumerate(graph.module.graph.nodes)}

        def in_order(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(sorted(names, key=lambda n: position_by_name.get(n, -1)))

        self.generated.buffers[name] = Buffer(
            name=name,
            kernel=kernel,
            origin=origin.name if isinstance(origin, Node) else "",
            origins=in_order(_origin_names(buffer)),
            computes=in_order(computed_names),
            reads=_find_shown_reads(graph, reads),
        )
        wrapper.writeline(f"run_intermediate_hooks({name!r}, {name})")


@contextlib.contextmanager
def emit_hooks(emitter: HookEmitter) -> Iterator[None]:
    """Patch inductor: code generated in this context shows its buffers to the hook."""
    from torch._inductor.codegen import cpp, cpp_template_kernel, wrapper
    from torch._inductor.ir import Layout, MutationLayoutSHOULDREMOVE

    python_wrapper = wrapper.PythonWrapperCodegen

    def wrap_fused_kernel(original: Callable[..., Any]) -> Callable[..., Any]:
        def call_kernel(self: Any, wrapper: Any, kernel_name: str, *more: Any) -> Any:
            return_value = original(self, wrapper, kernel_name, *more)
            writes = _find_written_buffers(self.args)
            for name, reads in _find_reads_by_buffer(self.args).items():
                emitter.emit(wrapper, name, kernel_name, reads, writes)
            return return_value

        return call_kernel

    def wrap_template_kernel(original: Callable[..., Any]) -> Callable[..., Any]:
        def call_kernel(self: Any, name: str, node: Any) -> Any:
            from torch._inductor.virtualized import V

            return_value = original(self, name, node)
            writes = _find_written_buffers(self.args)
            for out, reads in _find_reads_by_buffer(self.args).items():
                emitter.emit(V.graph.wrapper_code, out, name, reads, writes)
            return return_value

        return call_kernel

    def wrap_extern_out(original: Callable[..., Any]) -> Callable[..., Any]:
        def helper(self: Any, kernel: str, out: str, *more: Any, **named: Any) -> Any:
            from torch._inductor.virtualized import V

            return_value = original(self, kernel, out, *more, **named)
            emitter.emit(self, out, kernel, _find_extern_reads(V.graph.try_get_buffer(out)))
            return return_value

        return helper

    def wrap_extern_alloc(original: Callable[..., Any]) -> Callable[..., Any]:
        def helper(self: Any, extern_kernel: Any, args: Any) -> Any:
            return_value = original(self, extern_kernel, args)
            layout = extern_kernel.layout
            writes_elsewhere = isinstance(layout, MutationLayoutSHOULDREMOVE)
            if isinstance(layout, Layout) and not writes_elsewhere:
                kernel = str(extern_kernel.get_kernel_name())
                emitter.emit(
                    self, extern_kernel.get_name(), kernel, _find_extern_reads(extern_kernel)
                )
            return return_value

        return helper

    def wrap_multi_output(original: Callable[..., Any]) -> Callable[..., Any]:
        def multi_output(self: Any, node: Any) -> Any:
            return_value = original(self, node)
            maker = node.inputs[0]
            if isinstance(node.layout, Layout) and hasattr(maker, "get_kernel_name"):
                kernel = str(maker.get_kernel_name())
                emitter.emit(self, node.get_name(), kernel, _find_extern_reads(maker))
            return return_value

        return multi_output

    patches: list[tuple[type, str, Callable[..., Any]]] = [
        (cpp.KernelGroup, "call_kernel", wrap_fused_kernel),
        (cpp_template_kernel.CppTemplateKernel, "call_kernel", wrap_template_kernel),
        (python_wrapper, "_generate_extern_kernel_out_helper", wrap_extern_out),
        (python_wrapper, "_generate_extern_kernel_alloc_helper", wrap_extern_alloc),
        (python_wrapper, "codegen_multi_output", wrap_multi_output),
    ]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    try:
        for owner, name, wrap in patches:
            setattr(owner, name, wrap(getattr(owner, name)))
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


_REQUIRED_INTERNALS = (
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
    ("torch._inductor.ir", "Buffer.get_read_names", ()),
    ("torch._inductor.ir", "NopKernel", ()),
    ("torch._inductor.codegen.common", "Kernel.remove_inplace_buffer", ("name",)),
    ("torch._inductor.hooks", "intermediate_hook", ("fn",)),
    ("torch._inductor.compile_fx", "compile_fx", ("model_", "example_inputs_", "inner_compile")),
    ("torch._inductor.compile_fx", "compile_fx_inner", ()),
)
"""Functions of torch that the capture uses, and the first parameters they must have."""


def check_torch_internals() -> None:
    """Raise Unsupported if this torch lacks what the capture of compiled code needs."""
    import importlib

    # The modules import each other in circles; importing this one first works.
    importlib.import_module("torch._inductor.compile_fx")
    for module, path, parameters in _REQUIRED_INTERNALS:
        try:
            target: Any = importlib.import_module(module)
            for name in path.split("."):
                target = getattr(target, name)
        except (ImportError, AttributeError):
            raise _unsupported_torch(f"no {module}.{path}") from None
        if not parameters:
            continue
        parameter_names = [p for p in inspect.signature(target).parameters if p != "self"]
        if tuple(parameter_names[: len(parameters)]) != parameters:
            raise _unsupported_torch(f"{module}.{path} takes {', '.join(parameter_names)}")


def _unsupported_torch(difference: str) -> Unsupported:
    return Unsupported(
        "values inside compiled code cannot be recorded with this version of torch"
        f" ({torch.__version__} instead of 2.13): {difference}",
        cure=_FALLBACK_CURE,
    )


def _find_filled_buffers(args: Any) -> list[str]:
    """The buffers that exist after a fused kernel.

    A buffer that was to be written in place and exists only inside the kernel is not written: its
    memory still holds the old value.
    """
    from torch._inductor.virtualized import V

    graph: Any = V.graph
    removed_names = {*graph.removed_buffers, *graph.inplaced_to_remove}
    return [name for name in args.live_output_buffers() if name not in removed_names]


def _find_read_buffers(args: Any) -> tuple[str, ...]:
    """The buffers and graph inputs that a fused kernel reads, with those written in place."""
    names = dict.fromkeys(args.input_buffers)
    for inplaced in args.inplace_buffers.values():
        inplaced_names = getattr(inplaced, "other_names", None)
        if inplaced_names:
            names[inplaced_names[0]] = None
    return tuple(names)


def _find_written_buffers(args: Any) -> tuple[str, ...]:
    """All buffers that a fused kernel fills, with those that exist only inside it."""
    names = dict.fromkeys(args.output_buffers)
    for inplaced in args.inplace_buffers.values():
        names.update(dict.fromkeys(getattr(inplaced, "other_names", ())[1:]))
    return tuple(names)


def _find_shown_reads(graph: Any, reads: tuple[str, ...]) -> tuple[str, ...]:
    """The reads of a kernel, with memory that no kernel fills as a whole replaced by what lies in
    it: the parts of a concatenation. Such memory is never shown."""
    from torch._inductor.ir import NopKernel

    shown: dict[str, None] = {}
    waiting, visited = list(reversed(reads)), set(reads)
    while waiting:
        name = waiting.pop()
        buffer = graph.name_to_buffer.get(name)
        if not isinstance(buffer, NopKernel):
            shown[name] = None
            continue
        parts = [part for part in _find_extern_reads(buffer) if part not in visited]
        visited.update(parts)
        waiting += reversed(parts)
    return tuple(shown)


def _find_reads_by_buffer(args: Any) -> dict[str, tuple[str, ...]]:
    """The buffers that exist after a fused kernel, each after those that it is computed from, and
    the buffers and graph inputs that each is computed from.

    These may be buffers of the same kernel: the variance of a norm and what the norm returns.
    Buffers that exist only inside the kernel are passed through. What the kernel reads for none of
    its buffers, as far as they tell, counts as read for each.
    """
    from torch._inductor.virtualized import V

    graph: Any = V.graph
    order = {name: position for position, name in enumerate(graph.name_to_buffer)}
    filled = sorted(_find_filled_buffers(args), key=lambda name: order.get(name, -1))
    written = _find_written_buffers(args)
    kernel_reads = [name for name in _find_read_buffers(args) if name not in written]
    reads_by_buffer = {
        name: _find_reads_through(graph, name, {*filled, *kernel_reads}) for name in filled
    }
    attributed = {read for reads in reads_by_buffer.values() for read in reads}
    unclear = [read for read in kernel_reads if read not in attributed]
    return {name: (*reads, *unclear) for name, reads in reads_by_buffer.items()}


def _find_reads_through(graph: Any, name: str, visible_names: set[str]) -> tuple[str, ...]:
    """What a buffer is computed from, of what exists outside of its kernel; in the order in which
    the buffers were made."""
    waiting, visited = [name], {name}
    while waiting:
        for read in _read_names(graph.try_get_buffer(waiting.pop())) - visited:
            visited.add(read)
            if read not in visible_names:
                waiting.append(read)
    reads = (visited & visible_names) - {name}
    order = {buffer_name: position for position, buffer_name in enumerate(graph.name_to_buffer)}
    return tuple(sorted(reads, key=lambda read: (order.get(read, -1), read)))


def _read_names(buffer: Any) -> set[str]:
    """The names of the buffers and graph inputs that a buffer is computed from."""
    try:
        return set(buffer.get_read_names())
    except (AttributeError, NotImplementedError):
        return set()


def _origin_names(buffer: Any) -> set[str]:
    return {node.name for node in getattr(buffer, "origins", None) or ()}


def _find_extern_reads(kernel: Any) -> tuple[str, ...]:
    """The buffers and graph inputs that an extern kernel reads."""
    names: dict[str, None] = {}
    pending = list(getattr(kernel, "inputs", None) or ())
    for value in pending:
        if isinstance(value, (list, tuple)):
            pending.extend(value)
        else:
            with contextlib.suppress(AttributeError, NotImplementedError):
                names[value.get_name()] = None
    return tuple(names)
