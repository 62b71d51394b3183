"""Preview an ONNX file without loading its weights: number of ops, precision, declared inputs."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from math import prod
from pathlib import Path

from syncpoint.errors import FormatError
from syncpoint.run.dtypes import FLOATS
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.onnx.element_types import DTYPE_CODES, DTYPE_NAMES
from syncpoint.runtimes.onnx.inputs import parse_input_spec
from syncpoint.runtimes.protocol import ModelPreview

_MAX_FILE_BYTES = 512 << 20
"""Larger files are not parsed for a preview."""
_FLOAT_CODES = frozenset(DTYPE_CODES[name] for name in FLOATS)


def preview_file(path: Path) -> ModelPreview | None:
    """Preview the file; None where onnx is not installed or the file is too large."""
    if find_spec("onnx") is None or path.stat().st_size > _MAX_FILE_BYTES:
        return None
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise FormatError(
            f"{path.name} is not an ONNX model: {one_line(error)}",
            cure="check that the path names the right file",
        ) from error
    graph = model.graph
    weights: Counter[int] = Counter()
    for weight in graph.initializer:
        if weight.data_type in _FLOAT_CODES:
            weights[weight.data_type] += prod(weight.dims)
    weight_names = {weight.name for weight in graph.initializer}
    declared = [value for value in graph.input if value.name not in weight_names]
    codes = (value.type.tensor_type.elem_type for value in declared)
    elements_by_code = weights or Counter(code for code in codes if code in _FLOAT_CODES)
    precision = DTYPE_NAMES[elements_by_code.most_common(1)[0][0]] if elements_by_code else ""
    if not len(graph.node):
        raise FormatError(
            f"{path.name} is an ONNX model without ops",
            cure="check that the path names the right file",
        )
    return ModelPreview(
        len(graph.node), precision, tuple(parse_input_spec(value) for value in declared)
    )
