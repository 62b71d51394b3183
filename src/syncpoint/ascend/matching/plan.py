"""Data classes of a plan: its entries, one for each line of the report, why some cannot be
compared; shape and layout as text; the matcher that follows a plan.

A plan has an entry for every line of the report, also for tensors that cannot be compared, in the
order of the report. The entries with both tensors become sync points.
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
class PlanEntry:
    """One line of the report: a tensor of the device and the tensor that it should equal."""

    index: int
    """Number of its group of ops, in the order of the network."""
    type: str
    target_names: tuple[str, ...]
    """Device ops of the group."""
    reference_names: tuple[str, ...]
    """Ops of the original model that the group stands for; none if the compiler added it."""
    sequence: int | None = None
    """Number of the op in the rule file."""
    op: str = ""
    """The device op whose tensor this is."""
    target: Tensor | None = None
    reference: Tensor | None = None
    axes: str = ""
    """Axes of the reference by the rule file: NCHW, NHWC, ND."""
    view: View = field(default_factory=View)
    reason: ReasonCode | None = None
    """Why there is nothing to compare."""
    report_text: str = ""
    """The reason as the report of the other tool says it."""
    note: str = ""
    """A remark on a pair that is compared."""
    ends_only: bool = False
    """Whether only the least and the greatest value of one of the two are known."""
    counted: bool = True
    """Whether a tensor that is not compared counts for the coverage."""
    unreadable: tuple[Role, int] | None = None
    """Role and index of a tensor that cannot be read in a file whose other tensors can."""
    golden_op: str = ""
    """The op of the original model whose file is missing or damaged."""

    part: Part = WHOLE
    """The execution it belongs to."""

    @property
    def key(self) -> OpKey:
        """The device op; it exists also if the dump has none of its tensors."""
        return OpKey(self.op)

    @property
    def label(self) -> str:
        """`op:output:0`, as in the report."""
        if self.target is None:
            return ""
        key = self.target.key
        return f"{self.op}:{key.role}:{key.index}"


@dataclass(frozen=True)
class ComparisonPlan:
    """All entries, and the tensors of the device that are not compared."""

    entries: tuple[PlanEntry, ...]
    evidence: str
    """Why the pairs belong together."""
    excluded: tuple[tuple[TensorKey, str], ...] = ()
    """Tensors of the device that are excluded on purpose, with the reason."""
    notes: tuple[str, ...] = ()

    def pairs(self) -> Iterator[SyncPoint]:
        """The entries with both tensors, as sync points."""
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
                    unmeasured=_unmeasured_reason(entry.reason, entry.target, entry.reference),
                )


def _unmeasured_reason(code: ReasonCode | None, target: Tensor, reference: Tensor) -> Reason:
    """The reason in short form; the report says more."""
    if code is None:
        return NO_REASON
    return Reason(code, f"{format_form(target)} against {format_form(reference)}")


def format_form(tensor: Tensor) -> str:
    """The shape of a tensor, and its layout if it has one."""
    return f"{format_shape(tensor.shape)} {tensor.layout}".strip()


class PlanMatcher:
    """Pairs tensors by a plan alone."""

    name = "plan"

    def __init__(self, plan: ComparisonPlan) -> None:
        self._plan = plan

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Add all pairs of the plan.

        Several tensors of the device may equal one tensor of the original model: an output, its
        casts, and the inputs of the ops that read it.
        """
        for pair in self._plan.pairs():
            matching.add(pair, shared=True)
        for entry in self._plan.entries:
            if entry.target is None or entry.reference is not None or entry.reason is None:
                continue
            matching.refuse("target", entry.target.key, Reason(entry.reason, entry.report_text))
            if not entry.counted:
                matching.uncounted.add(("target", entry.target.key))
        for key, why in self._plan.excluded:
            matching.refuse("target", key, Reason(ReasonCode.EXCLUDED, why))
        matching.by_plan = True
        matching.hidden.update(self._hidden_in_groups(matching))
        return ()

    def _hidden_in_groups(self, matching: Matching) -> Iterator[tuple[str, TensorKey]]:
        """Tensors of the original model inside a group of ops whose result is paired."""
        names = {
            (name, entry.reference.key.part)
            for entry in self._plan.entries
            if entry.target is not None and entry.reference is not None
            for name in entry.reference_names
        }
        for op, tensors in matching.reference.outputs.items():
            for tensor in tensors:
                is_inside = (op.op, tensor.key.part) in names
                if is_inside and matching.free_reference(tensor.key):
                    yield "reference", tensor.key
