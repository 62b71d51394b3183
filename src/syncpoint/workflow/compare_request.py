"""What to compare and how: the arguments of `compare` before anything is opened or run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.errors import InputError
from syncpoint.version import __version__
from syncpoint.workflow.capture import describe_model

if TYPE_CHECKING:
    from syncpoint.comparison.judge_rows import Choice
    from syncpoint.matching.matchers.map_file import MapFile
    from syncpoint.runtimes.inputs.shapes import InputShape


@dataclass(frozen=True, kw_only=True)
class ComparisonRequest:
    """What to compare: models, runs and dumps as the caller names them."""

    target: object
    reference: object
    inputs: object
    target_options: Mapping[str, Any]
    reference_options: Mapping[str, Any]
    shapes: Mapping[str, InputShape | tuple[int, ...]]
    reference_model: object
    through: object = None

    def as_names(self) -> dict[str, Any]:
        """Every part by its name, and for files also when they were written: two requests with
        the same names ask for the same comparison."""
        from syncpoint.comparison.storage.run_identity import file_stamp

        names: dict[str, Any] = {}
        for field in fields(self):
            part = field.name.replace("_", " ")
            value = getattr(self, field.name)
            if value is None or isinstance(value, Mapping):
                names[part] = value and {str(k): str(v) for k, v in value.items()}
                continue
            names[part] = str(value) if isinstance(value, str | Path) else describe_model(value)
            file = _file_of(value)
            if file is not None:
                names[f"file of the {part}"] = file_stamp(file)
        return names

    def can_reuse_run(self, role: str) -> bool:
        """Whether names alone say that a run of this side, captured earlier, is still right."""
        by_name = isinstance(getattr(self, role), str | Path)
        return by_name and isinstance(self.inputs, str | Path | None)


@dataclass(frozen=True, kw_only=True)
class ComparisonSettings:
    """How to compare, and where to keep what comes out."""

    choice: Choice
    map_file: MapFile | None = None
    introduced: str = "local"
    confirm: bool = True
    diagnose: bool = True
    min_coverage: float | None = None
    threads: int = 0
    out: Path | None = None
    """The folder of the comparison."""
    store: Path | None = None
    """The folder of the runs that are captured."""
    resume: bool = False

    def __post_init__(self) -> None:
        if self.introduced not in ("local", "replay", "off"):
            raise InputError("introduced to be local, replay or off", repr(self.introduced))
        if self.min_coverage is not None and not 0 <= self.min_coverage <= 1:
            raise InputError("min_coverage from 0 to 1", repr(self.min_coverage))
        if self.resume and self.out is None:
            raise InputError("the folder of a comparison to resume", "none", "name it with -o")

    def as_names(self) -> dict[str, Any]:
        """The settings that the result depends on."""
        limits = self.choice
        return {
            "limits": limits
            if isinstance(limits, str)
            else {f.name: getattr(limits, f.name) for f in fields(limits)},
            "map": self.map_file and self.map_file.as_dict(),
            "introduced": self.introduced,
            "confirm": self.confirm,
            "version": __version__,
        }


def choose_limits(preset: str, limits: str | Path | None = None) -> Choice:
    """The limits to judge by: a preset's name, or a file of one's own."""
    from syncpoint.comparison.judge_rows import AUTO
    from syncpoint.metrics.limits import load_limits
    from syncpoint.metrics.limits import preset as find_preset

    if limits is not None:
        if preset != AUTO:
            raise InputError("a preset or limits of your own", "both", "leave one out")
        return load_limits(Path(limits))
    return AUTO if preset == AUTO else find_preset(preset)


def read_map(
    source: str | Path | Mapping[str, Any] | None, ignore: tuple[str, ...]
) -> MapFile | None:
    """The map of pairs from its file or from its content, with more names to ignore."""
    from syncpoint.matching.matchers.map_file import MapFile

    if source is None and not ignore:
        return None
    if source is None:
        map_file = MapFile()
    elif isinstance(source, str | Path):
        map_file = MapFile.load(Path(source))
    else:
        map_file = MapFile.of(dict(source))
    return map_file.with_ignored(*ignore)


def _file_of(source: object) -> Path | None:
    """The file behind a path or behind `file.py:attribute`; of a Core AI asset its program."""
    for text in (
        (str(source), str(source).rpartition(":")[0]) if isinstance(source, str | Path) else ()
    ):
        for file in (Path(text), Path(text) / "main.mlirb"):
            if text and file.is_file():
                return file
    return None
