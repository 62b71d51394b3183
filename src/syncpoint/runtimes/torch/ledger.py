"""What a capture has recorded so far, whichever way the model is run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.weak import WeakIdKeyDictionary

from syncpoint.errors import Unsupported
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import WHOLE, Edge, Op, OpKey, Role, TensorKey
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.torch.arrays import dtype_name, form_of, to_numpy
from syncpoint.runtimes.torch.program import Observed

_PARAMETERS: WeakKeyDictionary[RunWriter, set[Edge]] = WeakKeyDictionary()
"""Which parameters each run that is being written has already."""


class Ledger:
    """What one capture has recorded so far; shared by the graph and its sub-graphs."""

    def __init__(
        self, observed: Observed, recorder: Recorder | None, follows: bool = False
    ) -> None:
        """Without a recorder only what is observed is kept.

        `follows` is whether tensors are followed into graphs inside the graph.
        """
        self.observed = observed
        self.recorder = recorder
        self.computed: Counter[str] = Counter()
        """Elements computed, by floating-point type: the precision that was really in effect."""
        self.made: WeakIdKeyDictionary = WeakIdKeyDictionary()
        """Live tensor -> the edge it is known by; for what passes through sub-graphs."""
        self._follows = follows
        self.rounds: Counter[str] = Counter()
        self._known: dict[Edge, tuple[TensorKey, int]] = {}
        """What was recorded, and where its memory is."""
        self._places: set[int] = set()
        """Where there has been memory of something recorded."""

    def tensor(
        self, edge: Edge, value: torch.Tensor, reads: tuple[Edge, ...] = (), name: str = ""
    ) -> None:
        """Record a tensor under its edge; `reads` are the tensors whose memory it may share."""
        storage = _storage(value)
        key = self._write(edge, value, name, self._sharing(reads, storage))
        if key is not None:
            self._known[edge] = (key, storage)
            self._places.add(storage)
        if self._follows:
            self.made[value] = edge
        if value.requires_grad:
            self.observed.learns.add(edge)
        if self.observed.keeps_forms:
            self.observed.forms[edge] = form_of(value)

    def op(self, op: Op) -> OpKey:
        """Record an op and get its key."""
        return op.key if self.recorder is None else self.recorder.op(op)

    def results(self, key: OpKey, values: Sequence[Any], reads: tuple[Edge, ...]) -> None:
        """Record what an op gave; its outputs are counted flattened, and only tensors kept."""
        for index, value in enumerate(values):
            if not isinstance(value, torch.Tensor):
                continue
            self.tensor(Edge(key, index), value, reads)
            if value.is_floating_point():
                self.computed[dtype_name(value.dtype)] += value.numel()

    def note(self, text: str) -> None:
        """Say what a reader of the results must know."""
        if self.recorder is not None:
            self.recorder.note(text)

    def parameter(self, edge: Edge, value: torch.Tensor) -> None:
        """Record a parameter; of each run once, whatever the number of its parts."""
        if self.recorder is not None:
            recorded = _PARAMETERS.setdefault(self.recorder.writer, set())
            if edge not in recorded:
                recorded.add(edge)
                whole = self.recorder.for_part(WHOLE)
                self._write(edge, value, "", "", whole)
        storage = _storage(value)
        self._known[edge] = (TensorKey(edge.op, edge.role, edge.index, WHOLE), storage)
        self._places.add(storage)
        if self._follows:
            self.made[value] = edge

    def model_output(self, edge: Edge, position: int, value: torch.Tensor, name: str) -> None:
        """Record a final output; the same values as those of the tensor at `edge`."""
        known = self._known.get(edge)
        alias = str(known[0]) if known is not None else ""
        self._write(Edge(edge.op, position, Role.MODEL_OUTPUT), value, name, alias)

    def state(self, name: str, made_by: Edge | None, value: torch.Tensor) -> None:
        """Record what a buffer holds afterwards; the values of the tensor at `made_by`."""
        known = self._known.get(made_by) if made_by is not None else None
        alias = str(known[0]) if known is not None else ""
        self._write(Edge(OpKey(name), role=Role.STATE), value, "", alias)

    def _sharing(self, reads: tuple[Edge, ...], storage: int) -> str:
        """The tensor among those read whose memory this is."""
        if storage in self._places and storage:
            for read in reads:
                known = self._known.get(read)
                if known is not None and known[1] == storage:
                    return str(known[0])
        return ""

    def _write(
        self,
        edge: Edge,
        value: torch.Tensor,
        name: str,
        alias: str,
        recorder: Recorder | None = None,
    ) -> TensorKey | None:
        recorder = recorder or self.recorder
        if recorder is None:
            return None
        try:
            array = to_numpy(value)
        except Unsupported as error:
            self.note(f"{edge.op} {edge.role} {edge.index} was not recorded: {error}")
            return None
        known = dtype_name(value.dtype)
        return recorder.tensor(
            edge.op,
            array,
            role=edge.role,
            index=edge.index,
            dtype=known if known in DTYPES else None,
            name=name,
            strides=tuple(value.stride()) if value.layout is torch.strided else None,
            device=str(value.device),
            requires_grad=value.requires_grad,
            alias_of=alias,
        )


def _storage(value: torch.Tensor) -> int:
    try:
        return value.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return 0
