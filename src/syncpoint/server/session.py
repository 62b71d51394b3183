"""A session: the folders it may look into, the comparisons it makes, and those of the past."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, field
from pathlib import Path

from syncpoint.metrics import CATALOGUE
from syncpoint.metrics.limits import PRESETS
from syncpoint.page.overview import CHOOSABLE
from syncpoint.server.checking import Checks
from syncpoint.server.files import Folders
from syncpoint.server.jobs import Job, Jobs
from syncpoint.server.library import Library
from syncpoint.server.past import PastList
from syncpoint.server.plan import Plan, said_precision, warnings
from syncpoint.server.session_schema import Command, MetricChoice, SessionInfo, SessionSpec


@dataclass
class Session:
    """What the routes of a session work on."""

    folders: Folders
    out: Path
    library: Library
    target: str = ""
    reference: str = ""

    key: str = field(default_factory=lambda: secrets.token_hex(4))
    """Tells this server from one that had the same address before it."""
    ending: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.jobs = Jobs(self.out, self.library.add)
        self.past = PastList(self.folders, self.out)
        self.checks = Checks(self.folders)

    def info(self) -> SessionInfo:
        """What the form needs before anything is chosen."""
        return SessionInfo(
            target=self.target,
            reference=self.reference,
            folders=[self.folders.text_of(root) for root in self.folders.roots],
            out=self.folders.text_of(self.out),
            metrics=[MetricChoice(id=name, title=CATALOGUE[name].title) for name in CHOOSABLE],
            presets=["auto", *PRESETS],
        )

    def command(self, spec: SessionSpec) -> Command:
        """The same comparison for the shell, and what looks wrong about it."""
        plan = Plan.of(spec, self.folders)
        sides = [said_precision(self.folders, side) for side in (spec.target, spec.reference)]
        out = self.folders.text_of(self.jobs.free(plan.name))
        return Command(command=plan.command(out), warnings=warnings(sides[0], sides[1]))

    def compare(self, spec: SessionSpec) -> Job:
        """Ask for a comparison."""
        plan = Plan.of(spec, self.folders)
        return self.jobs.start(plan, lambda out: plan.command(self.folders.text_of(Path(out))))

    def close(self) -> None:
        """Let go of the pages that listen, and end what runs."""
        self.ending.set()
        self.checks.close()
        self.jobs.close()


def open_session(
    folders: list[Path], out: Path, target: str = "", reference: str = ""
) -> tuple[Session, Library]:
    """A session over some folders, and its library of comparisons."""
    out = out.resolve()
    looked_into = Folders(folders, out)
    library = Library(folders=list(dict.fromkeys([*looked_into.roots, out])))
    for path in (target, reference):
        if path:
            looked_into.allowed(path)
    return Session(looked_into, out, library, target, reference), library
