"""The category of a node in `metadata.json`: inputs, outputs or intermediates."""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree


def list_output_names(program: ExportedProgram) -> set[str]:
    """List the nodes that Apple's tools call outputs: also those with new values of buffers."""
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    return {leaf.name for leaf in pytree.tree_leaves(list(output.args)) if isinstance(leaf, Node)}


def categorize_node(node: Node, outputs: set[str]) -> str:
    """Return the category of a node's entry."""
    if node.op == "placeholder":
        return "inputs"
    return "outputs" if node.name in outputs else "intermediates"
