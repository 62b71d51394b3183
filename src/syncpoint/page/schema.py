"""Data classes of the messages between the server and the page of a comparison, from which its
TypeScript types are made.

The TypeScript types of the page are generated from these classes (`make types`). Numbers that are
not finite are the strings "nan", "inf" and "-inf", as in all JSON of Syncpoint; a number that
cannot be computed is null.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from syncpoint.errors import SyncpointError

Number = float | Literal["nan", "inf", "-inf"] | None
Level = Literal["close", "moderate", "large", "none"]
"""How far off a sync point is by the chosen metric, whichever op is guilty."""
Guilt = Literal["guilty", "first-non-finite", "inherited", "amplified", "output", "unknown", ""]
"""Where the error is made: here, upstream or not known; an output that is off; "" for no error."""
Side = Literal["target", "reference"]
Sort = Literal["similarity", "operation"]


class Schema(BaseModel):
    """Base class of all messages."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Problem(Schema):
    """An error: what is wrong, in one sentence, and what to do about it."""

    problem: str
    cure: str = ""

    @classmethod
    def of(cls, error: SyncpointError) -> Problem:
        """Return the problem and the cure of an error."""
        return cls(problem=error.problem, cure=error.cure)


class MetricInfo(Schema):
    """One metric of the catalogue."""

    id: str
    title: str
    unit: str
    better: Literal["higher", "lower", "one"] | None
    explanation: str
    choosable: bool
    """Whether rows can be sorted and coloured by it."""


class RunSummary(Schema):
    """What is known of one of the two runs."""

    label: str
    runtime: str
    runtime_version: str
    device: str
    precision: str
    fusion: str
    path: str
    available: bool
    """Whether its files are where they were when the two runs were compared."""
    why_not: str
    """Why it is not available; "" where it is."""
    notes: list[str]
    observer: str
    """Result of the check against a run without recording; "" where there was none."""


class OutputBrief(Schema):
    """One of the model's outputs."""

    row: int
    name: str
    level: Level
    verdict: str
    psnr: Number
    bound: bool
    """Whether PSNR is an upper bound."""
    reason: str
    """Why it has this verdict, or why it has none, as a sentence."""


class FindingCard(Schema):
    """One card: a diagnosed cause or, without a diagnosis, what is certain."""

    title: str
    cause: str
    """The class of cause; "" where the card is not a cause."""
    level: Level
    confidence: float | None
    certainty: str
    """The confidence as a word."""
    evidence: list[str]
    missing: list[str]
    """Experiments that would give more evidence, with what they need."""
    next: str
    rows: list[int]
    """Sync points that it explains, most important first."""
    source: str
    """`file.py:12`, or ""."""
    alone: UnmatchedBrief | None = None
    """The output of the first op, where it has no counterpart and so no sync point."""
    before: int = 0
    """Place among all sync points before which that op ran."""


class Trust(Schema):
    """One line of the section on whether the runs can be trusted."""

    what: str
    level: Level
    text: str


class Overview(Schema):
    """A comparison as a whole."""

    id: str
    name: str
    created: str
    target: RunSummary
    reference: RunSummary
    verdict: str
    verdict_text: str
    """The verdict as text: of the whole, or of the part that was compared."""
    symptom: str
    """The symptom by the diagnosis; "" without a diagnosis."""
    summary: str
    """One sentence that explains most of the damage."""
    aside: str
    """A second, less important sentence."""
    exit_code: int
    uncovered: str
    """Why too little was compared to pass, as a sentence; "" where enough was compared."""
    coverage_target: float
    coverage_reference: float
    missing_target: int
    """Tensors that were not compared although the other side has, or should have, a counterpart."""
    missing_reference: int
    target_tensors: int
    reference_tensors: int
    compared: int
    paired: int
    rows: int
    counts: dict[str, int]
    """Rows by verdict and guilt: guilty, first-non-finite, output, unknown, large, moderate,
    inherited, amplified, close, none."""
    bases: dict[str, int]
    """Sync points measured by values, statistics and digests."""
    unmatched_target: int
    unmatched_reference: int
    limits: str
    """Name of the limits: auto, or a preset."""
    presets: list[str]
    metrics: list[MetricInfo]
    types: list[str]
    """Types of target ops, most frequent first."""
    roles: list[str]
    """Roles that the filter by type offers too: model-input, model-output, parameter, state."""
    outputs: list[OutputBrief]
    first_divergence: list[int]
    findings: list[FindingCard]
    trust: list[Trust]
    warnings: list[str]
    unfinished: str
    """How far an unfinished comparison is; "" for a finished one."""


class RowBrief(Schema):
    """A sync point as a line of the navigator."""

    kind: Literal["row"] = "row"
    row: int
    """Its number in the table of the comparison, by which it is selected."""
    order: int
    """Place among all sync points in the target's execution order, from 0."""
    target: str
    reference: str
    module: str
    group: str
    type: str
    role: str
    part: str
    level: Level
    verdict: str
    guilt: Guilt
    score: Number
    bound: bool
    """Whether the score is an upper bound."""
    same_bytes: bool | None
    """Whether the digests are equal; null for a pair that was not compared by digests."""
    bad: int
    """Elements that are NaN, infinite or masked on one side only."""
    fill: float
    """Length of the bar, 0 to 1."""
    ticks: list[float]
    """Places of the two limits on the bar."""
    reason: str
    """Why there is no verdict, as a sentence; "" where there is one."""
    reason_code: str
    """The code of the reason."""
    basis: str


class GroupCell(Schema):
    """The worst sync point of a bin of a group."""

    level: Level
    guilt: Guilt


class GroupBrief(Schema):
    """A module as a line of the navigator: all its sync points."""

    kind: Literal["group"] = "group"
    group: str
    count: int
    open: bool
    level: Level
    guilt: Guilt
    score: Number
    """Of its worst sync point."""
    bound: bool
    same_bytes: bool | None
    """Of its worst sync point if that was compared by digests."""
    cells: list[GroupCell]
    """At most 24, one per bin."""


class RowWindow(Schema):
    """A window of the navigator's list."""

    total: int
    """Lines in the whole list, with groups and the rows of open groups."""
    matching: int
    """Sync points that match the filters."""
    offset: int
    items: list[RowBrief | GroupBrief]
    counts: dict[str, int]
    """Rows by level of the chosen metric, before the filter by level: large, moderate, inherited,
    close, none."""


class UnmatchedBrief(Schema):
    """A tensor without a counterpart."""

    side: Side
    op: str
    role: str
    index: int
    """Which of the op's outputs, or of its other tensors, it is, from 0."""
    type: str
    module: str
    reason: str
    """The code of the reason."""
    detail: str
    cure: str
    """What to do about it."""
    counted: bool


class UnmatchedWindow(Schema):
    """A window of the list of tensors without a counterpart."""

    total: int
    offset: int
    items: list[UnmatchedBrief]


class EndInfo(Schema):
    """One end of a sync point."""

    op: str
    label: str
    type: str
    dtype: str
    shape: list[int]
    module: str
    file: str
    line: int
    """0 where no source is known."""
    role: str
    part: str
    kept: str
    """values, statistics, digest; "" where the run is not available."""
    statistics: dict[str, Number]
    digest: str
    digest_kind: str
    attributes: dict[str, str]
    stack: list[str]
    """`file.py:12 function`, innermost last."""


class MetricValue(Schema):
    """One metric of a sync point."""

    id: str
    value: Number
    level: Level
    limits: list[Number]
    """Close and moderate limit; empty where the metric has none."""
    text: str
    """What the metric says, with the index of the worst element or the norm ratio."""


class ErrorBars(Schema):
    """Total, introduced and expected error, relative to the reference's peak."""

    peak: Number
    total: Number
    total_psnr: Number
    introduced: Number
    introduced_psnr: Number
    expected: Number
    expected_psnr: Number
    ratio: Number
    close_ratio: float
    large_ratio: float
    preset: str
    unknown: str
    """Why introduced error is not known."""


class RegionOp(Schema):
    """One of several reference ops that a sync point stands for."""

    label: str
    type: str
    module: str
    row: int | None
    """Its own sync point; None where it has none."""
    file: str
    line: int
    """0 where no source is known."""


class StatisticRow(Schema):
    """One statistic of both sides."""

    name: str
    reference: Number
    target: Number
    relative: Number


class RowDetail(Schema):
    """Everything about one sync point except its values."""

    brief: RowBrief
    target: EndInfo
    reference: EndInfo
    evidence: str
    confidence: float
    view: str
    basis: str
    preset: str
    headline: str
    """Where the error is made, in a few words: "The error is made here."."""
    story: str
    """The same in one or two sentences."""
    guilty_row: int | None
    """The row that the error comes from, if it is another one."""
    guilty_label: str
    guilty_how: str
    """How that row is known: "3 sync points before", "the last one off before it"."""
    bars: ErrorBars
    region: list[RegionOp]
    """The reference ops that it stands for if there are several, in execution order."""
    metrics: list[MetricValue]
    statistics: list[StatisticRow]
    """Statistics of both sides, for a pair that was compared by statistics."""
    same_bytes: bool | None
    """Whether the digests are equal; null where they are not known."""
    error_histogram: list[tuple[int, int]]
    """floor(log2 |difference|), and the number of elements."""
    rms: Number
    """RMS of the reference, to which the histogram is compared."""
    rounding: int | None
    """log2 of the unit roundoff of the precision, for the grey zone of the histogram."""
    precision: str
    """Long name: float16."""
    notes: list[str]
    missing: str
    """Why the values cannot be shown; "" where they can."""
    output: bool


class HeatMap(Schema):
    """A plane of both tensors, pooled to the requested size.

    Every cell shows the element of its patch with the largest |difference|, on all three maps; an
    element that is NaN or infinite on one side only comes first.
    """

    shape: list[int]
    row_axis: int
    """-1 where the tensor has at most one axis, and the plane one row."""
    column_axis: int
    at: list[int]
    """Index along every axis; those of the two axes of the plane are not used."""
    window: list[int]
    """First row, last row + 1, first column, last column + 1 of the part that is shown."""
    rows: int
    columns: int
    patch: list[int]
    """Rows and columns of the plane in one cell; cells at the end may have fewer."""
    wide: bool
    """Whether the values are sent as float64, because float32 does not hold them exactly."""
    reference: str
    """Base64 of little-endian float32 or float64, rows x columns; the modulus if complex."""
    target: str
    difference: str
    """Always float32; 0 where both are masked or hold the same NaN or infinity, and where the map
    masks."""
    places: str
    """Base64 of little-endian uint32: for each cell, row * (columns of the plane) + column of the
    element shown."""
    scale: float
    """Largest finite |value| of both sides among the elements shown that the map does not mask."""
    difference_scale: float
    names: list[str]
    """Names of the axes; "axis 0" and so on where they are not known."""


class WorstElement(Schema):
    """One element of a tensor, on both sides."""

    index: list[int]
    reference: Number
    target: Number
    difference: Number


class Distribution(Schema):
    """Histograms of both sides, and the worst elements."""

    edges: list[float]
    reference: list[int]
    target: list[int]
    reference_outside: int
    """Elements that are not finite, or masked."""
    target_outside: int
    worst: list[WorstElement]
    pattern: str
    """What the worst elements have in common: "all in index 118 of axis 2"; "" if nothing."""


class GraphColumns(Schema):
    """The ops of a run, or of one of its groups, column by column.

    Inputs come first, then the ops in execution order; parameters are left out. An entry is
    identified by its index in these columns. Columns of numbers are base64 of little-endian int32;
    texts that repeat are sent once, with an index for every entry.
    """

    side: Side
    name: str
    group: str
    """"" for the whole graph."""
    complete: bool
    """False where the graph is too large to be sent whole: then entries are groups, and ops that
    are a group of their own; or, of one group, the ops around the requested sync point."""
    before: int
    """Entries of the group before those that are sent..."""
    after: int
    """...and after them."""
    missing: str
    """Why the graph was built without its run; "" where the run is available."""
    names: list[str]
    kinds: str
    """One letter per entry: o op, x op that makes a model output, i input, s state, g group."""
    types: list[str]
    type_of: str
    modules: list[str]
    module_of: str
    groups: list[str]
    group_of: str
    """The group of the navigator that the entry belongs to; for a group its own name."""
    reasons: list[str]
    """Why an entry has no sync point, such as "no counterpart"; "" where it has one."""
    reason_of: str
    counts: str
    """Number of ops in an entry: 1, or the size of a group."""
    fused: str
    """Number of ops of the other side that a sync point of the entry stands for."""
    into: str
    """The entry that stands for this one too, where several ops are fused; else -1."""
    rows: str
    """The sync points of the entries, in execution order..."""
    row_of: str
    """...and the entry of each."""
    evidence: list[str]
    """Why the two ends of a sync point are a pair, and the confidence; only for the target."""
    evidence_of: str
    """Index into `evidence` for each of `rows`."""
    edges: str
    """Pairs of entries: from, to."""


class RowStates(Schema):
    """Level, guilt and score of every sync point by one metric, for graphs, minimap and drift."""

    metric: str
    levels: str
    """One letter per sync point, by its number in the table: c m l n."""
    guilts: str
    """One letter: g guilty, f first-non-finite, i inherited, a amplified, o output, u unknown,
    "." none."""
    bad: str
    """One letter: b where elements are NaN, infinite or masked on one side only, else "."."""
    scores: str
    """Base64 of little-endian float32; NaN where there is none."""
    bounds: str
    """One letter: b where the score is an upper bound; for digests, which have no score, s where
    the bytes are equal and d where they differ; else "."."""
    introduced: str
    """The metric of the introduced error, as `scores`; "" for metrics that have none (all but psnr,
    sqnr, rmse, rel_l2, max_abs)."""
    orders: str
    """Base64 of little-endian uint32: `order` of every row."""


class DriftGroup(Schema):
    """A part of the drift strip that belongs to one module."""

    group: str
    start: int
    stop: int


class DriftFlag(Schema):
    """A mark of the drift strip with a text."""

    row: int
    order: int
    kind: Literal["guilty", "non-finite"]
    text: str


class DriftStrip(Schema):
    """What the drift strip shows in addition to the states of the rows."""

    points: int
    """Places in execution order that it shows, without parameters, which come last."""
    values: int
    """Rows of computed tensors that were recorded as values."""
    groups: list[DriftGroup]
    flags: list[DriftFlag]
    limits: list[float]
    """The two limits of the metric if they are the same for all rows; else empty."""
    unmatched: list[int]
    """Places before which a target tensor has no counterpart."""


class SourceMark(Schema):
    """A source line and the sync points of its ops, in execution order."""

    line: int
    rows: list[int]


class SourceFile(Schema):
    """A file of the source snapshot of a run."""

    side: Side
    file: str
    text: str | None
    why_not: str
    marks: list[SourceMark]
    others: list[str]
    """The other files that ops of this run point to."""


class RowPlace(Schema):
    """The line of a sync point in the navigator's list."""

    index: int | None
    """None where a filter hides it."""
    group: str
