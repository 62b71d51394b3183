"""The category of a node in `metadata.json`: inputs, outputs or intermediates."""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree


def output_names(program: ExportedProgram) -> set[str]:
    """What Apple's tools list as outputs: also the nodes with new values of buffers."""
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    return {leaf.name for leaf in pytree.tree_leaves(list(output.args)) if isinstance(leaf, Node)}


def category_of(node: Node, outputs: set[str]) -> str:
    """Where an entry of this node stands."""
    if node.op == "placeholder":
        return "inputs"
    return "outputs" if node.name in outputs else "intermediates"
