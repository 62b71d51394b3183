"""Runs of ONNX Runtime for tests of matching: a torch model exported, all its tensors recorded.

Two forms: `unfused` runs the exported file with optimisation off; `optimised` lets ONNX Runtime
write the graph it would execute, and records the tensors of that one.
"""

import ast
import logging
import re
import tempfile
import warnings
from pathlib import Path

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)
import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper

from syncpoint.run.dtypes import from_numpy
from syncpoint.run.model import Edge, Frame, Op, OpKey, Role, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import in_memory

_FRAME = re.compile(r'File "(?P<file>.+?)", line (?P<line>\d+), in (?P<function>\S+)')
_TORCH = str(Path(torch.__file__).parent)


def export(model, args, **options):
    """The exported model; torch tells of its troubles on every channel there is."""
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.onnx.export(
                model, tuple(args), dynamo=True, verbose=False, **options
            ).model_proto
    finally:
        logging.disable(logging.NOTSET)


def run(model, args, fusion="unfused", level="ORT_ENABLE_EXTENDED"):
    """What ONNX Runtime computes, tensor by tensor."""
    known = {name: node for node in model.graph.node for name in node.output}
    executed = optimised(model, level) if fusion == "optimised" else model
    names = [n for node in executed.graph.node for n in node.output if n]
    shown = onnx.ModelProto()
    shown.CopyFrom(executed)
    finals = {o.name for o in shown.graph.output}
    for name in names:
        if name not in finals:
            shown.graph.output.append(helper.make_empty_tensor_value_info(name))
    session = _session(shown, "ORT_DISABLE_ALL")
    feeds = {i.name: a.detach().numpy() for i, a in zip(executed.graph.input, args, strict=True)}
    values = dict(zip([o.name for o in shown.graph.output], session.run(None, feeds), strict=True))
    return _as_run(executed, known, feeds, values, fusion)


def optimised(model, level="ORT_ENABLE_EXTENDED"):
    """The graph that ONNX Runtime makes of a model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        _session(model, level, str(path))
        return onnx.load(str(path))


def _session(model, level, save=""):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if save:
        options.optimized_model_filepath = save
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _as_run(model, known, feeds, values, fusion):
    edges = {name: Edge(OpKey(name), role=Role.MODEL_INPUT) for name in feeds}
    tensors = [_tensor(TensorKey(OpKey(n), Role.MODEL_INPUT), a, n) for n, a in feeds.items()]
    for initializer in model.graph.initializer:
        edges[initializer.name] = Edge(OpKey(initializer.name), role=Role.PARAMETER)
        key = TensorKey(OpKey(initializer.name), Role.PARAMETER)
        tensors.append(_tensor(key, numpy_helper.to_array(initializer)))
    ops = []
    for number, node in enumerate(model.graph.node):
        key = OpKey(node.name or f"{node.op_type}_{number}")
        reads = tuple(edges[name] for name in node.input if name in edges)
        ops.append(_op(key, node, reads, known))
        for index, name in enumerate(node.output):
            if name:
                edges[name] = Edge(key, index)
                tensors.append(_tensor(TensorKey(key, index=index), values[name]))
    for position, output in enumerate(model.graph.output):
        edge = edges[output.name]
        made = TensorKey(edge.op, index=edge.index)
        key = TensorKey(edge.op, Role.MODEL_OUTPUT, position)
        tensors.append(_tensor(key, values[output.name], output.name, str(made)))
    info = RunInfo(model="test.onnx", runtime="onnxruntime", fusion=fusion)
    return in_memory(info, ops, tensors)


def _tensor(key, array, name="", alias=""):
    array = np.asarray(array)
    kind = from_numpy(array.dtype).name
    made = Tensor(key, kind, array.shape, nbytes=array.nbytes, name=name, alias_of=alias)
    return made, array


def _op(key, node, reads, known):
    """Metadata do not survive optimisation: they are those of the node that first had the
    name of this node's output; casts that ONNX Runtime puts in keep it behind a prefix."""
    names = [name.removeprefix("InsertedPrecisionFreeCast_") for name in node.output if name]
    source = next((known[name] for name in names if name in known), None)
    said = {p.key: p.value for p in source.metadata_props} if source is not None else {}
    scopes = ast.literal_eval(said.get("pkg.torch.onnx.name_scopes", "[]"))
    classes = ast.literal_eval(said.get("pkg.torch.onnx.class_hierarchy", "[]"))
    frames = [
        Frame(m["file"], int(m["line"]), m["function"])
        for m in _FRAME.finditer(said.get("pkg.torch.onnx.stack_trace", ""))
        if not m["file"].startswith(_TORCH)
    ]
    origins = names
    if scopes:
        origins.append(scopes[-1])
    attributes = {a.name: str(helper.get_attribute_value(a))[:80] for a in node.attribute}
    return Op(
        key,
        node.op_type if not node.domain else f"{node.domain}.{node.op_type}",
        reads,
        attributes,
        scopes[-2] if len(scopes) > 1 else "",
        classes[-2].rpartition(".")[2] if len(classes) > 1 else "",
        tuple(frames),
        tuple(dict.fromkeys(origins)),
    )
