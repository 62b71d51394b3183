"""What is to be compared with what, as the rule files or the names of two dumps say it.

A plan has an entry for every line of the report, also for what cannot be compared, in the order
of the report. Its sync points are the entries that have both tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from syncpoint.matching.protocol import Matching, SyncPoint
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import NO_REASON, Reason, ReasonCode
from syncpoint.run.dims import format_shape
from syncpoint.run.model import WHOLE, OpKey, Part, Role, Tensor, TensorKey


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the report: a tensor of the device and what it should equal."""

    index: int
    """Number of the group of ops it belongs to, in the order of the network."""
    type: str
    target_names: tuple[str, ...]
    """Device ops of the group."""
    reference_names: tuple[str, ...]
    """Ops of the original model that the group stands for; none where the compiler added it."""
    sequence: int | None = None
    """Number of the op in the rule file."""
    op: str = ""
    """The one device op whose tensor this is."""
    target: Tensor | None = None
    reference: Tensor | None = None
    axes: str = ""
    """Names of the axes that the reference has by the rule file: NCHW, NHWC, ND."""
    view: View = field(default_factory=View)
    reason: ReasonCode | None = None
    """Why there is nothing to compare."""
    words: str = ""
    """The same in the words of the report."""
    note: str = ""
    """What a reader must know of a pair that is compared all the same."""
    ends_only: bool = False
    """Whether the least and the greatest value are all that is known of one of the two."""
    counted: bool = True
    """Whether an uncompared tensor of the device holds a result of its own."""
    unreadable: tuple[Role, int] | None = None
    """Role and number of the tensor that cannot be read, in a file whose others can."""
    golden: str = ""
    """The op of the original model whose file is missing or damaged."""

    part: Part = WHOLE
    """The execution it belongs to."""

    @property
    def key(self) -> OpKey:
        """The device op, also where none of its tensors is known."""
        return OpKey(self.op)

    @property
    def label(self) -> str:
        """`op:output:0`, as the report has it."""
        if self.target is None:
            return ""
        key = self.target.key
        return f"{self.op}:{key.role}:{key.index}"


@dataclass(frozen=True)
class Plan:
    """All entries, and which device ops stayed out of it."""

    entries: tuple[Entry, ...]
    evidence: str
    """In words: what speaks for the pairs."""
    excluded: tuple[tuple[TensorKey, str], ...] = ()
    """Tensors of the device that are left out on purpose, with the reason in words."""
    notes: tuple[str, ...] = ()

    def pairs(self) -> Iterator[SyncPoint]:
        """The entries that have both tensors, as sync points."""
        for entry in self.entries:
            if entry.target is not None and entry.reference is not None:
                yield SyncPoint(
                    entry.target.key,
                    entry.reference.key,
                    self.evidence,
                    confidence=1.0,
                    view=entry.view,
                    note=entry.note,
                    ends_only=entry.ends_only,
                    unmeasured=_unmeasured(entry.reason, entry.target, entry.reference),
                )


def _unmeasured(code: ReasonCode | None, target: Tensor, reference: Tensor) -> Reason:
    """In few words; the report has more."""
    if code is None:
        return NO_REASON
    return Reason(code, f"{form_text(target)} against {form_text(reference)}")


def form_text(tensor: Tensor) -> str:
    """The shape of a tensor and its layout, where it has one."""
    return f"{format_shape(tensor.shape)} {tensor.layout}".strip()


class PlanMatcher:
    """Pairs by a plan, and by nothing else."""

    name = "plan"

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """All pairs of the plan. One tensor of the original model is what several tensors of the
        device should equal: an output, its casts, and the inputs of those who read it."""
        for pair in self._plan.pairs():
            matching.add(pair, shared=True)
        for entry in self._plan.entries:
            if entry.target is None or entry.reference is not None or entry.reason is None:
                continue
            matching.refuse("target", entry.target.key, Reason(entry.reason, entry.words))
            if not entry.counted:
                matching.uncounted.add(("target", entry.target.key))
        for key, why in self._plan.excluded:
            matching.refuse("target", key, Reason(ReasonCode.EXCLUDED, why))
        matching.by_plan = True
        matching.hidden.update(self._stood_for(matching))
        return ()

    def _stood_for(self, matching: Matching) -> Iterator[tuple[str, TensorKey]]:
        """Tensors of the original model that are inside a group of ops whose result is paired."""
        names = {
            (name, entry.reference.key.part)
            for entry in self._plan.entries
            if entry.target is not None and entry.reference is not None
            for name in entry.reference_names
        }
        for op, tensors in matching.reference.outputs.items():
            for tensor in tensors:
                inside = (op.op, tensor.key.part) in names
                if inside and matching.free_reference(tensor.key):
                    yield "reference", tensor.key
