"""Run an exported program node by node (FX interpreter) with a callback after each, on copies of
what it would change; paths of inputs; unpack weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

from syncpoint.errors import CaptureError, SyncpointError, describe_error
from syncpoint.runtimes.torch.in_place_writes import is_in_place
from syncpoint.runtimes.torch.node_metadata import find_source_frames
from syncpoint.runtimes.torch.tree_paths import input_path

NodeCallback = Callable[[Node, Any, Mapping[Node, Any]], None]
"""Called with a node, its result, and the values of the nodes before it."""


def run_nodes(
    program: ExportedProgram,
    module: GraphModule,
    inputs: tuple[Any, ...],
    autocast: bool,
    callback: NodeCallback,
    folder: Path,
) -> None:
    """Run the program; `callback` is called after each node, before anything can write to its
    tensors. Errors name `folder`, which the callback writes to."""
    runner = _NodeRunner(module, callback)
    own_inputs = _copy_mutated_memory(program, module, inputs)
    with torch.autocast("cpu") if autocast else nullcontext():
        try:
            runner.run(own_inputs)
        except SyncpointError:
            raise
        except OSError as error:
            raise CaptureError(
                f"cannot write the intermediates to {folder}: {describe_error(error)}",
                cure="free disk space, or choose another folder",
            ) from error
        except Exception as error:
            node = runner.node
            stack = find_source_frames(node) if node is not None else ()
            place = f" in {node.name} ({node.target})" if node is not None else ""
            place += f" at {stack[-1]}" if stack else ""
            raise CaptureError(
                f"the program failed on these inputs: {describe_error(error)[:300]}{place}",
                cure="check the shapes, types and values of the inputs",
            ) from error


class _NodeRunner(Interpreter):
    def __init__(self, module: GraphModule, callback: NodeCallback) -> None:
        super().__init__(module)
        self.extra_traceback = False
        self.node: Node | None = None
        """The node that is running, for messages."""
        self._callback = callback

    def run_node(self, n: Node) -> Any:
        """Execute a node and call the callback with its value."""
        self.node = n
        value = super().run_node(n)
        self._callback(n, value, self.env)
        return value

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Fetch the arguments in the form that Apple's tools compute with."""
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        args = tuple(unpack_weight(value) for value in args)
        kwargs = {name: unpack_weight(value) for name, value in kwargs.items()}
        if n.op == "call_function" and str(n.target).startswith("aten.view"):
            # The program may have been exported with other strides than these values have.
            args, kwargs = pytree.tree_map_only(
                torch.Tensor, lambda t: t.contiguous(), (args, kwargs)
            )
        return args, kwargs


def unpack_weight(value: Any) -> Any:
    """Unpack a weight that coreai-opt packed below a byte; other values are returned as is."""
    if isinstance(value, torch.Tensor) and hasattr(value, "unpack_func"):
        return value.unpack_func(value.elem, value.tensor_shape, value.nbits)  # type: ignore[attr-defined]
    return value


def _copy_mutated_memory(
    program: ExportedProgram, module: GraphModule, inputs: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Replace the buffers of a module that writes to its memory by copies, and copy the inputs.

    So the program and the caller's tensors do not change. Returns the inputs to run it with.
    """
    signature = program.graph_signature
    mutates_memory = any(
        is_in_place(node)
        for inner in module.modules()
        if isinstance(inner, GraphModule)
        for node in inner.graph.nodes
    )
    if (
        not mutates_memory
        and not signature.buffers_to_mutate
        and not signature.user_inputs_to_mutate
    ):
        return inputs
    copies: dict[int, torch.Tensor] = {}

    def copy_once(tensor: torch.Tensor) -> torch.Tensor:
        # A tensor with two names gets one copy.
        if id(tensor) not in copies:
            clone = tensor.detach().clone()
            copies[id(tensor)] = clone.requires_grad_(tensor.requires_grad and tensor.is_leaf)
        return copies[id(tensor)]

    for inner in module.modules():
        for name, buffer in inner._buffers.items():
            if buffer is not None:
                inner._buffers[name] = copy_once(buffer)
    copied_inputs: tuple[Any, ...] = pytree.tree_map_only(torch.Tensor, copy_once, inputs)
    return copied_inputs


def input_paths_of_nodes(program: ExportedProgram, names: list[str]) -> dict[str, str]:
    """The paths of the inputs in the caller's arguments, by the names of their nodes."""
    spec = program.call_spec.in_spec
    signature = program.module_call_graph[0].signature
    argument_names = tuple(getattr(signature, "forward_arg_names", None) or ())
    positions = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    path_leaves, _ = pytree.tree_flatten_with_path(positions)
    paths = [input_path(path, argument_names) for path, _ in path_leaves]
    return dict(zip(names, paths, strict=False))
