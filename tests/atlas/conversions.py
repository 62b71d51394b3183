"""Conversions of an architecture: one function for each kind, and a cache of exported files.

A conversion gives what `syncpoint compare` takes: the target, the reference and their options.
Exported files are kept between runs by the versions of the packages and the text of this folder.
"""

import copy
import hashlib
import importlib.metadata
import inspect
import io
import logging
import os
import tempfile
import warnings
from collections.abc import Callable
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from atlas.architecture import make

PACKAGES = (
    "torch",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "transformers",
    "diffusers",
    "monai",
    "x-transformers",
    "pytorchcv",
    "coreai-torch",
)
"""Packages whose versions decide what an exported file holds."""
_DEFAULT_CACHE = Path(tempfile.gettempdir()) / "syncpoint-atlas"
CACHE = Path(os.environ.get("SYNCPOINT_ATLAS_CACHE", _DEFAULT_CACHE))


@dataclass
class Pair:
    """What is compared: the arguments of `compare` for one architecture and kind."""

    target: object
    reference: object
    inputs: tuple
    target_options: dict = field(default_factory=dict)
    reference_options: dict = field(default_factory=dict)


class NotConvertible(Exception):
    """The converter refuses this architecture; the reason is the message."""


Convert = Callable[[str], Pair]
KINDS: dict[str, Convert] = {}


def kind(name):
    """Declare a kind of conversion."""

    def declare(convert):
        KINDS[name] = convert
        return convert

    return declare


@contextmanager
def silence():
    """Exporters talk on every channel; none of it belongs into a table."""
    logging.disable(logging.CRITICAL)
    try:
        sink = io.StringIO()
        with warnings.catch_warnings(), redirect_stdout(sink), redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _cache_key(name, sources):
    """A digest of what decides the content of a file: versions of packages, how the architecture is
    built, and the code that writes the file."""
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(package)
    folder = Path(__file__).parent
    paths = [*sorted(folder.glob("families/*.py")), folder / "architecture.py"]
    digest = hashlib.sha256("\n".join([name, *versions]).encode())
    for path in paths:
        digest.update(path.read_bytes())
    for source in sources:
        digest.update(inspect.getsource(source).encode())
    return digest.hexdigest()[:24]


def cached_file(name, form, write, uses=()):
    """The file of an architecture in a form; `write(path)` makes it if it is not there yet. `uses`
    are functions and classes of this module that `write` calls."""
    path = CACHE / f"{name.replace('/', '-')}-{form}-{_cache_key(name, (write, *uses))}.onnx"
    refusal = path.with_suffix(".refused")
    if refusal.is_file():
        raise NotConvertible(refusal.read_text())
    if not path.is_file():
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        try:
            with silence():
                write(partial)
        except Exception as error:
            first_line = str(error).strip().partition("\n")[0][:200]
            refusal.write_text(f"{type(error).__name__}: {first_line}")
            partial.unlink(missing_ok=True)
            raise NotConvertible(refusal.read_text()) from error
        partial.replace(path)
    return path


def exported_file(name):
    """The architecture as the dynamo exporter writes it."""

    def write(path):
        module, inputs = make(name)
        program = torch.onnx.export(module, inputs, dynamo=True, verbose=False)
        program.save(str(path), external_data=False)

    return cached_file(name, "dynamo", write)


def legacy_file(name):
    """The architecture as the TorchScript exporter writes it."""

    def write(path):
        module, inputs = make(name)
        torch.onnx.export(module, inputs, str(path), dynamo=False, opset_version=17)

    return cached_file(name, "legacy", write)


def _onnx_pair(name, path, **options):
    module, inputs = make(name)
    return Pair(str(path), module, inputs, target_options=options)


@kind("onnx")
def as_executed(name):
    """The dynamo export, as ONNX Runtime executes it."""
    return _onnx_pair(name, exported_file(name))


@kind("onnx-unfused")
def unfused(name):
    """The dynamo export, op by op as in the file."""
    return _onnx_pair(name, exported_file(name), fusion="unfused")


@kind("onnx-legacy")
def legacy(name):
    """The export of the TorchScript exporter."""
    return _onnx_pair(name, legacy_file(name))


@kind("onnx-f16")
def half_precision(name):
    """The dynamo export, converted to float16."""

    def write(path):
        import onnx
        from onnxruntime.transformers.float16 import convert_float_to_float16

        proto = onnx.load(exported_file(name))
        onnx.save(convert_float_to_float16(proto, keep_io_types=True), path)

    return _onnx_pair(name, cached_file(name, "f16", write, [exported_file]))


@kind("onnx-int8-dynamic")
def dynamic_int8(name):
    """The dynamo export with 8-bit weights, and activations quantized as they come."""

    def write(path):
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        # The quantizer infers shapes again, and refuses those of the exporter that it infers with
        # other names of dimensions.
        proto = onnx.load(exported_file(name))
        del proto.graph.value_info[:]
        quantize_dynamic(proto, path, weight_type=QuantType.QUInt8)

    return _onnx_pair(name, cached_file(name, "int8-dynamic", write, [exported_file]))


_CALIBRATION_NOISE = 0.05
"""Noise of calibration samples, as a share of the standard deviation of the input."""


class _Samples:
    """Calibration data: the inputs, and three copies of them with a little noise. Their ranges are
    those of the input that is compared, so that a range that is too wide or too narrow is not a
    fault of this conversion."""

    def __init__(self, names, inputs):
        generator = torch.Generator().manual_seed(7)
        self._waiting = []
        for number in range(4):
            sample = []
            for value in inputs:
                if number and value.is_floating_point():
                    noise = torch.randn(value.shape, generator=generator)
                    value = value + _CALIBRATION_NOISE * value.std(correction=0) * noise
                sample.append(value.numpy())
            self._waiting.append(dict(zip(names, sample, strict=True)))

    def get_next(self):
        return self._waiting.pop(0) if self._waiting else None

    def __iter__(self):
        return iter(self._waiting)


@kind("onnx-int8-static")
def static_int8(name):
    """The dynamo export, calibrated and quantized to 8 bits as QDQ."""

    def write(path):
        import onnx
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

        source = exported_file(name)
        names = [entry.name for entry in onnx.load(source).graph.input]
        quantize_static(
            source,
            path,
            _Samples(names, make(name)[1]),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
            op_types_to_quantize=["Conv", "Gemm", "MatMul"],
        )

    return _onnx_pair(name, cached_file(name, "int8-static", write, [exported_file, _Samples]))


@kind("onnx-saved")
def saved_by_runtime(name):
    """The dynamo export, optimized and saved by ONNX Runtime: fused ops, no metadata."""

    def write(path):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.graph_optimization_level = level
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(
            exported_file(name), options, providers=["CPUExecutionProvider"]
        )

    return _onnx_pair(name, cached_file(name, "saved", write, [exported_file]))


@kind("onnx-stripped")
def stripped(name):
    """The dynamo export without metadata, doc strings and types of values."""

    def write(path):
        import onnx

        proto = onnx.load(exported_file(name))
        for node in proto.graph.node:
            del node.metadata_props[:]
            node.doc_string = ""
        del proto.graph.value_info[:]
        del proto.graph.metadata_props[:]
        del proto.metadata_props[:]
        onnx.save(proto, path)

    return _onnx_pair(name, cached_file(name, "stripped", write, [exported_file]))


@kind("inductor")
def compiled(name):
    """The module as torch.compile executes it."""
    module, inputs = make(name)
    return Pair(module, copy.deepcopy(module), inputs, {"runtime": "inductor"})


def _in_type(name, dtype):
    module, inputs = make(name)
    return Pair(module, copy.deepcopy(module), inputs, {"dtype": dtype})


@kind("bf16")
def bfloat16(name):
    """The module in bfloat16."""
    return _in_type(name, "bf16")


@kind("f16")
def float16(name):
    """The module in float16."""
    return _in_type(name, "f16")


@kind("coreai")
def coreai(name):
    """The module as Apple's converter writes it."""
    import coreai_torch

    from models.coreai_files import quiet, save

    module, inputs = make(name)
    folder = Path(tempfile.mkdtemp(prefix="atlas-"))
    try:
        with quiet(), silence():
            program = torch.export.export(module, inputs, strict=False)
            program = program.run_decompositions(coreai_torch.get_decomp_table())
            path = save(folder / "target.aimodel", {"main": program})
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0][:200]
        raise NotConvertible(f"{type(error).__name__}: {first_line}") from error
    return Pair(str(path), module, inputs)


@kind("ports")
def port(name):
    """The module as a program of its own in ATen's core ops: other ops, no modules, no lines."""
    module, inputs = make(name)
    try:
        with silence():
            program = torch.export.export(module, inputs, strict=False).run_decompositions()
            target = program.module()
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0][:200]
        raise NotConvertible(f"{type(error).__name__}: {first_line}") from error
    for node in target.graph.nodes:
        for key in ("stack_trace", "nn_module_stack", "from_node", "source_fn_stack"):
            node.meta.pop(key, None)
    return Pair(target, module, inputs)


_PRESETS = {"onnx-f16": "f16", "onnx-int8-static": "int8", "onnx-int8-dynamic": "int8"}
"""The limits by which the outputs of a kind are judged; f32 for the others."""


def plain_error(pair, kind):
    """The largest difference of the outputs of an ONNX file and its module, relative to the largest
    value, without any of Syncpoint's runs and pairs; and whether one of them is beyond the limits
    of its precision for moderate. For other kinds nan and False."""
    if not str(pair.target).endswith(".onnx"):
        return float("nan"), False
    import onnxruntime
    from torch.utils import _pytree as pytree

    from syncpoint.metrics import Operand, measure
    from syncpoint.metrics import Pair as MeasuredPair
    from syncpoint.metrics.limits import PRESETS

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        str(pair.target), options, providers=["CPUExecutionProvider"]
    )
    names = [entry.name for entry in session.get_inputs()]
    feeds = {n: v.numpy() for n, v in zip(names, pair.inputs, strict=False)}
    with torch.no_grad():
        expected = pytree.tree_leaves(pair.reference(*pair.inputs))
    worst, is_off = 0.0, False
    limits = PRESETS[_PRESETS.get(kind, "f32")]
    for output, leaf in zip(session.run(None, feeds), expected, strict=False):
        true = leaf.double().numpy()
        size = np.abs(true).max() if true.size else 0.0
        if size > 0:
            given = output.astype("f8")
            worst = max(worst, float(np.abs(given - true).max() / size))
            pair = MeasuredPair(Operand(given, "f64"), Operand(true, "f64"))
            numbers = measure([pair])[0].as_dict()
            is_off |= numbers["psnr"] < limits.psnr[1] or numbers["sqnr"] < limits.sqnr[1]
    return worst, is_off
