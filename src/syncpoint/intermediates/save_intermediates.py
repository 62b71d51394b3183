"""The public `save_intermediates`.

With a filter the folder is to the byte the one that Apple's function of this name writes. With
none it is complete: every tensor of every node, under the names that Apple's has and with what a
run of ours knows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from syncpoint.dumps.aimodelintermediates.folder_writer import SUFFIX, IntermediatesWriter
from syncpoint.dumps.aimodelintermediates.syncpoint_keys import run_facts
from syncpoint.errors import InputError
from syncpoint.intermediates.all_tensors import Complete
from syncpoint.intermediates.categories import output_names
from syncpoint.intermediates.coreai_mappings import mappings_of
from syncpoint.intermediates.filtered_tensors import Filtered, NodeFilter
from syncpoint.intermediates.run_nodes import walk
from syncpoint.run.model import RunInfo


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
