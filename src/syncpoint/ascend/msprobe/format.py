"""The dump format class `msprobe`: recognise and open a dump.json, its folder, or a tree of
them."""

from __future__ import annotations

from pathlib import Path

from syncpoint.ascend.msprobe import dump_files as files
from syncpoint.ascend.msprobe.build_run import MsprobeRunBuilder
from syncpoint.dumps.protocol import API
from syncpoint.errors import FormatError, InputError
from syncpoint.run.model import Kept, RunInfo
from syncpoint.run.reader import Run


class MsprobeDump:
    """Dumps of PrecisionDebugger for PyTorch (docs/msprobe.md)."""

    API = API
    name = "msprobe"
    priority = 700

    def sniff(self, path: Path) -> bool:
        """Whether the path is a dump.json, or holds one where msProbe writes it."""
        try:
            places = files.find_dumps(path)[0]
        except OSError:
            return False
        except FormatError:  # a tree that mixes ranks and processes
            return any(files.is_dump(file) for file in path.glob("step*/*/dump.json"))
        return any(files.is_dump(place.path) for place in places[:1])

    def open(self, path: Path) -> Run:
        """Open all dumps at the path, each as a part of the run; values are not read."""
        places, notes = files.find_dumps(path)
        if not places:
            raise InputError(
                f"{path} holds no dump.json", cure="give the path of the folder that holds it"
            )
        root = path if path.is_dir() else path.parent
        builder = MsprobeRunBuilder(root=root)
        tasks, levels = set(), set()
        for place in places:
            dump = files.read_dump(place)
            tasks.add(dump.task)
            levels.add(dump.level)
            builder.add(dump)
        record_modes = {tensor.kept for tensor in builder.tensors.values()}
        record = next(
            (k for k in (Kept.VALUES, Kept.STATISTICS, Kept.DIGEST) if k in record_modes), None
        )
        info = RunInfo(
            model=path.name if path.is_dir() else path.parent.name,
            runtime="torch",
            options={
                "format": self.name,
                "task": "+".join(sorted(tasks)),
                "level": "+".join(sorted(levels)),
            },
            record=record or Kept.STATISTICS,
            notes=(*notes, *builder.notes()),
        )
        return builder.run(info, path)
