"""What causes work on (`Case`): rows, guilty rows, values of both sides, masks, experiments on a
row, running models again, comparing a new run of the target.

Everything is read and computed when a cause needs it: a few ops explain most comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from syncpoint.comparison.operands import dequantize, fit_view, operand_of
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import End, Row
from syncpoint.comparison.sides import Sides, build_sides
from syncpoint.diagnosis import budget
from syncpoint.diagnosis import large_tensor_samples as samples
from syncpoint.diagnosis.budget import Budget
from syncpoint.diagnosis.experiments.numpy_evaluator import FallbackEvaluator, NumpyEvaluator
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment, build_experiment
from syncpoint.diagnosis.folded_norms import drop_folded_norms
from syncpoint.diagnosis.guilty_ops import ValueChecks, find_guilty
from syncpoint.errors import SyncpointError
from syncpoint.matching.matchers.map_file import MapFile
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import WHOLE, Edge, Kept, Op, OpKey, Part, Role, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.runtimes.protocol import Evaluates, Inputs

Array = NDArray[Any]
Values = NDArray[np.float64]
_MAX_ERROR_ROUNDINGS = 4
"""Roundings of the greatest value up to which an op is innocent."""


@dataclass(frozen=True)
class Subject:
    """A model that can be run again."""

    label: str
    capture: Callable[..., Run]
    """`capture(inputs=None, **options)`: runs on the recorded inputs if none are given. The options
    are those of its runtime, in addition to those of the recording."""
    runtime: str = ""
    replay: Callable[[Mapping[TensorKey, Array]], Mapping[TensorKey, Array]] | None = None
    """Runs it on the recorded inputs with some tensors replaced and returns the outputs. None if
    its runtime cannot."""


@dataclass
class Case:
    """A comparison to explain."""

    result: Result
    target: Run | None = None
    """None if it is not available; `absent` then says why."""
    reference: Run | None = None
    _: KW_ONLY
    absent: Mapping[str, str] = field(default_factory=dict)
    """Side -> why its run cannot be read."""
    subjects: Mapping[str, Subject] = field(default_factory=dict)
    """Side -> its model, if it may be run again."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """What else the caller gave: `prepared`, the results of two pipelines on one raw sample."""
    seconds: float = 60.0
    """Time after which no experiment begins; `budget.EXTRA_SECONDS` later no value is read."""
    findings: list[Finding] = field(default_factory=list)
    """Findings of the causes before this one."""
    experiments: list[str] = field(default_factory=list)
    """What was run, one text for each run."""
    cache: dict[str, Any] = field(default_factory=dict)
    """Costly results that several causes need."""
    compared_sides: Sides | None = None
    """Both runs as the comparison read them; None if it was loaded from disk."""

    def __post_init__(self) -> None:
        self._start = monotonic()
        self.budget = Budget(self._start + self.seconds + budget.EXTRA_SECONDS)
        self._runs: dict[Any, Run | None] = {}
        self._experiments: dict[TensorKey, RegionExperiment | None] = {}
        self._folded_norms: dict[TensorKey, OpKey] = {}

    # The comparison and its values

    @property
    def rows(self) -> list[Row]:
        """All sync points."""
        return self.result.rows

    @cached_property
    def computed(self) -> list[Row]:
        """Rows of op outputs and of model outputs, in the target's order."""
        roles = (Role.OUTPUT, Role.MODEL_OUTPUT)
        rows = [row for row in self.rows if row.target.key.role in roles]
        return sorted(rows, key=lambda row: row.target.order)

    @cached_property
    def place(self) -> dict[TensorKey, int]:
        """Target tensor -> position of its row in the comparison, for `Finding.rows`."""
        return {row.target.key: index for index, row in enumerate(self.rows)}

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
        """Return the rows without those that only lack a folded norm, and remember which products
        to examine together with their norm."""
        rows, self._folded_norms = drop_folded_norms(self, rows)
        for key in self._folded_norms:
            self._experiments.pop(key, None)
        return rows

    @cached_property
    def readers(self) -> dict[Edge, list[Op]]:
        """Output of an op of the reference -> the ops that read it."""
        readers: dict[Edge, list[Op]] = {}
        for op in self.reference.ops if self.reference is not None else ():
            for edge in dict.fromkeys(op.inputs):
                readers.setdefault(edge, []).append(op)
        return readers

    def _is_unexplained_output(self, row: Row) -> bool:
        """Whether a model output is off and no sync point of an op accounts for it: the target has
        another op in place of the one that produced it, or one more after it."""
        if row.target.key.role is not Role.MODEL_OUTPUT or not row.verdict.severity:
            return False
        maker = self.maker(row)
        producer = self.by_reference.get(maker) if maker is not None else None
        return maker is not None and (producer is None or producer.verdict is Verdict.CLOSE)

    def _is_innocent(self, row: Row) -> bool:
        """Whether an op gives the result of the reference's op on the same inputs, up to rounding:
        then the error comes from its inputs."""
        experiment = self.experiment(row) if row.target.dtype in DTYPES else None
        unit = DTYPES[row.target.dtype].unit if experiment is not None else 0.0
        if experiment is None or not np.isfinite(experiment.target).all():
            return False
        size = float(np.max(np.abs(experiment.counted(experiment.truth)), initial=0.0))
        return bool(
            np.max(np.abs(experiment.error), initial=0.0) <= _MAX_ERROR_ROUNDINGS * unit * size
        )

    def maker(self, row: Row) -> TensorKey | None:
        """Return the op output that is this row's reference tensor; None if the run does not
        say."""
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
    def is_explained(self) -> bool:
        """Whether an earlier cause explains the error for certain."""
        return any(f.level == "cause" and f.confidence >= 0.9 for f in self.findings)

    def run(self, side: str) -> Run | None:
        """Return the run of a side, if it is available."""
        return self.target if side == "target" else self.reference

    def op(self, side: str, key: OpKey) -> Op | None:
        """Return the record of an op."""
        run = self.run(side)
        return run.op(key) if run is not None else None

    def pair(self, row: Row) -> tuple[Values | None, Values | None]:
        """Return target and reference of a row in float64, as `values` does; for tensors that are
        too large, a sample with the same positions of both."""
        target, reference = (self.find_tensor(side, row) for side in ("target", "reference"))
        sizes = [tensor.count for tensor in (target, reference) if tensor is not None]
        if max(sizes, default=0) <= budget.MAX_ELEMENTS:
            return self.values("target", row), self.values("reference", row)
        if target is None or reference is None:
            return None, None
        worst = (row.numbers or {}).get("max_abs_index")
        places = samples.choose_sample(reference.shape, None if worst is None else int(worst))
        try:
            target_values = samples.sample_target(self.target, target, row, places)
            reference_values = samples.sample_tensor(self.reference, reference, places)
            counted = self.counted_mask(row)
            if counted is not None and target_values is not None and reference_values is not None:
                counted = counted[np.ix_(*places)]
                target_values = np.where(counted, target_values, reference_values)
        except (SyncpointError, ValueError, TypeError):
            target_values = reference_values = None
        if target_values is None or reference_values is None:
            budget.note_too_large(target.key, max(sizes))
            return None, None
        self.budget.samples[row.target.key] = samples.describe_sample(places, reference.shape)
        return target_values, reference_values

    def is_sampled(self, row: Row) -> bool:
        """Whether `pair` returned a sample of this row."""
        return row.target.key in self.budget.samples

    def values(self, side: str, row: Row) -> Values | None:
        """Return one side of a row in float64; None if it was not kept, cannot be read or has more
        than `budget.MAX_ELEMENTS`.

        The target is in the layout of the reference and equal to it in masked positions.
        """
        budget.check_time()
        run, tensor = self.run(side), self.find_tensor(side, row)
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
        """Return the target's values with the reference's in masked positions."""
        counted = self.counted_mask(row)
        if counted is None:
            return target
        reference = self.values("reference", row)
        if reference is None or not target.shape == reference.shape == counted.shape:
            return None
        return np.where(counted, target, reference)

    def find_tensor(self, side: str, row: Row) -> Tensor | None:
        """Return the record of one side of a row, if its values were kept."""
        run = self.run(side)
        end: End = row.target if side == "target" else row.reference
        tensor = run.tensor(end.key) if run is not None else None
        return tensor if tensor is not None and tensor.kept is Kept.VALUES else None

    # Computing ops

    @cached_property
    def sides(self) -> Sides | None:
        """Both runs with the masks of the map file; None if one is not available."""
        if self.compared_sides is not None:
            return self.compared_sides
        if self.target is None or self.reference is None:
            return None
        return build_sides(self.target, self.reference, self.result.masks)

    def counted_mask(self, row: Row) -> NDArray[np.bool_] | None:
        """Return which elements of a row count; None if all do. ValueError if a mask does not
        fit."""
        return (
            self.sides.counted_elements(row)
            if self.result.masks and self.sides is not None
            else None
        )

    def count_elements(self, row: Row) -> int:
        """Return how many elements of a row count."""
        counted = self.counted_mask(row)
        return prod(row.reference.shape) if counted is None else int(np.count_nonzero(counted))

    @cached_property
    def evaluator(self) -> Evaluates | None:
        """Evaluates regions of the reference: with its model, or without it with NumPy."""
        if self.reference is None:
            return None
        if isinstance(self.reference.session, Evaluates):
            return FallbackEvaluator(self.reference.session, self.reference)
        return NumpyEvaluator(self.reference)

    @cached_property
    def introducer(self) -> LocalCalculation | None:
        """Finds the region behind a row and evaluates it on the target's values."""
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
        """Return the experiment on a row: the target's result and that of the reference's ops on
        the same inputs. None if those cannot be run."""
        key = row.target.key
        if key not in self._experiments:
            self._experiments[key] = self._build_experiment(row)
        return self._experiments[key]

    def _build_experiment(self, row: Row) -> RegionExperiment | None:
        output = self.maker(row)
        norm = self._folded_norms.get(row.target.key)
        if output is None or norm is None:
            return build_experiment(self, row, output)
        return build_experiment(self, row, TensorKey(norm, part=output.part), {output})

    def widen_experiment(self, row: Row) -> tuple[RegionExperiment, list[Row]] | None:
        """Return the experiment on a row together with the guilty ops right before it, and the
        rows of those ops. Steps of one op may each be paired with a step of another."""
        experiment = self.experiment(row)
        guilty = {r.reference.key: r for r in self.guilty}
        read = [
            guilty[key]
            for e in (experiment.region.inputs if experiment is not None else ())
            if (key := TensorKey(e.op, e.role, e.index, row.reference.key.part)) in guilty
        ]
        keys = {r.reference.key for r in read}
        wider = build_experiment(self, row, self.maker(row), keys) if keys else None
        return (wider, read) if wider is not None else None

    # Running models

    @property
    def has_time(self) -> bool:
        """Whether another experiment may begin."""
        return monotonic() - self._start < self.seconds

    def rerun(
        self,
        side: str,
        why: str,
        inputs: list[Inputs] | None = None,
        time: int = 0,
        **options: Any,
    ) -> Run | None:
        """Run a side's model again with other options or inputs; None if it is not available, the
        time is over, or it cannot be run so.

        Equal calls run once; another `time` makes them different. `why` describes the run.
        """
        inputs_id = id(inputs) if inputs is not None else None
        key = (side, inputs_id, time, repr(sorted(options.items())))
        if key in self._runs:
            return self._runs[key]
        subject = self.subjects.get(side)
        if subject is None or not self.has_time:
            return None
        try:
            run: Run | None = subject.capture(inputs, **options)
            self.experiments.append(why)
        except SyncpointError:
            run = None
        self._runs[key] = run
        return run

    @property
    def found(self) -> list[Finding]:
        """Older name of `findings`, for causes of other packages."""
        return self.findings

    again = rerun
    """Older name of `rerun`, for causes of other packages."""

    def compare_again(self, target: Run) -> Result | None:
        """Compare another run of the target with the reference, with the masks and limits of the
        comparison; None if the two cannot be compared."""
        if self.reference is None:
            return None
        map_file = MapFile(masks=self.result.masks)
        try:
            return compare(
                target, self.reference, Options(choice=self.result.choice, map_file=map_file)
            )
        except SyncpointError:
            return None

    def replay(
        self, side: str, values: Mapping[TensorKey, Array], why: str
    ) -> Mapping[TensorKey, Array] | None:
        """Run a side with some tensors replaced and return its outputs; None if it cannot be run
        so, or the time is over."""
        subject = self.subjects.get(side)
        if subject is None or subject.replay is None or not self.has_time:
            return None
        try:
            outputs = subject.replay(values)
        except SyncpointError:
            return None
        self.experiments.append(why)
        return outputs


def same_shape(target: Values | None, reference: Values | None) -> tuple[Values, Values] | None:
    """Return the values of both sides if both are known and have one shape."""
    if target is None or reference is None or target.shape != reference.shape:
        return None
    return target, reference
