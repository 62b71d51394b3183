"""Runs an exported program one node after the other and leaves it as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

from syncpoint.errors import CaptureError, SyncpointError, describe_error
from syncpoint.runtimes.torch.in_place_writes import mutates
from syncpoint.runtimes.torch.node_metadata import frames

Take = Callable[[Node, Any, Mapping[Node, Any]], None]
"""Takes a node, what it gave, and the values that are at hand."""


def walk(
    program: ExportedProgram,
    module: GraphModule,
    inputs: tuple[Any, ...],
    autocast: bool,
    take: Take,
) -> None:
    """Run the program; every node is taken right after it ran, before anything can write to
    its tensors."""
    walker = _Walker(module, take)
    given = _own_memory(program, module, inputs)
    with torch.autocast("cpu") if autocast else nullcontext():
        try:
            walker.run(given)
        except SyncpointError:
            raise
        except OSError as error:
            raise CaptureError("room for the intermediates", describe_error(error)) from error
        except Exception as error:
            node = walker.node
            stack = frames(node) if node is not None else ()
            place = f" in {node.name} ({node.target})" if node is not None else ""
            place += f" at {stack[-1]}" if stack else ""
            raise CaptureError(
                "the program to run on these inputs",
                f"it raised {describe_error(error)[:300]}{place}",
            ) from error


class _Walker(Interpreter):
    def __init__(self, module: GraphModule, take: Take) -> None:
        super().__init__(module)
        self.extra_traceback = False
        self.node: Node | None = None
        """The one that runs, for messages."""
        self._take = take

    def run_node(self, n: Node) -> Any:
        """Execute a node and have its result taken."""
        self.node = n
        result = super().run_node(n)
        self._take(n, result, self.env)
        return result

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as Apple's tools compute with them."""
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        args = tuple(unpacked(value) for value in args)
        kwargs = {name: unpacked(value) for name, value in kwargs.items()}
        if n.op == "call_function" and str(n.target).startswith("aten.view"):
            # A program may have been exported with other strides than the values have here.
            args, kwargs = pytree.tree_map_only(
                torch.Tensor, lambda t: t.contiguous(), (args, kwargs)
            )
        return args, kwargs


def unpacked(value: Any) -> Any:
    """Weights that coreai-opt packs into parts of bytes, as ordinary tensors."""
    if isinstance(value, torch.Tensor) and hasattr(value, "unpack_func"):
        return value.unpack_func(value.elem, value.tensor_shape, value.nbits)  # type: ignore[attr-defined]
    return value


def _own_memory(
    program: ExportedProgram, module: GraphModule, inputs: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Give a module that writes to its buffers or inputs copies of them, so that the program and
    the caller's tensors stay as they are; the inputs to run it with."""
    signature = program.graph_signature
    writes = any(
        mutates(node)
        for inner in module.modules()
        if isinstance(inner, GraphModule)
        for node in inner.graph.nodes
    )
    if not writes and not signature.buffers_to_mutate and not signature.user_inputs_to_mutate:
        return inputs
    copies: dict[int, torch.Tensor] = {}

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        # One tensor under two names stays one.
        if id(tensor) not in copies:
            fresh = tensor.detach().clone()
            copies[id(tensor)] = fresh.requires_grad_(tensor.requires_grad and tensor.is_leaf)
        return copies[id(tensor)]

    for inner in module.modules():
        for name, buffer in inner._buffers.items():
            if buffer is not None:
                inner._buffers[name] = copied(buffer)
    given: tuple[Any, ...] = pytree.tree_map_only(torch.Tensor, copied, inputs)
    return given
