"""What the page of a session and the server say to each other: forms, jobs, past comparisons."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from syncpoint.page.schema import Guilt, Level, Number, Problem, Schema

Text = Annotated[str, Field(max_length=4000)]
Word = Annotated[str, Field(max_length=200)]
State = Literal["queued", "running", "done", "failed", "cancelled"]


class OptionForm(Schema):
    """A setting of a runtime, as a field of a form."""

    name: str
    type: Literal["boolean", "choice", "integer", "number", "text"]
    default: str
    help: str
    choices: list[str]


class RuntimeForm(Schema):
    """A runtime that takes the model."""

    name: str
    version: str
    """"" where it is not installed."""
    cure: str
    """How to install it, where it is not."""
    options: list[OptionForm]


class InputForm(Schema):
    """An input that a model declares or that a run was given."""

    name: str
    shape: list[int] | None
    """-1 for an axis that is left open; null where nothing is known."""
    dtype: str


class PathPreview(Schema):
    """What is at a path. Looking runs no model."""

    path: str
    kind: Literal["model", "recording", "comparison", "inputs", "folder", "nothing"]
    text: str
    """In words: "opens; 61 ops, f16, 11.4 MB"."""
    sure: bool
    """Whether it was opened, or only recognised by its name."""
    precision: str
    runtimes: list[RuntimeForm]
    inputs: list[InputForm]
    recorded: bool
    """Whether it is a run that kept what it was given."""
    candidates: list[str]
    """What a Python file defines, where a path names none of it."""
    problem: Problem | None


class FileEntry(Schema):
    """A file or folder to choose."""

    name: str
    path: str
    kind: Literal["folder", "model", "recording", "comparison", "python", "inputs", "file"]
    size: int | None
    modified: float


class FolderListing(Schema):
    """One of the folders that may be looked into; all of them where no folder is named."""

    path: str
    parent: str | None
    """Null where there is no way up."""
    entries: list[FileEntry]
    left_out: int
    """Entries beyond those that one answer holds."""


class SideSpec(Schema):
    """One configuration."""

    path: Text
    runtime: Word = ""
    """"" takes the first that accepts the model."""
    options: Annotated[dict[Word, Text], Field(max_length=64, default_factory=dict)]
    """By name, as text, as `--target-set` has them; those left out have their defaults."""
    record: Literal["values", "statistics", "digest"] = "values"


class SessionSpec(Schema):
    """A comparison to make."""

    target: SideSpec
    reference: SideSpec
    inputs: Text = ""
    """As `--inputs`; "" for those that one side has recorded."""
    shapes: Annotated[list[Word], Field(max_length=64, default_factory=list)]
    metric: Word = "psnr"
    preset: Word = "auto"
    introduced: Literal["local", "replay", "off"] = "local"
    reference_model: Text = ""
    request_id: Word = ""
    """Chosen by the page: it recognises its job by it, also where it never had the answer."""


Fields = Annotated[dict[Word, Text], Field(max_length=64)]


class Form(Schema):
    """What is filled in, by the names that the page has for its fields."""

    version: int
    """Grows with every change."""
    fields: Fields


class Folder(Schema):
    """A comparison by its path."""

    path: Text


class Name(Schema):
    """A comparison by its name in addresses."""

    comparison: str


class Command(Schema):
    """The same comparison on the command line."""

    command: str
    warnings: list[str]
    """What looks wrong before anything is run."""


class StageState(Schema):
    """One stage of a job."""

    stage: Literal["reference", "target", "match", "measure", "introduced", "diagnosis"]
    state: Literal["waits", "now", "done", "left out", "failed", "stopped"]
    """`failed` and `stopped` where the job ended before it was done."""
    done: int
    total: int
    text: str
    seconds: float
    opens: bool
    """Whether a recording is opened here, and no model run."""


class LogLine(Schema):
    """Something that was said on the way."""

    seconds: float
    stage: str
    text: str


class DriftSoFar(Schema):
    """How far the two are apart over the execution order, as far as it is measured."""

    levels: str
    """A letter for each piece: close, moderate, large, n for no verdict, a dot for nothing yet."""
    psnr: list[int]
    """The least of each piece in whole dB, cut to 0 to 120; -1 where there is none."""


class JobState(Schema):
    """A comparison that is asked for, being made, or over."""

    id: str
    request_id: str
    """As the request for it said."""
    version: int
    state: State
    target: str
    reference: str
    metric: str
    command: str
    folder: str
    """Where it is, or will be, kept."""
    created: float
    """Seconds since 1970."""
    seconds: float
    """Since it began; how long it took, where it is over."""
    stages: list[StageState]
    counts: dict[str, int]
    drift: DriftSoFar | None
    """While it is measured, and of one that ended on the way."""
    log: list[LogLine]
    problem: Problem | None
    warnings: list[str]
    verdict: str
    headline: str
    """The verdict and the coverage in one line, once it is done."""
    comparison: str
    """Its name in addresses, once it is saved."""
    can_resume: bool
    """Whether what is finished of it is kept, to go on from."""


class JobList(Schema):
    """All jobs of this session, newest first."""

    version: int
    form: int
    """Version of the form, which another tab may have filled in meanwhile."""
    jobs: list[JobState]


class PastComparison(Schema):
    """A comparison that was made earlier."""

    id: str
    name: str
    path: str
    when: float
    target: str
    target_facts: str
    reference: str
    verdict: str
    verdict_text: str
    """The verdict in words: of the whole, or of the part that was compared."""
    level: Level
    guilt: Guilt
    first: str
    """Where the two part; words where that is not known."""
    output: Number
    """PSNR of the worst model output in dB."""
    coverage: float | None
    """Share of the side that is covered less."""
    guilty: int | None
    """Null where introduced error is not known."""
    rows: int
    problem: Problem | None
    """Why it cannot be opened."""
    can_resume: bool
    """Whether it was begun here and can be gone on with."""
    measured: bool
    """Whether there are numbers in it, also where it is not finished."""


class PastRun(Schema):
    """A run that can serve as a side."""

    path: str
    model: str
    facts: str
    when: float


class Past(Schema):
    """What lies in the folders of this session."""

    folder: str
    """Where new comparisons are kept."""
    comparisons: list[PastComparison]
    runs: list[PastRun]


class MetricChoice(Schema):
    """A metric to show and to sort by."""

    id: str
    title: str


class SessionInfo(Schema):
    """What the form needs before anything is chosen."""

    key: str
    """Tells this server from one that had the same address before it."""
    form: Form
    """As it was left, or with what the command line named."""
    folders: list[str]
    out: str
    metrics: list[MetricChoice]
    presets: list[str]
