"""Data classes of the messages between the server and the session page: forms, files, jobs, past
comparisons; option values as text."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from syncpoint.page.schema import Guilt, Level, Number, Problem, Schema
from syncpoint.runtimes.protocol import Option, Runtime
from syncpoint.runtimes.registry import describe_installation

Text = Annotated[str, Field(max_length=4000)]
Word = Annotated[str, Field(max_length=200)]
State = Literal["queued", "running", "done", "failed", "cancelled"]
_FORM_TYPES = {bool: "boolean", int: "integer", float: "number"}


class OptionForm(Schema):
    """A setting of a runtime, as a field of a form."""

    name: str
    type: Literal["boolean", "choice", "integer", "number", "text"]
    default: str
    help: str
    choices: list[str]

    @classmethod
    def of(cls, option: Option) -> OptionForm:
        """The form field of an option of a runtime."""
        form_type = "choice" if option.choices else _FORM_TYPES.get(option.type, "text")
        default = option_text(option.default)
        choices = [option_text(choice) for choice in option.choices]
        if choices and default not in choices:
            choices.insert(0, default)
        return cls(
            name=option.name,
            type=form_type,  # type: ignore[arg-type]
            default=default,
            help=option.help,
            choices=choices,
        )


def option_text(value: object) -> str:
    """Return the value of an option as the command line takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class RuntimeForm(Schema):
    """A runtime that accepts the model."""

    name: str
    version: str
    """"" where it is not installed."""
    cure: str
    """How to install it, if it is not installed."""
    options: list[OptionForm]

    @classmethod
    def of(cls, runtime: Runtime) -> RuntimeForm:
        """The form fields of a runtime."""
        version = runtime.version() or ""
        return cls(
            name=runtime.name,
            version=version,
            cure="" if version else describe_installation(runtime),
            options=[OptionForm.of(option) for option in runtime.options()],
        )


class InputForm(Schema):
    """An input that a model declares, or that a run has recorded."""

    name: str
    shape: list[int] | None
    """-1 for an axis of any length; null where the shape is not known."""
    dtype: str


class PathPreview(Schema):
    """What is at a path. No model is run for it."""

    path: str
    kind: Literal["model", "recording", "comparison", "inputs", "folder", "nothing"]
    text: str
    """A description: "opens; 61 ops, f16, 11.4 MB"."""
    sure: bool
    """Whether it was opened, and not only recognised by its name."""
    precision: str
    runtimes: list[RuntimeForm]
    inputs: list[InputForm]
    recorded: bool
    """Whether it is a run that has recorded its inputs."""
    candidates: list[str]
    """What a Python file defines, if the path does not name any of it."""
    problem: Problem | None


class FileEntry(Schema):
    """A file or folder to choose."""

    name: str
    path: str
    kind: Literal["folder", "model", "recording", "comparison", "python", "inputs", "file"]
    size: int | None
    modified: float


class FolderListing(Schema):
    """The files of one allowed folder, or all allowed folders."""

    path: str
    parent: str | None
    """Null for a folder without an allowed parent."""
    entries: list[FileEntry]
    left_out: int
    """Number of entries that did not fit into the answer."""


class SideSpec(Schema):
    """One side of a comparison, as the form has it."""

    path: Text
    runtime: Word = ""
    """"" for the first runtime that accepts the model."""
    options: Annotated[dict[Word, Text], Field(max_length=64, default_factory=dict)]
    """Options by name, as text, as for `--target-set`; missing ones have their defaults."""
    record: Literal["values", "statistics", "digest"] = "values"


class SessionSpec(Schema):
    """A comparison to run."""

    target: SideSpec
    reference: SideSpec
    inputs: Text = ""
    """As for `--inputs`; "" for the inputs that one side has recorded."""
    shapes: Annotated[list[Word], Field(max_length=64, default_factory=list)]
    metric: Word = "psnr"
    preset: Word = "auto"
    introduced: Literal["local", "replay", "off"] = "local"
    reference_model: Text = ""
    request_id: Word = ""
    """Chosen by the page, which recognises its job by it even if the answer was lost."""


Fields = Annotated[dict[Word, Text], Field(max_length=64)]


class Form(Schema):
    """The form, by the names of its fields on the page."""

    version: int
    """Increases with every change."""
    fields: Fields


class Folder(Schema):
    """A comparison by its path."""

    path: Text


class Name(Schema):
    """A comparison by its name in URLs."""

    comparison: str


class Command(Schema):
    """A comparison as a command line."""

    command: str
    warnings: list[str]
    """What looks wrong before anything is run."""


class StageState(Schema):
    """One stage of a job."""

    stage: Literal["reference", "target", "match", "measure", "introduced", "diagnosis"]
    state: Literal["waits", "now", "done", "left out", "failed", "stopped"]
    """`failed` or `stopped` for the stage in which the job ended."""
    done: int
    total: int
    text: str
    seconds: float
    opens: bool
    """Whether a recording is opened in this stage, and no model run."""


class LogLine(Schema):
    """A line of the log of a job."""

    seconds: float
    stage: str
    text: str


class DriftSoFar(Schema):
    """The drift over the execution order, as far as it is measured."""

    levels: str
    """One letter per bin: close, moderate, large, n for no verdict, a dot for not measured yet."""
    psnr: list[int]
    """The lowest PSNR of each bin in whole dB, from 0 to 120; -1 where there is none."""


class JobState(Schema):
    """A comparison that waits, runs, or has ended."""

    id: str
    request_id: str
    """As in the request."""
    version: int
    state: State
    target: str
    reference: str
    metric: str
    command: str
    folder: str
    """The folder it is written to."""
    created: float
    """Seconds since 1970."""
    seconds: float
    """Time since it started, until it ended."""
    stages: list[StageState]
    counts: dict[str, int]
    drift: DriftSoFar | None
    """While it runs, and if it ended before it was done."""
    log: list[LogLine]
    problem: Problem | None
    warnings: list[str]
    verdict: str
    headline: str
    """The verdict and the coverage in one line, when it is done."""
    comparison: str
    """Its name in URLs, when it is saved."""
    can_resume: bool
    """Whether it can be resumed."""


class JobList(Schema):
    """All jobs of this session, newest first."""

    version: int
    form: int
    """Version of the form, which another tab may have changed."""
    jobs: list[JobState]


class PastComparison(Schema):
    """A past comparison."""

    id: str
    name: str
    path: str
    when: float
    target: str
    target_facts: str
    reference: str
    verdict: str
    verdict_text: str
    """The verdict as text: of the whole, or of the part that was compared."""
    level: Level
    guilt: Guilt
    first: str
    """The first divergence; a text where there is none."""
    output: Number
    """PSNR of the worst model output in dB."""
    coverage: float | None
    """Coverage of the side with the lower coverage, 0 to 1."""
    guilty: int | None
    """Number of guilty rows; null where introduced error is not known."""
    rows: int
    problem: Problem | None
    """Why it cannot be opened."""
    can_resume: bool
    """Whether it was begun here and can be resumed."""
    measured: bool
    """Whether it has measurements, even if it is not finished."""


class PastRun(Schema):
    """A run that can be a side of a comparison."""

    path: str
    model: str
    facts: str
    when: float


class Past(Schema):
    """The comparisons and runs in the folders of this session."""

    folder: str
    """The folder of new comparisons."""
    comparisons: list[PastComparison]
    runs: list[PastRun]


class MetricChoice(Schema):
    """A metric that can be chosen."""

    id: str
    title: str


class SessionInfo(Schema):
    """What the form needs before anything is chosen."""

    key: str
    """Distinguishes this server from an earlier one at the same address."""
    form: Form
    """The stored form, with the sides named on the command line."""
    folders: list[str]
    out: str
    metrics: list[MetricChoice]
    presets: list[str]
