"""msProbe's dumps as one of the formats: a folder with dump.json, that file, or a tree of them."""

from __future__ import annotations

from pathlib import Path

from syncpoint.ascend.msprobe import dump_files as files
from syncpoint.ascend.msprobe.build_run import Reading
from syncpoint.dumps.protocol import API
from syncpoint.errors import FormatError, InputError
from syncpoint.run.model import Kept, RunInfo
from syncpoint.run.reader import Run


class MsprobeDump:
    """What PrecisionDebugger wrote for PyTorch; docs/msprobe.md has how it is read."""

    API = API
    name = "msprobe"
    priority = 700

    def sniff(self, path: Path) -> bool:
        """A file that begins as dump.json does, alone or where the tool puts it."""
        try:
            places = files.find(path)[0]
        except OSError:
            return False
        except FormatError:  # a tree that mixes ranks and processes is of this format still
            return any(files.is_dump(found) for found in path.glob("step*/*/dump.json"))
        return any(files.is_dump(place.path) for place in places[:1])

    def open(self, path: Path) -> Run:
        """All dumps at the path, each a part of the run; values are not read."""
        places, notes = files.find(path)
        if not places:
            raise InputError(f"a dump.json in {path}", "none", "check the path")
        root = path if path.is_dir() else path.parent
        reading = Reading(root=root)
        tasks, levels = set(), set()
        for place in places:
            dump = files.read(place)
            tasks.add(dump.task)
            levels.add(dump.level)
            reading.add(dump)
        kept = {tensor.kept for tensor in reading.tensors.values()}
        record = next((k for k in (Kept.VALUES, Kept.STATISTICS, Kept.DIGEST) if k in kept), None)
        info = RunInfo(
            model=path.name if path.is_dir() else path.parent.name,
            runtime="torch",
            options={
                "format": self.name,
                "task": "+".join(sorted(tasks)),
                "level": "+".join(sorted(levels)),
            },
            record=record or Kept.STATISTICS,
            notes=(*notes, *reading.notes()),
        )
        return reading.run(info, path)
