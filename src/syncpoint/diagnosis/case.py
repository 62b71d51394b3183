"""What the causes look at: a comparison, its runs where they are at hand, and its models.

Everything is asked for when a cause needs it: most comparisons are explained by a few ops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from math import prod
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.engine import Options, compare
from syncpoint.comparison.findings import Finding
from syncpoint.comparison.introduced_error.local_calculation import LocalCalculation
from syncpoint.comparison.introduced_error.regions import NoRegion, RegionTooLarge
from syncpoint.comparison.operands import dequantize, fit_view, operand_of
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import End, Row
from syncpoint.comparison.sides import Sides, build_sides
from syncpoint.diagnosis import budget
from syncpoint.diagnosis import large_tensor_samples as samples
from syncpoint.diagnosis.budget import Budget
from syncpoint.diagnosis.experiments.reference_evaluators import FallbackEvaluator, NumpyEvaluator
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.folded_norms import drop_folded_norms
from syncpoint.diagnosis.guilty_ops import ValueChecks, find_guilty
from syncpoint.errors import SyncpointError
from syncpoint.matching.matchers.map_file import MapFile
from syncpoint.matching.op_kinds import op_class
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import WHOLE, Edge, Kept, Op, OpKey, Part, Role, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.runtimes.protocol import Evaluates, Inputs

Array = NDArray[Any]
Values = NDArray[np.float64]
_ROUNDINGS = 4
"""Of the greatest value: as much error is nobody's fault."""
_PARTS = 4
"""Of a tensor that is split up, so many parts are considered."""


@dataclass(frozen=True)
class Subject:
    """A model that can be run again."""

    label: str
    capture: Callable[..., Run]
    """`capture(inputs=None, **options)`: on the recorded inputs where none are given; the options
    are those of its runtime, on top of those that it was recorded with."""
    runtime: str = ""
    replay: Callable[[Mapping[TensorKey, Array]], Mapping[TensorKey, Array]] | None = None
    """Runs it on the recorded inputs with other values in the place of some tensors: the model's
    outputs. None where its runtime cannot."""


@dataclass
class Case:
    """A comparison to explain."""

    result: Result
    target: Run | None = None
    """None where it is not at hand; `absent` then says why."""
    reference: Run | None = None
    _: KW_ONLY
    absent: Mapping[str, str] = field(default_factory=dict)
    """Side -> why its run cannot be read."""
    subjects: Mapping[str, Subject] = field(default_factory=dict)
    """Side -> its model, where it may be run again."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """What the caller gave besides: `prepared`, what two pipelines made of one raw sample."""
    seconds: float = 60.0
    """After this long no more experiments are begun, and `budget.EXTRA_SECONDS` later no more
    values are looked at."""
    found: list[Finding] = field(default_factory=list)
    """What the causes before this one found."""
    experiments: list[str] = field(default_factory=list)
    """What was run, in words."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What is costly to find and wanted by several causes."""
    compared_sides: Sides | None = None
    """Both runs as the comparison read them; None where it was loaded from disk."""

    def __post_init__(self) -> None:
        self._begun = monotonic()
        self.budget = Budget(self._begun + self.seconds + budget.EXTRA_SECONDS)
        self._runs: dict[Any, Run | None] = {}
        self._experiments: dict[TensorKey, RegionExperiment | None] = {}
        self._taken_in: dict[TensorKey, OpKey] = {}

    # What there is

    @property
    def rows(self) -> list[Row]:
        """All sync points."""
        return self.result.rows

    @cached_property
    def computed(self) -> list[Row]:
        """Rows of what the ops gave and of the model's outputs, in the target's order."""
        roles = (Role.OUTPUT, Role.MODEL_OUTPUT)
        found = [row for row in self.rows if row.target.key.role in roles]
        return sorted(found, key=lambda row: row.target.order)

    @cached_property
    def place(self) -> dict[TensorKey, int]:
        """Target tensor -> its row's place in the comparison, for `Finding.rows`."""
        return {row.target.key: at for at, row in enumerate(self.rows)}

    @cached_property
    def by_reference(self) -> dict[TensorKey, Row]:
        """Reference tensor -> its row."""
        return {row.reference.key: row for row in self.rows}

    @cached_property
    def guilty(self) -> list[Row]:
        """The guilty rows in execution order, by the rule of `syncpoint.diagnosis.guilty_ops`."""
        return find_guilty(
            self.computed,
            ValueChecks(
                drop_folded_norms=self._drop_folded_norms,
                is_unexplained_output=self._is_unexplained_output,
                is_innocent=self._is_innocent,
                first_divergence=lambda: self.result.first_divergence,
            ),
        )

    def _drop_folded_norms(self, rows: list[Row]) -> list[Row]:
        """Return the rows that are off by more than a norm which the target folded, and remember
        which products are looked at together with their norm."""
        rows, self._taken_in = drop_folded_norms(self, rows)
        for key in self._taken_in:
            self._experiments.pop(key, None)
        return rows

    @cached_property
    def readers(self) -> dict[Edge, list[Op]]:
        """What an op of the reference gave -> the ops that read it."""
        found: dict[Edge, list[Op]] = {}
        for op in self.reference.ops if self.reference is not None else ():
            for edge in dict.fromkeys(op.inputs):
                found.setdefault(edge, []).append(op)
        return found

    def _is_unexplained_output(self, row: Row) -> bool:
        """Whether a model output is off while no sync point of an op accounts for it: the target
        has another op in place of the one that made it, or one more behind it."""
        if row.target.key.role is not Role.MODEL_OUTPUT or not row.verdict.severity:
            return False
        maker = self.maker(row)
        made_by = self.by_reference.get(maker) if maker is not None else None
        return maker is not None and (made_by is None or made_by.verdict is Verdict.CLOSE)

    def _is_innocent(self, row: Row) -> bool:
        """Whether an op where the runs part gives what the reference's op gives on the same inputs,
        up to the rounding of its type: then only what it was given shows there."""
        experiment = self.experiment(row) if row.target.dtype in DTYPES else None
        unit = DTYPES[row.target.dtype].unit if experiment is not None else 0.0
        if experiment is None or not np.isfinite(experiment.target).all():
            return False
        size = float(np.max(np.abs(experiment.counted(experiment.truth)), initial=0.0))
        return bool(np.max(np.abs(experiment.error), initial=0.0) <= _ROUNDINGS * unit * size)

    def maker(self, row: Row) -> TensorKey | None:
        """What an op of the reference gave that this row's reference tensor is; None where the
        run does not tell."""
        key = row.reference.key
        if key.role is Role.OUTPUT:
            return key
        tensor = self.reference.tensor(key) if self.reference is not None else None
        if self.reference is None or tensor is None or key.role is not Role.MODEL_OUTPUT:
            return None
        index = self._outputs_by_text
        return index.get((tensor.alias_of, key.part)) or index.get((str(key.op), key.part))

    @cached_property
    def _outputs_by_text(self) -> dict[tuple[str, Part], TensorKey]:
        tensors = self.reference.tensors if self.reference is not None else ()
        return {
            (str(replace(t.key, part=WHOLE)), t.key.part): t.key
            for t in tensors
            if t.key.role is Role.OUTPUT
        }

    @cached_property
    def is_off(self) -> bool:
        """Whether anything that was compared is not close."""
        return any(
            row.verdict.severity > 0 or row.verdict is Verdict.INHERITED for row in self.rows
        )

    @property
    def sure(self) -> bool:
        """Whether a cause before this one explains the error for certain."""
        return any(f.level == "cause" and f.confidence >= 0.9 for f in self.found)

    def run(self, side: str) -> Run | None:
        """The run of a side, where it is at hand."""
        return self.target if side == "target" else self.reference

    def op(self, side: str, key: OpKey) -> Op | None:
        """The record of an op."""
        run = self.run(side)
        return run.op(key) if run is not None else None

    def pair(self, row: Row) -> tuple[Values | None, Values | None]:
        """Target and reference of a row in float64, as `values` gives them; of tensors that are too
        large for that a sample, which has the same places of both."""
        target, reference = (self._tensor(side, row) for side in ("target", "reference"))
        sizes = [tensor.count for tensor in (target, reference) if tensor is not None]
        if max(sizes, default=0) <= budget.MAX_ELEMENTS:
            return self.values("target", row), self.values("reference", row)
        if target is None or reference is None:
            return None, None
        worst = (row.numbers or {}).get("max_abs_index")
        places = samples.sample_places(reference.shape, None if worst is None else int(worst))
        try:
            ours = self._sampled_target(row, target, places)
            theirs = samples.sampled_tensor(self.reference, reference, places)
            kept = self.kept(row)
            if kept is not None and ours is not None and theirs is not None:
                ours = np.where(kept[np.ix_(*places)], ours, theirs)
        except (SyncpointError, ValueError, TypeError):
            ours = theirs = None
        if ours is None or theirs is None:
            budget.note_too_large(target.key, max(sizes))
            return None, None
        self.budget.samples[row.target.key] = samples.sample_words(places, reference.shape)
        return ours, theirs

    def _sampled_target(self, row: Row, tensor: Tensor, places: samples.Places) -> Values | None:
        """The target's values at places of the reference; None where that takes a copy of it."""
        if self.target is None:
            return None
        if not row.view and tensor.shape == row.reference.shape:
            return samples.sampled_tensor(self.target, tensor, places)
        if tensor.quantization is not None:
            return None  # its scales would be undone first, all of them
        operand = operand_of(self.target, tensor)
        operand, _ = fit_view(operand, View(row.view), row.reference.shape)
        if operand.array.shape != row.reference.shape:
            return None
        return samples.sampled(operand, places)

    def is_sampled(self, row: Row) -> bool:
        """Whether `pair` gave a sample of this row."""
        return row.target.key in self.budget.samples

    def values(self, side: str, row: Row) -> Values | None:
        """One end of a row in float64, the target's laid over the reference's and equal to it in
        masked positions; None where it was not kept, cannot be read or has more than
        `budget.MAX_ELEMENTS`."""
        budget.check_time()
        run, tensor = self.run(side), self._tensor(side, row)
        if run is None or tensor is None:
            return None
        if tensor.count > budget.MAX_ELEMENTS:
            budget.note_too_large(tensor.key, tensor.count)
            return None
        try:
            operand = operand_of(run, tensor)
            if side == "target":
                operand, _ = fit_view(operand, View(row.view), row.reference.shape)
            values = np.asarray(dequantize(operand), np.float64)
            return self._hide_masked(row, values) if side == "target" else values
        except (SyncpointError, ValueError, TypeError):
            return None

    def _hide_masked(self, row: Row, target: Values) -> Values | None:
        """The target's values with the reference's in masked positions: no difference there."""
        kept = self.kept(row)
        if kept is None:
            return target
        reference = self.values("reference", row)
        if reference is None or not target.shape == reference.shape == kept.shape:
            return None
        return np.where(kept, target, reference)

    def _tensor(self, side: str, row: Row) -> Tensor | None:
        """The record of one end of a row, where its values were kept."""
        run = self.run(side)
        end: End = row.target if side == "target" else row.reference
        tensor = run.tensor(end.key) if run is not None else None
        return tensor if tensor is not None and tensor.kept is Kept.VALUES else None

    # What can be computed

    @cached_property
    def sides(self) -> Sides | None:
        """Both runs with the masks of the map; None where one is not at hand."""
        if self.compared_sides is not None:
            return self.compared_sides
        if self.target is None or self.reference is None:
            return None
        return build_sides(self.target, self.reference, self.result.masks)

    def kept(self, row: Row) -> NDArray[np.bool_] | None:
        """Which elements of a row count; None where all do. ValueError where a mask does not
        fit."""
        return (
            self.sides.counted_elements(row)
            if self.result.masks and self.sides is not None
            else None
        )

    def count_elements(self, row: Row) -> int:
        """How many elements of a row count."""
        kept = self.kept(row)
        return prod(row.reference.shape) if kept is None else int(np.count_nonzero(kept))

    @cached_property
    def evaluator(self) -> Evaluates | None:
        """Runs pieces of the reference: its model, or without it what we know of its ops."""
        if self.reference is None:
            return None
        if isinstance(self.reference.session, Evaluates):
            return FallbackEvaluator(self.reference.session, self.reference)
        return NumpyEvaluator(self.reference)

    @cached_property
    def introducer(self) -> LocalCalculation | None:
        """Finds the region behind a row and runs it on the target's values."""
        if self.sides is None or self.evaluator is None:
            return None
        return LocalCalculation(
            self.sides,
            self.rows,
            self.evaluator,
            None,
            max_elements=budget.MAX_REGION_ELEMENTS,
        )

    def experiment(self, row: Row) -> RegionExperiment | None:
        """What the target's op gave beside what the reference's ops make of the same inputs;
        None where those cannot be run."""
        key = row.target.key
        if key not in self._experiments:
            self._experiments[key] = self._experiment(row)
        return self._experiments[key]

    def _experiment(self, row: Row) -> RegionExperiment | None:
        at = self.maker(row)
        norm = self._taken_in.get(row.target.key)
        if at is None or norm is None:
            return self._through(row, at)
        return self._through(row, TensorKey(norm, part=at.part), {at})

    def wider(self, row: Row) -> tuple[RegionExperiment, list[Row]] | None:
        """The same, together with the ops right before it that make error themselves, and the rows
        of those: steps of one thing may each be paired with a step of another."""
        experiment = self.experiment(row)
        guilty = {r.reference.key: r for r in self.guilty}
        read = [
            guilty[key]
            for e in (experiment.region.inputs if experiment is not None else ())
            if (key := TensorKey(e.op, e.role, e.index, row.reference.key.part)) in guilty
        ]
        keys = {r.reference.key for r in read}
        found = self._through(row, self.maker(row), keys) if keys else None
        return (found, read) if found is not None else None

    def _through(
        self, row: Row, at: TensorKey | None, through: AbstractSet[TensorKey] = frozenset()
    ) -> RegionExperiment | None:
        introducer = self.introducer
        tensor = self._tensor("target", row)
        if introducer is None or at is None or tensor is None:
            return None
        if tensor.count > budget.MAX_ELEMENTS:
            budget.note_too_large(tensor.key, tensor.count)
            return None
        try:
            exact = introducer.evaluate_exactly(at.op, [at.index], at.part, through)
        except RegionTooLarge as error:
            budget.note_too_large(row.target.key, error.elements)
            return None
        except (NoRegion, SyncpointError, KeyError, ValueError):
            return None
        target = self.values("target", row)
        if target is None:
            return None
        truth = exact.outputs.get(at.index)
        if truth is None or truth.shape != target.shape:
            return None
        kept = self.kept(row)
        if kept is not None:
            target = np.where(kept, target, truth)
        ops = tuple(op for k in exact.region.ops if (op := self.op("reference", k)) is not None)
        return RegionExperiment(
            row=row,
            ops=ops,
            region=exact.region,
            inputs=exact.inputs,
            target=target,
            truth=truth,
            session=introducer.session,
            siblings={e: self._siblings(e, at.part) for e in exact.region.inputs},
            kept=kept,
        )

    @cached_property
    def _readers(self) -> dict[tuple[str, Edge], list[Op]]:
        """Type and first operand -> the reference's ops of that type that read it."""
        found: dict[tuple[str, Edge], list[Op]] = {}
        for op in self.reference.ops if self.reference is not None else ():
            if op.inputs:
                found.setdefault((op.type, op.inputs[0]), []).append(op)
        return found

    def _siblings(self, edge: Edge, part: Part) -> dict[Edge, NDArray[Any]]:
        """The target's values at other parts of the tensor that `edge` is a part of."""
        op = self.op("reference", edge.op) if edge.role is Role.OUTPUT else None
        introducer = self.introducer
        if op is None or not op.inputs or introducer is None:
            return {}
        if op_class(op.type) not in ("split", "slice"):
            return {}
        beside = [o.key for o in self._readers[op.type, op.inputs[0]]][:_PARTS]
        known = introducer.by_reference
        own = known.get(TensorKey(edge.op, index=edge.index, part=part))
        found = {}
        for other in (Edge(key, index) for key in beside for index in range(_PARTS)):
            row = known.get(TensorKey(other.op, index=other.index, part=part))
            if other == edge or row is None or own is None:
                continue
            if row.reference.shape == own.reference.shape:
                found[other] = introducer.target_value(other, part)
        return found

    # What can be run again

    @property
    def has_time(self) -> bool:
        """Whether another experiment may be begun."""
        return monotonic() - self._begun < self.seconds

    def again(
        self,
        side: str,
        why: str,
        inputs: list[Inputs] | None = None,
        time: int = 0,
        **options: Any,
    ) -> Run | None:
        """The side's model, run once more with other options or inputs; None where it is not at
        hand, time is up, or it cannot be run so. The same is run once, unless another `time` is
        asked for."""
        given = id(inputs) if inputs is not None else None
        key = (side, given, time, repr(sorted(options.items())))
        if key in self._runs:
            return self._runs[key]
        subject = self.subjects.get(side)
        if subject is None or not self.has_time:
            return None
        try:
            made: Run | None = subject.capture(inputs, **options)
            self.experiments.append(why)
        except SyncpointError:
            made = None
        self._runs[key] = made
        return made

    def compare_again(self, target: Run) -> Result | None:
        """Compare another run of the target with the reference, by the masks and limits of the
        comparison; None where the two cannot be compared."""
        if self.reference is None:
            return None
        map_file = MapFile(masks=self.result.masks)
        try:
            return compare(
                target, self.reference, Options(choice=self.result.choice, map_file=map_file)
            )
        except SyncpointError:
            return None

    def replayed(
        self, side: str, values: Mapping[TensorKey, Array], why: str
    ) -> Mapping[TensorKey, Array] | None:
        """The outputs of a side when some of its tensors are others; None where it cannot be run
        so, or time is up."""
        subject = self.subjects.get(side)
        if subject is None or subject.replay is None or not self.has_time:
            return None
        try:
            found = subject.replay(values)
        except SyncpointError:
            return None
        self.experiments.append(why)
        return found
