"""Folds: what was taken into what, found by looking at the values of doubtful pairs.

A convolution that took in its batch norm has the convolution's name and the batch norm's values.
Such a pair is moved to where it belongs if three things hold: the values equal those of a tensor
next to it, a known fold leads there, and the sync points that follow agree. Otherwise the pair
stays and the report says what it equals: with only the first two, the same sight is a missing op.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from syncpoint.matching.evidence.downstream_agreement import agree_after
from syncpoint.matching.fingerprints import MARGIN
from syncpoint.matching.graph import Slot
from syncpoint.matching.op_kinds import ABSORBED, AFFINE, PRIMITIVE, TRANSPARENT, op_class
from syncpoint.matching.protocol import EvidenceKind
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Role

_STEPS = 5
"""How far from its partner a tensor is looked for."""


@dataclass(frozen=True)
class _Fold:
    """A tensor downstream of a pair's reference, and the classes of the ops on the way."""

    slot: Slot
    through: tuple[str, ...]
    names: tuple[str, ...]
    affine: bool


class FoldReview:
    """Moves or drops pairs whose target op has taken in ops that follow in the reference."""

    def __init__(self, work: Workspace) -> None:
        self.work = work
        self.target, self.reference = work.graphs
        self.prints = work.prints
        self.proven: set[tuple[str, ...]] = set()
        """Folds that values have proven in this run: class of the op, classes taken in."""

    def run(self) -> int:
        """How many pairs were moved or dropped."""
        moved = 0
        order = self.target.position
        waiting = [
            (t, r)
            # The last first: whether what follows agrees must be known by then.
            for t, r in sorted(
                self.work.to_reference.items(), key=lambda pair: -order.get(pair[0].op, -1)
            )
            if t.role is Role.OUTPUT and self._doubtful(t, r)
        ]
        unsettled = []
        for target, reference in waiting:
            distance = self.work.layouts.best(target, reference)[0]
            if distance <= self.prints.tolerance or not self._tells(target, reference):
                continue
            found = self._downstream(target, reference, distance)
            if found is None:
                found = self._upstream(target, reference)
            if found is None:
                found = self._vanishes(target, reference)
            if found is None:
                unsettled.append((target, reference))
            moved += bool(found)
        for target, reference in unsettled:
            moved += self._by_place(target, reference)
        return moved

    def unfold(self) -> None:
        """Against a dump that does not say what reads what: an op that was made from the one it
        is paired with and has other values, while all that follows is equal, has taken something
        in that the dump does not hold. It is no error, and no sync point."""
        order = self.target.position
        for target, reference in sorted(
            self.work.to_reference.items(), key=lambda pair: -order.get(pair[0].op, -1)
        ):
            if self.target.class_of(target) not in ("conv", "matmul", "add"):
                continue
            if not self._tells(target, reference) or self.prints.equal(target, reference):
                continue
            if self.agree_after(target):
                self.work.unpair(target)
                why = "has other values while what follows agrees: something was folded in"
                self.work.explain(TARGET, target, f"made from {reference}; {why}")
                self.work.explain(REFERENCE, reference, f"something was folded into it in {target}")
                self.work.hide(TARGET, target)
                self.work.hide(REFERENCE, reference)

    def _doubtful(self, target: Slot, reference: Slot) -> bool:
        """Whether a pair might belong elsewhere; the others are not read here."""
        mine, theirs = self.target.class_of(target), self.reference.class_of(reference)
        if self.work.evidence_kind(target) is EvidenceKind.MAP:
            return False
        if mine != theirs or "fused" in self._type(target) or "skip" in self._type(target):
            return True
        if self._by_structure(target):
            return True
        reader = self.reference.only_reader(reference)
        return reader is not None and self.reference.is_unary(reader) and not self._paired(reader)

    def _by_structure(self, target: Slot) -> bool:
        return self.work.evidence_kind(target) is EvidenceKind.STRUCTURE

    def _type(self, target: Slot) -> str:
        op = self.target.op_of(target)
        return op.type.lower() if op is not None else ""

    def _paired(self, at: int) -> bool:
        return any(slot in self.work.to_target for slot in self.reference.outputs(at))

    def _tells(self, target: Slot, reference: Slot) -> bool:
        return self.prints.tells(TARGET, target) and self.prints.tells(REFERENCE, reference)

    def _after(self, reference: Slot) -> Iterator[_Fold]:
        """The tensors that follow through ops which the op before them may take in."""
        slot = reference
        through: list[str] = []
        names: list[str] = []
        affine = True
        for _ in range(_STEPS):
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

    def _downstream(self, target: Slot, reference: Slot, distance: float) -> bool | None:
        """Moves a pair on to what followed in the reference; None where it equals nothing there,
        False where it equals something and must stay all the same."""
        for fold in self._after(reference):
            found = self.work.layouts.best(target, fold.slot)[0]
            if found > self.prints.tolerance or MARGIN * found > distance:
                continue
            known = self.target.class_of(target) in ("conv", "matmul") or self._is_norm(fold)
            free = self.work.free(REFERENCE, fold.slot)
            # Nothing but structure made this pair: what changed weights can express is then as
            # good a candidate. A lost activation is not, however equal the values are.
            chosen = fold.affine and self._by_structure(target)
            # Unless the op itself says that it ends in that activation.
            chosen |= self._activation(target) == fold.through[-1]
            fits = known and (chosen or self.agree_after(target))
            if fits and not free and self._is_laid_out_after(target, fold.slot):
                self.work.unpair(self.work.to_target[fold.slot])
                free = True
            if fits and free:
                self._move(target, reference, fold)
                self.proven.add((self.reference.class_of(reference), *fold.through))
                return True
            self._note(target, f"equals {fold.slot}: {_list(fold.names)} folded in, or misplaced")
            return False
        return None

    def _is_laid_out_after(self, target: Slot, wanted: Slot) -> bool:
        """Whether the reference's tensor is paired with this one in another layout: kernels that
        keep channels in blocks have an op of their own that takes them out again."""
        holder = self.work.to_target.get(wanted)
        return (
            holder is not None
            and holder != target
            and self.target.root(holder) == self.target.root(target)
        )

    def _activation(self, target: Slot) -> str:
        """The class of the activation that a fused op says it applies at its end. Integers that
        stand for nothing below zero are a ReLU, whatever else they are."""
        op = self.target.op_of(target)
        said = op.attributes.get("activation") if op is not None else None
        if isinstance(said, str) and said:
            return op_class(said)
        tensor = self.target.slots[target][0] if target in self.target.slots else None
        known = tensor.quantization if tensor is not None else None
        if tensor is None or known is None or known.table or DTYPES[tensor.dtype].bits > 8:
            return ""
        least = 0 if tensor.dtype.startswith("u") else -(2 ** (DTYPES[tensor.dtype].bits - 1))
        return "relu" if all(zero == least for zero in known.zero_point) else ""

    def _is_norm(self, fold: _Fold) -> bool:
        """A residual taken into the norm that follows, and its like."""
        return (
            fold.through[-1] in ("layer_norm", "rms_norm")
            or self.reference.class_of(fold.slot) in ABSORBED
        )

    def _move(self, target: Slot, reference: Slot, fold: _Fold) -> None:
        evidence, kind = self.work.evidence(target), self.work.evidence_kind(target)
        self.work.unpair(target)
        said = f"{evidence}; {_list(fold.names)} folded into {target}, by equal values"
        self.work.pair(target, fold.slot, said, 0.9, kind=kind)
        self.work.explain(REFERENCE, reference, f"folded into {target}")

    def _upstream(self, target: Slot, reference: Slot) -> bool | None:
        """The name of an op that went elsewhere, on the tensor before it."""
        slot = reference
        names: list[str] = []
        for _ in range(3):
            at = self.reference.position.get(slot.op, -1)
            if at < 0 or not self.reference.is_unary(at):
                return None
            names.append(str(slot.op))
            slot = self.reference.root(self.reference.reads[at][0])
            if not self.prints.equal(target, slot):
                continue
            twin = self._twin(target, reference)
            if twin is not None:
                self.work.unpair(target)
                why = f"equal values; {_list(tuple(names))} folded into {twin}"
                self.work.pair(twin, reference, why, 0.9)
                self.work.pair(target, slot, f"equal values, before {_list(tuple(names))}", 0.9)
                return True
            self._note(target, f"equals {slot}: {_list(tuple(names))} folded elsewhere or missing")
            return False
        return None

    def _twin(self, target: Slot, reference: Slot) -> Slot | None:
        """The tensor behind quantization that has what the name promises."""
        slot = target
        for _ in range(4):
            reader = self.target.only_reader(slot)
            if reader is None or self.target.classes[reader] not in TRANSPARENT:
                return None
            outputs = self.target.outputs(reader)
            if not outputs:
                return None
            slot = outputs[0]
            dequantized = self.target.classes[reader] != "quantize"
            if dequantized and self.work.free(TARGET, slot) and self.prints.equal(slot, reference):
                return slot
        return None

    def _vanishes(self, target: Slot, reference: Slot) -> bool | None:
        """A pair by structure alone of an op that others are decomposed into, unequal, while all
        that follows is equal: a wrong pair, and no error."""
        if not self._by_structure(target):
            return None
        if self.target.class_of(target) not in PRIMITIVE or not self.agree_after(target):
            return None
        self.work.unpair(target)
        return True

    def _by_place(self, target: Slot, reference: Slot) -> bool:
        """What is off before it equals nothing any more. A fold that changed weights can express
        is then told by the place: nothing in the target does what was folded, and the same
        fold is proven elsewhere in this run, or a bias has appeared that the reference has not."""
        if self.target.class_of(target) != self.reference.class_of(reference):
            return False
        reader = self.target.only_reader(target)
        following = self.target.classes[reader] if reader is not None else ""
        folds = list(self._after(reference))
        ends = [fold for fold in folds if self._activation(target) == fold.through[-1]]
        for fold in ends[:1] or folds:
            declared = bool(ends)
            if not (fold.affine or declared) or fold.through[-1] == following:
                return False
            if not self.work.free(REFERENCE, fold.slot):
                return False
            classes = (self.reference.class_of(reference), *fold.through)
            grown = fold.through == ("batch_norm",) and self._parameters_grew(target, reference)
            if classes in self.proven or grown or declared:
                evidence, kind = self.work.evidence(target), self.work.evidence_kind(target)
                self.work.unpair(target)
                why = "as it says itself" if declared else "by its place"
                said = f"{evidence}; {_list(fold.names)} folded into {target}, {why}"
                self.work.pair(target, fold.slot, said, 0.8, kind=kind)
                self.work.explain(REFERENCE, reference, f"folded into {target}")
                return True
        return False

    def _parameters_grew(self, target: Slot, reference: Slot) -> bool:
        at = self.target.position[target.op], self.reference.position[reference.op]
        return len(self.target.ops[at[0]].inputs) > len(self.reference.ops[at[1]].inputs)

    def agree_after(self, target: Slot) -> bool:
        """Whether the next sync points downstream hold equal values, and there are some."""
        return agree_after(self.work, target)

    def _note(self, target: Slot, text: str) -> None:
        self.work.note(target, text)


def _list(names: tuple[str, ...]) -> str:
    return " and ".join(names)
