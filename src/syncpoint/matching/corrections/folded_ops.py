"""Correct existing pairs whose target op absorbed later reference ops, such as a batch norm: move
to the last of them, back upstream, or drop.

A convolution with a folded batch norm has the name of the convolution and the values of the batch
norm. Such a pair is moved if three conditions hold: the values equal those of a neighboring tensor,
a known fold leads there, and the next sync points downstream are equal. Otherwise the pair stays
and a note says which tensor it equals: without the third condition it may be a missing op.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from syncpoint.matching.evidence.downstream_agreement import (
    do_readers_contradict,
    is_downstream_equal,
)
from syncpoint.matching.fingerprints import MARGIN
from syncpoint.matching.graph import Slot
from syncpoint.matching.op_kinds import ABSORBED, AFFINE, PRIMITIVE, TRANSPARENT, op_class
from syncpoint.matching.protocol import EvidenceKind
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import OpKey, Role

_MAX_STEPS = 5
"""Maximum number of ops between a tensor and its moved partner."""
_ABSENT_NORM_MARGIN = 2.0
"""How many times nearer the result of a norm must be than that of the product before it, if the
target has neither the norm nor its parameters. It was folded or it is missing, nothing else; so the
nearer one is the partner, also where coarse rounding leaves no larger margin."""


@dataclass(frozen=True)
class _Fold:
    """A reference tensor downstream of a pair, and the ops on the way that may be folded."""

    slot: Slot
    through: tuple[str, ...]
    names: tuple[str, ...]
    affine: bool


class FoldReview:
    """Moves or drops pairs whose target op has absorbed ops that follow in the reference."""

    def __init__(self, work: Workspace) -> None:
        self.work = work
        self.target, self.reference = work.graphs
        self.fingerprints = work.fingerprints
        self.proven: set[tuple[str, ...]] = set()
        """Folds that values have proven in this run: class of the op, classes of the folded ops."""

    def move_folded_pairs(self) -> int:
        """Move or drop doubtful pairs, and return how many."""
        moved = 0
        order = self.target.position
        doubtful_pairs = [
            (t, r)
            # The last first, so that the pairs downstream are decided before.
            for t, r in sorted(
                self.work.to_reference.items(), key=lambda pair: -order.get(pair[0].op, -1)
            )
            if t.role is Role.OUTPUT and self._is_doubtful(t, r)
        ]
        undecided = []
        for target, reference in doubtful_pairs:
            distance = self.work.view_selector.find_best_view(target, reference)[0]
            is_near = distance <= self.fingerprints.tolerance
            if is_near and not self._is_nearer_to_fold(target, reference, distance):
                continue
            if not self._are_informative(target, reference):
                if any(map(self._is_absent_norm, self._downstream_folds(reference))):
                    undecided.append((target, reference))
                continue
            is_moved = self._move_downstream(target, reference, distance)
            if is_moved is None:
                is_moved = self._move_upstream(target, reference)
            if is_moved is None:
                is_moved = self._drop_wrong_pair(target, reference)
            if is_moved is None:
                undecided.append((target, reference))
            moved += bool(is_moved)
        for target, reference in undecided:
            # Where what follows agrees, there is no error that would hide a fold from values;
            # but a tensor with too few values says nothing itself.
            is_silent = not self._are_informative(target, reference)
            if is_silent or not do_readers_contradict(self.work, target):
                moved += self._move_by_position(target, reference)
        return moved

    def drop_folded_pairs(self) -> None:
        """Drop pairs with unequal values whose sync points downstream are equal, if the reference
        is a dump without edges: the target op has absorbed an op that the dump does not contain.
        This is no error, and no sync point."""
        order = self.target.position
        for target, reference in sorted(
            self.work.to_reference.items(), key=lambda pair: -order.get(pair[0].op, -1)
        ):
            if self.target.class_of(target) not in ("conv", "matmul", "add"):
                continue
            if not self._are_informative(target, reference):
                continue
            if self.fingerprints.are_equal(target, reference):
                continue
            if self.is_downstream_equal(target):
                self.work.unpair(target)
                detail = "has other values while the next sync points agree: an op was folded in"
                self.work.explain(TARGET, target, f"made from {reference}; {detail}")
                self.work.explain(REFERENCE, reference, f"an op was folded into it in {target}")
                self.work.mark_hidden(TARGET, target)
                self.work.mark_hidden(REFERENCE, reference)

    def _is_doubtful(self, target: Slot, reference: Slot) -> bool:
        """Whether the partner of a pair may be wrong; the values of other pairs are not read."""
        if self.work.evidence_kind(target) is EvidenceKind.MAP:
            return False
        if self.target.class_of(target) != self.reference.class_of(reference):
            return True
        if "fused" in self._type(target) or "skip" in self._type(target):
            return True
        if self._is_by_structure(target):
            return True
        reader = self.reference.only_reader(reference)
        return (
            reader is not None and self.reference.is_unary(reader) and not self._is_paired(reader)
        )

    def _is_by_structure(self, target: Slot) -> bool:
        return self.work.evidence_kind(target) is EvidenceKind.STRUCTURE

    def _type(self, target: Slot) -> str:
        op = self.target.op_of(target)
        return op.type.lower() if op is not None else ""

    def _is_paired(self, position: int) -> bool:
        return any(slot in self.work.to_target for slot in self.reference.outputs(position))

    def _are_informative(self, target: Slot, reference: Slot) -> bool:
        slots = (target, reference)
        return all(self.fingerprints.is_informative(side, slot) for side, slot in enumerate(slots))

    def _downstream_folds(self, reference: Slot) -> Iterator[_Fold]:
        """The tensors downstream of the reference that an op may absorb."""
        slot = reference
        through: list[str] = []
        names: list[str] = []
        affine = True
        for _ in range(_MAX_STEPS):
            reader = self.reference.only_reader(slot)
            if reader is None:
                return
            kind = self.reference.classes[reader]
            outputs = self.reference.outputs(reader)
            if kind not in ABSORBED | TRANSPARENT | {"layer_norm", "rms_norm"} or not outputs:
                return
            slot = outputs[0]
            if kind not in TRANSPARENT:
                through.append(kind)
                names.append(str(slot.op))
                affine &= kind in AFFINE and len(self.reference.reads[reader]) == 1
                yield _Fold(slot, tuple(through), tuple(names), affine)

    def _is_nearer_to_fold(self, target: Slot, reference: Slot, distance: float) -> bool:
        """Whether a pair that is equal up to coarse rounding, such as that of 8-bit integers, is
        still nearer to a norm downstream whose parameters the target does not have."""
        return any(
            self._is_absent_norm(fold)
            and self._margin(fold) * self.work.view_selector.find_best_view(target, fold.slot)[0]
            <= distance
            for fold in self._downstream_folds(reference)
        )

    def _is_absent_norm(self, fold: _Fold) -> bool:
        """Whether a fold is a batch norm that the target does not have: no target op is paired with
        it, and no target tensor with its parameters."""
        op = self.reference.op_of(fold.slot)
        if op is None or fold.through != ("batch_norm",) or fold.slot in self.work.to_target:
            return False
        parameters = {edge.op for edge in op.inputs if edge.role is Role.PARAMETER}
        return bool(parameters) and not parameters & self._paired_parameters

    @cached_property
    def _paired_parameters(self) -> set[OpKey]:
        """The reference's parameters with a partner."""
        return {
            pair.reference.op
            for pair in self.work.matching.pairs
            if pair.reference.role is Role.PARAMETER
        }

    def _margin(self, fold: _Fold) -> float:
        """How many times nearer the result of a fold must be than the present partner."""
        return _ABSENT_NORM_MARGIN if self._is_absent_norm(fold) else MARGIN

    def _move_downstream(self, target: Slot, reference: Slot, distance: float) -> bool | None:
        """Move a pair to an equal tensor downstream in the reference. Return whether it was moved;
        None if no tensor there is equal."""
        for fold in self._downstream_folds(reference):
            fold_distance = self.work.view_selector.find_best_view(target, fold.slot)[0]
            is_equal = fold_distance <= self.fingerprints.tolerance
            if not is_equal or self._margin(fold) * fold_distance > distance:
                continue
            is_product = self.target.class_of(target) in ("conv", "matmul")
            is_known_fold = is_product or self._is_norm(fold)
            is_free = self.work.is_free(REFERENCE, fold.slot)
            # If only the graph position supports the pair, an op that can be folded into weights is
            # as good a candidate. A missing activation is not, even if the values are equal.
            is_certain = fold.affine and self._is_by_structure(target)
            # Unless the op itself records this activation.
            is_certain |= self._final_activation(target) == fold.through[-1]
            can_move = is_known_fold and (is_certain or self.is_downstream_equal(target))
            if can_move and not is_free and self._is_paired_in_other_layout(target, fold.slot):
                self.work.unpair(self.work.to_target[fold.slot])
                is_free = True
            if can_move and is_free:
                self._move_pair(target, reference, fold, "by equal values", 0.9)
                self.proven.add((self.reference.class_of(reference), *fold.through))
                return True
            self._note(
                target, f"equals {fold.slot}: {_join_names(fold.names)} folded in, or misplaced"
            )
            return False
        return None

    def _is_paired_in_other_layout(self, target: Slot, reference: Slot) -> bool:
        """Whether the reference is paired with the target in another layout: kernels with blocked
        channels have a separate op that restores the order."""
        partner = self.work.to_target.get(reference)
        return (
            partner is not None
            and partner != target
            and self.target.root(partner) == self.target.root(target)
        )

    def _final_activation(self, target: Slot) -> str:
        """The class of the activation that a fused op records as its last step; "" if none.
        Integers that cannot represent negative numbers imply a ReLU."""
        op = self.target.op_of(target)
        activation = op.attributes.get("activation") if op is not None else None
        if isinstance(activation, str) and activation:
            return op_class(activation)
        tensor = self.target.slots[target][0] if target in self.target.slots else None
        quantization = tensor.quantization if tensor is not None else None
        if (
            tensor is None
            or quantization is None
            or quantization.table
            or DTYPES[tensor.dtype].bits > 8
        ):
            return ""
        lowest = 0 if tensor.dtype.startswith("u") else -(2 ** (DTYPES[tensor.dtype].bits - 1))
        return "relu" if all(zero_point == lowest for zero_point in quantization.zero_point) else ""

    def _is_norm(self, fold: _Fold) -> bool:
        """Whether the fold ends in a norm, or in another op that can be absorbed."""
        return (
            fold.through[-1] in ("layer_norm", "rms_norm")
            or self.reference.class_of(fold.slot) in ABSORBED
        )

    def _move_pair(
        self, target: Slot, reference: Slot, fold: _Fold, basis: str, confidence: float
    ) -> None:
        evidence, kind = self.work.evidence(target), self.work.evidence_kind(target)
        self.work.unpair(target)
        moved_evidence = f"{evidence}; {_join_names(fold.names)} folded into {target}, {basis}"
        self.work.pair(target, fold.slot, moved_evidence, confidence, kind=kind)
        self.work.explain(REFERENCE, reference, f"folded into {target}")

    def _move_upstream(self, target: Slot, reference: Slot) -> bool | None:
        """Move a pair to the equal tensor before a folded op, if a dequantized target tensor equals
        the reference. Return whether it was moved; None if no tensor upstream is equal."""
        slot = reference
        names: list[str] = []
        for _ in range(3):
            position = self.reference.position.get(slot.op, -1)
            if position < 0 or not self.reference.is_unary(position):
                return None
            names.append(str(slot.op))
            slot = self.reference.root(self.reference.reads[position][0])
            if not self.fingerprints.are_equal(target, slot):
                continue
            dequantized = self._find_dequantized(target, reference)
            if dequantized is not None:
                self.work.unpair(target)
                evidence = f"equal values; {_join_names(tuple(names))} folded into {dequantized}"
                self.work.pair(dequantized, reference, evidence, 0.9)
                self.work.pair(
                    target, slot, f"equal values, before {_join_names(tuple(names))}", 0.9
                )
                return True
            self._note(
                target, f"equals {slot}: {_join_names(tuple(names))} folded elsewhere or missing"
            )
            return False
        return None

    def _find_dequantized(self, target: Slot, reference: Slot) -> Slot | None:
        """The dequantized tensor downstream of the target that equals the reference."""
        slot = target
        for _ in range(4):
            reader = self.target.only_reader(slot)
            if reader is None or self.target.classes[reader] not in TRANSPARENT:
                return None
            outputs = self.target.outputs(reader)
            if not outputs:
                return None
            slot = outputs[0]
            is_dequantized = self.target.classes[reader] != "quantize"
            if (
                is_dequantized
                and self.work.is_free(TARGET, slot)
                and self.fingerprints.are_equal(slot, reference)
            ):
                return slot
        return None

    def _drop_wrong_pair(self, target: Slot, reference: Slot) -> bool | None:
        """Drop an unequal pair of primitive ops that only the graph position supports, if the sync
        points downstream are equal: the pair is wrong, and there is no error."""
        if not self._is_by_structure(target):
            return None
        if self.target.class_of(target) not in PRIMITIVE or not self.is_downstream_equal(target):
            return None
        self.work.unpair(target)
        return True

    def _move_by_position(self, target: Slot, reference: Slot) -> bool:
        """Move a pair whose values equal nothing, since an error upstream changed them. A fold into
        weights is then recognized by its position: no target op does what was folded, and the same
        fold is proven elsewhere in this run, or the target has a bias that the reference lacks."""
        if self.target.class_of(target) != self.reference.class_of(reference):
            return False
        reader = self.target.only_reader(target)
        next_class = self.target.classes[reader] if reader is not None else ""
        folds = list(self._downstream_folds(reference))
        recorded_ends = [
            fold for fold in folds if self._final_activation(target) == fold.through[-1]
        ]
        for fold in recorded_ends[:1] or folds:
            is_recorded = bool(recorded_ends)
            if not (fold.affine or is_recorded) or fold.through[-1] == next_class:
                return False
            if not self.work.is_free(REFERENCE, fold.slot):
                return False
            classes = (self.reference.class_of(reference), *fold.through)
            has_new_bias = fold.through == ("batch_norm",) and self._has_more_inputs(
                target, reference
            )
            if classes in self.proven or has_new_bias or is_recorded:
                basis = "as the op records" if is_recorded else "by its position"
                self._move_pair(target, reference, fold, basis, 0.8)
                return True
        return False

    def _has_more_inputs(self, target: Slot, reference: Slot) -> bool:
        target_op = self.target.ops[self.target.position[target.op]]
        reference_op = self.reference.ops[self.reference.position[reference.op]]
        return len(target_op.inputs) > len(reference_op.inputs)

    def is_downstream_equal(self, target: Slot) -> bool:
        """Whether there are sync points downstream and the next ones hold equal values."""
        return is_downstream_equal(self.work, target)

    def _note(self, target: Slot, text: str) -> None:
        self.work.note(target, text)


def _join_names(names: tuple[str, ...]) -> str:
    return " and ".join(names)
