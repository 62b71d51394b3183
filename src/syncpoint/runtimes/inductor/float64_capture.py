"""Records the ops of a compiled model's graphs in float64."""

from __future__ import annotations

import torch

from syncpoint.run.model import Role
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.inductor.capture import GraphCall, Recording, Watched, place
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.ledger import Ledger


class Wide(Recording):
    """The ops of the graph in float64, beside an execution that gives what the model expects."""

    def __init__(self, watched: Watched, recorder: Recorder) -> None:
        super().__init__(watched, recorder)
        self._twins: dict[int, torch.Tensor] = {}
        """Memory of what a graph gave -> the same in float64, for the graphs that follow."""

    def record(self, call: GraphCall, ledger: Ledger) -> Tree:
        """Run the compiled code for its results, and record float64 values."""
        fed = {
            known.edge: self._twins.get(place(value), value)
            for known, value in call.arguments()
            if isinstance(value, torch.Tensor)
            and known.edge is not None
            and known.edge.role is not Role.PARAMETER
        }
        wide = self.watched.evaluator.run_all(call.program, fed, ledger)
        results = call.graph.plain(call.inputs)
        for value, (edge, twin) in zip(results, wide, strict=True):
            if edge is None or not isinstance(value, torch.Tensor):
                continue
            if isinstance(twin, torch.Tensor):
                self._twins[place(value)] = twin
                self.written(edge, value)
        self.computed["f64"] += 1
        return results

    def model_output(self, position: int, value: torch.Tensor, name: str) -> None:
        """Record a final output where it is one that a graph gave: Python code knows no twin."""
        if place(value) in self._twins:
            super().model_output(position, value, name)

    def final(self, value: torch.Tensor) -> torch.Tensor:
        """The twin of a final output."""
        return self._twins[place(value)].reshape(value.shape)
