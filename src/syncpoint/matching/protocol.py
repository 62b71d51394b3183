"""What a matcher is given and what it yields: the seam of this room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, auto
from typing import Protocol, runtime_checkable

from syncpoint.matching.views import View
from syncpoint.metrics.verdict import NO_REASON, Reason, ReasonCode
from syncpoint.run.model import Op, OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

API = 1
"""Version of this protocol; a matcher from elsewhere declares the one it was written for."""

JUDGED_ROLES = frozenset({Role.OUTPUT, Role.MODEL_OUTPUT, Role.INPUT})
"""What an execution computed; parameters and model inputs were given to it."""


class EvidenceKind(Enum):
    """What a pair rests on, for the matchers that look at it again."""

    MAP = auto()
    """The user pinned it: no matcher moves it."""
    ORIGIN = auto()
    """The name of the op that the target's was made from."""
    STRUCTURE = auto()
    """Nothing but the place in the graph: op of the same kind, reading paired tensors."""
    OTHER = auto()
    """Anything else, and whatever a matcher does not say."""


@dataclass(frozen=True)
class SyncPoint:
    """A target tensor and the reference tensor that should equal it."""

    target: TensorKey
    reference: TensorKey
    evidence: str
    """In words: what speaks for this pair. Shown and stored, never read by a matcher."""
    _: KW_ONLY
    confidence: float
    kind: EvidenceKind = EvidenceKind.OTHER
    view: View = field(default_factory=View)
    """Applied to the target, it gives the reference's layout."""
    note: str = ""
    """What is odd about the pair, in words for the report."""
    ends_only: bool = False
    """Whether the least and the greatest value are all that is known of one of the two."""
    unmeasured: Reason = NO_REASON
    """Why the two cannot be laid over each other although they belong together; its code is one
    of METRICS.md."""


@dataclass(frozen=True)
class Unmatched:
    """A tensor that has no partner, and why."""

    side: str
    """`target` or `reference`."""
    key: TensorKey
    reason: Reason
    counted: bool = True
    """Whether it holds a result of its own; a cast of a compared tensor does not."""
    inside: str = ""
    """The op that it is a piece of, where that is known."""


@dataclass
class Side:
    """One run as the matchers see it."""

    run: Run
    ops: list[Op]
    outputs: dict[OpKey, list[Tensor]]
    """Computed tensors by op, in order of index and part."""
    others: list[Tensor]
    """Model inputs and outputs, parameters, states."""

    @classmethod
    def of(cls, run: Run) -> Side:
        """The side that a run makes."""
        outputs: dict[OpKey, list[Tensor]] = {}
        others = []
        for tensor in run.tensors:
            if tensor.key.role in (Role.OUTPUT, Role.INPUT):
                outputs.setdefault(tensor.key.op, []).append(tensor)
            else:
                others.append(tensor)
        return cls(run, [op for op in run.ops if op.key in outputs], outputs, others)


class PairConfirmation(Protocol):
    """Looks at a second input to confirm pairs that values alone speak for."""

    def agrees(self, target: TensorKey, reference: TensorKey) -> bool | None:
        """Whether two tensors that hold the same numbers do so on the second input too; None
        where that cannot be told."""


@dataclass
class Matching:
    """What is paired so far, and what is not."""

    target: Side
    reference: Side
    _: KW_ONLY
    pairs: list[SyncPoint] = field(default_factory=list)
    reasons: dict[tuple[str, TensorKey], Reason] = field(default_factory=dict)
    """Why a tensor is unpaired, where a matcher knows more than that nothing was found."""
    inside: dict[tuple[str, TensorKey], str] = field(default_factory=dict)
    """The op that an unpaired tensor is a piece of, where a matcher knows."""
    uncounted: set[tuple[str, TensorKey]] = field(default_factory=set)
    """Unpaired tensors that hold no result of their own: constants, and views, casts and copies
    of what is compared elsewhere."""
    hidden: set[tuple[str, TensorKey]] = field(default_factory=set)
    """Unpaired tensors that an op of the other side is known to stand for, though its result has
    other values: what a compiler fused or folded."""
    by_plan: bool = False
    """A plan says what belongs together, whatever the names are."""
    refused: set[tuple[str, TensorKey]] = field(default_factory=set)
    """Tensors that no later matcher may pair either."""
    ops: dict[OpKey, OpKey] = field(default_factory=dict)
    """Target ops with their reference ops."""
    confirmation: PairConfirmation | None = None
    """Answers whether pairs by values agree on a second input; None where there is none."""
    workspace: object = None
    """What the matchers of structure and values share; see `syncpoint.matching.workspace`."""

    def __post_init__(self) -> None:
        self._taken_target = {p.target for p in self.pairs}
        self._taken_reference = {p.reference for p in self.pairs}
        self._released: set[SyncPoint] = set()

    def free_target(self, key: TensorKey) -> bool:
        """Whether this target tensor may still be paired."""
        return key not in self._taken_target and ("target", key) not in self.refused

    def free_reference(self, key: TensorKey) -> bool:
        """Whether this reference tensor may still be paired."""
        return key not in self._taken_reference and ("reference", key) not in self.refused

    def add(self, pair: SyncPoint, shared: bool = False) -> bool:
        """Keep a pair; the first evidence for a tensor wins, since the chain has the strongest
        first. Tells whether it was kept. A `shared` reference may be paired more than once: a
        dump that records the inputs of ops has one value several times."""
        free = shared or self.free_reference(pair.reference)
        if not (self.free_target(pair.target) and free):
            return False
        self.pairs.append(pair)
        self._taken_target.add(pair.target)
        self._taken_reference.add(pair.reference)
        if pair.target.role is Role.OUTPUT and pair.reference.role is Role.OUTPUT:
            self.ops.setdefault(pair.target.op, pair.reference.op)
        return True

    def release(self, pair: SyncPoint) -> None:
        """Free both tensors of a pair; it is gone from the list after the next `exchange`."""
        self._taken_target.discard(pair.target)
        self._taken_reference.discard(pair.reference)
        self._released.add(pair)

    def exchange(self, changes: Mapping[SyncPoint, SyncPoint | None]) -> None:
        """Put other pairs in the place of some, or nothing."""
        if not changes and not self._released:
            return
        kept = [changes.get(pair, pair) for pair in self.pairs if pair not in self._released]
        self._released = set()
        self.pairs = [pair for pair in kept if pair is not None]
        self._taken_target = {p.target for p in self.pairs}
        self._taken_reference = {p.reference for p in self.pairs}
        self.ops = {}
        for pair in self.pairs:
            if pair.target.role is Role.OUTPUT and pair.reference.role is Role.OUTPUT:
                self.ops.setdefault(pair.target.op, pair.reference.op)

    def refuse(self, side: str, key: TensorKey, reason: Reason, inside: str = "") -> None:
        """Take a tensor out of the matching for good; `inside` as for `explain`."""
        self.explain(side, key, reason, inside)
        self.refused.add((side, key))

    def admit(self, side: str, key: TensorKey) -> bool:
        """Take a tensor back that was refused because it seemed to be part of another op; what
        was refused for any other reason stays out. Tells whether it may be paired now."""
        code = self.reasons[side, key].code if (side, key) in self.refused else None
        if code is ReasonCode.NO_COUNTERPART:
            self.refused.discard((side, key))
            del self.reasons[side, key]
            self.inside.pop((side, key), None)
        return (side, key) not in self.refused

    def explain(self, side: str, key: TensorKey, reason: Reason, inside: str = "") -> None:
        """Say why a tensor could not be paired; a later matcher may still do it. `inside` names
        the op that the tensor is a piece of."""
        self.reasons[side, key] = reason
        if inside:
            self.inside[side, key] = inside
        else:
            self.inside.pop((side, key), None)

    def pair_ops(
        self,
        target: OpKey,
        reference: OpKey,
        evidence: str,
        confidence: float,
        kind: EvidenceKind = EvidenceKind.OTHER,
    ) -> Iterator[SyncPoint]:
        """The sync points of two ops that belong together: same role, index and part."""
        mine = {
            (t.key.role, t.key.index, t.key.part): t.key
            for t in self.reference.outputs.get(reference, ())
        }
        for tensor in self.target.outputs.get(target, ()):
            other = mine.get((tensor.key.role, tensor.key.index, tensor.key.part))
            if other is not None:
                yield SyncPoint(tensor.key, other, evidence, confidence=confidence, kind=kind)

    def unmatched(self) -> list[Unmatched]:
        """All tensors without a partner."""
        left = []
        for side, run in (("target", self.target), ("reference", self.reference)):
            taken = self._taken_target if side == "target" else self._taken_reference
            for tensor in run.run.tensors:
                if tensor.key not in taken:
                    where = (side, tensor.key)
                    left.append(
                        Unmatched(
                            side,
                            tensor.key,
                            self.reasons.get(where, Reason(ReasonCode.NO_COUNTERPART)),
                            counted=where not in self.uncounted,
                            inside=self.inside.get(where, ""),
                        )
                    )
        return left


@runtime_checkable
class Matcher(Protocol):
    """Finds pairs among what is still unpaired."""

    name: str

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Yield pairs with their evidence, or add them as it goes; may also refuse tensors with a
        reason."""
