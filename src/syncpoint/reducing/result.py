"""The result of a reduction: which files were reduced or not and why, sizes, exit code and text;
`count_text` (3 files), size of a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from syncpoint.errors import EXIT_CLOSE, EXIT_FAILED, EXIT_INTERRUPTED
from syncpoint.foreign_text import make_visible

_MAX_LISTED_FILES = 3
_MAX_REASON_CHARS = 160


@dataclass(kw_only=True)
class Reduced:
    """Which files were reduced, which were not, and why."""

    source: Path
    out: Path
    """The reduced run; for min-max the folder of the reduced files."""
    to: str
    files: int = 0
    """Files whose tensors are in the reduced form."""
    tensors: int = 0
    before: int = 0
    """Bytes of those files."""
    after: int = 0
    """Bytes of the reduced form."""
    deleted: int = 0
    """Files that were deleted, now or by an earlier call."""
    left: dict[str, str] = field(default_factory=dict)
    """Files that were not reduced, and why: unfinished, damaged, changed while they were read."""
    passed: dict[str, str] = field(default_factory=dict)
    """Files that hold nothing to reduce, and why."""
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False

    def exit_code(self) -> int:
        """0 if every file was reduced, 2 if a file was not."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        return EXIT_FAILED if self.left else EXIT_CLOSE

    def lines(self) -> list[str]:
        """The result as text: one line, then the remarks."""
        share = f" ({100 * self.after / self.before:.3g} %)" if self.before else ""
        text = (
            f"{self.out}: {count_text(self.tensors, 'tensor')} of"
            f" {count_text(self.files, 'file')} as {self.to}, {self.before:,} bytes ->"
            f" {self.after:,}{share}"
        )
        if self.deleted:
            text += f", {count_text(self.deleted, 'file')} deleted"
        lines = [text]
        for title, reasons in (("not reduced", self.left), ("skipped", self.passed)):
            if reasons:
                listed = list(reasons.items())[:_MAX_LISTED_FILES]
                texts = "; ".join(f"{file}: {_shorten(why)}" for file, why in listed)
                more = "; ..." if len(reasons) > _MAX_LISTED_FILES else ""
                lines.append(f"{title}: {count_text(len(reasons), 'file')} ({texts}{more})")
        return lines + [f"note: {note}" for note in self.notes]

    def __str__(self) -> str:
        return "\n".join(map(make_visible, self.lines()))


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_REASON_CHARS else f"{text[: _MAX_REASON_CHARS - 3]}..."


def count_text(count: int, noun: str) -> str:
    """A count and a noun, such as `3 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def folder_size(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
