"""The interface of matchers: `Matching` (pairs so far, free tensors, add, release, exchange,
explain), `SyncPoint`, `Side`, `Unmatched`, `Matcher`."""

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
"""Version of this protocol; a plugin declares the version that it was written for."""

JUDGED_ROLES = frozenset({Role.OUTPUT, Role.MODEL_OUTPUT, Role.INPUT})
"""Roles of tensors that an execution computed, unlike parameters and model inputs."""


class EvidenceKind(Enum):
    """What a pair is based on, for the matchers that review it."""

    MAP = auto()
    """The user pinned the pair in a map: no matcher moves it."""
    ORIGIN = auto()
    """The target op names the reference op as its origin."""
    STRUCTURE = auto()
    """Only the position in the graph: ops of the same kind that read paired tensors."""
    OTHER = auto()
    """Any other evidence, and the default."""


@dataclass(frozen=True)
class SyncPoint:
    """A target tensor and the reference tensor that should equal it."""

    target: TensorKey
    reference: TensorKey
    evidence: str
    """Why this is a pair, as text. It is shown and stored, and no matcher reads it."""
    _: KW_ONLY
    confidence: float
    kind: EvidenceKind = EvidenceKind.OTHER
    view: View = field(default_factory=View)
    """Converts the target to the layout of the reference."""
    note: str = ""
    """What is unusual about the pair, as text for the report."""
    ends_only: bool = False
    """Whether only the minimum and the maximum of one of the two are known."""
    unmeasured: Reason = NO_REASON
    """Why the two cannot be compared although they are a pair; its code is one of METRICS.md."""


@dataclass(frozen=True)
class Unmatched:
    """A tensor without a partner, and the reason."""

    side: str
    """`target` or `reference`."""
    key: TensorKey
    reason: Reason
    counted: bool = True
    """Whether it counts in coverage; a cast of a compared tensor does not."""
    inside: str = ""
    """The op that it is an intermediate value of, if known."""


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
        """Sort the tensors of a run into computed ones and others."""
        outputs: dict[OpKey, list[Tensor]] = {}
        others = []
        for tensor in run.tensors:
            if tensor.key.role in (Role.OUTPUT, Role.INPUT):
                outputs.setdefault(tensor.key.op, []).append(tensor)
            else:
                others.append(tensor)
        return cls(run, [op for op in run.ops if op.key in outputs], outputs, others)


class PairConfirmation(Protocol):
    """Confirms on a second input the pairs that only values support."""

    def agrees(self, target: TensorKey, reference: TensorKey) -> bool | None:
        """Whether two tensors hold equal values on the second input too; None if unknown."""


@dataclass
class Matching:
    """The pairs so far, and the reasons for tensors without a partner."""

    target: Side
    reference: Side
    _: KW_ONLY
    pairs: list[SyncPoint] = field(default_factory=list)
    reasons: dict[tuple[str, TensorKey], Reason] = field(default_factory=dict)
    """Why a tensor is unpaired, where a matcher knows the reason."""
    inside: dict[tuple[str, TensorKey], str] = field(default_factory=dict)
    """The op that an unpaired tensor is an intermediate value of, where a matcher knows it."""
    uncounted: set[tuple[str, TensorKey]] = field(default_factory=set)
    """Unpaired tensors that do not count in coverage: constants, and views, casts and copies of
    tensors that are compared elsewhere."""
    hidden: set[tuple[str, TensorKey]] = field(default_factory=set)
    """Unpaired tensors that a compiler fused or folded into an op of the other side, whose output
    has other values."""
    by_plan: bool = False
    """Whether a plan defines the pairs, independent of names."""
    refused: set[tuple[str, TensorKey]] = field(default_factory=set)
    """Tensors that no later matcher may pair either."""
    ops: dict[OpKey, OpKey] = field(default_factory=dict)
    """Paired ops, from target to reference."""
    confirmation: PairConfirmation | None = None
    """Confirms pairs by values on a second input; None if there is no second input."""
    workspace: object = None
    """State that the matchers share; see `syncpoint.matching.workspace`."""

    def __post_init__(self) -> None:
        self._taken_target = {p.target for p in self.pairs}
        self._taken_reference = {p.reference for p in self.pairs}
        self._released: set[SyncPoint] = set()
        self.exchange_count = 0
        """How often pairs were replaced or removed."""

    def free_target(self, key: TensorKey) -> bool:
        """Whether this target tensor may still be paired."""
        return key not in self._taken_target and ("target", key) not in self.refused

    def free_reference(self, key: TensorKey) -> bool:
        """Whether this reference tensor may still be paired."""
        return key not in self._taken_reference and ("reference", key) not in self.refused

    def add(self, pair: SyncPoint, shared: bool = False) -> bool:
        """Add a pair if both tensors are free, and return whether it was added.

        The first evidence for a tensor wins, since the chain has the strongest first. A `shared`
        reference may be paired more than once: a dump that records the inputs of ops holds one
        value several times.
        """
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
        """Free both tensors of a pair; the next `exchange` removes it from the list."""
        self._taken_target.discard(pair.target)
        self._taken_reference.discard(pair.reference)
        self._released.add(pair)

    def exchange(self, changes: Mapping[SyncPoint, SyncPoint | None]) -> None:
        """Replace pairs, or remove those that map to None."""
        if not changes and not self._released:
            return
        self.exchange_count += 1
        replaced = [changes.get(pair, pair) for pair in self.pairs if pair not in self._released]
        self._released = set()
        self.pairs = [pair for pair in replaced if pair is not None]
        self._taken_target = {p.target for p in self.pairs}
        self._taken_reference = {p.reference for p in self.pairs}
        self.ops = {}
        for pair in self.pairs:
            if pair.target.role is Role.OUTPUT and pair.reference.role is Role.OUTPUT:
                self.ops.setdefault(pair.target.op, pair.reference.op)

    def refuse(self, side: str, key: TensorKey, reason: Reason, inside: str = "") -> None:
        """Exclude a tensor from the matching; `inside` as for `explain`."""
        self.explain(side, key, reason, inside)
        self.refused.add((side, key))

    def admit(self, side: str, key: TensorKey) -> bool:
        """Admit a tensor that was refused as an intermediate value of another op; tensors refused
        for other reasons stay excluded. Return whether it may be paired now."""
        code = self.reasons[side, key].code if (side, key) in self.refused else None
        if code is ReasonCode.NO_COUNTERPART:
            self.refused.discard((side, key))
            del self.reasons[side, key]
            self.inside.pop((side, key), None)
        return (side, key) not in self.refused

    def explain(self, side: str, key: TensorKey, reason: Reason, inside: str = "") -> None:
        """Set the reason why a tensor is unpaired; a later matcher may still pair it. `inside` is
        the op that the tensor is an intermediate value of."""
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
        """Pair the tensors of two ops that have the same role, index and part."""
        reference_keys = {
            (t.key.role, t.key.index, t.key.part): t.key
            for t in self.reference.outputs.get(reference, ())
        }
        for tensor in self.target.outputs.get(target, ()):
            reference_key = reference_keys.get((tensor.key.role, tensor.key.index, tensor.key.part))
            if reference_key is not None:
                yield SyncPoint(
                    tensor.key, reference_key, evidence, confidence=confidence, kind=kind
                )

    def unmatched(self) -> list[Unmatched]:
        """All tensors without a partner, with their reasons."""
        unmatched = []
        for side, matching_side in (("target", self.target), ("reference", self.reference)):
            paired_keys = self._taken_target if side == "target" else self._taken_reference
            for tensor in matching_side.run.tensors:
                if tensor.key not in paired_keys:
                    side_and_key = (side, tensor.key)
                    unmatched.append(
                        Unmatched(
                            side,
                            tensor.key,
                            self.reasons.get(side_and_key, Reason(ReasonCode.NO_COUNTERPART)),
                            counted=side_and_key not in self.uncounted,
                            inside=self.inside.get(side_and_key, ""),
                        )
                    )
        return unmatched


@runtime_checkable
class Matcher(Protocol):
    """Finds pairs among the tensors that are still unpaired."""

    name: str

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Yield pairs with their evidence, or add them to `matching` directly; may also refuse
        tensors with a reason."""
