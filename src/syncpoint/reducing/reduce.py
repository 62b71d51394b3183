"""The function `reduce`: check the arguments, then reduce to statistics, digests or min-max."""

from __future__ import annotations

from pathlib import Path

from syncpoint.errors import InputError
from syncpoint.reducing.folder_watch import FolderWatch, Progress
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
        raise InputError(f"cannot reduce to {to!r}", cure=f"choose one of {', '.join(TO)}")
    if until_idle is not None and not watch:
        raise InputError("until_idle applies only with watch", cure="add --watch")
    if until_idle is not None and until_idle <= 0:
        raise InputError(f"until_idle must be above 0 seconds, not {until_idle}")
    # The path itself may be a link to the dump; links inside the dump are not followed.
    path = source.resolve()
    folder = path.parent if path.is_file() else path
    if out is not None and out.resolve().is_relative_to(folder) and not path.is_file():
        raise InputError(
            f"the output {out} is inside {source}", cure="choose a folder outside of it with -o"
        )
    folder_watch = FolderWatch(enabled=watch, until_idle=until_idle)
    if to == "min-max":
        from syncpoint.reducing.to_min_max import MinMaxReduction

        return MinMaxReduction(
            path=path, out=out or folder, delete=delete, watch=folder_watch, progress=progress
        ).run()
    from syncpoint.reducing.to_statistics import Reduction

    out_parent = path.parent if source.name in ("", "..") else source.parent
    return Reduction(
        path=path,
        out=out or out_parent / f"{_stem(path)}.{to}.run",
        to=Kept(to),
        delete=delete,
        watch=folder_watch,
        progress=progress,
    ).run()


def _stem(path: Path) -> str:
    name = path.name
    for suffix in (".run", ".npz", ".npy", ".safetensors", ".aimodelintermediates"):
        name = name.removesuffix(suffix)
    return name
