"""Both runs of a comparison (`Sides`): verified operands of tensors, ends of rows, masks, counted
elements, precision and execution order of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.checksum_status import BackgroundChecks
from syncpoint.comparison.measuring.masking import Masks
from syncpoint.comparison.operands import WIDENED_MASK, operand_of
from syncpoint.comparison.rows import End, Row
from syncpoint.comparison.tensor_precision import Precisions
from syncpoint.matching.masks import Mask
from syncpoint.metrics import FileRegion, Operand
from syncpoint.run.model import OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run


@dataclass
class Sides:
    """Both runs with the lookups that every row needs: precisions, masks, execution order."""

    target: Run
    reference: Run
    masks: Masks | None = None
    """Positions that the user excludes from the measurement."""

    def __post_init__(self) -> None:
        self.precisions = (
            Precisions(self.target, self.reference),
            Precisions(self.reference, self.target),
        )
        self._output_keys_by_side: dict[int, dict[str, TensorKey]] = {}
        self._order = tuple(
            {op.key: i for i, op in enumerate(run.ops)} for run in (self.target, self.reference)
        )

    def operand(self, side: int, tensor: Tensor, checks: BackgroundChecks | None = None) -> Operand:
        """A tensor as the kernel reads it, with its mask limit.

        It is verified when it is read, or later by `checks`.
        """
        run = (self.target, self.reference)[side]
        if checks is not None and checks.is_deferred(run, tensor):
            operand = operand_of(run, tensor, verify=False)
            checks.defer(run, tensor, operand.array)
        else:
            operand = operand_of(run, tensor)
        return self.with_mask_limit(side, tensor, operand)

    def file_operand(self, side: int, path: Path, tensor: Tensor) -> Operand:
        """A tensor that stays in its file, with its mask limit."""
        region = FileRegion(str(path), tensor.offset, tensor.nbytes)
        return self.with_mask_limit(side, tensor, Operand(region, tensor.dtype, shape=tensor.shape))

    def with_mask_limit(self, side: int, tensor: Tensor, operand: Operand) -> Operand:
        """The operand with the limit at or below which its values are masked positions."""
        is_wide = tensor.dtype in ("f32", "f64") and tensor.quantization is None
        if not is_wide or self.precisions[side].of(tensor) != "f16":
            return operand
        return replace(operand, mask_below=WIDENED_MASK)

    def counted_elements(self, row: Row) -> NDArray[np.bool_] | None:
        """Which elements of a row count; None where all do.

        Raises ValueError where a mask does not fit the shape.
        """
        return self.masks.counted_elements(row) if self.masks is not None else None

    def computed_key(self, key: TensorKey) -> TensorKey:
        """The key of the op output that a model output of the reference is an alias of."""
        tensor = self.reference.tensor(key) if key.role is Role.MODEL_OUTPUT else None
        return self._output_keys(1).get(tensor.alias_of, key) if tensor else key

    def _output_keys(self, side: int) -> dict[str, TensorKey]:
        if side not in self._output_keys_by_side:
            tensors = (self.target, self.reference)[side].tensors
            outputs = (t.key for t in tensors if t.key.role is Role.OUTPUT)
            self._output_keys_by_side[side] = {str(k): k for k in outputs}
        return self._output_keys_by_side[side]

    def order(self, side: int, op: OpKey) -> int:
        """Position of an op in the execution order of its run, or -1."""
        return self._order[side].get(op, -1)

    def build_end(self, side: int, tensor: Tensor) -> End:
        """One end of a row."""
        run = (self.target, self.reference)[side]
        has_order = tensor.key.role in (Role.OUTPUT, Role.INPUT, Role.MODEL_OUTPUT)
        order = self.order(side, tensor.key.op) if has_order else -1
        op = run.ops[order] if order >= 0 else None
        kind = op.type if op else tensor.key.role
        if tensor.key.role is Role.STATE and tensor.alias_of in self._output_keys(side):
            # The op that wrote the state tells the module and the source line.
            op = run.ops[self.order(side, self._output_keys(side)[tensor.alias_of].op)]
        return End(
            key=tensor.key,
            type=kind,
            dtype=tensor.dtype,
            shape=tensor.shape,
            module=op.module if op else "",
            source=str(op.source[-1]) if op and op.source else "",
            name=tensor.name,
            order=order,
        )


def build_sides(target: Run, reference: Run, masks: Sequence[Mask] = ()) -> Sides:
    """Both runs with the masks of a map, for a comparison and its diagnosis."""
    return Sides(target, reference, Masks(masks, target, reference) if masks else None)
