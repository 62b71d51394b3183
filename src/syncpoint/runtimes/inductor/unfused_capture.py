"""Records each op of a compiled graph, run by eager kernels or by code that gives back every op."""

from __future__ import annotations

import torch

from syncpoint.run.model import Op, OpKey, Role
from syncpoint.runtimes.inductor.capture import GraphCall, Recording
from syncpoint.runtimes.inductor.compile import tensor_nodes
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.capture import Capture
from syncpoint.runtimes.torch.ledger import Ledger
from syncpoint.runtimes.torch.node_metadata import frames, module_of, type_of


class OpByOp(Recording):
    """The ops of the graph, one by one, by eager kernels."""

    def record(self, call: GraphCall, ledger: Ledger) -> Tree:
        """Interpret the graph."""
        fed = [
            value
            for known, value in call.arguments()
            if known.edge is None or known.edge.role is not Role.PARAMETER
        ]
        program = call.program
        assert program.module is not None
        capture = Capture(ledger, program, program.module, program.edges)
        results = capture.run(*fed, enable_io_processing=False)
        self.computed.update(ledger.computed)
        for edge, value in zip(capture.results, results, strict=True):
            if edge is not None and isinstance(value, torch.Tensor):
                self.written(edge, value)
        call.inputs.clear()
        return results


class Unfused(Recording):
    """Compiled code that gives back every op."""

    def record(self, call: GraphCall, ledger: Ledger) -> Tree:
        """Run the code, record what came on top, and give back what the graph itself gives."""
        program = call.program
        nodes = tensor_nodes(call.graph.module)
        results = list(call.graph.code(call.inputs))
        wanted = len(results) - len(nodes)
        copies = {node.name: node for node in program.graph.nodes}
        described: set[OpKey] = set()
        for node, value in zip(nodes, results[wanted:], strict=True):
            edge = program.edges.of(copies[node.name])
            if edge is None or edge.role is not Role.OUTPUT or edge in self._recorded:
                continue
            self._recorded.add(edge)
            maker = program.nodes[edge.op.op]
            reads = program.edges.inputs(maker)
            if edge.op not in described:
                described.add(edge.op)
                module, module_type = module_of(maker)
                self.recorder.op(
                    Op(
                        edge.op,
                        type_of(maker),
                        reads,
                        module=module,
                        module_type=module_type,
                        source=frames(maker),
                    )
                )
            ledger.tensor(edge, value, reads)
            self.count(value)
            self.written(edge, value)
        return results[:wanted]
