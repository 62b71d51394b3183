"""The results that users hold: data with the ways to show and keep it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import ref

from syncpoint.analysis.result import AnalysisResult
from syncpoint.bisection.result import Bisected
from syncpoint.comparison.result import Result
from syncpoint.errors import InputError
from syncpoint.workflow.compare_request import choose_limits

if TYPE_CHECKING:
    from syncpoint.run.reader import Run
    from syncpoint.server.server_thread import ServedComparison


class RunReferences:
    """The runs that a comparison was made from, by side.

    They are held weakly: a comparison must not keep the recordings of captured models on disk. With
    `keep` they are held as long as the comparison lives.
    """

    def __init__(self, runs: Mapping[str, Run] | None = None, *, keep: bool = False) -> None:
        self._references = {side: ref(run) for side, run in (runs or {}).items()}
        self._kept = dict(runs or {}) if keep else {}

    def alive(self) -> dict[str, Run]:
        """The runs that somebody still holds, by side."""
        runs = {side: reference() for side, reference in self._references.items()}
        return {side: run for side, run in runs.items() if run is not None}


@dataclass(frozen=True, kw_only=True)
class Comparison(Result):
    """A comparison as users hold it: the result, and the ways to show and keep it."""

    run_references: RunReferences = field(default=RunReferences(), repr=False, compare=False)
    """Its runs, as far as they need not be opened. A copy or a pickle has none."""

    @classmethod
    def of(
        cls, result: Result, runs: Mapping[str, Run] | None = None, *, keep_runs: bool = False
    ) -> Comparison:
        """The public form of a result. `runs`, by side, are used as long as the caller has them;
        with `keep_runs` the comparison holds them."""
        facts = {f.name: getattr(result, f.name) for f in fields(Result)}
        return cls(**facts, run_references=RunReferences(runs, keep=keep_runs))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "run_references"}

    def judged_by(self, preset: str = "auto", limits: str | Path | None = None) -> Comparison:
        """The same measurements under another preset, or under limits of your own; nothing is
        measured again."""
        return self.rejudged(choose_limits(preset, limits))

    def _run(self, side: str) -> Run:
        """The run of one side: at hand, or opened where it was."""
        from syncpoint.workflow.capture import open_run

        run = self.run_references.alive().get(side)
        if run is not None:
            return run
        path = getattr(self, side)["path"]
        if not path:
            raise InputError(f"the run of the {side}", "one that was not kept", "give it an `out`")
        return open_run(path)

    @property
    def headline(self) -> str:
        """The verdict and the coverage in one line, the last that `--quiet` prints."""
        from syncpoint.reports.verdict_line import headline

        return headline(self)

    def save(self, path: str | Path, overwrite: bool = False) -> Path:
        """Keep it as a `.cmp` folder."""
        from syncpoint.comparison.storage.comparison_folder import save

        return save(self, Path(path), overwrite)

    def save_diagnosis(self, path: str | Path) -> bool:
        """Keep the diagnosis in a comparison that is saved already. False where the one in it
        stays: it was made with more models, or this one failed."""
        from syncpoint.comparison.storage.comparison_folder import save_diagnosis

        return save_diagnosis(self, Path(path))

    def to_csv(self, path: str | Path) -> Path:
        """One line a sync point."""
        from syncpoint.reports.csv_report import write_csv

        return write_csv(self, Path(path))

    def to_json(self, path: str | Path) -> Path:
        """The form for other programs; strict JSON."""
        from syncpoint.reports.json_report import write_json

        return write_json(self, Path(path))

    def to_text(self, metric: str = "psnr", sort: str = "similarity", rows: int = 24) -> str:
        """What `syncpoint compare` prints: `sort` is similarity (the worst first) or operation (as
        executed), and 0 `rows` are all."""
        from syncpoint.reports.terminal_report import as_text

        return as_text(self, metric=metric, sort=sort, rows=rows)

    def quiet_text(self) -> str:
        """What `--quiet` prints: inputs that differ, files that could not be read or verified, and
        the headline."""
        from syncpoint.reports.terminal_report import quiet_text

        return quiet_text(self)

    def diagnosis_text(self) -> str:
        """What `syncpoint diagnose` prints: the symptom, the causes, and what to do next."""
        from syncpoint.reports.diagnosis_report import as_text

        return as_text(self)

    def to_msprobe_csv(self, path: str | Path) -> Path:
        """The table of `msprobe compare`, where both sides are dumps of msProbe."""
        from syncpoint.ascend.msprobe.write_table import write_msprobe_csv

        return write_msprobe_csv(self._run("target"), self._run("reference"), path)

    def to_msprobe_xlsx(self, path: str | Path) -> Path:
        """The same as a coloured sheet (extra `xlsx`)."""
        from syncpoint.ascend.msprobe.write_table import write_msprobe_xlsx

        return write_msprobe_xlsx(self._run("target"), self._run("reference"), path)

    def to_html(self, path: str | Path) -> Path:
        """The page and all it shows in one file, for a browser without network or server. Tensors
        are previewed where the runs are at hand or on disk."""
        from syncpoint.page.html_report import write_report
        from syncpoint.page.open_comparison import OpenComparison, ResultInMemory

        source = ResultInMemory(self, Path(path).stem, self.run_references.alive())
        return write_report(OpenComparison(source), Path(path))

    def view(self, port: int | None = None, browser: bool = True) -> ServedComparison:
        """Look at it in the browser; the server ends with `stop()` or with the interpreter."""
        from syncpoint.page.open_comparison import ResultInMemory
        from syncpoint.server.server_thread import view

        name = str(self.target["model"] or "comparison").rpartition("/")[2].partition(":")[0]
        return view(ResultInMemory(self, name, self.run_references.alive()), port, browser)

    def _repr_html_(self) -> str:
        from syncpoint.reports.notebook_report import notebook_html

        return notebook_html(self)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        from syncpoint.reports.verdict_line import verdict_text

        coverage = self.coverage
        return (
            f"<Comparison {verdict_text(self)}: {coverage.compared} of {coverage.target_tensors}"
            f" target and of {coverage.reference_tensors} reference tensors compared>"
        )


class Analysis(AnalysisResult):
    """An analysis as users hold it: what the runs say together, and the ways to show it."""

    @classmethod
    def of(cls, made: AnalysisResult, notes: list[str]) -> Analysis:
        """The public form of an analysis."""
        known = {f.name: getattr(made, f.name) for f in fields(AnalysisResult)}
        return cls(**{**known, "notes": (*notes, *made.notes)})

    @property
    def comparison(self) -> Comparison:
        """The compiled run against the ops of its graph, run one by one."""
        runs = {"target": self.runs.compiled, "reference": self.runs.graph}
        return Comparison.of(self.result, runs)

    @property
    def headline(self) -> str:
        """The verdict in one line, as `--quiet` prints it."""
        from syncpoint.reports.analysis_report import headline

        return headline(self)

    def to_text(self, rows: int = 24) -> str:
        """What `syncpoint analyze` prints; 0 `rows` are all."""
        from syncpoint.reports.analysis_report import as_text

        return as_text(self, rows)

    def to_json(self, path: str | Path) -> Path:
        """The form for other programs; strict JSON."""
        from syncpoint.reports.analysis_report import write_analysis_json

        return write_analysis_json(self, Path(path))

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"<Analysis {self.headline}>"


class Bisection(Bisected):
    """A bisection as users hold it: what was found, and the way to show it."""

    @classmethod
    def of(cls, bisected: Bisected) -> Bisection:
        """The public form of a bisection."""
        return cls(**{f.name: getattr(bisected, f.name) for f in fields(Bisected)})

    def to_json(self, path: str | Path) -> Path:
        """The form for other programs; strict JSON."""
        from syncpoint.reports.bisection_report import write_json

        return write_json(self, Path(path))

    def __str__(self) -> str:
        from syncpoint.reports.bisection_report import as_text

        return as_text(self)
