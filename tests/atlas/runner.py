"""`python -m atlas.runner --kind onnx`: compare every architecture with a conversion of itself.

Prints a line for each pair and writes a JSON report; docs/atlas.md is made from these reports. Held
back architectures, of both sets, are left out unless `--held-out` asks for them.
"""

import argparse
import fnmatch
import json
import multiprocessing
import os
import sys
import time
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass
class Outcome:
    """What a comparison of one clean pair said."""

    name: str
    kind: str
    verdict: str = ""
    exit_code: int = -1
    pairs: int = 0
    coverage: float = 0.0
    possible: int = 0
    found: int = 0
    missed: tuple = ()
    large: tuple = ()
    moderate: tuple = ()
    findings: tuple = ()
    plain_error: float = float("nan")
    outputs_off: bool = False
    """Whether the outputs of the conversion alone, without Syncpoint, are off by more than the
    precision of its weights and activations allows: then calling them off is right."""
    seconds: float = 0.0
    refused: str = ""
    """Why the converter or the runtime does not take the architecture."""
    error: str = ""

    @property
    def is_right(self):
        """Whether nothing was called wrong: no large verdict, no finding above note. Of a
        conversion whose outputs are off, the verdict and findings about its precision are right."""
        findings = [text for text in self.findings if not self._is_true(text)]
        has_verdict = self.verdict in ("close", "moderate") or self.outputs_off
        return not self.error and has_verdict and not findings

    def _is_true(self, finding):
        return self.outputs_off and finding.split()[2].startswith("precision/")


def compare_pair(name, kind, with_reach=True):
    """Compare one architecture with its conversion, and return the outcome."""
    import torch

    from atlas.conversions import KINDS, NotConvertible, plain_error, silence

    outcome = Outcome(name, kind)
    torch.set_num_threads(1)
    torch._dynamo.reset()
    try:
        if kind == "analyze":
            return _analyze(outcome)
        pair = KINDS[kind](name)
        with silence():
            outcome.plain_error, outcome.outputs_off = plain_error(pair, kind)
    except NotConvertible as error:
        outcome.refused = str(error)
        return outcome
    except Exception as error:
        outcome.refused = f"before the comparison: {_describe(error)}"
        return outcome
    try:
        with silence():
            _compare(outcome, pair, with_reach)
    except Exception as error:
        if kind in ("bf16", "f16") and "do not fit" in str(error):
            outcome.refused = f"does not run in this type: {_describe(error)}"
        else:
            outcome.error = _describe(error)
    return outcome


def _compare(outcome, pair, with_reach):
    import syncpoint as sp
    from atlas.exhaustive import reach

    began = time.monotonic()
    comparison = sp.compare(
        pair.target,
        pair.reference,
        inputs=pair.inputs,
        target_options=pair.target_options,
        reference_options=pair.reference_options,
        keep_runs=True,
    )
    outcome.seconds = round(time.monotonic() - began, 1)
    describe_result(outcome, comparison)
    if with_reach:
        runs = comparison.run_references.alive()
        # Coarser precisions are equal within their own noise only.
        tolerance = 1e-3 if outcome.plain_error < 1e-4 else 2e-2
        reached = reach(comparison, runs["target"], runs["reference"], tolerance)
        outcome.possible, outcome.found = reached.possible, reached.found
        outcome.missed = reached.missed[:12]


def _analyze(outcome):
    import syncpoint as sp
    from atlas.architecture import make
    from atlas.conversions import silence

    module, inputs = make(outcome.name)
    try:
        with silence():
            began = time.monotonic()
            analysis = sp.analyze(module, inputs)
            outcome.seconds = round(time.monotonic() - began, 1)
            describe_result(outcome, analysis.comparison)
    except Exception as error:
        outcome.error = _describe(error)
    return outcome


def describe_result(outcome, comparison):
    """Fill in what a comparison says."""
    from syncpoint.comparison.findings import Level
    from syncpoint.metrics.verdict import Verdict

    outcome.verdict = str(comparison.verdict)
    outcome.exit_code = comparison.exit_code()
    outcome.pairs = len(comparison.rows)
    outcome.coverage = round(float(comparison.coverage.target), 3)
    for verdict in (Verdict.LARGE, Verdict.MODERATE):
        rows = [row for row in comparison.rows if row.verdict is verdict]
        setattr(outcome, verdict.value, tuple(_describe_row(row) for row in rows[:8]))
    outcome.findings = tuple(
        f"{f.level} {f.confidence:.2f} {f.cause}/{f.kind}: {f.title}"
        for f in comparison.findings
        if f.level is not Level.NOTE
    )


def _describe_row(row):
    psnr = (row.numbers or {}).get("psnr")
    text = f"{row.target.label} ({row.target.type}) = {row.reference.label} ({row.reference.type})"
    return f"{text}, psnr {psnr}, {row.evidence}, {row.reason}"


def _describe(error):
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
    return f"{text} ({Path(last.filename).name}:{last.lineno})"


def _start_worker():
    warnings.simplefilter("ignore")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def format_line(outcome):
    """One line of the terminal."""
    if outcome.refused:
        return f"--   {outcome.kind:16} {outcome.name:38} not converted: {outcome.refused[:70]}"
    if outcome.error:
        return f"FAIL {outcome.kind:16} {outcome.name:38} {outcome.error[:110]}"
    mark = "ok  " if outcome.is_right else "BAD "
    share = f"{outcome.found}/{outcome.possible}"
    return (
        f"{mark} {outcome.kind:16} {outcome.name:38} {outcome.verdict:9} exit {outcome.exit_code} "
        f"coverage {outcome.coverage:4.0%} reach {share:9} {len(outcome.findings)} findings "
        f"{outcome.seconds}s"
    )


_JOBS_PER_POOL = 40
"""New worker processes after so many jobs: compilers and sessions leave memory behind."""


def _run_jobs(jobs, workers, with_reach):
    """The outcomes, in the order in which they are ready."""
    context = multiprocessing.get_context("spawn")
    for start in range(0, len(jobs), _JOBS_PER_POOL):
        with ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker) as pool:
            batch = jobs[start : start + _JOBS_PER_POOL]
            waiting = [pool.submit(compare_pair, *job, with_reach) for job in batch]
            yield from (done.result() for done in as_completed(waiting))


def main(arguments=None):
    """Exit code 1 if any clean pair is called wrong."""
    from atlas.architecture import architectures

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", action="append", help="kinds of conversion (default: onnx)")
    parser.add_argument("--names", default="*", help="pattern of architectures")
    parser.add_argument("--held-out", action="store_true", help="only those that are set aside")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--no-reach", action="store_true", help="without the exhaustive search")
    parser.add_argument("-o", "--out", type=Path, default=Path("atlas-report"))
    flags = parser.parse_args(arguments)
    names = [
        name
        for name, declared in architectures().items()
        if fnmatch.fnmatch(name, flags.names) and declared.is_held_out is flags.held_out
    ]
    jobs = [(name, kind) for kind in flags.kind or ["onnx"] for name in names]
    flags.out.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for outcome in _run_jobs(jobs, flags.workers, not flags.no_reach):
        outcomes.append(outcome)
        print(format_line(outcome), flush=True)
        listed = sorted((o for o in outcomes if o.kind == outcome.kind), key=lambda o: o.name)
        suffix = "-held-out" if flags.held_out else ""
        path = flags.out / f"{outcome.kind}{suffix}.json"
        path.write_text(json.dumps([asdict(o) for o in listed], indent=1))
    compared = [o for o in outcomes if not o.refused]
    right = sum(o.is_right for o in compared)
    possible, found = sum(o.possible for o in compared), sum(o.found for o in compared)
    print(f"{right} of {len(compared)} right; reach {found}/{possible}")
    return 0 if right == len(compared) else 1


if __name__ == "__main__":
    sys.exit(main())
