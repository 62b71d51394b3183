"""From a program to what a runtime executes: compiled, converted, or recorded as a dump."""

import io
import tempfile
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import torch
from torch.utils import _pytree as pytree

import syncpoint as sp
from zoo.programs import as_module, cast

_CAN = {
    "torch": ("f32", "f16", "bf16"),
    "inductor": ("f32", "f16", "bf16"),
    "onnxruntime": ("f32", "f16", "int8"),
    "coreai": ("f32", "f16"),
    "dump": ("f32", "f16", "bf16"),
}


def can(runtime, dtype):
    """Whether a runtime executes this element type."""
    return dtype in _CAN[runtime]


def finish(work):
    """Sets what `compare` is given as the target."""
    if work.target is not None:
        return
    typed = {} if work.dtype in ("f32", "int8") else {"dtype": work.dtype}
    if work.runtime == "torch":
        work.target, work.options = work.program, {**typed, **work.options}
    elif work.runtime == "inductor":
        work.target = as_module(work.program)
        work.options = {"runtime": "inductor", **typed, **work.options}
    elif work.runtime == "onnxruntime":
        work.target, work.options = work.proto, {"fusion": work.fusion, **work.options}
    elif work.runtime == "coreai":
        work.target = coreai_of(work)
    else:
        work.target = work.run
    if _given(work) and work.runtime != "dump":
        # Two pipelines, recorded apart: only so can the two sides be given different things.
        work.target = recorded_of(work.target, work.target_inputs, work.dtype, work.options)
        work.options = {}


def _given(work):
    pairs = zip(work.net.inputs, work.target_inputs, strict=True)
    return any(a.shape != b.shape or not torch.equal(a, b) for a, b in pairs)


def recorded_of(target, inputs, dtype, options):
    """A run of the target."""
    return sp.capture(target, cast(inputs, dtype), **options)


def recorded(work):
    """A run of the program as a dump has it: nothing is left of the model that made it."""
    typed = {} if work.dtype == "f32" else {"dtype": work.dtype}
    return recorded_of(work.program, work.target_inputs, work.dtype, typed)


def onnx_of(work, per_channel=True):
    """The program as an ONNX graph; int8 by the quantizer of ONNX Runtime."""
    from models.onnx_files import quiet

    with quiet(), _silent():
        proto = torch.onnx.export(work.program, (), dynamo=True, verbose=False).model_proto
    return quantized(proto, work, per_channel) if work.dtype == "int8" else proto


def quantized(proto, work, per_channel=True):
    """The graph with quantize and dequantize around its products."""
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    from models.onnx_files import quiet

    with tempfile.TemporaryDirectory() as folder, quiet(), _silent():
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        onnx.save(proto, before)
        quantize_static(
            before,
            after,
            _Samples(proto, work),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=per_channel,
            reduce_range=True,
            op_types_to_quantize=["Conv", "Gemm", "MatMul"],
        )
        return onnx.load(after)


class _Samples:
    """Calibrates with what the net will be given, and some like it."""

    def __init__(self, proto, work):
        names = [i.name for i in proto.graph.input]
        feeds = [feeds_of(names, work.net.inputs)]
        generator = torch.Generator().manual_seed(7)
        for _ in range(3):
            like = [
                v[torch.randperm(len(v), generator=generator)]
                + (0.1 * torch.randn(v.shape, generator=generator) if v.is_floating_point() else 0)
                for v in work.net.inputs
            ]
            feeds.append(feeds_of(names, like))
        self._left = iter(feeds)

    def get_next(self):
        return next(self._left, None)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._left)


def feeds_of(names, inputs):
    """Inputs by the names that a graph has for them."""
    return {n: np.asarray(v) for n, v in zip(names, inputs, strict=True)}


def outputs_of(work, rewritten=False):
    """What ONNX Runtime makes of the graph, as it is or as it rewrites it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not rewritten:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    made = onnxruntime.InferenceSession(
        work.proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [i.name for i in made.get_inputs()]
    given = cast(work.net.inputs, "f16" if work.dtype == "f16" else "f32")
    return made.run(None, feeds_of(names, given))


def arrives(work):
    """Whether what the graph gives is nearer to the hurt program than to the net: exporters drop
    some faults, and runtimes guard against others: in float16 this one computes many ops in
    float32, and a number that is too small in between never is."""
    rewritten = work.fusion == "as-executed"
    made = [torch.as_tensor(v).double() for v in outputs_of(work, rewritten)]
    if work.change == float("inf") and all(torch.isfinite(m).all() for m in made):
        return False  # whether it breaks inside cannot be told from its outputs
    with torch.no_grad():
        given = cast(work.net.inputs, "f32" if work.dtype == "int8" else work.dtype)
        hurt = pytree.tree_leaves(work.program.module()(*given))
        whole = pytree.tree_leaves(work.net.model(*work.net.inputs))
    return any(
        _distance(m, h.double()) <= _distance(m, w.double())
        for m, h, w in zip(made, hurt, whole, strict=True)
    )


def _distance(one, other):
    """Of what is finite; what is finite on one side alone is far away."""
    if one.shape != other.shape:
        return float("inf")
    finite = torch.isfinite(one)
    if not torch.equal(finite, torch.isfinite(other)):
        return float("inf")
    return (one - other)[finite].norm().item()


def coreai_of(work):
    """The program as a Core AI asset."""
    import coreai_torch

    from models.coreai_files import quiet, save

    folder = Path(tempfile.mkdtemp(prefix="zoo-"))
    with quiet(), _silent():
        made = work.program.run_decompositions(coreai_torch.get_decomp_table())
        return str(save(folder / "target.aimodel", {"main": made}))


@contextmanager
def _silent():
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield
