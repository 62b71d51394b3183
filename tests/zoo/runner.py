"""`python -m zoo.runner --seed N`: every kind of fault once, the clean pairs, and a table."""

import argparse
import fnmatch
import json
import multiprocessing
import os
import sys
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from zoo import clean
from zoo.entry import CLASSES, RUNTIMES, entries
from zoo.judging import Outcome, judged
from zoo.tables import markdown, rates

GOAL = 0.95


def run_entry(name, seed, runtime=""):
    """One case, whatever becomes of it."""
    from zoo.draw import draw

    entry = entries()[name]
    outcome = Outcome(name, seed, entry.classes, counts_op=entry.op == "site")
    try:
        drawn = draw(entry, seed, runtime)
        work = drawn.work
        outcome.runtime, outcome.dtype, outcome.fusion = work.runtime, work.dtype, work.fusion
        outcome.net, outcome.planted = work.net.words, work.said
        outcome.sites = tuple(sorted(work.sites))
        outcome.unfit, outcome.too_small = drawn.unfit, drawn.too_small
        return judged(outcome, work)
    except Exception as error:
        return _failed(outcome, error)


def run_clean(name, seed):
    """One clean pair."""
    outcome = Outcome(name, seed, ())
    try:
        work, outcome.too_coarse = clean.make(name, seed)
        outcome.runtime, outcome.dtype, outcome.fusion = work.runtime, work.dtype, work.fusion
        outcome.net = work.net.words
        return judged(outcome, work)
    except Exception as error:
        return _failed(outcome, error)


def _failed(outcome, error):
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.lineno}"
    said = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
    outcome.error = outcome.said = f"{said} ({where})"
    return outcome


def _worker():
    """One thread each: the workers share the cores. What the runtimes say is not for the table."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)


def all_jobs(seeds, pattern="*", runtime="", with_clean=True, only=""):
    """What fits, in the order of the entries: functions with what they are given. `only` is a class
    that must be among the right answers; clean pairs have none."""
    jobs = []
    for seed in seeds:
        for name, entry in entries().items():
            fits = fnmatch.fnmatch(name, pattern) and (not only or only in entry.classes)
            if fits and (not runtime or runtime in entry.runtimes):
                jobs.append((run_entry, (name, seed, runtime)))
        if with_clean and not only:
            jobs += [
                (run_clean, (name, seed))
                for name, pair in clean.PAIRS.items()
                if not runtime or pair.runtime == runtime
            ]
    return jobs


def run_all(jobs, workers=2, tell=None):
    """Their outcomes, made in processes of their own."""
    context = multiprocessing.get_context("spawn")
    found = {}
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_worker) as pool:
        waiting = {pool.submit(job, *given): at for at, (job, given) in enumerate(jobs)}
        for done in as_completed(waiting):
            at = waiting[done]
            found[at] = done.result()
            if tell:
                tell(len(found), len(jobs), found[at])
    return [found[at] for at in sorted(found)]


def _tell(done, total, outcome):
    mark = "ok  " if outcome.right_class and outcome.right_op else "MISS"
    print(
        f"[{done}/{total}] {mark} {outcome.entry} {outcome.seconds}s", file=sys.stderr, flush=True
    )


def main(argv=None):
    """Exit code 1 below the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--entries", default="*", help="pattern of names")
    parser.add_argument("--class", dest="only", choices=CLASSES, help="entries of one class")
    parser.add_argument("--runtime", default="", choices=("", *RUNTIMES))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--no-clean", action="store_true")
    parser.add_argument("-o", "--out", type=Path, default=Path("zoo-report"))
    said = parser.parse_args(argv)
    seeds = said.seed or [0]
    with_clean = not said.no_clean and said.entries == "*"
    if said.entries.startswith("clean"):
        said.entries, with_clean = "", True
    jobs = all_jobs(seeds, said.entries, said.runtime, with_clean, said.only)
    outcomes = run_all(jobs, said.workers, _tell)
    text = markdown(outcomes, seeds)
    said.out.mkdir(parents=True, exist_ok=True)
    stem = "seed-" + "-".join(str(seed) for seed in seeds)
    (said.out / f"{stem}.md").write_text(text, encoding="utf-8")
    body = {"seeds": seeds, "rates": rates(outcomes), "cases": [o.as_dict() for o in outcomes]}
    (said.out / f"{stem}.json").write_text(json.dumps(body, indent=1), encoding="utf-8")
    print(text)
    good = all(rate is None or rate >= GOAL for rate in rates(outcomes).values())
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
