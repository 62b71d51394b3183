"""The ledger of a capture: what was recorded so far, for all ways to run a model."""

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
from syncpoint.runtimes.torch.arrays import dtype_name, to_meta_tensor, to_numpy
from syncpoint.runtimes.torch.program import Observations

_RECORDED_PARAMETERS: WeakKeyDictionary[RunWriter, set[Edge]] = WeakKeyDictionary()
"""The parameters that each run being written already holds."""


class CaptureLedger:
    """What one capture has recorded so far; shared by a graph and its sub-graphs."""

    def __init__(
        self, observed: Observations, recorder: Recorder | None, tracks_subgraphs: bool = False
    ) -> None:
        """Without a recorder only observations are kept.

        `tracks_subgraphs` is whether tensors are followed into sub-graphs.
        """
        self.observed = observed
        self.recorder = recorder
        self.computed: Counter[str] = Counter()
        """Number of elements computed by floating-point dtype: the effective precision."""
        self.edge_by_tensor: WeakIdKeyDictionary = WeakIdKeyDictionary()
        """Live tensor -> its edge; for tensors that pass through sub-graphs."""
        self._tracks_subgraphs = tracks_subgraphs
        self.call_counts: Counter[str] = Counter()
        self._recorded: dict[Edge, tuple[TensorKey, int]] = {}
        """Edge -> the key it was recorded under, and the address of its memory."""
        self._storages: set[int] = set()
        """Addresses of all memory that held a recorded tensor."""

    def record_tensor(
        self, edge: Edge, value: torch.Tensor, reads: tuple[Edge, ...] = (), name: str = ""
    ) -> None:
        """Record a tensor under its edge; `reads` are the tensors whose memory it may share."""
        storage = _storage_address(value)
        key = self._write(edge, value, name, self._find_alias(reads, storage))
        if key is not None:
            self._recorded[edge] = (key, storage)
            self._storages.add(storage)
        if self._tracks_subgraphs:
            self.edge_by_tensor[value] = edge
        if value.requires_grad:
            self.observed.requires_grad.add(edge)
        if self.observed.keeps_meta_tensors:
            self.observed.meta_tensors[edge] = to_meta_tensor(value)

    def record_op(self, op: Op) -> OpKey:
        """Record an op and return its key."""
        return op.key if self.recorder is None else self.recorder.op(op)

    def record_outputs(self, key: OpKey, values: Sequence[Any], reads: tuple[Edge, ...]) -> None:
        """Record the flattened outputs of an op; only tensors are kept."""
        for index, value in enumerate(values):
            if not isinstance(value, torch.Tensor):
                continue
            self.record_tensor(Edge(key, index), value, reads)
            if value.is_floating_point():
                self.computed[dtype_name(value.dtype)] += value.numel()

    def note(self, text: str) -> None:
        """Add a note for the reader of the results."""
        if self.recorder is not None:
            self.recorder.note(text)

    def record_parameter(self, edge: Edge, value: torch.Tensor) -> None:
        """Record a parameter once per run, whatever the number of its parts."""
        if self.recorder is not None:
            recorded = _RECORDED_PARAMETERS.setdefault(self.recorder.writer, set())
            if edge not in recorded:
                recorded.add(edge)
                whole = self.recorder.for_part(WHOLE)
                self._write(edge, value, "", "", whole)
        storage = _storage_address(value)
        self._recorded[edge] = (TensorKey(edge.op, edge.role, edge.index, WHOLE), storage)
        self._storages.add(storage)
        if self._tracks_subgraphs:
            self.edge_by_tensor[value] = edge

    def record_model_output(
        self, edge: Edge, position: int, value: torch.Tensor, name: str
    ) -> None:
        """Record a final output, which has the values of the tensor at `edge`."""
        recorded = self._recorded.get(edge)
        alias = str(recorded[0]) if recorded is not None else ""
        self._write(Edge(edge.op, position, Role.MODEL_OUTPUT), value, name, alias)

    def record_state(self, name: str, made_by: Edge | None, value: torch.Tensor) -> None:
        """Record the new value of a buffer, which has the values of the tensor at `made_by`."""
        recorded = self._recorded.get(made_by) if made_by is not None else None
        alias = str(recorded[0]) if recorded is not None else ""
        self._write(Edge(OpKey(name), role=Role.STATE), value, "", alias)

    def _find_alias(self, reads: tuple[Edge, ...], storage: int) -> str:
        """The key of the read tensor that has this memory; "" where none has."""
        if storage in self._storages and storage:
            for read in reads:
                recorded = self._recorded.get(read)
                if recorded is not None and recorded[1] == storage:
                    return str(recorded[0])
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
        dtype = dtype_name(value.dtype)
        return recorder.tensor(
            edge.op,
            array,
            role=edge.role,
            index=edge.index,
            dtype=dtype if dtype in DTYPES else None,
            name=name,
            strides=tuple(value.stride()) if value.layout is torch.strided else None,
            device=str(value.device),
            requires_grad=value.requires_grad,
            alias_of=alias,
        )


def _storage_address(value: torch.Tensor) -> int:
    try:
        return value.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return 0
