"""Captures of PyTorch models, for tests of what they hold."""

from pathlib import Path

from syncpoint.run.model import WHOLE, Edge, Part, Role, RunInfo, TensorKey
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.open_run import open_run
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.inputs.read_inputs import as_inputs
from syncpoint.runtimes.options import parse_options
from syncpoint.runtimes.protocol import Region
from syncpoint.runtimes.registry import load_runtime


def opened(model, **options):
    torch_runtime = load_runtime("torch")
    return torch_runtime.open(model, parse_options(torch_runtime, options))


def captured(folder: Path, model, inputs, session=None, **options):
    session = session or opened(model, **options)
    with RunWriter(folder, RunInfo(), overwrite=True) as writer:
        session.run(as_inputs(inputs), Recorder(writer))
    return open_run(folder), session


def tensor_at(run, edge: Edge, part: Part = WHOLE):
    part = WHOLE if edge.role is Role.PARAMETER else part
    return run.tensor(TensorKey(edge.op, edge.role, edge.index, part))


def alone(op, run, part: Part = WHOLE) -> Region:
    """The region of a single op."""
    mine = (t.key for t in run.tensors if t.key.op == op.key and t.key.part == part)
    outputs = [key for key in mine if key.role is Role.OUTPUT]
    inputs = dict.fromkeys(e for e in op.inputs if e.role is not Role.PARAMETER)
    return Region((op.key,), tuple(inputs), tuple(Edge(k.op, k.index) for k in outputs), part)


def assert_evaluates_to_its_bits(session, op, run, part: Part = WHOLE) -> Region:
    """The op alone, evaluated on its recorded inputs, gives its recorded outputs."""
    region = alone(op, run, part)
    if region.outputs:
        inputs = {edge: run.values(tensor_at(run, edge, part)) for edge in region.inputs}
        values = session.evaluate(region, inputs, "f32")
        for edge, value in zip(region.outputs, values, strict=True):
            recorded = run.values(tensor_at(run, edge, part))
            assert value.dtype == recorded.dtype, (part, op.key, op.type)
            assert value.tobytes() == recorded.tobytes(), (part, op.key, op.type)
    return region
