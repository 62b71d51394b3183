"""What the page and the server say to each other.

The TypeScript types of the page are made from these classes (`npm run types` in web/). Numbers
that are not finite are the strings "nan", "inf" and "-inf", as in every JSON of ours; what cannot
be computed is null.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from syncpoint.errors import SyncpointError

Number = float | Literal["nan", "inf", "-inf"] | None
Level = Literal["close", "moderate", "large", "none"]
"""How bad a sync point is by the chosen metric, whoever is to blame."""
Guilt = Literal["guilty", "first-non-finite", "inherited", "amplified", "output", "unknown", ""]
"""Whose fault: made here, passed on, an output judged by its total, not known, or nothing off."""
Side = Literal["target", "reference"]
Sort = Literal["similarity", "operation"]


class Schema(BaseModel):
    """What all messages share."""

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
    """One metric that may be chosen."""

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
    """Whether it is where it was when the two were compared."""
    why_not: str
    """In words, where they cannot."""
    notes: list[str]
    observer: str
    """What the check against the plain run said; "" where there was none."""


class OutputBrief(Schema):
    """One of the model's outputs."""

    row: int
    name: str
    level: Level
    verdict: str
    psnr: Number
    bound: bool
    """Whether PSNR is only known to be at most this."""
    reason: str
    """As a sentence: why the verdict is what it is, or why there is none."""


class FindingCard(Schema):
    """One card: a cause or, where nobody looked for causes, what is known for sure."""

    title: str
    cause: str
    """The class of cause, "" where this is none."""
    level: Level
    confidence: float | None
    certainty: str
    """The confidence in a word."""
    evidence: list[str]
    missing: list[str]
    """Experiments that would tell more, with what they need."""
    next: str
    rows: list[int]
    """Sync points it points to, the most telling first."""
    source: str
    """`file.py:12`, or ""."""
    alone: UnmatchedBrief | None = None
    """What the op in front gave, where it has no counterpart and so no sync point."""
    before: int = 0
    """Place among all sync points before which that op ran."""


class Trust(Schema):
    """One line of "can these runs be trusted"."""

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
    """The verdict in words: of the whole, or of the part that was compared."""
    symptom: str
    """What is seen from outside, "" where nobody looked for causes."""
    summary: str
    """One sentence that explains most of the damage."""
    aside: str
    """A second, quieter one."""
    exit_code: int
    uncovered: str
    """Why too little was compared to pass, in one sentence; "" where enough was."""
    coverage_target: float
    coverage_reference: float
    missing_target: int
    """Tensors that were not compared, though the other side has or should have a partner."""
    missing_reference: int
    target_tensors: int
    reference_tensors: int
    compared: int
    paired: int
    rows: int
    counts: dict[str, int]
    """By the verdict on the whole: guilty, first-non-finite, outputs, large, moderate, inherited,
    amplified, close, none."""
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
    """What the filter by type offers beside them: model-input, model-output, parameter, state."""
    outputs: list[OutputBrief]
    first_divergence: list[int]
    findings: list[FindingCard]
    trust: list[Trust]
    warnings: list[str]
    unfinished: str
    """Of a comparison that is looked at before its end: how far it was. Empty of others."""


class RowBrief(Schema):
    """A sync point as a line of the navigator."""

    kind: Literal["row"] = "row"
    row: int
    """Its number in the table of the comparison: the name of the selection."""
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
    """Whether the score is only known to be at most this."""
    same_bytes: bool | None
    """Of a pair compared by digests; else null."""
    bad: int
    """Elements that are NaN, infinite or masked on one side only."""
    fill: float
    """Length of the bar, 0 to 1."""
    ticks: list[float]
    """Where on that bar the two limits stand."""
    reason: str
    """Why there is no verdict, as a sentence; "" where there is one."""
    reason_code: str
    """The same in a word."""
    basis: str


class GroupCell(Schema):
    """The worst sync point of a stretch of a group."""

    level: Level
    guilt: Guilt


class GroupBrief(Schema):
    """A module as a line of the navigator: its sync points rolled up."""

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
    """Of its worst sync point where that was compared by digests."""
    cells: list[GroupCell]
    """At most 24, one a bin."""


class RowWindow(Schema):
    """A piece of the navigator's list."""

    total: int
    """Lines in the whole list, groups and rows of open groups counted."""
    matching: int
    """Sync points that the filter lets through."""
    offset: int
    items: list[RowBrief | GroupBrief]
    counts: dict[str, int]
    """By level of the chosen metric, before the filter by level: large, moderate, inherited,
    close, none."""


class UnmatchedBrief(Schema):
    """A tensor without a partner."""

    side: Side
    op: str
    role: str
    index: int
    """Which of the op's outputs, or of its other tensors, it is."""
    type: str
    module: str
    reason: str
    """Why it has no partner, in a word."""
    detail: str
    cure: str
    """What to do about it."""
    counted: bool


class UnmatchedWindow(Schema):
    """A piece of that list."""

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
    """values, statistics, digest, or "" where the run is not at hand."""
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
    """Close and moderate limit, empty where the metric has none."""
    text: str
    """In plain words, with what belongs beside it."""


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
    """Its own sync point; None for one that was computed together with others."""
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
    """Everything about one sync point but its values."""

    brief: RowBrief
    target: EndInfo
    reference: EndInfo
    evidence: str
    confidence: float
    view: str
    basis: str
    preset: str
    headline: str
    """Whose fault, in a few words: "The error is made here."."""
    story: str
    """And in one or two sentences."""
    guilty_row: int | None
    """Where the error came in from, for one that did not make it."""
    guilty_label: str
    guilty_how: str
    """How that one is known: "3 sync points before", "the last guilty op before"..."""
    bars: ErrorBars
    region: list[RegionOp]
    """The reference ops that it stands for where they are several, in execution order."""
    metrics: list[MetricValue]
    statistics: list[StatisticRow]
    """Both sides, where a pair was compared by statistics."""
    same_bytes: bool | None
    """Of a pair compared by digests, or whose digests are known."""
    error_histogram: list[tuple[int, int]]
    """floor(log2 |difference|), and how many elements."""
    rms: Number
    """Of the reference: what that histogram is seen against."""
    rounding: int | None
    """log2 of the unit of the precision against that, for the grey zone of the histogram."""
    precision: str
    """In words: float16."""
    notes: list[str]
    missing: str
    """Why the values cannot be shown; "" where they can."""
    output: bool


class HeatMap(Schema):
    """A plane of both tensors, pooled to the size asked for.

    Every cell shows the element of the plane's patch where |difference| is greatest, on all three
    maps; one that is NaN or infinite on one side only comes first.
    """

    shape: list[int]
    row_axis: int
    """-1 where the tensor has one axis or none and the plane has one row."""
    column_axis: int
    at: list[int]
    """Index along every axis; of those two the entry is not used."""
    window: list[int]
    """First row, last row + 1, first column, last column + 1 of the plane that is shown."""
    rows: int
    columns: int
    patch: list[int]
    """Rows and columns of the plane in a cell; those at the end may have fewer."""
    wide: bool
    """Whether the values come as float64, because float32 would not hold them exactly."""
    reference: str
    """Base64 of little-endian float32 or float64, rows x columns; the modulus if complex."""
    target: str
    difference: str
    """Always float32; 0 where both are masked or hold the same NaN or infinity, and where the map
    masks."""
    places: str
    """Base64 of little-endian uint32: of each cell, row * (columns of the plane) + column of the
    element shown."""
    scale: float
    """Greatest finite |value| of both sides among the elements shown that the map does not mask."""
    difference_scale: float
    names: list[str]
    """Of the axes where they are known, else "axis 0"..."""


class WorstElement(Schema):
    """One element."""

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
    """Elements that are not finite or masked."""
    target_outside: int
    worst: list[WorstElement]
    pattern: str
    """What the worst elements share: "all in index 118 of axis 2"; "" if nothing."""


class GraphColumns(Schema):
    """The ops of a run, or of one of its groups, column by column.

    What it was given comes first, then the ops in execution order; parameters are left out. An
    entry is named by its place in these columns. Columns of numbers are base64 of little-endian
    int32; words that come again and again are sent once, and their places for every entry.
    """

    side: Side
    name: str
    group: str
    """"" for the whole."""
    complete: bool
    """False where there is too much to be sent whole: then entries are groups, and ops that are a
    group of their own, or, of a group, those around the sync point that was asked for."""
    before: int
    """Entries of the group that come before those sent here..."""
    after: int
    """...and after them."""
    missing: str
    """Why the graph is made of what the comparison knows, without its run; "" where it is not."""
    names: list[str]
    kinds: str
    """One letter an entry: o op, x op that makes a model output, i input, s state, g group."""
    types: list[str]
    type_of: str
    modules: list[str]
    module_of: str
    groups: list[str]
    group_of: str
    """The group of the navigator that the entry belongs to; of a group what it is asked for by."""
    reasons: list[str]
    """Why an entry has no sync point: "no counterpart"..., "" where it has one."""
    reason_of: str
    counts: str
    """Ops that an entry stands for: 1, or the size of a group."""
    fused: str
    """Ops of the other side that a sync point here stands for, 1 where it is one for one."""
    into: str
    """The entry that stands for this one too at a sync point of several ops, -1 where none does."""
    rows: str
    """The sync points of the entries, in execution order..."""
    row_of: str
    """...and the entry of each."""
    evidence: list[str]
    """Why the two of a sync point are a pair, and how sure that is; on the target's side only."""
    evidence_of: str
    """For every one of `rows`."""
    edges: str
    """From entry, to entry, and so on."""


class RowStates(Schema):
    """Level, guilt and score of every sync point by one metric, for graphs, minimap and drift."""

    metric: str
    levels: str
    """One letter a sync point, by its number in the table: c m l n."""
    guilts: str
    """One letter: g guilty, f first-non-finite, i inherited, a amplified, o output, u unknown,
    "." nothing."""
    bad: str
    """One letter: b where elements are NaN, infinite or masked on one side only, else "."."""
    scores: str
    """Base64 of little-endian float32; NaN where there is none."""
    bounds: str
    """One letter: b where the score is only known to be at most this; of digests, which have no
    score, s where the bytes are the same and d where they differ; else "."."""
    introduced: str
    """The same for the introduced error, where the metric has one (psnr, sqnr, rmse, rel_l2,
    max_abs); empty where it has not."""
    orders: str
    """Base64 of little-endian uint32: `order` of every row."""


class DriftGroup(Schema):
    """A stretch of the drift strip that belongs to one module."""

    group: str
    start: int
    stop: int


class DriftFlag(Schema):
    """A mark that has words."""

    row: int
    order: int
    kind: Literal["guilty", "non-finite"]
    text: str


class DriftStrip(Schema):
    """What the drift strip needs beside the states of the rows."""

    points: int
    """Places in execution order that it shows; the parameters come after them."""
    values: int
    """How many of them, without what the model was given, are of tensors kept as values."""
    groups: list[DriftGroup]
    flags: list[DriftFlag]
    limits: list[float]
    """The two limits of the metric where they are the same for all rows, else empty."""
    unmatched: list[int]
    """Orders before which a target tensor stayed unmatched."""


class SourceMark(Schema):
    """A line and the sync points of the ops it made, in execution order."""

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
    """Where a sync point stands in the list."""

    index: int | None
    """None where the filter hides it."""
    group: str
