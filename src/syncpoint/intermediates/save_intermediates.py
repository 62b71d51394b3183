"""`save_intermediates`: runs an exported program and writes its values for Apple's tools; checks
the inputs.

With a filter, the folder is equal to the byte to that of Apple's function of this name. Without
one it is complete: it has every tensor of every node, under the names of Apple's function, and
what a run of ours knows of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from syncpoint.dumps.aimodelintermediates.save_folder import SUFFIX, IntermediatesWriter
from syncpoint.dumps.aimodelintermediates.syncpoint_keys import make_run_facts
from syncpoint.errors import InputError
from syncpoint.intermediates.coreai_mappings import read_mappings
from syncpoint.intermediates.run_nodes import run_nodes
from syncpoint.intermediates.write_tensors import (
    AllTensorsWriter,
    FilteredTensorsWriter,
    NodeFilter,
    list_output_names,
)
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
    """Run a program and write the values of its nodes; returns the path of metadata.json."""
    if not isinstance(program, ExportedProgram):
        raise InputError(
            f"the program must be an exported program, not a {type(program).__qualname__}",
            cure="pass what torch.export.export returns",
        )
    checked_inputs = _check_inputs(program, inputs)
    folder = Path(output_dir) / f"{model_name}{SUFFIX}"
    with IntermediatesWriter(folder) as writer:
        mappings = None if coreai_program is None else read_mappings(coreai_program)
        module = program.module()
        assert isinstance(module, GraphModule)
        output_names = list_output_names(program)
        if node_filter is not None:
            selected_tensors = FilteredTensorsWriter(writer, output_names, node_filter)
            run_nodes(program, module, checked_inputs, enable_autocast, selected_tensors, folder)
            return str(writer.finish(mappings))
        all_tensors = AllTensorsWriter(writer, output_names, program, module)
        run_nodes(program, module, checked_inputs, enable_autocast, all_tensors, folder)
        all_tensors.write_states()
        info = RunInfo(
            model=model_name,
            runtime="torch",
            runtime_version=torch.__version__,
            options={"autocast": True} if enable_autocast else {},
            device="+".join(sorted(all_tensors.devices)),
            notes=tuple(all_tensors.notes),
        )
        return str(writer.finish(mappings, make_run_facts(info)))


def _check_inputs(program: ExportedProgram, inputs: object) -> tuple[Any, ...]:
    """Check that the inputs are a sequence of as many tensors as the program takes."""
    if not isinstance(inputs, tuple | list):
        raise InputError(
            f"the inputs must be a tuple or list, not a {type(inputs).__qualname__}",
            cure="pass positional inputs first, then the keyword inputs",
        )
    expected_count = program.call_spec.in_spec.num_leaves
    leaves = pytree.tree_leaves(tuple(inputs))
    if len(leaves) != expected_count:
        raise InputError(
            f"the program takes {expected_count} inputs, but {len(leaves)} were passed",
            cure="pass positional inputs first, then the keyword inputs",
        )
    return tuple(inputs)
