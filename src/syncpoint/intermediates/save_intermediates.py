"""The public `save_intermediates`.

With a filter the folder is to the byte the one that Apple's function of this name writes. With
none it is complete: every tensor of every node, under the names that Apple's has and with what a
run of ours knows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from syncpoint.dumps.aimodelintermediates.syncpoint_keys import run_facts
from syncpoint.dumps.aimodelintermediates.folder_writer import SUFFIX, IntermediatesWriter
from syncpoint.errors import CaptureError, InputError
from syncpoint.files.safe_access import one_line
from syncpoint.intermediates.all_tensors import Complete
from syncpoint.intermediates.coreai_mappings import mappings_of
from syncpoint.intermediates.run_nodes import category_of, output_names, walk
from syncpoint.run.model import RunInfo

NodeFilter = Callable[[Node, Any], bool]


def save_intermediates(
    program: ExportedProgram,
    inputs: tuple[Any, ...] | list[Any],
    output_dir: str | Path,
    node_filter: NodeFilter | None = None,
    coreai_program: Any = None,
    enable_autocast: bool = False,
    model_name: str = "main",
) -> str:
    """Run a program and write what each node gives; the path of metadata.json."""
    if not isinstance(program, ExportedProgram):
        raise InputError(
            "an exported program",
            f"a {type(program).__qualname__}",
            "give what torch.export.export returns",
        )
    given = _checked(program, inputs)
    with IntermediatesWriter(Path(output_dir) / f"{model_name}{SUFFIX}") as writer:
        mappings = None if coreai_program is None else mappings_of(coreai_program)
        module = program.module()
        assert isinstance(module, GraphModule)
        listed = output_names(program)
        if node_filter is not None:
            walk(program, module, given, enable_autocast, Filtered(writer, listed, node_filter))
            return str(writer.finish(mappings))
        complete = Complete(writer, listed, program, module)
        walk(program, module, given, enable_autocast, complete)
        complete.states()
        info = RunInfo(
            model=model_name,
            runtime="torch",
            runtime_version=torch.__version__,
            options={"autocast": True} if enable_autocast else {},
            device="+".join(sorted(complete.devices)),
            notes=tuple(complete.notes),
        )
        return str(writer.finish(mappings, run_facts(info)))


class Filtered:
    """Writes the tensors that a filter lets pass, as Apple's function does."""

    def __init__(self, writer: IntermediatesWriter, listed: set[str], passes: NodeFilter) -> None:
        self._writer = writer
        self._listed = listed
        self._passes = passes

    def __call__(self, node: Node, result: object, _: object) -> None:
        """Take what a node gave."""
        try:
            passes = self._passes(node, result)
        except Exception as error:
            raise CaptureError(
                f"node_filter to judge the node {node.name}", f"it raised {one_line(error)}"
            ) from error
        if not passes or not isinstance(result, torch.Tensor):
            return
        file = ""
        try:
            tensor = (result.dequantize() if result.is_quantized else result).detach().cpu()
            file = self._writer.reserve(node.name)
            if tensor.dtype is torch.bfloat16:
                tensor = tensor.to(torch.float32)
            array = tensor.numpy()
        except Exception:
            # What NumPy cannot hold is left out there too, and its number stays unused.
            return
        self._writer.array(file, array)
        self._writer.entry(
            category_of(node, self._listed),
            node.name,
            node.op,
            str(node.target),
            file,
            array.shape,
            str(tensor.dtype),
        )


def _checked(program: ExportedProgram, inputs: object) -> tuple[Any, ...]:
    """The inputs by position, those with names behind; as many as the program takes."""
    if not isinstance(inputs, tuple | list):
        raise InputError(
            "a tuple or list of inputs, those with names at its end",
            f"a {type(inputs).__qualname__}",
        )
    wanted = program.call_spec.in_spec.num_leaves
    leaves = pytree.tree_leaves(tuple(inputs))
    if len(leaves) != wanted:
        raise InputError(f"{wanted} inputs", f"{len(leaves)}", "give those with names at the end")
    return tuple(inputs)
