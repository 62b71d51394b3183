"""The one function of this room: what is asked for, checked, and handed to whoever does it."""

from __future__ import annotations

from pathlib import Path

from syncpoint.errors import InputError
from syncpoint.reducing.folder_watch import Progress, Watch
from syncpoint.reducing.result import Reduced
from syncpoint.run.model import Kept

TO = ("statistics", "digest", "min-max")


def reduce(
    source: Path,
    to: str,
    out: Path | None = None,
    *,
    watch: bool = False,
    delete: bool = False,
    until_idle: float | None = None,
    progress: Progress | None = None,
) -> Reduced:
    """Reduce a run or a dump; see the public function."""
    if to not in TO:
        raise InputError(f"one of {', '.join(TO)} to reduce to", repr(to))
    if until_idle is not None and not watch:
        raise InputError("watch with until_idle", "until_idle alone", "add --watch")
    if until_idle is not None and until_idle <= 0:
        raise InputError("a number of seconds above 0 for until_idle", f"{until_idle}")
    given, source = source, source.resolve()  # a link may lead to the dump; inside none is followed
    folder = source.parent if source.is_file() else source
    if out is not None and out.resolve().is_relative_to(folder) and not source.is_file():
        raise InputError(f"a folder outside of {given}", f"{out}", "choose another with -o")
    watching = Watch(on=watch, until_idle=until_idle)
    if to == "min-max":
        from syncpoint.reducing.to_min_max import MinMax

        return MinMax(
            path=source, out=out or folder, delete=delete, watch=watching, progress=progress
        ).run()
    from syncpoint.reducing.to_statistics import Reduction

    beside = source.parent if given.name in ("", "..") else given.parent
    target = out or beside / f"{_stem(source)}.{to}.run"
    return Reduction(
        path=source, out=target, to=Kept(to), delete=delete, watch=watching, progress=progress
    ).run()


def _stem(source: Path) -> str:
    name = source.name
    for suffix in (".run", ".npz", ".npy", ".safetensors", ".aimodelintermediates"):
        name = name.removesuffix(suffix)
    return name
