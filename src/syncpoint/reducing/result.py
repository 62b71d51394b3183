"""What reducing did: counted while it goes on, shown when it is over."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from syncpoint.errors import EXIT_CLOSE, EXIT_FAILED, EXIT_INTERRUPTED
from syncpoint.foreign_text import make_visible

_SHOWN = 3
_LONGEST = 160


@dataclass(kw_only=True)
class Reduced:
    """What was reduced, what was left, and why."""

    source: Path
    out: Path
    """The run that was made; of min-max the folder with the reduced files."""
    to: str
    files: int = 0
    """Files of which the tensors are there in the reduced form."""
    tensors: int = 0
    before: int = 0
    """Bytes of those files."""
    after: int = 0
    """Bytes of what stands for them."""
    deleted: int = 0
    """Files that were removed, now or by an earlier call."""
    left: dict[str, str] = field(default_factory=dict)
    """Files that are not reduced, and why: unfinished, damaged, changed under our hands."""
    passed: dict[str, str] = field(default_factory=dict)
    """Files in which there is nothing to reduce, and why."""
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False

    def exit_code(self) -> int:
        """0 where all there was is reduced; 2 where a file had to be left."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        return EXIT_FAILED if self.left else EXIT_CLOSE

    def lines(self) -> list[str]:
        """In words: the result, then the remarks."""
        share = f" ({100 * self.after / self.before:.3g} %)" if self.before else ""
        text = (
            f"{self.out}: {counted(self.tensors, 'tensor')} of {counted(self.files, 'file')} as"
            f" {self.to}, {self.before:,} bytes -> {self.after:,}{share}"
        )
        if self.deleted:
            text += f", {counted(self.deleted, 'file')} deleted"
        found = [text]
        for title, those in (("left", self.left), ("passed over", self.passed)):
            if those:
                shown = "; ".join(f"{f}: {_short(why)}" for f, why in list(those.items())[:_SHOWN])
                more = "; ..." if len(those) > _SHOWN else ""
                found.append(f"{title}: {counted(len(those), 'file')} ({shown}{more})")
        return found + [f"note: {note}" for note in self.notes]

    def __str__(self) -> str:
        return "\n".join(map(make_visible, self.lines()))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def counted(number: int, what: str) -> str:
    """A number of things in words."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
