"""The arguments of `compare` before they are resolved: what to compare, settings, limits (preset or
file), map file, whether to reuse a stored run."""

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
    """What to compare: models, runs and dumps as the caller named them."""

    target: object
    reference: object
    inputs: object
    target_options: Mapping[str, Any]
    reference_options: Mapping[str, Any]
    shapes: Mapping[str, InputShape | tuple[int, ...]]
    reference_model: object
    through: object = None
    target_inputs: object = None
    """Inputs of the target alone; None for those of the reference."""

    def as_names(self) -> dict[str, Any]:
        """All parts by name, for files also their modification time: two requests with the same
        names are requests for the same comparison."""
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
        """Whether a run of this side that was captured earlier can be reused, judged by names."""
        by_name = isinstance(getattr(self, role), str | Path)
        inputs = (self.inputs, self.target_inputs)
        return by_name and all(isinstance(named, str | Path | None) for named in inputs)


@dataclass(frozen=True, kw_only=True)
class ComparisonSettings:
    """How to compare, and where to save the results."""

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
            raise InputError(f"introduced must be local, replay or off, not {self.introduced!r}")
        if self.min_coverage is not None and not 0 <= self.min_coverage <= 1:
            raise InputError(f"min_coverage must be from 0 to 1, not {self.min_coverage!r}")
        if self.resume and self.out is None:
            raise InputError("resume needs the folder of the comparison", cure="give it with -o")

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
    """Choose the limits for verdicts: those of a preset, or of a file."""
    from syncpoint.comparison.judge_rows import AUTO
    from syncpoint.metrics.limits import load_limits
    from syncpoint.metrics.limits import preset as find_preset

    if limits is not None:
        if preset != AUTO:
            raise InputError(
                f"there are both a preset ({preset}) and a limits file", cure="leave one out"
            )
        return load_limits(Path(limits))
    return AUTO if preset == AUTO else find_preset(preset)


def read_map(
    source: str | Path | Mapping[str, Any] | None, ignore: tuple[str, ...]
) -> MapFile | None:
    """Read the map of pairs from a file or from its content, and add names to ignore."""
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
    """The file of a path or of `file.py:attribute`; for a Core AI asset its program."""
    for text in (
        (str(source), str(source).rpartition(":")[0]) if isinstance(source, str | Path) else ()
    ):
        for file in (Path(text), Path(text) / "main.mlirb"):
            if text and file.is_file():
                return file
    return None
