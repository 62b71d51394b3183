"""What a comparison holds, read from its files alone: the oracle of what the page shows.

Nothing of the page is used here. Order and counts come from the table on disk, one row after the
other; colours from the rule that judges one metric; values from the runs.
"""

import json
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from syncpoint.comparison.storage.comparison_folder import load
from syncpoint.metrics.judge_values import judge_metric
from syncpoint.metrics.limits import PRESETS
from syncpoint.run.reader import Run

HIGHER = ("psnr", "sqnr", "cosine")
"""Metrics that are better when higher; all others asked for here are errors."""
_OFF = ("moderate", "large")
_RANK = {"none": -1, "close": 0, "moderate": 1, "large": 2}


class Known:
    """One comparison, and the folder its runs were recorded in."""

    def __init__(self, path: Path, runs: dict[str, Path]) -> None:
        self.path = path
        self.rows = pl.read_parquet(path / "syncpoints.parquet").to_dicts()
        self.about = json.loads((path / "comparison.json").read_text())
        self._runs = runs

    # ---- order ---------------------------------------------------------------------------------

    @cached_property
    def execution(self) -> list[int]:
        """Rows as the target computed them: what it was given first, its parameters last."""

        def when(at: int) -> tuple:
            row = self.rows[at]
            role, order = row["target_role"], row["target_order"]
            last = role == "parameter" or order is None or order < 0
            first = role == "model-input"
            return (0 if first else 2 if last else 1, 0 if first or last else order)

        return sorted(
            range(len(self.rows)),
            key=lambda at: (*when(at), self.rows[at]["target_role"] == "model-output", at),
        )

    @cached_property
    def drawn(self) -> list[int]:
        """Those of them that the drift strip has a place for: parameters are not computed."""
        return [at for at in self.execution if self.rows[at]["target_role"] != "parameter"]

    def similarity(self, metric: str) -> list[int]:
        """The least similar first; what has no verdict last."""
        place = {row: at for at, row in enumerate(self.execution)}

        def how_bad(at: int) -> float:
            row, level = self.rows[at], self.level(at, metric)
            if row["mismatched"]:
                return -np.inf
            score = row[metric]
            if score is None and metric in ("psnr", "sqnr"):
                score = row[f"{metric}_bound"]
            if score is None:
                return {"large": -1e300, "moderate": -1e299}.get(level, np.inf)
            return -abs(score - 1) if metric == "cosine" else score if metric in HIGHER else -score

        return sorted(
            range(len(self.rows)),
            key=lambda at: (self.level(at, metric) == "none", how_bad(at), place[at]),
        )

    # ---- colours -------------------------------------------------------------------------------

    def level(self, at: int, metric: str) -> str:
        """How bad a row is by one metric."""
        row = self.rows[at]
        verdict = {"inherited": "moderate", "amplified": "large"}.get(
            row["verdict"], row["verdict"]
        )
        given = row["target_role"] == "model-input" and row["same_input"] is not None
        if verdict == "none" or given or row["basis"] != "values" or not row["count"]:
            return verdict
        own = judge_metric(metric, row, PRESETS[row["preset"]]).value
        made = row["first_non_finite"] or (
            row["verdict"] in _OFF and not row["output"] and row["introduced_verdict"] in _OFF
        )
        return verdict if made and _RANK[own] < _RANK[verdict] else own

    def name(self, at: int, metric: str) -> str:
        """The filter that lets it through: its level, but what is passed on is inherited."""
        level = self.level(at, metric)
        passed = self.rows[at]["verdict"] == "inherited" and not self.rows[at]["first_non_finite"]
        return "inherited" if passed and level in _OFF else level

    def dot(self, at: int, metric: str) -> str:
        """What its mark is called."""
        if self.rows[at]["verdict"] == "amplified":
            return "amplified"
        level = {"none": "no verdict"}.get(self.level(at, metric), self.level(at, metric))
        return f"{level}, inherited" if self.name(at, metric) == "inherited" else level

    # ---- filters -------------------------------------------------------------------------------

    def having(self, text: str) -> list[int]:
        """Rows with these letters in a name or a module of either side."""
        keys = [f"{side}_{what}" for side in ("target", "reference") for what in _NAMES]
        return [
            at
            for at, row in enumerate(self.rows)
            if any(text.lower() in (row[key] or "").lower() for key in keys)
        ]

    def within(self, module: str) -> list[int]:
        """Rows that a module made, or a module inside it."""
        modules = [row["target_module"] or row["reference_module"] for row in self.rows]
        return [at for at, one in enumerate(modules) if f"{one}.".startswith(f"{module}.")]

    def typed(self, kind: str) -> list[int]:
        return [at for at, row in enumerate(self.rows) if row["target_type"] == kind]

    def row(self, op: str, role: str = "output") -> int:
        """The row of a target op."""
        return next(
            at
            for at, row in enumerate(self.rows)
            if row["target_op"] == op and row["target_role"] == role
        )

    # ---- values --------------------------------------------------------------------------------

    @cached_property
    def _ends(self) -> list:
        return load(self.path).rows

    @cached_property
    def runs(self) -> dict[str, Run]:
        return {side: Run.open(path) for side, path in self._runs.items()}

    def values(self, side: str, at: int) -> np.ndarray:
        """A tensor as its run holds it, or the dump that was compared."""
        if self._runs[side].suffix == ".npz":
            with np.load(self._runs[side]) as dump:
                return np.asarray(dump[self.rows[at][f"{side}_op"]], np.float64)
        run, key = self.runs[side], getattr(self._ends[at], side).key
        return np.asarray(run.values(run.tensor(key)), np.float64)


_NAMES = ("op", "name", "module")
