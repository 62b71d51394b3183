"""Comparisons on disk, made of arrays, for tests of what the server says about them."""

import base64
from pathlib import Path

import numpy as np

from syncpoint.comparison.engine import Options, compare
from syncpoint.comparison.storage.comparison_folder import save
from syncpoint.matching.matchers.map_file import MapFile
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.run.model import Edge, Frame, Kept, Op, OpKey, RunInfo
from syncpoint.run.reader import Run
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter


def write_run(path, tensors, record=Kept.VALUES, source=None, label=""):
    """`tensors` are (name, array, more for the recorder); each op reads the one before it."""
    with RunWriter(path, RunInfo(model=label or path.stem)) as writer:
        if source is not None:
            writer.source(source)
        recorder = Recorder(writer, record=record)
        before = ()
        for at, (name, array, more) in enumerate(tensors):
            frames = (Frame(str(source), at + 1, "forward"),) if source is not None else ()
            op = Op(OpKey(name), name, before, module=f"net.{name}", source=frames)
            key = recorder.op(op)
            before = (Edge(key),)
            if array is not None:
                recorder.tensor(key, np.asarray(array), **more)
    return path


def compared(folder: Path, target, reference, map_file=None, record=Kept.VALUES, **more):
    """An open comparison of two lists of tensors; `record` is what is kept of the target's."""
    both = {}
    kept = {"target": record, "reference": Kept.VALUES}
    for side, tensors in (("target", target), ("reference", reference)):
        made = [(name, array, rest[0] if rest else {}) for name, array, *rest in tensors]
        both[side] = Run.open(write_run(folder / f"{side}.run", made, kept[side], **more))
    options = Options(map_file=MapFile.of(map_file)) if map_file else Options()
    result = compare(both["target"], both["reference"], options)
    return OpenComparison(save(result, folder / "pair.cmp"))


def row_of(opened, name):
    return opened.table.frame["target_op"].to_list().index(name)


def array_of(text, kind, rows, columns):
    return np.frombuffer(base64.b64decode(text), kind).reshape(rows, columns)
