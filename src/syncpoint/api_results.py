"""The Python API's results Comparison, Analysis, Bisection: save, judge under other limits, write
CSV, JSON, text, HTML, msProbe's tables; show in browser or notebook."""

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

    The references are weak, because a comparison must not keep the recordings of captured models on
    disk. With `keep` the runs live as long as the comparison.
    """

    def __init__(self, runs: Mapping[str, Run] | None = None, *, keep: bool = False) -> None:
        self._references = {side: ref(run) for side, run in (runs or {}).items()}
        self._kept = dict(runs or {}) if keep else {}

    def alive(self) -> dict[str, Run]:
        """The runs that still exist, by side."""
        runs = {side: reference() for side, reference in self._references.items()}
        return {side: run for side, run in runs.items() if run is not None}


@dataclass(frozen=True, kw_only=True)
class Comparison(Result):
    """The public form of a comparison: the result, and methods to show and save it."""

    run_references: RunReferences = field(default=RunReferences(), repr=False, compare=False)
    """The runs that are open already. A copy or a pickle has none."""

    @classmethod
    def of(
        cls, result: Result, runs: Mapping[str, Run] | None = None, *, keep_runs: bool = False
    ) -> Comparison:
        """The public form of a result.

        `runs`, by side, are used as long as the caller keeps them; with `keep_runs` the comparison
        keeps them.
        """
        facts = {f.name: getattr(result, f.name) for f in fields(Result)}
        return cls(**facts, run_references=RunReferences(runs, keep=keep_runs))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "run_references"}

    def judged_by(self, preset: str = "auto", limits: str | Path | None = None) -> Comparison:
        """The same measurements, judged by another preset or by your own limits."""
        return self.rejudged(choose_limits(preset, limits))

    def _run(self, side: str) -> Run:
        """The run of one side, opened from its path if necessary."""
        from syncpoint.workflow.capture import open_run

        run = self.run_references.alive().get(side)
        if run is not None:
            return run
        path = getattr(self, side)["path"]
        if not path:
            raise InputError(
                f"the run of the {side} was not kept",
                cure="compare again with `out` or `keep_runs`",
            )
        return open_run(path)

    @property
    def headline(self) -> str:
        """The verdict line: the last line of `--quiet`."""
        from syncpoint.reports.verdict_line import headline

        return headline(self)

    def save(self, path: str | Path, overwrite: bool = False) -> Path:
        """Save the comparison as a `.cmp` folder."""
        from syncpoint.comparison.storage.comparison_folder import save

        return save(self, Path(path), overwrite)

    def save_diagnosis(self, path: str | Path) -> bool:
        """Save the diagnosis into a saved comparison.

        False if the saved diagnosis stays, because it used more models or this one failed.
        """
        from syncpoint.comparison.storage.comparison_folder import save_diagnosis

        return save_diagnosis(self, Path(path))

    def to_csv(self, path: str | Path) -> Path:
        """Write CSV, one line per sync point."""
        from syncpoint.reports.csv_report import write_csv

        return write_csv(self, Path(path))

    def to_json(self, path: str | Path) -> Path:
        """Write strict JSON for other programs."""
        from syncpoint.reports.json_report import write_json

        return write_json(self, Path(path))

    def to_text(self, metric: str = "psnr", sort: str = "similarity", rows: int = 24) -> str:
        """The text that `syncpoint compare` prints.

        `sort` is similarity (worst first) or operation (execution order); 0 `rows` means all.
        """
        from syncpoint.reports.terminal_report import as_text

        return as_text(self, metric=metric, sort=sort, rows=rows)

    def quiet_text(self) -> str:
        """The text of `--quiet`: different inputs, unreadable tensors, unverified files, and the
        verdict line."""
        from syncpoint.reports.terminal_report import quiet_text

        return quiet_text(self)

    def diagnosis_text(self) -> str:
        """The text of `syncpoint diagnose`: the symptom, the causes and the next steps."""
        from syncpoint.reports.diagnosis_report import as_text

        return as_text(self)

    def to_msprobe_csv(self, path: str | Path) -> Path:
        """Write the table of `msprobe compare`; both sides must be msProbe dumps."""
        from syncpoint.ascend.msprobe.write_table import write_msprobe_csv

        return write_msprobe_csv(self._run("target"), self._run("reference"), path)

    def to_msprobe_xlsx(self, path: str | Path) -> Path:
        """Write the table of `msprobe compare` as a coloured sheet (extra `xlsx`)."""
        from syncpoint.ascend.msprobe.write_table import write_msprobe_xlsx

        return write_msprobe_xlsx(self._run("target"), self._run("reference"), path)

    def to_html(self, path: str | Path) -> Path:
        """Write the page and its data as one HTML file, which needs no network or server.

        It has previews of tensors whose runs are open or on disk.
        """
        from syncpoint.page.html_report import write_report
        from syncpoint.page.open_comparison import OpenComparison, ResultInMemory

        source = ResultInMemory(self, Path(path).stem, self.run_references.alive())
        return write_report(OpenComparison(source), Path(path))

    def view(self, port: int | None = None, browser: bool = True) -> ServedComparison:
        """Open it in the browser; the server ends with `stop()` or with the interpreter."""
        from syncpoint.page.open_comparison import ResultInMemory
        from syncpoint.server.server_thread import serve_in_thread

        name = str(self.target["model"] or "comparison").rpartition("/")[2].partition(":")[0]
        return serve_in_thread(
            ResultInMemory(self, name, self.run_references.alive()), port, browser
        )

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
    """The public form of an analysis: the data, and methods to show and save it."""

    @classmethod
    def of(cls, analysis: AnalysisResult, notes: list[str]) -> Analysis:
        """The public form of an analysis."""
        facts = {f.name: getattr(analysis, f.name) for f in fields(AnalysisResult)}
        return cls(**{**facts, "notes": (*notes, *analysis.notes)})

    @property
    def comparison(self) -> Comparison:
        """The comparison of the compiled run with its graph, run op by op."""
        runs = {"target": self.runs.compiled, "reference": self.runs.graph}
        return Comparison.of(self.result, runs)

    @property
    def headline(self) -> str:
        """The verdict in one line, as `--quiet` prints it."""
        from syncpoint.reports.analysis_report import headline

        return headline(self)

    def to_text(self, rows: int = 24) -> str:
        """The text that `syncpoint analyze` prints; 0 `rows` means all."""
        from syncpoint.reports.analysis_report import as_text

        return as_text(self, rows)

    def to_json(self, path: str | Path) -> Path:
        """Write strict JSON for other programs."""
        from syncpoint.reports.analysis_report import write_analysis_json

        return write_analysis_json(self, Path(path))

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"<Analysis {self.headline}>"


class Bisection(Bisected):
    """The public form of a bisection: the data, and methods to show and save it."""

    @classmethod
    def of(cls, bisected: Bisected) -> Bisection:
        """The public form of a bisection."""
        return cls(**{f.name: getattr(bisected, f.name) for f in fields(Bisected)})

    def to_json(self, path: str | Path) -> Path:
        """Write strict JSON for other programs."""
        from syncpoint.reports.bisection_report import write_json

        return write_json(self, Path(path))

    def __str__(self) -> str:
        from syncpoint.reports.bisection_report import as_text

        return as_text(self)
